"""The cost of slices, learned from stored slices of the same command on the same kind of GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from assay_sampling.counters.replay_passes import replay_passes
from assay_server.campaign_file.slices import Assumptions, SliceCost, SliceSample, assumed_cost, fitted_cost
from assay_server.store.model import Run, SliceTime

# How many of the store's newest slices to learn from.
RECENT_SLICES = 500


@dataclass(frozen=True)
class SliceCosts:
    """The cost of runs' slices, fitted to ``times`` of similar slices; ``assumed`` if there are none."""

    times: Sequence[SliceTime] = ()
    assumed: Assumptions = field(default_factory=Assumptions)

    @cached_property
    def _by_workload(self) -> dict[tuple[str, str], list[SliceTime]]:
        by_workload: dict[tuple[str, str], list[SliceTime]] = {}
        for time in self.times:
            by_workload.setdefault((time.device_key, time.workload), []).append(time)
        return by_workload

    def of(self, run: Run) -> SliceCost:
        """The cost of a run's slices from those of the same workload and kind of GPU; assumed without any."""
        samples = [
            SliceSample(time.launch_skip, time.launches, replay_passes(time.counters).passes, time.seconds)
            for time in self._by_workload.get((run.device_key, run.workload), ())
            if time.command == run.command
        ]
        passes = replay_passes(run.counters).passes
        return fitted_cost(samples, passes, assumed_cost(passes, self.assumed))
