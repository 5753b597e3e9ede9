"""What launches touch that the next one touches again (forward reuse, docs/methods/cold-start.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from assay_report.figures import parts
from assay_report.figures.figure import Figure, made, without_data
from assay_report.figures.text import hint
from assay_report.figures.theme import WIDTH_PX

MOST_POINTS = 300
_HEIGHT_PX = 220
GRAINS = ("byte", "sector", "line")


def of_document(document: Mapping[str, Any]) -> Figure:
    """The shares of ``assay reuse`` by launch; more than 300 launches are averaged in bins."""
    name, title = "forward-reuse", "Forward reuse by launch"
    launches = document["launches"]
    rows = [row for grain in GRAINS for row in _rows(launches, grain)]
    if not rows:
        reason = "No launch is followed by another one, so nothing can be touched again."
        return without_data(name, title, reason)
    place = {
        "x": parts.linear_axis("launch", "launch (1-based place in the list)", zero=False),
        "y": parts.linear_axis("share_percent", "touched again by the next launch / %", domain=(0, 100)),
    }
    ticks = sorted({row["launch"] for row in rows}) if len(rows) <= 60 else None
    place["x"]["axis"] = {"format": "d", "labelOverlap": True} | ({"values": ticks} if ticks else {})
    series = parts.series(list(GRAINS), "grain", "counted in", always=True)
    dashes = parts.lines(list(GRAINS), "grain", always=True)
    dashes["strokeDash"]["legend"] = None
    dashes["color"] = series["color"]
    view = {
        "width": WIDTH_PX,
        "height": _HEIGHT_PX,
        "data": parts.data(rows),
        "layer": [
            parts.layer({"type": "line", "strokeWidth": 1.25}, {**place, **dashes}),
            parts.layer(parts.points(size=45), {**place, **series, **parts.hinted()}),
        ],
    }
    binned = len(launches) > MOST_POINTS
    caption = "Share of the bytes, sectors and cache lines of a launch that the next launch touches again."
    if binned:
        caption += f" Each point is the mean of about {len(launches) / MOST_POINTS:,.0f} launches."
    return made(name, title, caption, view, described=f"{len(launches):,} launches")


def _rows(launches: list[Mapping[str, Any]], grain: str) -> list[dict[str, Any]]:
    shares = [(each["launch"], each["forward_reuse"][grain], each["kernel"]) for each in launches]
    known = [(launch, share, kernel) for launch, share, kernel in shares if share is not None]
    if len(known) <= MOST_POINTS:
        return [
            {"launch": launch, "grain": grain, "share_percent": 100.0 * share,
             "hint": hint(f"launch {launch}, {kernel}: {100 * share:.4g} % of its {grain}s")}
            for launch, share, kernel in known
        ]  # fmt: skip
    starts = np.linspace(0, len(known), MOST_POINTS, endpoint=False).astype(np.int64)
    sizes = np.diff(np.append(starts, len(known)))
    means = np.add.reduceat(np.array([share for _, share, _ in known]), starts) / sizes
    return [
        {"launch": known[start][0], "grain": grain, "share_percent": 100.0 * mean,
         "hint": f"{size:,} launches from {known[start][0]} on: {100 * mean:.4g} % of their {grain}s"}
        for start, size, mean in zip(starts.tolist(), sizes.tolist(), means.tolist(), strict=True)
    ]  # fmt: skip
