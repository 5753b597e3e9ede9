"""Speedups from one condition to another: GPU to GPU (PKA, Fig. 9) and share to share (PKA, Fig. 10)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from assay_report.figures import parts
from assay_report.figures.figure import Figure, made, without_data
from assay_report.figures.text import hint, labels
from assay_report.figures.theme import INK
from assay_report.model.compared import SmShareEntry
from assay_report.model.scores import Row
from assay_report.texts import condition_text, method_names, share_kind
from assay_sampling.documents.common import ConditionEntry

MOST_LINES = 40
_WIDTH_PX = 440
_LINE_PX, _MARK_PX = 12, 11
# As long as fits beside the plot; the end names the GPUs.
_LABEL = 50
TRUE = "measured"


@dataclass(frozen=True)
class Ratio:
    """A ratio of times on a line of the figure: the true one, or one that a method predicts."""

    line: str
    series: str
    speedup: float
    hint: str


def of_gpus(rows: Sequence[Row], mark: str) -> Figure | None:
    """The speedup of the selection's GPU over others; None where everything ran on one GPU."""
    speedups = list(_between_gpus(rows))
    if not speedups:
        return None
    caption = (
        "How many times as long the workload takes on the other GPU as on the one where the selection was "
        "made, at the same condition: as measured, and by each method's projections."
    )
    return ratios("gpu-to-gpu", f"Speedup from GPU to GPU{mark}", caption, speedups)


def _between_gpus(rows: Sequence[Row]) -> Iterator[Ratio]:
    home = {
        row.selection: row
        for row in rows
        if row.selection and row.selected_on and _same(row, row.selected_on.device, row.selected_on.condition)
    }
    for row, method in zip(rows, method_names(rows), strict=True):
        made_on = home.get(row.selection) if row.selection else None
        if made_on is None or row.device == made_on.device or row.condition != made_on.condition:
            continue
        here, there = made_on.cost, row.cost
        if here is None or there is None or here.quantity != there.quantity:
            continue
        if not (here.total and there.total and here.projected and there.projected):
            continue
        line = f"{row.workload}: {made_on.device} over {row.device}"
        true, predicted = there.total / here.total, there.projected / here.projected
        if true <= 0 or predicted <= 0:
            continue
        yield Ratio(line, TRUE, true, f"{line}: measured {true:.4g}")
        yield Ratio(
            line, method, predicted, f"{line}: {method} predicts {predicted:.4g}, measured {true:.4g}"
        )


def _same(row: Row, device: str, condition: ConditionEntry) -> bool:
    return row.device == device and row.condition == condition


def of_shares(entries: Sequence[SmShareEntry], mark: str) -> Figure | None:
    """The speedup of all SMs over a share of them; None where no share was measured."""
    if not entries:
        return None
    speedups = []
    for entry in entries:
        share = (
            f"{entry.sm_percent:g} % of the SMs{share_kind(entry.sm_share)}"
            if entry.sm_percent
            else "a share"
        )
        line = f"{entry.workload} on {entry.device}: all over {share}"
        if not entry.speedup_true or entry.speedup_true <= 0:
            continue
        speedups.append(Ratio(line, TRUE, entry.speedup_true, f"{line}: measured {entry.speedup_true:.4g}"))
        speedups += [
            Ratio(line, each.method, each.speedup_predicted,
                  f"{line} ({condition_text(entry.condition)}): {each.method} predicts "
                  f"{each.speedup_predicted:.4g}, measured {entry.speedup_true:.4g}")
            for each in entry.predictions
            if each.speedup_predicted and each.speedup_predicted > 0
        ]  # fmt: skip
    caption = (
        "Time at the share / time on all SMs: as measured, and by each method's projections. Selections are "
        "those of the whole GPU."
    )
    return ratios("sm-shares", f"Speedup of all SMs over a share{mark}", caption, speedups)


def ratios(name: str, title: str, caption: str, speedups: Sequence[Ratio]) -> Figure:
    """A line per pair, a mark for the true ratio and one for each prediction of it."""
    if not speedups:
        return without_data(name, title, "No pair of runs has both a measured and a predicted speedup.")
    every = list(dict.fromkeys(each.line for each in speedups))
    lines = labels(_worst(speedups, every), _LABEL)
    series = labels(list(dict.fromkeys([TRUE, *(each.series for each in speedups)])))
    names = list(series.values())
    rows: list[dict[str, Any]] = [
        {"line": lines[each.line], "series": series[each.series], "speedup": each.speedup,
         "hint": hint(each.hint)}
        for each in {(each.line, each.series): each for each in speedups}.values()
        if each.line in lines
    ]  # fmt: skip
    shown = list(lines.values())
    across = parts.ratio_axis("speedup", "speedup", [row["speedup"] for row in rows])
    height = len(shown) * (_LINE_PX + _MARK_PX * max(len(names) - 1, 1))
    # The scale of names leaves a quarter of each step free.
    band = 0.75 * height / (len(shown) + 0.05)
    place = {"x": across, "y": parts.names_axis("line", shown, grid=True)}
    true = {
        "transform": [{"filter": {"field": "series", "equal": TRUE}}],
        "mark": {"type": "tick", "color": INK, "opacity": 1, "thickness": 3, "size": round(band, 2)},
        "encoding": {**place, "yOffset": {"value": round(band / 2, 2)}, **parts.hinted()},
    }
    by_method = parts.series([each for each in series if each != TRUE], "series", "predicted by", always=True)
    beside = parts.offset("series", names[1:] or names)
    predicted = {
        "transform": [{"filter": {"not": {"field": "series", "equal": TRUE}}}],
        "mark": parts.points(),
        "encoding": {**place, "yOffset": beside, **by_method, **parts.hinted()},
    }
    more = parts.of_more(len(lines), len(every), "differences")
    return made(
        name,
        title,
        f"{caption} Black line: measured.{more}",
        {"width": _WIDTH_PX, "height": height, "data": parts.data(rows), "layer": [true, predicted]},
        described="; ".join(row["hint"] for row in rows[:60]),
    )


def _worst(speedups: Sequence[Ratio], every: Sequence[str]) -> list[str]:
    """The lines whose predictions differ most from the truth, in the order of the report."""
    true = {each.line: each.speedup for each in speedups if each.series == TRUE}
    off = dict.fromkeys(every, 0.0)
    for each in speedups:
        measured = true.get(each.line, each.speedup)
        off[each.line] = max(off[each.line], abs(each.speedup / measured - 1.0))
    return parts.largest(every, off.__getitem__, MOST_LINES)
