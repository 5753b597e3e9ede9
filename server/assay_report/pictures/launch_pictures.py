"""Pictures of a selection: which kernels its groups hold, and a quantity launch by launch.

Their data is the report's part ``drawn``, which :mod:`assay_server.analysis.drawn` makes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

from assay_report.model.drawn import ByLaunch, Composition, GroupShares
from assay_report.pictures.svg import (
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

Share = Literal["launches_percent", "cost_percent"]

_WIDTH, _RIGHT = 900.0, 20.0
_GROUPS_SHOWN = 12
_LONGEST_KERNEL = 118
_ROW, _BAR = 44.0, 14.0
_OTHERS = SERIES_COLOURS - 1
_LEAST_LETTER = 16.0
_LOG_FROM = 50.0  # from this ratio of largest to smallest value, a linear axis hides the small ones


def group_composition(title: str, composition: Composition, unit: str) -> str:
    """Two bars per group, of its launches and of its cost, as shares of the whole, divided by kernel."""
    # The entry without an ID joins all other groups, so it is not ranked among them.
    groups = sorted(composition.groups, key=lambda group: (group.id is None, -_total(group, "cost_percent")))
    shown = [group for group in groups if group.id is not None][:_GROUPS_SHOWN]
    names = _kernel_names(composition)
    legend = list(_kernel_legend(names, 44.0))
    top = 44.0 + 18.0 * len(names) + 22.0
    labels = [f"group {group.id:,}" for group in shown]
    left = max([90.0, *(text_width(text) + 14 for text in labels)])
    largest = max(_total(group, what) for group in shown for what in ("launches_percent", "cost_percent"))
    axis, ticks = linear_axis(largest, left + 66, _WIDTH - _RIGHT - 46)
    bottom = top + _ROW * len(shown)
    parts = legend + _upright_grid(axis, ticks, top - 6, bottom, "share of the whole workload / %")
    for position, (group, name) in enumerate(zip(shown, labels, strict=True)):
        y = top + _ROW * position
        parts.append(label(name, 8, y + 18))
        for offset, what, kind in ((2.0, "launches_percent", "launches"), (19.0, "cost_percent", unit)):
            parts.append(label(kind, left + 60, y + offset + 11, text_anchor="end", class_="quiet"))
            parts += _stack(getattr(group, what), names, axis, y + offset, f"{name}, {kind}")
    rest = _rest_text(groups[len(shown) :], composition)
    if rest:
        parts.append(label(rest, 8, bottom + 56, class_="quiet"))
    described = "; ".join(
        f"{name}: {_total(group, 'launches_percent'):.3g} % of the launches, "
        f"{_total(group, 'cost_percent'):.3g} % of the {unit}"
        for group, name in zip(shown, labels, strict=True)
    )
    return picture(title, _WIDTH, bottom + (66 if rest else 46), parts, described)


def _total(group: GroupShares, what: Share) -> float:
    return math.fsum(value or 0.0 for value in getattr(group, what))


def _rest_text(rest: Sequence[GroupShares], composition: Composition) -> str:
    if not rest:
        return ""
    count = sum(composition.groups_together if group.id is None else 1 for group in rest)
    cost = sum(_total(group, "cost_percent") for group in rest)
    return f"Not shown: {count:,} more groups, {cost:.3g} % of the cost."


def _kernel_names(composition: Composition) -> list[str]:
    others = composition.other_kernels
    named = list(composition.kernels)
    return [*named, f"{others:,} other kernel{'s' if others > 1 else ''}"] if others else named


def _kernel_legend(names: Sequence[str], y: float) -> Iterator[str]:
    """A line per kernel with the letter in its bars: colours alone must not tell kernels apart."""
    for position, name in enumerate(names):
        here = y + 18.0 * position
        series = min(position, _OTHERS)
        hint = tooltip(name)
        yield element("rect", hint, class_=f"s{series}", x=8.0, y=here - 11, width=18, height=14)
        yield label(_letter(position), 17, here, text_anchor="middle", class_="inside")
        yield label(shortened(name, _LONGEST_KERNEL), 32, here)


def _letter(position: int) -> str:
    return chr(ord("a") + position)


def _stack(
    shares: Sequence[float | None], names: Sequence[str], axis: Axis, y: float, name: str
) -> list[str]:
    parts, begun = [], 0.0
    for position, kernel in enumerate(names):
        share = shares[position] or 0.0
        if share <= 0:
            continue
        x, end = axis.at(begun), axis.at(begun + share)
        hint = tooltip(f"{name}: {share:.3g} % are {kernel}")
        style = f"mark s{min(position, _OTHERS)}"
        parts.append(element("rect", hint, class_=style, x=x, y=y, width=max(end - x, 0.5), height=_BAR))
        if end - x >= _LEAST_LETTER:
            parts.append(
                label(_letter(position), (x + end) / 2, y + 11, text_anchor="middle", class_="inside")
            )
        begun += share
    parts.append(label(f"{begun:.3g}", axis.at(begun) + 5, y + 11, class_="quiet"))
    return parts


def _upright_grid(axis: Axis, ticks: Sequence[float], top: float, bottom: float, unit: str) -> list[str]:
    parts = []
    for tick in ticks:
        x = axis.at(tick)
        style = "axis" if tick == ticks[0] else "gridline"
        parts.append(element("line", class_=style, x1=x, x2=x, y1=top, y2=bottom))
        parts.append(label(number(tick), x, bottom + 16, text_anchor="middle"))
    parts.append(label(unit, (axis.start + axis.stop) / 2, bottom + 34, text_anchor="middle", class_="quiet"))
    return parts


def by_launch(title: str, entry: ByLaunch) -> str:
    """A quantity over the launches in order: each bin's range and mean; representatives as diamonds."""
    top, high, left = 92.0, 220.0, 70.0
    known = [v for v in (*entry.least, *entry.most, *entry.marks.value) if v is not None]
    up, ticks = _fitting_axis(known, top + high, top)
    across = Axis(0.0, float(max(entry.launches, 1)), left, _WIDTH - _RIGHT)
    quantity, unit = entry.quantity, entry.unit
    unit = f"IPC = {unit}" if quantity == "IPC" else f"{quantity} / {unit}"
    parts = [label(unit, 8, top - 14, class_="quiet")]
    parts += _by_launch_legend(entry)
    for tick in ticks:
        y = up.at(tick)
        style = "axis" if tick == ticks[0] else "gridline"
        parts.append(element("line", class_=style, x1=left, x2=_WIDTH - _RIGHT, y1=y, y2=y))
        parts.append(label(number(tick), left - 6, y + 4, text_anchor="end"))
    parts += _launch_ticks(across, up.start, entry)
    parts += _envelope(entry, across, up)
    parts += _marks(entry, across, up)
    least, most = min(known), max(known)
    described = (
        f"{entry.launches:,} launches in {len(entry.bin_starts):,} bins; {entry.quantity} from "
        f"{number(least)} to {number(most)}; {entry.representatives:,} representatives"
    )
    return picture(title, _WIDTH, up.start + 50, parts, described)


