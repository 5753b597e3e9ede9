"""How long work takes yet, with an interval. Pure.

A slice that is still to come is taken to last as long as those of its workload and level that have finished:
on its kind of GPU; else in an earlier campaign of the name on that GPU; else on another GPU; else as plans
assume, on virtual GPUs as their model takes. Each of these is off by a factor of at most so much, taken as
the interval; factors of all slices are taken as going the same way, so that the interval is rather too wide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from assay_core.records.campaign import Estimate
from assay_server.campaign_file.slices import Assumptions
from assay_server.campaigns.planning.forecast import assumed_seconds
from assay_server.store.model import Run
from assay_server.store.overviews import WorkloadCost

_EARLIER_FACTOR, _OTHER_GPU_FACTOR, _ASSUMED_FACTOR = 1.5, 3.0, 5.0
# Of analyses before any of the name: measured on the demo, 0.4 million launches in 18 s on two busy cores.
_ANALYSIS_SECONDS, _ANALYSIS_SECONDS_A_LAUNCH = 5.0, 3e-5
_ASSUMED = Assumptions()
# Stand-ins of tools start in a second and run no program; the model takes some 0.1 ms a launch.
_ASSUMED_VIRTUAL = Assumptions(
    program_seconds=1.0, start_seconds=1.0, pass_milliseconds=0.03, restore_milliseconds=0.0
)


@dataclass(frozen=True)
class Analysed:
    """How long the analysis of an earlier campaign of the name took, and of how many launches."""

    seconds: float
    launches: int


@dataclass(frozen=True)
class Elsewhere:
    """What is known besides a campaign's own slices: earlier campaigns of its name, the newest first, and
    its open runs, for which plans have assumptions."""

    earlier: Sequence[WorkloadCost] = ()
    runs: Sequence[Run] = ()
    analysed: Analysed | None = None


NOTHING_ELSEWHERE = Elsewhere()


@dataclass(frozen=True)
class _Time:
    """Seconds, and the interval that they lie in; ``assumed``: not measured in the campaign itself."""

    seconds: float
    low: float
    high: float
    assumed: bool = True

    @classmethod
    def within(cls, seconds: float, factor: float, *, assumed: bool = True) -> _Time:
        """Seconds that may be off by a factor."""
        return cls(seconds, seconds / factor, seconds * factor, assumed)

    def __mul__(self, times: float) -> _Time:
        return _Time(times * self.seconds, times * self.low, times * self.high, self.assumed)

    def __truediv__(self, slots: int) -> _Time:
        return _Time(self.seconds / slots, self.low / slots, self.high / slots, self.assumed)

    def __add__(self, other: _Time) -> _Time:
        assumed = self.assumed or other.assumed
        return _Time(self.seconds + other.seconds, self.low + other.low, self.high + other.high, assumed)

    def estimate(self, *, at_least: bool = False) -> Estimate:
        return Estimate(
            known=True,
            remaining_ms=round(1000 * self.seconds),
            at_least=at_least,
            low_ms=round(1000 * self.low),
            high_ms=round(1000 * self.high),
            assumed=self.assumed,
        )


def estimate(
    costs: Sequence[WorkloadCost],
    slots: Mapping[str, int],
    *,
    at_least: bool = False,
    elsewhere: Elsewhere = NOTHING_ELSEWHERE,
) -> Estimate:
    """How long the open slices of one or more campaigns take on these slots, by the key of their GPU ("":
    players of recordings), on as many GPUs as finished ones had."""
    of_a_slice = _SliceTimes(costs, elsewhere)
    totals: dict[str, _Time] = {}
    for cost in costs:
        if not cost.open_slices:
            continue
        time = of_a_slice.of(cost)
        if time is None:
            return Estimate(missing=f"no {cost.level} slice of {cost.workload} has finished yet")
        total = totals.get(cost.device_key, _Time(0.0, 0.0, 0.0, assumed=False))
        totals[cost.device_key] = total + time * (cost.open_slices * cost.gpus)
    if not totals:
        return Estimate()
    without = sorted(key or "recordings" for key in totals if not slots.get(key))
    if without:
        return Estimate(missing=f"no slot in service for {without[0]}")
    shared = [total / slots[key] for key, total in totals.items()]
    longest = max(shared, key=lambda each: each.seconds)
    return replace(longest, assumed=any(each.assumed for each in shared)).estimate(at_least=at_least)


def estimate_of_analysis(launches: int, elapsed_seconds: float, before: Analysed | None) -> Estimate:
    """How long an analysis of so many launches takes yet, from that of an earlier campaign or as assumed."""
    if before is not None and before.launches:
        whole = _Time.within(before.seconds * launches / before.launches, _EARLIER_FACTOR)
    else:
        whole = _Time.within(_ANALYSIS_SECONDS + _ANALYSIS_SECONDS_A_LAUNCH * launches, _ASSUMED_FACTOR)
    if elapsed_seconds > whole.high:
        return Estimate(missing="its analysis takes longer than expected")
    seconds, low, high = (max(0.0, each - elapsed_seconds) for each in (whole.seconds, whole.low, whole.high))
    return _Time(seconds, low, high).estimate()


class _SliceTimes:
    """How long a slice takes: a workload's level on a GPU, in an earlier campaign, and on any GPU."""

    def __init__(self, costs: Sequence[WorkloadCost], elsewhere: Elsewhere) -> None:
        earlier = [each for each in elsewhere.earlier if each.published]
        measured = [*(each for each in costs if each.published), *earlier]
        # The first of each counts.
        self._earlier = {(each.workload, each.device_key, each.level): each for each in reversed(earlier)}
        self._other_gpu = {(each.workload, each.level): each for each in reversed(measured)}
        self._runs = {(run.device_key, str(run.level)): run for run in reversed(elsewhere.runs)}

    def of(self, cost: WorkloadCost) -> _Time | None:
        """None where nothing is known."""
        if cost.published:
            # The times of slices of one workload spread by about their mean.
            factor = 1 + 1 / math.sqrt(cost.published)
            return _Time.within(_mean_seconds(cost), factor, assumed=False)
        if earlier := self._earlier.get((cost.workload, cost.device_key, cost.level)):
            return _Time.within(_mean_seconds(earlier), _EARLIER_FACTOR)
        if other := self._other_gpu.get((cost.workload, cost.level)):
            return _Time.within(_mean_seconds(other), _OTHER_GPU_FACTOR)
        run = self._runs.get((cost.device_key, cost.level))
        if run is None:
            return None
        # A virtual GPU computes the run; a program that traces itself runs on any GPU.
        modelled = run.synthetic and run.command is not None and not run.command.kineto_file
        assumed = _ASSUMED_VIRTUAL if modelled else _ASSUMED
        launches = round(cost.launches) or assumed.launches
        return _Time.within(assumed_seconds(run, 1, launches, assumed), _ASSUMED_FACTOR)


def _mean_seconds(cost: WorkloadCost) -> float:
    return cost.published_seconds / cost.published
