"""Noise: how much the total of a run differs over its repeats."""

from __future__ import annotations

import math
from collections.abc import Iterator

from assay_report.model.compared import NoiseEntry
from assay_sampling.counters.definitions import COST_UNITS, default_cost_counter
from assay_sampling.documents.common import NoteEntry
from assay_sampling.errors import AssayError
from assay_sampling.estimation.student_t import t_quantile
from assay_sampling.notes.registry import make_note
from assay_sampling.scoring.evaluation import cost_of
from assay_sampling.scoring.two_conditions import relative_standard_deviation_percent
from assay_server.analysis import rows
from assay_server.analysis.comparisons.compared import DeviceRuns, HeldPairs, rest_on
from assay_server.analysis.runs.request import RunData

_CONFIDENCE = 0.95


def noise_entries(device: DeviceRuns, held: HeldPairs) -> Iterator[NoiseEntry]:
    """An entry for each level and condition of a GPU with two or more repeats."""
    for level in ("detailed", "light"):
        for runs in device.groups(level):
            if len(runs) > 1:
                yield _entry(device, runs, held)


def interval_percent(deviation_percent: float, repeats: int) -> float:
    """Half the width of the 95 % confidence interval of the mean, in percent of the mean, by Student's t."""
    quantile = t_quantile((1 + _CONFIDENCE) / 2, repeats - 1)
    return float(quantile * deviation_percent / math.sqrt(repeats))


def _entry(device: DeviceRuns, runs: list[RunData], held: HeldPairs) -> NoiseEntry:
    entry = device.entry(
        NoiseEntry,
        runs[0].condition,
        level=runs[0].level,
        under_mps=runs[0].under_mps,
        repeats=len(runs),
    )
    try:
        rest_on(entry, runs, held)
        quantity, totals = "", []
        for run in runs:
            launches = held.launches(run)
            quantity = quantity or default_cost_counter(launches.table) or "duration_ns"
            totals.append(float(cost_of(launches, quantity).values.sum()))
            held.release()
        entry.quantity, entry.unit = quantity, COST_UNITS[quantity]
        entry.mean_total = sum(totals) / len(totals)
        deviation_percent = relative_standard_deviation_percent(totals)
        entry.relative_standard_deviation_percent = deviation_percent
        entry.interval_percent = interval_percent(deviation_percent, len(totals))
    except AssayError as error:
        rows.fail(entry, error)
    counts = sorted({run.launches for run in runs})
    if len(counts) > 1:
        entry.notes.append(NoteEntry.of(make_note("repeats_differ", launches=tuple(counts))))
    return entry
