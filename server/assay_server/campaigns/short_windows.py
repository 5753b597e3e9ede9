"""Detailed runs that stop short of their window although the workload goes on, as a light run of it shows.

The log of Nsight Compute tells a process that launched once from one of which it profiled one launch as
little as the exit status does (a client of MPS is profiled so). The light level sees every launch, so the two
are held against each other. Source: design, promise 2; docs/validity.md, ``window_short``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from assay_sampling.validity import invalidates
from assay_server.analysis.request import RunData
from assay_server.store.model import Slice

_FLAG = "window_short"
# What alignments ask for by default: below it two runs did not launch the same kernels anyway.
_LEAST_PERCENT = 99.0


def launches_asked(slices: Sequence[Slice]) -> int:
    """Launches that the slices of a run were to have together; 0: to the end of the workload."""
    counts = [piece.launch_count for piece in slices]
    return sum(counts) if all(counts) else 0


def with_short_windows(runs: Sequence[RunData]) -> tuple[RunData, ...]:
    """The runs, detailed ones that stopped short of their window flagged."""
    return tuple(_judged(run, runs) for run in runs)


def _judged(run: RunData, runs: Sequence[RunData]) -> RunData:
    if run.level != "detailed" or not (run.live and run.launches):
        return run
    light = [
        other
        for other in runs
        if (other.workload, other.device_kind, other.level) == (run.workload, run.device_kind, "light")
        and other.live
        and other.launches
        and not any(flagged for _, _, flagged in other.flags)
    ]
    if not light:
        return run
    # Of several light runs the shortest counts: a workload need not launch as often each time.
    whole = min(light, key=lambda other: other.launches)
    asked = min(run.launches_asked or whole.launches, whole.launches)
    if 100.0 * run.launches >= _LEAST_PERCENT * asked:
        return run
    detail = (
        f"{run.launches:,} of the first {asked:,} launches have counters, and the light run {whole.run_id} "
        f"has {whole.launches:,} launches"
    )
    return replace(run, flags=(*run.flags, (_FLAG, detail, invalidates(_FLAG))))
