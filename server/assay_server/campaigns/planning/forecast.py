"""Forecasts: what a campaign would cost, and how long the work of campaigns takes yet.

The cost of a campaign is that of its runs: slices, passes, hours and bytes for each kind of GPU. The numbers
come from :class:`Assumptions`, which are guesses to replace, not measurements. Pass counts come from
:mod:`assay_sampling.counters.replay_passes`.

How long work takes yet has an interval. A slice that is still to come is taken to last as long as those of
its workload and level that have finished: on its kind of GPU; else in an earlier campaign of the name on that
GPU; else on another GPU; else as plans assume, on virtual GPUs as their model takes. Each of these is off by
a factor of at most so much, taken as the interval; factors of all slices are taken as going the same way, so
that the interval is rather too wide.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay_core.records.campaign import Estimate
from assay_sampling.counters.replay_passes import replay_passes
from assay_server.campaign_file.compiled import Slicing
from assay_server.campaign_file.reading import CampaignFile
from assay_server.campaign_file.slices import (
    MOST_SLICES_OF_A_RUN,
    Assumptions,
    assumed_cost,
    assumptions,
    cut,
)
from assay_server.campaigns.planning.plan import Plan, plan_campaign
from assay_server.campaigns.slicing.published import SliceCosts
from assay_server.store.model import Run, Slice
from assay_server.store.parts.overviews import WorkloadCost

_SECONDS_AN_HOUR = 3600.0


def forecast_campaign(
    file: CampaignFile, base_directory: str, overrides: Mapping[str, str]
) -> dict[str, Any]:
    """A dry run of a campaign file: runs and writes nothing, only checks that recordings exist.

    Raises CampaignError for a path without a base, ParameterError for an unknown assumption.
    """
    assumed = assumptions(overrides)
    campaign = file.campaign
    costs = SliceCosts(assumed=assumed)
    plan = plan_campaign(campaign, campaign.campaign, base_directory, file.name, costs)
    # Without a detailed level there are no slices to cut.
    slicing = campaign.detailed.slicing if campaign.detailed is not None else Slicing(first=1)
    slices: dict[str, list[Slice]] = {run.run_id: [] for run in plan.runs}
    for piece in plan.slices:
        slices[piece.run_id].append(piece)
    runs = [_run_document(run, slices[run.run_id], slicing, assumed) for run in plan.runs]
    kinds = dict.fromkeys(run["device"] for run in runs)
    gpus = [_summed(kind, [run for run in runs if run["device"] == kind]) for kind in kinds]
    return {
        "campaign": campaign.campaign,
        "synthetic": campaign.synthetic,
        "light_only": campaign.light_only,
        "runs": runs,
        "gpus": gpus,
        "total": _summed("", runs),
        "methods": [method.name for method in campaign.methods],
        "missing_files": missing_files(plan),
        "assumptions": {
            name: {"value": value, "meaning": Assumptions.model_fields[name].description}
            for name, value in assumed.model_dump().items()
        },
    }


def missing_files(plan: Plan) -> list[str]:
    """Recordings, and programs named by a path, that this machine lacks; an agent's machine may have them."""
    named = [
        path
        for run in plan.runs
        for path in (
            str(run.recorded.path) if run.recorded else "",
            run.command.argv[0] if run.command else "",
        )
        if os.sep in path
    ]
    return [path for path in dict.fromkeys(named) if not Path(path).exists()]


def _run_document(run: Run, slices: list[Slice], slicing: Slicing, assumed: Assumptions) -> dict[str, Any]:
    passes = replay_passes(run.counters)
    cost = assumed_cost(passes.passes, assumed)
    planned = [(piece.launch_skip, piece.launch_count or assumed.launches) for piece in slices]
    if run.in_windows and slicing.is_open:
        # The window ends with the program at the latest.
        whole = replace(slicing, first=max(assumed.launches, 1))
        planned = list(cut(whole, cost, most=MOST_SLICES_OF_A_RUN))
    # A window beyond the end of the program is empty.
    launches = sum(max(0, min(count, assumed.launches - skip)) for skip, count in planned)
    # The largest share of a slice's time that goes into launches before it.
    skipped_percent = max((cost.skipped_percent(skip, count) for skip, count in planned), default=0.0)
    return {
        "run": run.ordinal,
        "workload": run.workload,
        "device": run.device_kind,
        "level": run.level,
        "profiler": run.profiler,
        "condition": run.condition.to_dict(),
        "under_mps": run.under_mps,
        "repeat": run.repeat,
        "slices": len(planned),
        # Launches, slices, hours and bytes are upper bounds.
        "at_most": run.in_windows and bool(slicing.is_open or slicing.time_budget_s),
        "skipped_percent": skipped_percent if run.in_windows else 0.0,
        "counters": len(run.counters),
        "passes": passes.passes,
        "passes_exact": passes.exact,
        "launches": launches,
        "hours": assumed_seconds(run, len(planned), launches, assumed) / _SECONDS_AN_HOUR,
        "bytes": round(launches * (assumed.launch_bytes + assumed.counter_bytes * len(run.counters))),
    }


def assumed_seconds(run: Run, slices: int, launches: int, assumed: Assumptions) -> float:
    """How long slices of a run take by assumptions.

    Every slice of a live run starts its program again; the program also runs its unprofiled part.
    """
    if run.command is None:
        played = launches / assumed.playback_launches_per_second
        return max(played, assumed.program_seconds) if run.recorded and run.recorded.recorded_time else played
    if run.level == "light":
        return assumed.start_seconds + assumed.program_seconds * assumed.trace_slowdown
    passes = replay_passes(run.counters)
    # One pass needs no copy of the memory.
    restore = assumed.restore_milliseconds if passes.passes > 1 else 0.0
    profiling = launches * (passes.passes * assumed.pass_milliseconds + restore) / 1000.0
    return slices * (assumed.start_seconds + assumed.program_seconds) + profiling


def _summed(device: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "device": device,
        "runs": len(runs),
        "slices": sum(run["slices"] for run in runs),
        "launch_passes": sum(run["launches"] * run["passes"] for run in runs),
        "hours": sum(run["hours"] for run in runs),
        "bytes": sum(run["bytes"] for run in runs),
    }


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
