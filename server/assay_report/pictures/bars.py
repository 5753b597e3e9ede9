"""Pictures of a report: error by GPU and method, error against speedup, and comparisons of runs."""

from __future__ import annotations

from collections.abc import Sequence

from assay_report.model.compared import ColdStartEntry, SmShareEntry
from assay_report.model.scores import Row
from assay_report.pictures.svg import (
    MARKERS,
    SERIES_COLOURS,
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
    tooltip,
)
from assay_report.texts import ABSENT, cell_names, method_names, share_kind

_LEFT, _RIGHT, _TOP, _PLOT = 62, 20, 76, 200
_BAR, _LONGEST_LABEL = 34, 28


def error_bars(title: str, rows: Sequence[Row]) -> str:
    """Bars of ``error_percent`` of one workload: a cluster per GPU and condition, a bar per method."""
    cells, methods = cell_names(rows), method_names(rows)
    cell_order, method_order = _order(cells), _order(methods)
    cluster = max(_BAR * len(method_order) + 18, *(text_width(_short(c)) + 14 for c in cell_order))
    width = max(_LEFT + cluster * len(cell_order) + _RIGHT, _legend_width(method_order), 420)
    errors = [row.error_percent for row in rows if row.error_percent is not None]
    axis, ticks = linear_axis(max(errors, default=1.0), _TOP + _PLOT, _TOP)
    parts = _legend(method_order, 40)
    parts += _horizontal_grid(axis, ticks, width, "error / %")
    for row, cell, method in zip(rows, cells, methods, strict=True):
        inset = (cluster - _BAR * len(method_order)) / 2
        left = _LEFT + cell_order.index(cell) * cluster + inset + method_order.index(method) * _BAR
        parts.append(_bar(row, left, axis, method_order.index(method), f"{cell}, {method}"))
    for position, cell in enumerate(cell_order):
        middle = _LEFT + (position + 0.5) * cluster
        parts.append(label(_short(cell), middle, _TOP + _PLOT + 18, text_anchor="middle"))
    return picture(title, width, _TOP + _PLOT + 32, parts)


def _bar(row: Row, left: float, axis: Axis, series: int, name: str) -> str:
    error = row.error_percent
    if error is None:
        hint = f"{name}: {row.status}. {row.reason}"
    else:
        hint = f"{name}: error {error:.3g} %, speedup {number(row.speedup or 0)}"
    return _value_bar(error, left, axis, series, hint)


def _value_bar(value: float | None, left: float, axis: Axis, series: int, hint: str) -> str:
    """A bar with its number on top; a dash without a number."""
    middle = left + _BAR / 2
    if value is None:
        content = f"{tooltip(hint)}{ABSENT}"
        return element("text", content, x=middle, y=axis.start - 4, text_anchor="middle", class_="quiet")
    top = axis.at(value)
    height = max(axis.start - top, 0.5)
    bar = element("rect", tooltip(hint), class_=f"s{series % SERIES_COLOURS}", x=left + 2,
                  y=axis.start - height, width=_BAR - 4, height=height)  # fmt: skip
    return bar + label(number(value), middle, top - 4, text_anchor="middle", class_="quiet", font_size=11)


def error_against_speedup(title: str, rows: Sequence[Row]) -> str:
    """A point per scored row: speedup (logarithmic) across, error up; colour: method, shape: workload."""
    methods = method_names(rows)
    method_order = _order(methods)
    workload_order = _order([str(row.workload) for row in rows])
    points = [
        (row, row.error_percent, row.speedup, method)
        for row, method in zip(rows, methods, strict=True)
        if row.error_percent is not None and row.speedup is not None and row.speedup > 0
    ]
    shapes = [_short(w) for w in workload_order]
    width = max(620, _legend_width(method_order), _legend_width(shapes))
    top = _TOP + 22
    across, across_ticks = log_axis([speedup for _, _, speedup, _ in points] or [1.0], _LEFT, width - _RIGHT)
    up, up_ticks = linear_axis(max((error for _, error, _, _ in points), default=1.0), top + 260, top)
    parts = _legend(method_order, 40) + _shape_legend(shapes, 60)
    parts += _horizontal_grid(up, up_ticks, width, "error / %")
    for tick in across_ticks:
        x = across.at(tick)
        parts.append(element("line", class_="gridline", x1=x, x2=x, y1=up.stop, y2=up.start))
        parts.append(label(number(tick), x, up.start + 18, text_anchor="middle"))
    parts.append(label("speedup (total / representatives' cost)", (_LEFT + width) / 2, up.start + 38,
                       text_anchor="middle", class_="quiet"))  # fmt: skip
    for row, error, speedup, method in points:
        shape = MARKERS[workload_order.index(row.workload) % len(MARKERS)]
        hint = (f"{row.workload} on {row.device}, {method}: error {error:.3g} %, "
                f"speedup {number(speedup)}")  # fmt: skip
        x, y = across.at(speedup), up.at(error)
        parts.append(marker(method_order.index(method), shape, x, y, hint))
    return picture(title, width, up.start + 50, parts)


