"""Overhead of profilers: wall time and busy time of the GPU, against bare runs of the workload.

    overhead_percent = 100 (seconds under the profiler / executions / seconds bare - 1)

both sides as means over repeats. An execution is one start of the command: a detailed run makes one for each
slice, and a slice that ends early also ends the workload, so the overhead may be negative. Busy time is the
driver's utilisation over time: an estimate, because kernels are not measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from assay_report.model.compared import OverheadEntry
from assay_sampling.launches.table import BASELINE
from assay_server.analysis import rows
from assay_server.analysis.comparisons.device_runs import DeviceRuns
from assay_server.analysis.runs.request import RunData

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
                yield _entry(device, timed, bare)


def _entry(device: DeviceRuns, runs: Sequence[RunData], bare: Sequence[RunData]) -> OverheadEntry:
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
    known = [run.busy_seconds / max(1, run.executions) for run in runs if run.busy_seconds is not None]
    return fmean(known) if known else None
