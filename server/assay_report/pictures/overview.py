"""The first picture that readers want: error and speedup of every workload on every GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from assay_report.model.scores import SummaryEntry
from assay_report.pictures.svg import (
    MARKERS,
    Axis,
    element,
    label,
    linear_axis,
    log_axis,
    marker,
    number,
    picture,
    shortened,
    text_width,
)
from assay_report.texts import cell_names

_WIDTH, _RIGHT, _ROW, _BETWEEN = 900.0, 24.0, 26.0, 46.0
_STEP = 11.0
_LONGEST_WORKLOAD, _LONGEST_GPU = 30, 44


def error_and_speedup(title: str, summary: Sequence[SummaryEntry]) -> str:
    """A line per workload, a mark per GPU and condition: error on the left, speedup on the right."""
    workloads = list(dict.fromkeys(str(entry.workload) for entry in summary))
    names = cell_names(summary)
    gpus = list(dict.fromkeys(names))
    parts, top = _legend(gpus)
    left = max([90.0, *(text_width(shortened(w, _LONGEST_WORKLOAD)) + 18 for w in workloads)])
    middle = (left + _WIDTH - _RIGHT) / 2
    row = max(_ROW, 12.0 + _STEP * len(gpus))
    bottom = top + row * len(workloads)
    errors = [entry.error_percent for entry in summary if entry.error_percent is not None]
    speedups = [entry.speedup for entry in summary if entry.speedup is not None and entry.speedup > 0]
    panels: list[tuple[str, str, Axis, list[float], Callable[[SummaryEntry], float | None]]] = [
        ("error / %", "error",
         *linear_axis(max(errors, default=1.0), left, middle - _BETWEEN / 2), lambda e: e.error_percent),
        ("speedup (total / representatives' cost)", "speedup",
         *log_axis(speedups or [1.0], middle + _BETWEEN / 2, _WIDTH - _RIGHT),
         lambda e: e.speedup or None),
    ]  # fmt: skip
    for position, workload in enumerate(workloads):
        y = top + row * (position + 0.5)
        parts.append(label(shortened(workload, _LONGEST_WORKLOAD), 8, y + 4))
        for _, _, axis, _, _ in panels:
            parts.append(element("line", class_="gridline", x1=axis.start, x2=axis.stop, y1=y, y2=y))
    for unit, what, axis, ticks, value_of in panels:
        parts += _ticks(axis, ticks, top, bottom, unit)
        for entry, name in zip(summary, names, strict=True):
            value = value_of(entry)
            if value is None:
                continue
            # Marks of equal values must not hide each other.
            y = top + row * (workloads.index(str(entry.workload)) + 0.5)
            y += _STEP * (gpus.index(name) - (len(gpus) - 1) / 2)
            hint = f"{entry.workload} on {name}, {entry.method}: {what} {value:.4g}"
            parts.append(_mark(gpus.index(name), axis.at(value), y, hint))
    missing = sum(entry.error_percent is None for entry in summary)
    if missing:
        text = f"{missing:,} of {len(summary):,} have no score; the table says why."
        parts.append(label(text, 8, bottom + 58, class_="quiet"))
    described = "; ".join(_said(entry, name) for entry, name in zip(summary, names, strict=True))
    return picture(title, _WIDTH, bottom + (68 if missing else 48), parts, described)


def _said(entry: SummaryEntry, name: str) -> str:
    where = f"{entry.workload} on {name}, {entry.method}"
    if entry.error_percent is None:
        return f"{where}: no score"
    return f"{where}: error {entry.error_percent:.3g} %, speedup {number(entry.speedup or 0)}"


def _mark(position: int, x: float, y: float, hint: str) -> str:
    # Shape and colour change together: neither alone identifies the name.
    return marker(position, MARKERS[position % len(MARKERS)], x, y, hint)


def _legend(names: Sequence[str]) -> tuple[list[str], float]:
    """Marks with their names, in as many lines as they need, and the y at which the panels begin."""
    parts: list[str] = []
    x, y = 8.0, 44.0
    for position, name in enumerate(names):
        shown = shortened(name, _LONGEST_GPU)
        if x > 8.0 and x + text_width(shown) + 20 > _WIDTH - _RIGHT:
            x, y = 8.0, y + 20.0
        parts.append(_mark(position, x + 6, y - 4, name))
        parts.append(label(shown, x + 18, y))
        x += text_width(shown) + 42
    return parts, y + 18.0


def _ticks(axis: Axis, ticks: Sequence[float], top: float, bottom: float, unit: str) -> list[str]:
    parts = []
    for tick in ticks:
        x = axis.at(tick)
        style = "axis" if tick == ticks[0] else "gridline"
        parts.append(element("line", class_=style, x1=x, x2=x, y1=top, y2=bottom))
        parts.append(label(number(tick), x, bottom + 16, text_anchor="middle"))
    middle = (axis.start + axis.stop) / 2
    parts.append(label(unit, middle, bottom + 36, text_anchor="middle", class_="quiet"))
    return parts
