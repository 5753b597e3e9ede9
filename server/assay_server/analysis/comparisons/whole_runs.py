"""Comparisons of whole runs of one workload: over their repeats, with bare runs, and launch by launch.

**Noise**: how much the total of a run differs over its repeats.

**Overhead** of profilers: wall time and busy time of the GPU, against bare runs of the workload.

    overhead_percent = 100 (seconds under the profiler / executions / seconds bare - 1)

both sides as means over repeats. An execution is one start of the command: a detailed run makes one for each
slice, and a slice that ends early also ends the workload, so the overhead may be negative. Busy time is the
driver's utilisation over time: an estimate, because kernels are not measured.

**Sequences**: whether runs of one workload launch the same sequence of kernels, grids and blocks. Each live
run of a workload on all SMs of a GPU is compared with the first light run, launch by launch within each
process; a detailed run only by the launches that it has. Runs that agree are not reported. If the numbers of
launches agree but kernels or shapes differ, a library chose other kernels this time (autotuning); if the
numbers differ, the workload itself did other work.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean

import numpy as np

from assay_report.model.compared import FirstDifference, NoiseEntry, OverheadEntry, SequenceEntry
from assay_sampling.counters.definitions import COST_UNITS, default_cost_counter
from assay_sampling.documents.common import NoteEntry
from assay_sampling.estimation.student_t import t_quantile
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.table import BASELINE
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
                yield _noise_entry(device, runs)


def interval_percent(deviation_percent: float, repeats: int) -> float:
    """Half the width of the 95 % confidence interval of the mean, in percent of the mean, by Student's t."""
    quantile = t_quantile((1 + _CONFIDENCE) / 2, repeats - 1)
    return float(quantile * deviation_percent / math.sqrt(repeats))


def _noise_entry(device: DeviceRuns, runs: list[RunData]) -> NoiseEntry:
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


HIGH_PERCENT = 100.0


def overhead_entries(device: DeviceRuns) -> Iterator[OverheadEntry]:
    """An entry for each level and condition of a GPU that has bare runs with a known wall time.

    An invalid run becomes the entry's status.
    """
    bare = [run for run in device.of("bare", BASELINE) if run.wall_seconds > 0]
    if not bare:
        return
    for level in ("light", "detailed"):
        for runs in device.groups(level):
            timed = [run for run in runs if run.wall_seconds > 0 and run.executions]
            if timed:
                yield _overhead_entry(device, timed, bare)


def _overhead_entry(device: DeviceRuns, runs: Sequence[RunData], bare: Sequence[RunData]) -> OverheadEntry:
    entry = device.entry(
        OverheadEntry,
        runs[0].condition,
        level=runs[0].level,
        under_mps=runs[0].under_mps,
        repeats=len(runs),
        bare_repeats=len(bare),
        executions=sum(run.executions for run in runs) / len(runs),
    )
    with rows.status_of(entry):
        device.rest_on(entry, [*bare, *runs])
        wall, bare_wall = _per_execution(runs), _per_execution(bare)
        busy, bare_busy = _busy_per_execution(runs), _busy_per_execution(bare)
        overhead_percent = 100.0 * (wall / bare_wall - 1.0)
        entry.wall_seconds, entry.bare_wall_seconds, entry.overhead_percent = (
            wall,
            bare_wall,
            overhead_percent,
        )
        entry.busy_seconds, entry.bare_busy_seconds = busy, bare_busy
        if busy is not None and bare_busy:
            entry.busy_overhead_percent = 100.0 * (busy / bare_busy - 1.0)
        if runs[0].level == "light" and overhead_percent > HIGH_PERCENT:
            detail = f"{overhead_percent:.0f} % more wall time than the bare run"
            rows.flag(entry, runs[0].run_id, "profiler_overhead_high", detail)
    return entry


def _per_execution(runs: Sequence[RunData]) -> float:
    return fmean(run.wall_seconds / max(1, run.executions) for run in runs)