def _fitting_axis(values: Sequence[float], start: float, stop: float) -> tuple[Axis, list[float]]:
    positive = [v for v in values if v > 0]
    if len(positive) == len(values) and max(values) >= _LOG_FROM * min(values):
        axis, ticks = log_axis(positive, start, stop)
        return axis, ticks
    return linear_axis(max([*values, 0.0]), start, stop)


def _by_launch_legend(entry: ByLaunch) -> list[str]:
    bins, launches = len(entry.bin_starts), entry.launches
    one = bins == launches
    texts = "each launch" if one else f"least to largest of about {launches / bins:,.0f} launches"
    marked = len(entry.marks.row)
    chosen = f"{entry.representatives:,} representatives"
    if marked < entry.representatives:
        chosen = f"{marked:,} of the {chosen}"
    parts = [
        element("rect", class_="s5", x=8.0, y=34.0, width=12, height=12, fill_opacity=0.55),
        label(texts, 26, 44),
    ]
    x = 26 + text_width(texts) + 24
    if not one:
        parts.append(element("line", class_="line", x1=x, x2=x + 14, y1=40, y2=40))
        parts.append(label("their mean", x + 20, 44))
        x += 20 + text_width("their mean") + 24
    parts.append(marker(1, "diamond", x + 6, 40, chosen))
    parts.append(label(chosen, x + 18, 44))
    return parts


def _launch_ticks(across: Axis, y: float, entry: ByLaunch) -> list[str]:
    _, ticks = linear_axis(float(entry.launches), across.start, across.stop)
    parts = [
        label(f"{tick:,.0f}", across.at(tick), y + 18, text_anchor="middle")
        for tick in ticks
        if tick <= entry.launches
    ]
    unit = "launch, in the order of processes and calls" if entry.process_starts else "launch"
    parts.append(label(unit, (across.start + across.stop) / 2, y + 38, text_anchor="middle", class_="quiet"))
    for start in entry.process_starts:
        x = across.at(start)
        parts.append(element("line", tooltip("another process begins"), class_="axis", stroke_dasharray="4 3",
                             x1=x, x2=x, y1=y, y2=y - 220))  # fmt: skip
    return parts


def _envelope(entry: ByLaunch, across: Axis, up: Axis) -> list[str]:
    """One path for the ranges and one for the means; a bin without a value leaves a gap."""
    starts = [*entry.bin_starts, entry.launches]
    ranges, means, drawing = [], [], False
    for position, (low, mean, high) in enumerate(zip(entry.least, entry.mean, entry.most, strict=True)):
        if low is None or high is None or mean is None:
            drawing = False
            continue
        x, end = (across.at(start) for start in starts[position : position + 2])
        top, bottom = up.at(high), up.at(low)
        if bottom - top < 1.5:  # a range of one value must stay visible
            top, bottom = (top + bottom) / 2 - 0.75, (top + bottom) / 2 + 0.75
        ranges.append(f"M{x:.1f} {top:.1f}H{end:.1f}V{bottom:.1f}H{x:.1f}Z")
        means.append(f"{'L' if drawing else 'M'}{(x + end) / 2:.1f} {up.at(mean):.1f}")
        drawing = True
    parts = [element("path", class_="s5", d="".join(ranges), fill_opacity=0.55)]
    if len(entry.bin_starts) < entry.launches:
        parts.append(element("path", class_="line", d="".join(means)))
    return parts


def _marks(entry: ByLaunch, across: Axis, up: Axis) -> Iterator[str]:
    marks = entry.marks
    for row, group, value in zip(marks.row, marks.group, marks.value, strict=True):
        if value is not None:
            hint = f"representative of group {group:,}: launch {row:,}, {entry.quantity} {number(value)}"
            yield marker(1, "diamond", across.at(row + 0.5), up.at(value), hint)
