"""Flags detailed runs that stop short of their window although a light run shows that the workload continues.

Nsight Compute may profile only one launch of a process (it does so for clients of MPS). Neither its log nor
its exit status tells this from a process that launched once. A light run sees every launch, so the two are
compared. Source: docs/validity.md, ``window_short``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from assay_sampling.running.validity import invalidates
from assay_server.analysis.runs.request import RunData
from assay_server.store.model import Slice

_FLAG = "window_short"
# The alignments' default: below it two runs did not launch the same kernels anyway.
_LEAST_PERCENT = 99.0


def launches_asked(slices: Sequence[Slice]) -> int:
    """Launches that the slices of a run should have together; 0: to the end of the workload."""
    counts = [piece.launch_count for piece in slices]
    return sum(counts) if all(counts) else 0


def with_short_windows(runs: Sequence[RunData]) -> tuple[RunData, ...]:
    """The runs, with a flag on detailed runs that stopped short of their window."""
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
    # The shortest light run counts: a workload's number of launches may vary.
    whole = min(light, key=lambda other: other.launches)
    window = min(run.launches_asked or whole.launches, whole.launches)
    if 100.0 * run.launches >= _LEAST_PERCENT * window:
        return run
    detail = (
        f"{run.launches:,} of the first {window:,} launches have counters, and the light run {whole.run_id} "
        f"has {whole.launches:,} launches"
    )
    return replace(run, flags=(*run.flags, (_FLAG, detail, invalidates(_FLAG))))
