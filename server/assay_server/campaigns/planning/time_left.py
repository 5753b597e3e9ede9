"""How long work takes yet, with an interval. Pure.

A slice that is still to come is taken to last as long as those of its workload and level that have finished:
on its kind of GPU; else in an earlier campaign of the name on that GPU; else on another GPU; else as plans
assume, on virtual GPUs as their model takes. Each of these is off by a factor of at most so much, taken as
the interval; factors of all slices are taken as going the same way, so that the interval is rather too wide.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

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
class _Guess:
    """Seconds of a slice, and the factor by which they may be off."""

    seconds: float
    factor: float
    assumed: bool = True


@dataclass
class _Total:
    seconds: float = 0.0
    low: float = 0.0
    high: float = 0.0

    def add(self, guess: _Guess, times: float) -> None:
        self.seconds += times * guess.seconds
        self.low += times * guess.seconds / guess.factor
        self.high += times * guess.seconds * guess.factor

    def shared(self, slots: int) -> _Total:
        return _Total(self.seconds / slots, self.low / slots, self.high / slots)


def estimate(
    costs: Sequence[WorkloadCost],
    slots: Mapping[str, int],
    *,
    at_least: bool = False,
    elsewhere: Elsewhere = NOTHING_ELSEWHERE,
) -> Estimate:
    """How long the open slices of one or more campaigns take on these slots, by the key of their GPU ("":
    players of recordings), on as many GPUs as finished ones had."""
    known = _Known.of(costs, elsewhere)
    totals: dict[str, _Total] = {}
    assumed = False
    for cost in costs:
        if not cost.open_slices:
            continue
        guess = known.guess(cost)
        if guess is None:
            return Estimate(missing=f"no {cost.level} slice of {cost.workload} has finished yet")
        assumed |= guess.assumed
        totals.setdefault(cost.device_key, _Total()).add(guess, cost.open_slices * cost.gpus)
    if not totals:
        return Estimate()
    without = sorted(key or "recordings" for key in totals if not slots.get(key))
    if without:
        return Estimate(missing=f"no slot in service for {without[0]}")
    longest = max((total.shared(slots[key]) for key, total in totals.items()), key=lambda each: each.seconds)
    return _estimate(longest, at_least=at_least, assumed=assumed)


def estimate_of_analysis(launches: int, elapsed_seconds: float, before: Analysed | None) -> Estimate:
    """How long an analysis of so many launches takes yet, from that of an earlier campaign or as assumed."""
    if before is not None and before.launches:
        guess = _Guess(before.seconds * launches / before.launches, _EARLIER_FACTOR)
    else:
        guess = _Guess(_ANALYSIS_SECONDS + _ANALYSIS_SECONDS_A_LAUNCH * launches, _ASSUMED_FACTOR)
    total = _Total()
    total.add(guess, 1)
    if elapsed_seconds > total.high:
        return Estimate(missing="its analysis takes longer than expected")
    left = (max(0.0, each - elapsed_seconds) for each in (total.seconds, total.low, total.high))
    return _estimate(_Total(*left), at_least=False, assumed=True)


def _estimate(total: _Total, *, at_least: bool, assumed: bool) -> Estimate:
    return Estimate(
        known=True,
        remaining_ms=round(1000 * total.seconds),
        at_least=at_least,
        low_ms=round(1000 * total.low),
        high_ms=round(1000 * total.high),
        assumed=assumed,
    )


@dataclass
class _Known:
    """Guesses by what they rest on: a workload's level on a GPU, in an earlier campaign, and on any GPU."""

    earlier: dict[tuple[str, str, str], _Guess] = field(default_factory=dict)
    other: dict[tuple[str, str], _Guess] = field(default_factory=dict)
    runs: dict[tuple[str, str], Run] = field(default_factory=dict)

    @classmethod
    def of(cls, costs: Iterable[WorkloadCost], elsewhere: Elsewhere) -> _Known:
        known = cls()
        for each in elsewhere.earlier:
            if each.published:
                key = (each.workload, each.device_key, each.level)
                known.earlier.setdefault(key, _Guess(_mean_seconds(each), _EARLIER_FACTOR))
        for each in (*costs, *elsewhere.earlier):
            if each.published:
                known.other.setdefault(
                    (each.workload, each.level), _Guess(_mean_seconds(each), _OTHER_GPU_FACTOR)
                )
        for run in elsewhere.runs:
            known.runs.setdefault((run.device_key, run.level), run)
        return known

    def guess(self, cost: WorkloadCost) -> _Guess | None:
        """How long a slice takes; None where nothing is known."""
        if cost.published:
            # The times of slices of one workload spread by about their mean.
            return _Guess(_mean_seconds(cost), 1 + 1 / math.sqrt(cost.published), assumed=False)
        return (
            self.earlier.get((cost.workload, cost.device_key, cost.level))
            or self.other.get((cost.workload, cost.level))
            or self._assumed(cost)
        )

    def _assumed(self, cost: WorkloadCost) -> _Guess | None:
        run = self.runs.get((cost.device_key, cost.level))
        if run is None:
            return None
        assumed = _ASSUMED_VIRTUAL if _is_modelled(run) else _ASSUMED
        launches = round(cost.launches) or assumed.launches
        return _Guess(assumed_seconds(run, 1, launches, assumed), _ASSUMED_FACTOR)


def _is_modelled(run: Run) -> bool:
    """Whether a virtual GPU computes the run; a program that traces itself runs on any GPU."""
    return run.synthetic and run.command is not None and not run.command.kineto_file


def _mean_seconds(cost: WorkloadCost) -> float:
    return cost.published_seconds / cost.published