def _busy_per_execution(runs: Sequence[RunData]) -> float | None:
    busy = [run.busy_seconds / max(1, run.executions) for run in runs if run.busy_seconds is not None]
    return fmean(busy) if busy else None


_SHAPES = ("kernel_id", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
_MOST_LAUNCHES = 1 << 40  # per process


def sequence_entries(device: DeviceRuns) -> Iterator[SequenceEntry]:
    """An entry for each run whose launches differ from the reference's; an AssayError becomes its status."""
    on_all_sms = [run for run in device.runs if run.condition.sm_percent in (None, 100.0)]
    runs = [run for run in on_all_sms if run.live and run.launches]
    reference = next((run for run in runs if run.level == "light"), None)
    if reference is None:
        return
    for run in runs:
        if run is not reference:
            entry = _sequence_entry(device, reference, run)
            if entry.status != "ok" or entry.differing:
                yield entry
            device.memory.release()


def _sequence_entry(device: DeviceRuns, reference: RunData, run: RunData) -> SequenceEntry:
    entry = device.entry(
        SequenceEntry,
        run.condition,
        runs=[reference.run_id, run.run_id],
        level=run.level,
        under_mps=run.under_mps,
        reference=reference.run_id,
        run=run.run_id,
        launches=run.launches,
        reference_launches=reference.launches,
    )
    with rows.status_of(entry):
        _compare(entry, device.memory.launches(reference), device.memory.launches(run))
    first = entry.first_difference
    if first is not None:
        detail = (
            f"against {reference.run_id}: {entry.differing:,} launches differ, the first is launch "
            f"{first.launch:,} of process {first.process}: {first.run} instead of {first.reference}"
        )
        name = "sequence_differs" if entry.counts_differ else "kernel_choice_differs"
        rows.flag(entry, run.run_id, name, detail)
    return entry


def _compare(entry: SequenceEntry, reference: Launches, other: Launches) -> None:
    """Fill in where the launches of two runs differ; nothing if they agree.

    ``differing`` counts launches that only one run has, or that differ in kernel, grid or block;
    ``counts_differ``: one run has launches that the other lacks. A detailed run holds only part of the
    launches, so launches that it lacks do not count. Both are sorted by process and launch, as
    :class:`Launches` always are.
    """
    left, right = _places(reference), _places(other)
    _, left_rows, right_rows = np.intersect1d(left, right, assume_unique=True, return_indices=True)
    unequal = np.zeros(len(left_rows), dtype=bool)
    for name in _SHAPES:
        unequal |= reference.column(name)[left_rows] != other.column(name)[right_rows]
    extra = np.delete(right, right_rows)
    lacking = left[:0] if entry.level == "detailed" else np.delete(left, left_rows)
    differing = np.concatenate([left[left_rows[unequal]], extra, lacking])
    if not len(differing):
        return
    first = int(differing.min())
    entry.differing, entry.counts_differ = len(differing), bool(len(extra) or len(lacking))
    entry.first_difference = FirstDifference(
        process=first // _MOST_LAUNCHES,
        launch=first % _MOST_LAUNCHES,
        reference=_described(reference, left, first),
        run=_described(other, right, first),
    )


def _places(launches: Launches) -> np.ndarray:
    """One ascending number for each (process, launch), shape (n,)."""
    process = launches.column("process").astype(np.int64)
    places: np.ndarray = process * _MOST_LAUNCHES + launches.column("launch").astype(np.int64)
    return places


def _described(launches: Launches, places: np.ndarray, place: int) -> str:
    """The launch at one of these places for people; "nothing" without one."""
    row = int(np.searchsorted(places, place))
    if row == len(places) or places[row] != place:
        return "nothing"
    record = launches.table.slice(row, 1).to_pylist()[0]
    name = launches.names[record["kernel_id"]]
    shapes = ("x".join(str(record[f"{what}_{axis}"] or "?") for axis in "xyz") for what in ("grid", "block"))
    return f"{name} [{', '.join(shapes)}]"
