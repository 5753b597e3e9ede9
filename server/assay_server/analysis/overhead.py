"""What a profiler adds: wall time and busy time of the GPU under it, against bare runs of the workload.

    overhead_percent = 100 (seconds under the profiler / executions / seconds bare - 1)

both sides as means over repeats. An execution is one start of the command: a detailed run makes one for each
slice, and a slice that ends early ends the workload with it, so its overhead may be negative. Busy time is
the driver's utilisation over time: an estimate, no measurement of kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from assay_sampling.errors import AssayError
from assay_sampling.launch_table import BASELINE
from assay_server.analysis import rows
from assay_server.analysis.compared import DeviceRuns, Entry, HeldPairs, empty_entry, flag, rest_on
from assay_server.analysis.request import RunData

HIGH_PERCENT = 100.0
_NUMBERS = (
    "wall_seconds", "bare_wall_seconds", "overhead_percent", "busy_seconds", "bare_busy_seconds",
    "busy_overhead_percent",
)  # fmt: skip


def overhead_entries(device: DeviceRuns, held: HeldPairs) -> Iterator[Entry]:
    """An entry for each level and condition of a GPU that has bare runs with a known wall time.

    Where a run is invalid, that becomes the entry's status.
    """
    bare = [run for run in device.of("bare", BASELINE) if run.wall_seconds > 0]
    if not bare:
        return
    for level in ("light", "detailed"):
        for runs in device.groups(level):
            timed = [run for run in runs if run.wall_seconds > 0 and run.executions]
            if timed:
                yield _entry(device, timed, bare, held)


def _entry(device: DeviceRuns, runs: Sequence[RunData], bare: Sequence[RunData], held: HeldPairs) -> Entry:
    entry: Entry = {
        **empty_entry(device, runs[0].condition),
        "level": runs[0].level,
        "under_mps": runs[0].under_mps,
        "repeats": len(runs),
        "bare_repeats": len(bare),
        "executions": sum(run.executions for run in runs) / len(runs),
        **dict.fromkeys(_NUMBERS),
    }
    try:
        rest_on(entry, [*bare, *runs], held)
    except AssayError as error:
        rows.fail(entry, error)
        return entry
    wall, bare_wall = _per_execution(runs), _per_execution(bare)
    busy, bare_busy = _busy_per_execution(runs), _busy_per_execution(bare)
    overhead_percent = 100.0 * (wall / bare_wall - 1.0)
    entry |= {
        "wall_seconds": wall,
        "bare_wall_seconds": bare_wall,
        "overhead_percent": overhead_percent,
        "busy_seconds": busy,
        "bare_busy_seconds": bare_busy,
        "busy_overhead_percent": 100.0 * (busy / bare_busy - 1.0) if busy is not None and bare_busy else None,
    }
    if runs[0].level == "light" and overhead_percent > HIGH_PERCENT:
        detail = f"{overhead_percent:.0f} % more wall time than the bare run"
        flag(entry, runs[0], "profiler_overhead_high", detail)
    return entry


def _per_execution(runs: Sequence[RunData]) -> float:
    return fmean(run.wall_seconds / max(1, run.executions) for run in runs)


def _busy_per_execution(runs: Sequence[RunData]) -> float | None:
    known = [run.busy_seconds / max(1, run.executions) for run in runs if run.busy_seconds is not None]
    return fmean(known) if known else None
