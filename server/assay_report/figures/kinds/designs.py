"""Speedups between designs that a simulator ran: the document of ``assay simulate``."""

from __future__ import annotations

from typing import Any

from assay_report.figures import parts
from assay_report.figures.figure import Figure, made, without_data
from assay_report.figures.text import hint, labels, shortened
from assay_report.figures.theme import INK
from assay_sampling.documents.designs import DesignsDocument, SpeedupEntry

_NAME = "designs"
_WIDTH_PX, _LINE_PX = 460, 32
_INTERVAL, _NONE = "with an interval", "nothing vouches for an interval"
_LONGEST_NAME = 40


def of_designs(document: DesignsDocument) -> Figure:
    """A line for each design, with its speedup over the first and the interval of the draw."""
    title = (
        f"Speedup of designs, {shortened(document.workload, _LONGEST_NAME)} by {document.selection.method}"
    )
    if document.selection.profile.synthetic:
        title += " (synthetic)"
    if not document.speedups:
        reason = (
            "A speedup needs a second design."
            if len(document.designs) < 2
            else "No second design has all of its launches simulated."
        )
        return without_data(_NAME, title, reason)
    shown = labels([each.design for each in document.speedups])
    rows = [_row(each, shown[each.design]) for each in document.speedups]
    ends = [value for row in rows for value in (row["low"], row["speedup"], row["high"])]
    over = document.speedups[0].over
    across = parts.ratio_axis("speedup", f"speedup over {shortened(over, _LONGEST_NAME)}, in cycles", ends)
    down = parts.names_axis("design", list(shown.values()), grid=True)
    interval: parts.View = {
        "transform": [{"filter": {"field": "vouched", "equal": _INTERVAL}}],
        "mark": parts.rule(color=INK, strokeWidth=2),
        "encoding": {"x": {**across, "field": "low"}, "x2": {"field": "high"}, "y": down, **parts.hinted()},
    }
    series = parts.series([_INTERVAL, _NONE], "vouched", always=True)
    speedup = parts.layer(parts.points(), {"x": across, "y": down, **series, **parts.hinted()})
    return made(
        _NAME,
        title,
        "Marks: cycles of the first design / cycles of this one. Lines: 95 % intervals of the draw of "
        "launches; cold caches and the simulator's own error are not in them.",
        {
            "width": _WIDTH_PX,
            "height": _LINE_PX * len(rows),
            "data": parts.data(rows),
            "layer": [interval, speedup],
        },
        described="; ".join(row["hint"] for row in rows),
    )


def _row(entry: SpeedupEntry, line: str) -> dict[str, Any]:
    description = f"{entry.design} over {entry.over}: {entry.speedup:.4g}"
    interval = entry.interval
    if interval is None:
        description += f"; {entry.not_vouched_percent:.3g} % of the cycles are not vouched for"
    else:
        description += f", {interval.low:.4g} to {interval.high:.4g}"
    return {
        "design": line,
        "speedup": entry.speedup,
        "low": entry.speedup if interval is None else interval.low,
        "high": entry.speedup if interval is None else interval.high,
        "vouched": _NONE if interval is None else _INTERVAL,
        "hint": hint(description),
    }
