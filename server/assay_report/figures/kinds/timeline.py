"""Launches in their order: a quantity's range and mean, and a lane per group with its representatives.

Launches that nothing was selected of have a lane per kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay_report.figures import parts
from assay_report.figures.figure import Figure, made, without_data
from assay_report.figures.text import hint, number, shortened
from assay_report.figures.theme import GRID, INK, PAPER, QUIET, SERIES
from assay_report.model.drawn import ByLaunch, Drawn, Lanes
from assay_report.texts import LAUNCHES, RowWords

_WIDTH_PX, _HEIGHT_PX, _LANE_PX = 560, 170, 24
_LOG_FROM = 50.0  # from this ratio of largest to smallest value, a linear axis hides the small ones
_LANE_FILLED = 0.86
_LONGEST_KERNEL = 32


def timeline(
    name: str,
    title: str,
    drawn: Drawn,
    *,
    workload: str | None = None,
    by_kernel: bool = False,
    words: RowWords = LAUNCHES,
) -> Figure:
    """A quantity over the launches in order, and below it which group ran when.

    ``by_kernel``: the groups are kernels, and no launch stands for others; ``words``: what the rows are.
    """
    entry, lanes = drawn.by_launch, drawn.lanes
    if entry is None:
        reason = f"No {words.one} has a value of {drawn.cost.quantity}."
        return without_data(name, title, reason, workload=workload)
    # Both parts share the axis of launches, so only the lower one is labelled.
    views = [_quantity(entry, words, labelled=lanes is None)]
    if lanes is not None:
        views.append(_groups(entry, lanes, words, by_kernel=by_kernel))
    return made(
        name,
        title,
        _caption_of_kernels(entry, lanes) if by_kernel else _caption(entry, lanes, words),
        {"vconcat": views, "spacing": 10},
        workload=workload,
        described=_described(entry, words, by_kernel=by_kernel),
    )


def quantity_name(quantity: str) -> str:
    """A quantity without its unit, for a heading that names the unit or needs none."""
    return quantity.removesuffix("_ns")


def _quantity(entry: ByLaunch, words: RowWords, *, labelled: bool) -> parts.View:
    known = [value for value in (*entry.least, *entry.most, *entry.marks.value) if value is not None]
    unit = (
        f"IPC ({entry.unit})"
        if entry.quantity == "IPC"
        else f"{quantity_name(entry.quantity)} / {entry.unit}"
    )
    positive = all(value > 0 for value in known)
    if positive and max(known) >= _LOG_FROM * min(known):
        up = parts.log_axis("least", unit, parts.log_domain(known))
    else:
        up = parts.linear_axis("least", unit)
    across = _across("row", entry, words, labelled=labelled)
    band = parts.layer(
        # A range of one value must stay visible, hence the stroke.
        {"type": "area", "color": SERIES[5], "opacity": 0.55, "stroke": SERIES[5], "strokeWidth": 1},
        {"x": across, "y": up, "y2": {"field": "most"}},
        _band(entry),
    )
    layers = [_processes(entry, across), band] if entry.process_starts else [band]
    if len(entry.bin_starts) < entry.launches:
        mean = {"x": across, "y": {**up, "field": "mean"}}
        layers.append(parts.layer({"type": "line", "color": INK, "strokeWidth": 1}, mean, _means(entry)))
    place = {"x": across, "y": {**up, "field": "value"}, **parts.hinted()}
    layers.append(parts.layer(_diamond(90, SERIES[1]), place, _marks(entry, words)))
    return {"width": _WIDTH_PX, "height": _HEIGHT_PX, "layer": layers}


def _diamond(size: int, colour: str) -> parts.View:
    """The mark of a representative."""
    return {"type": "point", "shape": "diamond", "filled": True, "size": size, "opacity": 1,
            "color": colour, "stroke": PAPER, "strokeWidth": 1}  # fmt: skip


def _across(field: str, entry: ByLaunch, words: RowWords, *, labelled: bool) -> parts.View:
    unit = f"{words.one}, in the order of processes and calls" if entry.process_starts else words.one
    channel = parts.linear_axis(field, unit, domain=(0, max(entry.launches, 1)))
    channel["axis"] = {"tickCount": 8, "format": ",d", "grid": False, "labels": labelled, "ticks": labelled}
    if not labelled:
        channel["title"] = None
    return channel


def _ends(starts: Sequence[int], launches: int) -> list[int]:
    return [*starts[1:], launches]


def _band(entry: ByLaunch) -> list[dict[str, Any]]:
    """Both ends of each bin; a bin without a value breaks the area."""
    rows = []
    ends = _ends(entry.bin_starts, entry.launches)
    for start, end, least, most in zip(entry.bin_starts, ends, entry.least, entry.most, strict=True):
        rows += [{"row": start, "least": least, "most": most}, {"row": end, "least": least, "most": most}]
    return rows


def _means(entry: ByLaunch) -> list[dict[str, Any]]:
    ends = _ends(entry.bin_starts, entry.launches)
    return [
        {"row": (start + end) / 2, "mean": mean}
        for start, end, mean in zip(entry.bin_starts, ends, entry.mean, strict=True)
    ]


def _marks(entry: ByLaunch, words: RowWords) -> list[dict[str, Any]]:
    marks = entry.marks
    return [
        {"row": row + 0.5, "launch": row, "group": group, "value": value,
         "hint": f"representative of group {group:,}: {words.one} {row:,}, {entry.quantity} {number(value)}"}
        for row, group, value in zip(marks.row, marks.group, marks.value, strict=True)
        if value is not None
    ]  # fmt: skip


def _processes(entry: ByLaunch, across: parts.View) -> parts.View:
    rows = [{"row": start, "hint": "another process begins"} for start in entry.process_starts]
    return parts.layer(parts.rule(strokeDash=[4, 3]), {"x": across, **parts.hinted()}, rows)


def _groups(entry: ByLaunch, lanes: Lanes, words: RowWords, *, by_kernel: bool) -> parts.View:
    """A lane per group: the height of its bars is its share of the cost of the bin."""
    count = len(lanes.groups)
    across = _across("row", entry, words, labelled=True)
    colours = {
        "field": "lane", "type": "ordinal", "legend": None,
        "scale": {"domain": list(range(count)), "range": list(SERIES[:count])},
    }  # fmt: skip
    areas = {
        "data": parts.data(_lane_rows(entry, lanes)),
        "transform": [
            {"calculate": f"{count - 1} - datum.lane", "as": "base"},
            {"calculate": f"datum.base + {_LANE_FILLED / 100:g} * datum.cost_percent", "as": "top"},
        ],
        "mark": {"type": "area", "interpolate": "step-after", "opacity": 0.9},
        "encoding": {"x": across, "y": _up("base", count), "y2": {"field": "top"}, "color": colours},
    }
    place = {"x": across, "y": _up("place", count), **parts.hinted()}
    marks = parts.layer(_diamond(70, INK), place, _lane_marks(entry, lanes, words))
    layers = [_ground(lanes), areas, marks, *_names(lanes, by_kernel=by_kernel)]
    return {"width": _WIDTH_PX, "height": _LANE_PX * count, "layer": layers}


def _up(field: str, count: int) -> parts.View:
    scale = {"domain": [0, count], "zero": True, "nice": False}
    return {"field": field, "type": "quantitative", "scale": scale, "title": None, "axis": None}


def _ground(lanes: Lanes) -> parts.View:
    """The line under each lane."""
    count = len(lanes.groups)
    rows = [{"base": lane} for lane in range(count + 1)]
    return parts.layer(parts.rule(color=GRID), {"y": _up("base", count)}, rows)


def _lane_rows(entry: ByLaunch, lanes: Lanes) -> list[dict[str, Any]]:
    """A row where the share changes, and one at the end: the area holds a value until the next."""
    rows = []
    for lane, shares in enumerate(lanes.cost_percent):
        before = None
        for start, bin_share in zip(lanes.bin_starts, shares, strict=True):
            share = bin_share or 0.0
            if share != before:
                rows.append({"row": start, "lane": lane, "cost_percent": share})
            before = share
        rows.append({"row": entry.launches, "lane": lane, "cost_percent": before or 0.0})
    return rows


def _lane_marks(entry: ByLaunch, lanes: Lanes, words: RowWords) -> list[dict[str, Any]]:
    last = len(lanes.groups) - 1
    lane_of = {group: lane for lane, group in enumerate(lanes.groups)}
    rows = []
    for row, group in zip(entry.marks.row, entry.marks.group, strict=True):
        lane = lane_of.get(group, last)
        rows.append({"row": row + 0.5, "launch": row, "group": group, "place": last - lane + 0.5,
                     "hint": hint(_representative((row, group), lanes, lane, words))})  # fmt: skip
    return rows


def _names(lanes: Lanes, *, by_kernel: bool) -> list[parts.View]:
    """The group on the left of its lane, its dearest kernel on the right; kernels have a name only."""
    last = len(lanes.groups) - 1
    others = "other kernels" if by_kernel else "other groups"
    rows = [
        {
            "place": last - lane + 0.5,
            "group": others if group is None else "" if by_kernel else f"group {group:,}",
            "kernel": "" if by_kernel and group is None else shortened(kernel, _LONGEST_KERNEL),
            "hint": hint(kernel),
        }
        for lane, (group, kernel) in enumerate(zip(lanes.groups, lanes.kernels, strict=True))
    ]
    left = {"align": "right", "color": INK}
    right = {"align": "left", "color": QUIET}
    behind = {"expr": "width + 8"}
    up, hints = _up("place", len(lanes.groups)), parts.nominal("hint")
    return [
        parts.layer(
            {"type": "text", **look},
            {"x": {"value": across}, "y": up, "text": parts.nominal(field), "description": hints},
            rows,
        )
        for field, across, look in (("group", -8, left), ("kernel", behind, right))
    ]


def _representative(place: tuple[int, int], lanes: Lanes, lane: int, words: RowWords) -> str:
    row, group = place
    kernel = f", {lanes.kernels[lane]}" if lanes.groups[lane] == group else ""
    return f"representative of group {group:,}: {words.one} {row:,}{kernel}"


def _band_said(entry: ByLaunch, words: RowWords) -> str:
    bins, launches = len(entry.bin_starts), entry.launches
    if bins == launches:
        return f"Band: the value of each {words.one}"
    return f"Band: least to largest of about {launches / bins:,.0f} {words.several}; line: their mean"


def _processes_said(entry: ByLaunch) -> str:
    return " Dashed lines: another process begins." if entry.process_starts else ""


def _caption_of_kernels(entry: ByLaunch, lanes: Lanes | None) -> str:
    caption = f"{_band_said(entry, LAUNCHES)}.{_processes_said(entry)}"
    if lanes is not None:
        caption += " Below, a lane per kernel, the dearest first: the height is its share of the cost there."
    return caption


def _caption(entry: ByLaunch, lanes: Lanes | None, words: RowWords) -> str:
    marked = len(entry.marks.row)
    chosen = f"{entry.representatives:,} representatives"
    if marked < entry.representatives:
        chosen = f"{marked:,} of the {chosen}"
    caption = f"{_band_said(entry, words)}; diamonds: {chosen}.{_processes_said(entry)}"
    if lanes is not None:
        caption += (
            " Below, a lane per group, the dearest first: the height is the group's share of the cost there; "
            f"on the right the {words.kind} that costs most in it."
        )
    return caption


def _described(entry: ByLaunch, words: RowWords, *, by_kernel: bool) -> str:
    known = [value for value in (*entry.least, *entry.most) if value is not None]
    description = (
        f"{entry.launches:,} {words.several} in {len(entry.bin_starts):,} bins; {entry.quantity} from "
        f"{number(min(known))} to {number(max(known))}"
    )
    return description if by_kernel else f"{description}; {entry.representatives:,} representatives"
