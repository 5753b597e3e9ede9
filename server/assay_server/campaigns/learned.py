"""What slices cost, learned from those that the store has: of the same command on the same kind of GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from assay_sampling.replay_passes import replay_passes
from assay_server.campaigns.live_spec import cost_before
from assay_server.campaigns.slice_cost import SliceCost, SliceSample, fitted_cost
from assay_server.store.model import Run, SliceTime
from assay_server.store.protocols import MetadataReader

# The newest slices of the store are learned from.
RECENT_SLICES = 500


def learned_cost(times: Sequence[SliceTime], run: Run) -> SliceCost | None:
    """What slices of a run cost, from ``times`` of the same workload and kind of GPU; None without any."""
    samples = [
        SliceSample(time.launch_skip, time.launches, replay_passes(time.counters).passes, time.seconds)
        for time in times
        if (time.device_key, time.workload, time.command) == (run.device_key, run.workload, run.command)
    ]
    if not samples:
        return None
    return fitted_cost(samples, replay_passes(run.counters).passes, cost_before(run.counters))


def learned_costs(store: MetadataReader) -> Callable[[Run], SliceCost | None]:
    """The same for any run; the store is read once, when the first is asked for."""
    by_workload: dict[tuple[str, str], list[SliceTime]] = {}

    @cache
    def read() -> None:
        for time in store.slice_times(RECENT_SLICES):
            by_workload.setdefault((time.device_key, time.workload), []).append(time)

    def cost_of(run: Run) -> SliceCost | None:
        read()
        return learned_cost(by_workload.get((run.device_key, run.workload), ()), run)

    return cost_of
