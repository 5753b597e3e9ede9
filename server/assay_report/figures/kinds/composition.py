"""Which kernels each group holds, of its launches and of its cost (PKA, Fig. 4)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from assay_report.figures import parts
from assay_report.figures.figure import Figure, made, without_data
from assay_report.figures.text import hint, labels
from assay_report.figures.theme import AROUND_INSIDE, INSIDE, QUIET, SERIES
from assay_report.model.drawn import Composition, GroupShares
from assay_report.texts import LAUNCHES, RowWords

Share = Literal["launches_percent", "cost_percent"]

GROUPS_SHOWN = 12
_LONGEST_KERNEL = 90
_WIDTH_PX = 560
_OTHERS = len(SERIES) - 1
_LEAST_LETTER_SHARE = 0.03  # of the axis: a narrower bar has no room for a letter


def group_composition(
    name: str,
    title: str,
    composition: Composition | None,
    unit: str,
    *,
    workload: str | None = None,
    words: RowWords = LAUNCHES,
) -> Figure:
    """Two bars per group, of its launches and of its cost (in ``unit``), divided by kernel.

    ``words``: what the rows are.
    """
    if composition is None:
        reason = (
            f"The group of every {words.one} is not known: the method draws {words.several} without groups."
        )
        return without_data(name, title, reason, workload=workload)
    # The entry without an ID joins all other groups, so it is not ranked among them.
    groups = sorted(composition.groups, key=lambda each: (each.id is None, -total(each, "cost_percent")))
    shown = [group for group in groups if group.id is not None][:GROUPS_SHOWN]
    if not shown:
        return without_data(name, title, "The selection has no groups.", workload=workload)
    kernels = kernel_names(composition, words)
    legend = [f"{_letter(i)}  {short}" for i, short in enumerate(labels(kernels, _LONGEST_KERNEL).values())]
    kinds = [words.several, unit]
    rows = [
        {**row, "drawn": legend[row["position"]]}
        for group in shown
        for row in _segments(group, kernels, kinds)
    ]
    largest = max(total(group, what) for group in shown for what in ("launches_percent", "cost_percent"))
    whats: tuple[Share, Share] = ("launches_percent", "cost_percent")
    ends = [
        {"group": _label(group), "kind": kind, "end": total(group, what),
         "text": f"{total(group, what):.3g} % {kind}"}
        for group in shown
        for kind, what in zip(kinds, whats, strict=True)
    ]  # fmt: skip
    place = {
        "y": parts.names_axis("group", [_label(group) for group in shown]),
        "yOffset": parts.offset("kind", kinds),
    }
    across = parts.linear_axis("begin", "share of the whole workload / %", domain=(0, largest * 1.22))
    colours = {
        "field": "drawn", "type": "nominal",
        "scale": {"domain": legend, "range": [SERIES[min(i, _OTHERS)] for i in range(len(legend))]},
        "legend": {"title": None, "columns": 1, "symbolType": "square"},
    }  # fmt: skip
    bars = parts.layer(
        {"type": "bar", "stroke": "#ffffff", "strokeWidth": 0.5},
        {**place, "x": across, "x2": {"field": "end"}, "color": colours, **parts.hinted()},
        rows,
    )
    wide = [row for row in rows if row["end"] - row["begin"] >= largest * _LEAST_LETTER_SHARE]
    letters = {
        "data": parts.data({key: row[key] for key in ("group", "kind", "middle", "letter")} for row in wide),
        "encoding": {
            **place,
            "x": {"field": "middle", "type": "quantitative"},
            "text": parts.nominal("letter"),
        },
        # The letter twice, so that it stands out from every colour.
        "layer": [
            {"mark": {"type": "text", "stroke": AROUND_INSIDE, "strokeWidth": 3, "color": AROUND_INSIDE}},
            {"mark": {"type": "text", "color": INSIDE}},
        ],
    }
    totals = parts.layer(
        {"type": "text", "align": "left", "dx": 5, "color": QUIET, "fontSize": 11},
        {**place, "x": {"field": "end", "type": "quantitative"}, "text": parts.nominal("text")},
        ends,
    )
    view = {"width": _WIDTH_PX, "height": 44 * len(shown), "layer": [bars, letters, totals]}
    return made(
        name,
        title,
        f"Upper bar: share of the {words.several}; lower bar: share of the {unit}; the letters name the "
        f"{words.kinds}." + _rest_text(groups[len(shown) :], composition),
        view,
        workload=workload,
        described="; ".join(
            f"{_label(group)}: {total(group, 'launches_percent'):.3g} % of the {words.several}, "
            f"{total(group, 'cost_percent'):.3g} % of the {unit}"
            for group in shown
        ),
    )


def total(group: GroupShares, what: Share) -> float:
    """A group's share of all launches, or of their cost, in percent."""
    return math.fsum(value or 0.0 for value in getattr(group, what))


def kernel_names(composition: Composition, words: RowWords = LAUNCHES) -> list[str]:
    """The kernels that are told apart, and how many others there are."""
    others = composition.other_kernels
    named = list(composition.kernels)
    return [*named, f"{others:,} other {words.kinds if others > 1 else words.kind}"] if others else named


def _segments(group: GroupShares, kernels: Sequence[str], kinds: Sequence[str]) -> Iterator[dict[str, Any]]:
    for kind, what in zip(kinds, (group.launches_percent, group.cost_percent), strict=True):
        begin = 0.0
        for position, kernel in enumerate(kernels):
            share = what[position] or 0.0
            if share <= 0:
                continue
            yield {
                "group": _label(group), "kind": kind, "position": position, "letter": _letter(position),
                "share_percent": share, "begin": begin, "middle": begin + share / 2, "end": begin + share,
                "hint": hint(f"{_label(group)}, {kind}: {share:.3g} % are {kernel}"),
            }  # fmt: skip
            begin += share


def _label(group: GroupShares) -> str:
    return f"group {group.id:,}"


def _letter(position: int) -> str:
    return chr(ord("a") + position)


def _rest_text(rest: Sequence[GroupShares], composition: Composition) -> str:
    if not rest:
        return ""
    count = sum(composition.groups_together if group.id is None else 1 for group in rest)
    cost = sum(total(group, "cost_percent") for group in rest)
    return f" Not shown: {count:,} more groups, {cost:.3g} % of the cost."
