"""Noise: how much the total of a run differs over its repeats."""

from __future__ import annotations

import math
from collections.abc import Iterator

from assay_report.model.compared import NoiseEntry
from assay_sampling.counters.definitions import COST_UNITS, default_cost_counter
from assay_sampling.documents.common import NoteEntry
from assay_sampling.estimation.student_t import t_quantile
from assay_sampling.notes.registry import make_note
from assay_sampling.scoring.evaluation import cost_of
from assay_sampling.scoring.two_conditions import relative_standard_deviation_percent
from assay_server.analysis import rows
from assay_server.analysis.comparisons.device_runs import DeviceRuns
from assay_server.analysis.runs.request import RunData

_CONFIDENCE = 0.95


def noise_entries(device: DeviceRuns) -> Iterator[NoiseEntry]:
    """An entry for each level and condition of a GPU with two or more repeats."""
    for level in ("detailed", "light"):
        for runs in device.groups(level):
            if len(runs) > 1:
                yield _entry(device, runs)


def interval_percent(deviation_percent: float, repeats: int) -> float:
    """Half the width of the 95 % confidence interval of the mean, in percent of the mean, by Student's t."""
    quantile = t_quantile((1 + _CONFIDENCE) / 2, repeats - 1)
    return float(quantile * deviation_percent / math.sqrt(repeats))


def _entry(device: DeviceRuns, runs: list[RunData]) -> NoiseEntry:
    entry = device.entry(
        NoiseEntry,
        runs[0].condition,
        level=runs[0].level,
        under_mps=runs[0].under_mps,
        repeats=len(runs),
    )
    with rows.status_of(entry):
        device.rest_on(entry, runs)
        quantity, totals = "", []
        for run in runs:
            launches = device.memory.launches(run)
            quantity = quantity or default_cost_counter(launches.table) or "duration_ns"
            totals.append(float(cost_of(launches, quantity).values.sum()))
            device.memory.release()
        entry.quantity, entry.unit = quantity, COST_UNITS[quantity]
        entry.mean_total = sum(totals) / len(totals)
        deviation_percent = relative_standard_deviation_percent(totals)
        entry.relative_standard_deviation_percent = deviation_percent
        entry.interval_percent = interval_percent(deviation_percent, len(totals))
    counts = sorted({run.launches for run in runs})
    if len(counts) > 1:
        entry.notes.append(NoteEntry.of(make_note("repeats_differ", launches=tuple(counts))))
    return entry
