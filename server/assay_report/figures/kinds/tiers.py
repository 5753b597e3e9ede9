"""Sieve's tiers, and what its threshold trades (Sieve, Figs. 2 and 10)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from assay_report.figures import parts
from assay_report.figures.figure import Figure, made, without_data
from assay_report.figures.text import number
from assay_report.figures.theme import QUIET, SERIES, WIDTH_PX

_NAMES = {1: "tier 1 (equal instructions)", 2: "tier 2 (similar)", 3: "tier 3 (neither)"}
_SHARES = (("kernels", "kernels"), ("launch_share", "launches"), ("instruction_share", "instructions"))
# Of the width of the plot: points closer than this have their labels on different sides.
_CLOSE = 0.06


def of_selection(document: Mapping[str, Any]) -> Figure:
    """The tiers of a selection of Sieve, and with ``theta_sweep=true`` error against speedup by threshold."""
    synthetic = " (synthetic)" if document["profile"].get("synthetic") else ""
    name, title = "tiers", f"Tiers and threshold of Sieve{synthetic}"
    tiers = document.get("tiers")
    if not isinstance(tiers, list) or not tiers:
        reason = f"{document['method']} has no tiers; Sieve has: assay select sieve FILE"
        return without_data(name, title, reason)
    swept = [each for each in document.get("sweep") or [] if each.get("theta") is not None]
    views = [_tier_shares(tiers)]
    caption = "Upper part: shares of kernels, launches and instructions in each tier."
    if swept:
        views += [_swept(swept), _kernels_by_theta(swept)]
        caption += (
            " Below: error against speedup for each threshold theta, and the kernels in each tier by theta."
        )
    else:
        caption += " With --param theta_sweep=true the figure also shows what the threshold trades."
    described = "; ".join(
        f"tier {each['tier']}: {each['kernels']:,} kernels, {100 * each['instruction_share']:.3g} % of the "
        "instructions"
        for each in tiers
    )
    return made(name, title, caption, {"vconcat": views, "spacing": 22}, described=described)


def _colours() -> parts.View:
    scale = {"domain": list(_NAMES.values()), "range": [SERIES[0], SERIES[4], SERIES[1]]}
    return {"field": "tier", "type": "nominal", "scale": scale, "legend": {"title": None, "columns": 3}}


def _stacked(values: Mapping[int, float], where: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Segments of a bar of 100 %, of values by tier."""
    whole = sum(values.values()) or 1.0
    rows, begin = [], 0.0
    for tier, value in values.items():
        share = 100.0 * value / whole
        bar_name = ", ".join(str(each) for each in where.values())
        rows.append({**where, "tier": _NAMES[tier], "begin": begin, "end": begin + share,
                     "middle": begin + share / 2, "share_percent": share,
                     "number": str(tier) if share >= 4 else "",
                     "hint": f"{bar_name}: {share:.3g} % in tier {tier}"})  # fmt: skip
        begin += share
    return rows


def _tier_shares(tiers: list[Mapping[str, Any]]) -> parts.View:
    rows = [
        row for key, what in _SHARES
        for row in _stacked({each["tier"]: each[key] for each in tiers}, {"of": what})
    ]  # fmt: skip
    return _bars(rows, "of", [what for _, what in _SHARES], None)


def _kernels_by_theta(swept: list[Mapping[str, Any]]) -> parts.View:
    rows = [
        row for each in swept if each.get("kernels_by_tier")
        for row in _stacked(dict(enumerate(each["kernels_by_tier"], 1)), {"theta": f"{each['theta']:g}"})
    ]  # fmt: skip
    return _bars(rows, "theta", [f"{each['theta']:g}" for each in swept], "theta")


def _bars(rows: list[dict[str, Any]], field: str, names: list[str], title: str | None) -> parts.View:
    up = parts.names_axis(field, names, title=title)
    across = parts.linear_axis("begin", "share / %", domain=(0, 100))
    bars = parts.layer(
        {"type": "bar", "stroke": "#ffffff", "strokeWidth": 0.5},
        {"y": up, "x": across, "x2": {"field": "end"}, "color": _colours(), **parts.hinted()},
    )
    numbers = parts.layer(
        {"type": "text", "color": "#fffffe", "fontWeight": "bold"},
        {"y": up, "x": {"field": "middle", "type": "quantitative"}, "text": parts.nominal("number")},
    )
    return {
        "width": WIDTH_PX - 80,
        "height": 22 * len(names),
        "data": parts.data(rows),
        "layer": [bars, numbers],
    }


def _swept(swept: list[Mapping[str, Any]]) -> parts.View:
    rows: list[dict[str, Any]] = [
        {"theta": f"{each['theta']:g}", "speedup": each["speedup"], "error_percent": each["error_percent"],
         "hint": f"theta {each['theta']:g}: error {each['error_percent']:.4g} %, "
                 f"speedup {number(each['speedup'])}"}
        for each in swept
        if each.get("speedup") and each.get("error_percent") is not None
    ]  # fmt: skip
    # Thresholds that give the same strata share a point, so they share a label.
    at: dict[tuple[float, float], list[str]] = {}
    for row in rows:
        at.setdefault((row["speedup"], row["error_percent"]), []).append(row["theta"])
    for row in rows:
        same = at[row["speedup"], row["error_percent"]]
        row["label"] = ", ".join(same) if row["theta"] == same[0] else ""
    labelled = [row for row in rows if row["label"]]
    for row in labelled:
        row["below"] = any(_is_close_above(row, other, labelled) for other in labelled)
    place = {
        "x": parts.ratio_axis("speedup", "speedup", [row["speedup"] for row in rows]),
        "y": parts.linear_axis("error_percent", "error / %"),
    }
    named = {"text": parts.nominal("label")}
    by_theta = {"field": "theta", "type": "ordinal"}
    return {
        "width": WIDTH_PX - 80,
        "height": 200,
        "data": parts.data(rows),
        "layer": [
            parts.layer({"type": "line", "color": QUIET, "strokeDash": [5, 4]}, {**place, "order": by_theta}),
            parts.layer(parts.points(color=SERIES[0]), {**place, **parts.hinted()}),
            *(
                parts.layer({"type": "text", "dy": dy, "fontSize": 11}, {**place, **named},
                            transform=[{"filter": f"datum.below === {below}"}])
                for dy, below in ((-11, "false"), (14, "true"))
            ),
        ],
    }  # fmt: skip


def _is_close_above(row: Mapping[str, Any], other: Mapping[str, Any], rows: list[dict[str, Any]]) -> bool:
    """Whether a label above ``row`` would run into the point of ``other``."""
    speedups = [each["speedup"] for each in rows]
    across = math.log(max(speedups) / min(speedups))
    near = abs(math.log(other["speedup"] / row["speedup"])) < _CLOSE * across
    return near and other["error_percent"] > row["error_percent"]