def predicted_against_true(title: str, entries: Sequence[SmShareEntry]) -> str:
    """A point per prediction at an SM share: true speedup across, predicted up; on the line they agree."""
    points = [
        (entry, entry.speedup_true, each.method, each.speedup_predicted)
        for entry in entries
        for each in entry.predictions
        if entry.speedup_true is not None and each.speedup_predicted is not None
    ]
    methods = _order([method for _, _, method, _ in points])
    workloads = _order([entry.workload for entry, _, _, _ in points])
    shapes = [_short(workload) for workload in workloads]
    width = max(480, _legend_width(methods), _legend_width(shapes))
    top, high = _TOP + 22, 280
    largest = max([max(true, predicted) for _, true, _, predicted in points], default=1.0)
    up, ticks = linear_axis(largest, top + high, top)
    across = Axis(up.low, up.high, _LEFT, _LEFT + high)
    parts = _legend(methods, 40) + _shape_legend(shapes, 60)
    parts += _horizontal_grid(up, ticks, _LEFT + high + _RIGHT, "predicted")
    parts += [label(number(t), across.at(t), up.start + 18, text_anchor="middle") for t in ticks]
    parts.append(label("true: time at the share / time on all SMs", _LEFT, up.start + 38, class_="quiet"))
    parts.append(element("line", class_="axis", x1=across.start, x2=across.stop, y1=up.start, y2=up.stop))
    for entry, true, method, predicted in points:
        shape = MARKERS[workloads.index(str(entry.workload)) % len(MARKERS)]
        hint = (f"{entry.workload} on {entry.device}, {entry.sm_percent:g} % of the SMs"
                f"{share_kind(entry.sm_share)}, {method}: "
                f"true {true:.3g}, predicted {predicted:.3g}")  # fmt: skip
        parts.append(marker(methods.index(method), shape, across.at(true), up.at(predicted), hint))
    return picture(title, width, up.start + 50, parts)


def difference_bars(title: str, entries: Sequence[ColdStartEntry]) -> str:
    """Bars of the flushed difference: a cluster per workload, a bar per GPU."""
    workloads = _order([str(entry.workload) for entry in entries])
    gpus = cell_names(entries)
    order = _order(gpus)
    cluster = max(_BAR * len(order) + 18, *(text_width(_short(w)) + 14 for w in workloads))
    width = max(_LEFT + cluster * len(workloads) + _RIGHT, _legend_width(order), 420)
    known = [v for v in (entry.weighted_difference_percent for entry in entries) if v is not None]
    axis, ticks = linear_axis(max(known, default=1.0), _TOP + _PLOT, _TOP)
    parts = _legend(order, 40) + _horizontal_grid(axis, ticks, width, "|flushed - warm| / %")
    for entry, gpu in zip(entries, gpus, strict=True):
        inset = (cluster - _BAR * len(order)) / 2
        left = _LEFT + workloads.index(str(entry.workload)) * cluster + inset + order.index(gpu) * _BAR
        value, name = entry.weighted_difference_percent, f"{entry.workload} on {gpu}"
        hint = f"{entry.status}. {entry.reason}" if value is None else f"{value:.3g} %"
        parts.append(_value_bar(value, left, axis, order.index(gpu), f"{name}: {hint}"))
    for position, workload in enumerate(workloads):
        middle = _LEFT + (position + 0.5) * cluster
        parts.append(label(_short(workload), middle, _TOP + _PLOT + 18, text_anchor="middle"))
    return picture(title, width, _TOP + _PLOT + 32, parts)


def _horizontal_grid(axis: Axis, ticks: Sequence[float], width: float, unit: str) -> list[str]:
    parts = [label(unit, 8, axis.stop - 14, class_="quiet")]
    for tick in ticks:
        y = axis.at(tick)
        style = "axis" if tick == ticks[0] else "gridline"
        parts.append(element("line", class_=style, x1=_LEFT, x2=width - _RIGHT, y1=y, y2=y))
        parts.append(label(number(tick), _LEFT - 6, y + 4, text_anchor="end"))
    return parts


def _legend(names: Sequence[str], y: float) -> list[str]:
    parts, x = [], 8.0
    for series, name in enumerate(names):
        parts.append(
            element("rect", class_=f"s{series % SERIES_COLOURS}", x=x, y=y - 10, width=11, height=11)
        )
        parts.append(label(name, x + 16, y))
        x += text_width(name) + 34
    return parts


def _shape_legend(names: Sequence[str], y: float) -> list[str]:
    parts, x = [], 8.0
    for position, name in enumerate(names):
        parts.append(marker(7, MARKERS[position % len(MARKERS)], x + 6, y - 4, name))
        parts.append(label(name, x + 16, y))
        x += text_width(name) + 34
    return parts


def _legend_width(names: Sequence[str]) -> float:
    return 16 + sum(text_width(name) + 34 for name in names)


def _short(name: str) -> str:
    return shortened(name, _LONGEST_LABEL)


def _order(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(names))
