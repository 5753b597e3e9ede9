"""IPC, L2 misses and use of DRAM over the cycles of a launch, and where rules stop (PKA, Fig. 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from assay_report.figures import parts
from assay_report.figures.figure import Figure, made, without_data
from assay_report.figures.text import hint, shortened
from assay_report.figures.theme import INK, SERIES, WIDTH_PX
from assay_sampling.projection.projector import Series

LAUNCHES_SHOWN = 4
MOST_SAMPLES = 400
_IPC_PX, _SHARES_PX = 130, 80
_SHARES = {"l2_miss_rate": ("L2 miss rate", 100.0), "dram_percent": ("DRAM busy", 1.0)}


@dataclass(frozen=True)
class Sampled:
    """A launch's samples; ``stops``: the cycles at which rules stop; ``chosen``: the rule that was used."""

    label: str
    series: Series
    chosen: str = ""
    stops: dict[str, float] = field(default_factory=dict)


def over_time(launches: Sequence[Sampled]) -> Figure:
    """The launches with the most cycles, each with its IPC and, where the log has them, L2 and DRAM."""
    name, title = "within-launches", "IPC, L2 misses and DRAM over the cycles of a launch"
    usable = [each for each in launches if len(each.series) > 1]
    if not usable:
        reason = "No launch has two samples: give the interval log of the run with --intervals."
        return without_data(name, title, reason)
    longest = sorted(usable, key=lambda each: -float(each.series.cycles[-1]))[:LAUNCHES_SHOWN]
    shown_launches = [each for each in usable if each in longest]
    caption = (
        "IPC of each interval, in thread instructions, with a line where a rule stops the simulation: solid "
        "for the rule that was used, dashed for rules that would stop. L2 miss rate and DRAM use are of the "
        "interval."
    )
    if len(shown_launches) < len(launches):
        caption += f" The {len(shown_launches)} longest of {len(launches):,} launches that have samples."
    views = [view for each in shown_launches for view in _views(each)]
    return made(name, title, caption, {"vconcat": views, "spacing": 12},
                described="; ".join(_description(each) for each in shown_launches))  # fmt: skip


def _views(each: Sampled) -> list[parts.View]:
    ends = _ends(each.series)
    across = parts.linear_axis("cycles", "cycle", domain=(0, float(each.series.cycles[-1])))
    heading = {"text": shortened(each.label, 90), "fontSize": 12, "fontWeight": "bold", "offset": 4}
    ipc: parts.View = {
        "title": heading,
        "width": WIDTH_PX,
        "height": _IPC_PX,
        "layer": [
            parts.layer(
                {"type": "line", "interpolate": "step-before", "color": SERIES[0], "strokeWidth": 1.5},
                {"x": across, "y": parts.linear_axis("ipc", "instructions / cycle")},
                _ipc(each.series, ends),
            ),
            *_stops(each, across),
        ],
    }
    rows = _shares(each.series, ends)
    if not rows:
        return [ipc]
    names = list(dict.fromkeys(row["what"] for row in rows))
    up = parts.linear_axis("percent", "share / %", domain=(0, 100), ticks=3)
    shares = parts.layer(
        {"type": "line", "interpolate": "step-before", "strokeWidth": 1.5},
        {"x": across, "y": up, **parts.lines(names, "what", always=True)},
        rows,
    )
    return [ipc, {"width": WIDTH_PX, "height": _SHARES_PX, **shares}]


def _ends(series: Series) -> np.ndarray:
    """The samples at which drawn intervals end: all, or evenly chosen ones."""
    count = min(len(series), MOST_SAMPLES)
    return np.unique(np.linspace(0, len(series) - 1, count).round().astype(np.int64))


def _ipc(series: Series, ends: np.ndarray) -> list[dict[str, Any]]:
    cycles = series.cycles[ends]
    ipc = np.diff(series.instructions[ends], prepend=0.0) / np.diff(cycles, prepend=0.0)
    return [{"cycles": c, "ipc": round(i, 4)} for c, i in zip(cycles.tolist(), ipc.tolist(), strict=True)]


def _shares(series: Series, ends: np.ndarray) -> list[dict[str, Any]]:
    rows = []
    for key, (events, against) in series.ratios.items():
        what, factor = _SHARES.get(key, (key, 1.0))
        above, below = (np.diff(np.cumsum(column)[ends], prepend=0.0) for column in (events, against))
        share = np.full(len(ends), np.nan)
        np.divide(factor * above, below, out=share, where=below > 0)
        rows += [
            {"cycles": c, "what": what, "percent": round(s, 3) if np.isfinite(s) else None}
            for c, s in zip(series.cycles[ends].tolist(), share.tolist(), strict=True)
        ]
    return rows


def _stops(each: Sampled, across: parts.View) -> list[parts.View]:
    views = []
    for place, (rule, cycles) in enumerate(each.stops.items()):
        row = {"cycles": cycles, "rule": rule, "hint": hint(f"{rule} stops at cycle {cycles:,.0f}")}
        dash = [1, 0] if rule == each.chosen else [5, 4]
        colour = INK if rule == each.chosen else SERIES[1]
        line = parts.rule(color=colour, strokeDash=dash, strokeWidth=1.5)
        text = {
            "type": "text",
            "align": "right",
            "dx": -4,
            "baseline": "top",
            "color": colour,
            "fontSize": 11,
        }
        up = {"value": 2 + 14 * place}
        views.append(parts.layer(line, {"x": across, **parts.hinted()}, [row]))
        views.append(parts.layer(text, {"x": across, "y": up, "text": parts.nominal("rule")}, [row]))
    return views


def _description(each: Sampled) -> str:
    stops = ", ".join(f"{rule} stops at cycle {cycles:,.0f}" for rule, cycles in each.stops.items())
    return f"{each.label}: {len(each.series):,} samples; {stops or 'no rule stops'}"
