"""Error and speedup, side by side, with intervals (Sieve, Figs. 3 and 6)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from assay_report.figures import parts
from assay_report.figures.figure import Figure, made, without_data
from assay_report.figures.text import hint, labels, number, shortened
from assay_report.figures.theme import GRID, PAPER, QUIET
from assay_report.model.scores import Row, SummaryEntry
from assay_report.texts import cell_names, method_names
from assay_sampling.documents.selection import IntervalEntry

MOST_LINES = 40
_PANEL_PX = 250.0
_LINE_PX, _MARK_PX, _SMALL_MARK_PX = 14, 12, 8
_MANY_MARKS = 80


@dataclass(frozen=True)
class Scored:
    """A point: its line and series, what it scored, and the error that its interval allows."""

    line: str
    series: str
    error_percent: float | None
    speedup: float | None
    allowed_percent: float | None
    hint: str


def of_summary(entries: Sequence[SummaryEntry], mark: str) -> Figure:
    """Every workload on every GPU, by the first method that gave numbers."""
    gpus = cell_names(entries)
    scores = [
        Scored(entry.workload, gpu, entry.error_percent, entry.speedup, None,
               _hint_text(f"{entry.workload} on {gpu}, {entry.method}", entry))
        for entry, gpu in zip(entries, gpus, strict=True)
    ]  # fmt: skip
    return paired("overview", f"Error and speedup by workload and GPU{mark}", scores, "GPU")


def of_cells(rows: Sequence[Row], mark: str, most: int) -> Iterable[Figure]:
    """A figure per GPU and condition: every workload by every method; the first ``most`` of them."""
    cells, methods = cell_names(rows), method_names(rows)
    for cell in list(dict.fromkeys(cells))[:most]:
        scores = [
            scored(row, row.workload, method, f"{row.workload}, {method}")
            for row, name, method in zip(rows, cells, methods, strict=True)
            if name == cell
        ]
        title = f"Error and speedup by workload and method on {cell}{mark}"
        yield paired(f"methods-{cell}", title, scores, "method")


def of_workload(rows: Sequence[Row], workload: str, mark: str) -> Figure:
    """One workload: every GPU by every method."""
    scores = [
        scored(row, cell, method, f"{cell}, {method}")
        for row, cell, method in zip(rows, cell_names(rows), method_names(rows), strict=True)
    ]
    title = f"Error and speedup by GPU and method: {shortened(workload)}{mark}"
    return paired(f"{workload}-error", title, scores, "method", workload=workload)


def scored(row: Row, line: str, series: str, what: str) -> Scored:
    """The point of a row of the report."""
    cost = row.cost
    allowed = None
    if cost is not None and cost.total is not None and cost.projected is not None:
        allowed = allowed_percent(row.interval, cost.total, cost.projected)
    return Scored(line, series, row.error_percent, row.speedup, allowed, _hint_text(what, row, allowed))


def allowed_percent(interval: IntervalEntry | None, total: float, projected: float) -> float | None:
    """The absolute error at the end of the interval on the side of the truth, in percent of ``total``.

    The error is at most this exactly where the interval holds the total.
    """
    if interval is None or total <= 0:
        return None
    reach = interval.high - projected if total >= projected else projected - interval.low
    return 100.0 * max(reach, 0.0) / total


def _hint_text(what: str, entry: Row | SummaryEntry, allowed: float | None = None) -> str:
    if entry.error_percent is None:
        return f"{what}: {entry.status}. {entry.reason}"
    text = f"{what}: error {entry.error_percent:.4g} %, speedup {number(entry.speedup or 0)}"
    if allowed is None:
        return text
    return f"{text}; the interval allows {allowed:.3g} %: {_verdict(entry.error_percent, allowed)}"


def _verdict(error: float, allowed: float) -> str:
    return "held" if error <= allowed * (1 + 1e-9) else "missed"


def paired(
    name: str,
    title: str,
    scores: Sequence[Scored],
    series_title: str,
    *,
    workload: str | None = None,
    with_speedup: bool = True,
) -> Figure:
    """Error on the left, speedup on the right, both logarithmic; a line per name, a mark per series."""
    drawn = [each for each in scores if _positive(each.speedup) or _is_finite(each.error_percent)]
    if not drawn:
        why = "No method has a score here." if scores else "There are no scores."
        return without_data(name, title, why, workload=workload)
    shown_lines = _dearest(scores, MOST_LINES)
    points = [each for each in drawn if each.line in shown_lines]
    line_labels = labels(shown_lines)
    series_labels = labels(list(dict.fromkeys(each.series for each in scores)))
    errors = [each.error_percent for each in points if each.error_percent is not None]
    allowed = [each.allowed_percent for each in points if each.allowed_percent is not None]
    error_domain = parts.error_domain(errors, allowed)
    speedup_domain = parts.log_domain(each.speedup for each in points if each.speedup is not None)
    rows = [
        _row(each, line_labels, series_labels, error_domain[0]) for each in scores if each.line in line_labels
    ]
    shown = list(line_labels.values())
    names = list(series_labels.values())
    places = _places(shown, names)
    view = {
        "data": parts.data(rows),
        "hconcat": [
            _error_panel(places, names, series_title, error_domain, bool(allowed)),
            *([_speedup_panel(places, names, series_title, speedup_domain)] if with_speedup else []),
        ],
        "resolve": {"scale": {"color": "shared", "shape": "shared"}},
    }
    return made(
        name,
        title,
        _caption(scores, points, len(shown_lines), error_domain[0]),
        view,
        workload=workload,
        described="; ".join(each.hint for each in points[:60]),
    )


def _dearest(scores: Sequence[Scored], most: int) -> list[str]:
    """The lines with the largest errors, in their order; those without one come last."""
    largest: dict[str, float] = {}
    for each in scores:
        error = -1.0 if each.error_percent is None else each.error_percent
        largest[each.line] = max(largest.get(each.line, -1.0), error)
    return parts.largest(largest, largest.__getitem__, most)


def _row(each: Scored, lines: dict[str, str], series: dict[str, str], floor: float) -> dict[str, Any]:
    """Exact values, and beside them where a log axis can show them."""
    error, allowed = each.error_percent, each.allowed_percent
    return {
        "line": lines[each.line],
        "series": series[each.series],
        "error_percent": error,
        "error_drawn": _at_least(error, floor),
        "allowed_percent": allowed,
        "allowed_drawn": _at_least(allowed, floor),
        "floor": floor,
        "speedup": each.speedup if _positive(each.speedup) else None,
        "hint": hint(each.hint),
    }


def _mark_px(shown: list[str], names: list[str]) -> int:
    """Marks stand closer where there are many."""
    return _MARK_PX if len(shown) * len(names) <= _MANY_MARKS else _SMALL_MARK_PX


def _places(shown: list[str], names: list[str]) -> dict[str, Any]:
    return {
        "shown": shown,
        "y": parts.names_axis("line", shown, grid=True),
        "yOffset": parts.offset("series", names),
        "height": len(shown) * (_LINE_PX + _mark_px(shown, names) * len(names)),
    }


def _error_panel(
    places: dict[str, Any], names: list[str], series_title: str, domain: tuple[float, float], intervals: bool
) -> parts.View:
    across = parts.log_axis("error_drawn", "error / %", domain)
    place = {"y": places["y"], "yOffset": places["yOffset"]}
    floor = parts.log_axis("floor", "error / %", domain)
    claimed = parts.layer(
        {"type": "bar", "color": GRID, "height": _mark_px(places["shown"], names) - 3},
        {**place, "x": floor, "x2": {"field": "allowed_drawn"}},
        transform=[{"filter": "isValid(datum.allowed_drawn)"}],
    )
    marks = parts.layer(
        parts.points(),
        {**place, "x": across, **parts.series(names, "series", series_title), **parts.hinted()},
        transform=[{"filter": "isValid(datum.error_drawn)"}],
    )
    absent = parts.layer(
        {"type": "text", "text": "no score", "color": QUIET, "align": "left", "dx": 4, "fontSize": 11},
        {**place, "x": floor, "description": parts.nominal("hint")},
        transform=[{"filter": "!isValid(datum.error_drawn)"}],
    )
    # Behind the letters paper, so that no line of the grid runs through them.
    halo = {**absent, "mark": {**absent["mark"], "color": PAPER, "stroke": PAPER, "strokeWidth": 4}}
    layers = [*([claimed] if intervals else []), marks, halo, absent]
    return {"width": _PANEL_PX, "height": places["height"], "layer": layers}


def _speedup_panel(
    places: dict[str, Any], names: list[str], series_title: str, domain: tuple[float, float]
) -> parts.View:
    up = {**places["y"], "axis": {**places["y"]["axis"], "labels": False}}
    return {
        "width": _PANEL_PX,
        "height": places["height"],
        "transform": [{"filter": "isValid(datum.speedup)"}],
        "mark": parts.points(),
        "encoding": {
            "y": up,
            "yOffset": places["yOffset"],
            "x": parts.log_axis("speedup", "speedup (total / representatives' cost)", domain),
            **parts.series(names, "series", series_title),
            **parts.hinted(),
        },
    }


def _caption(scores: Sequence[Scored], points: Sequence[Scored], shown: int, floor: float) -> str:
    sentences = ["Better: error to the left, speedup to the right; both axes are logarithmic."]
    if any(each.allowed_percent is not None for each in points):
        sentences.append(
            "A grey bar is the error that the interval of the method allows: a mark to its right is an "
            "interval that missed."
        )
    if any(each.error_percent is not None and each.error_percent < floor for each in points):
        sentences.append(f"Errors below {floor:g} % are drawn at {floor:g} %.")
    if few := parts.of_more(shown, len({each.line for each in scores}), "errors"):
        sentences.append(few.strip())
    missing = sum(each.error_percent is None for each in scores)
    if missing:
        sentences.append(f"{missing:,} of {len(scores):,} have no score; the table says why.")
    return " ".join(sentences)


def _at_least(value: float | None, floor: float) -> float | None:
    return None if value is None or not math.isfinite(value) else max(value, floor)


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _positive(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value > 0
