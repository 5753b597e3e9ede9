"""One iteration of a workload that repeats: simulate it, and multiply by the number of iterations."""

from __future__ import annotations

import numpy as np
from pydantic import BaseModel, Field

from assay_sampling.errors import ParameterError, RefusedError
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.periodicity import Period, find_period
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.base import grouped_selection, source_of, whole_cost
from assay_sampling.methods.needs import NO_COUNTERS, Needs
from assay_sampling.notes.registry import make_note
from assay_sampling.parameters import MethodParameters
from assay_sampling.scoring.selection import Selection


class SingleIterationParameters(MethodParameters):
    """Which launches are an iteration, and which iteration is simulated."""

    iteration_launches: int | None = Field(
        default=None,
        ge=1,
        description="How many launches one iteration has; by default found from the sequence of launches.",
    )
    first_launch: int = Field(
        default=0,
        ge=0,
        description="Where the first iteration begins, 0-based.",
    )
    iteration: int | None = Field(
        default=None,
        ge=0,
        description="The iteration to take, 0-based; by default the middle one, far from the cold first.",
    )


class SingleIterationSampler:
    """All launches of one iteration; weight = launches of the workload / launches of the iteration.
    Launches outside iterations (setup, evaluation) are assumed to cost as much as those within."""

    name = "single_iteration"
    parameters: type[BaseModel] = SingleIterationParameters

    def needs(self, parameters: SingleIterationParameters) -> Needs:
        """Which counters it looks at."""
        return NO_COUNTERS

    def select(self, profile: Profile, parameters: SingleIterationParameters, *, seed: int) -> Selection:
        """Raises RefusedError for no launches or none that repeat, CounterUnavailableError where one lacks
        its cost, ParameterError for an iteration that does not exist."""
        cost = whole_cost(profile)
        launches = profile.whole
        period = _period(launches, parameters)
        chosen = period.iterations // 2 if parameters.iteration is None else parameters.iteration
        if chosen >= period.iterations:
            raise ParameterError(
                self.name,
                f"there is no iteration {chosen:,}",
                f"the workload has {period.iterations:,}; the first is 0",
            )
        first = period.start + chosen * period.launches
        rows = np.arange(first, first + period.launches)
        return grouped_selection(
            profile,
            self.name,
            parameters.model_copy(
                update={
                    "iteration_launches": period.launches,
                    "first_launch": period.start,
                    "iteration": chosen,
                }
            ),
            seed,
            labels=np.zeros(len(launches), np.int32),
            rows=rows,
            weights=np.full(len(rows), len(launches) / period.launches),
            cost=cost,
            interval_reason=make_note("interval_of_one_iteration"),
            extra={
                "iterations": {
                    "launches": period.launches,
                    "count": period.iterations,
                    "first_launch": period.start,
                    "outside_launches": len(launches) - period.iterations * period.launches,
                }
            },
        )


def _period(launches: Launches, parameters: SingleIterationParameters) -> Period:
    """The period that was asked for, else the one that repeats."""
    if parameters.iteration_launches is None:
        if parameters.first_launch:
            raise ParameterError(
                SingleIterationSampler.name,
                "first_launch applies only together with iteration_launches",
                "give iteration_launches too",
            )
        period = find_period(launches)
        if period is None:
            raise RefusedError(
                source_of(launches),
                "no iterations found: no sequence of launches repeats exactly over half of the workload",
                "give iteration_launches, or use another method",
            )
        return period
    most = len(launches) - parameters.first_launch
    if parameters.iteration_launches > most:
        raise ParameterError(
            SingleIterationSampler.name,
            f"an iteration of {parameters.iteration_launches:,} launches from launch "
            f"{parameters.first_launch:,} on does not fit in {len(launches):,}",
            "give fewer launches",
        )
    return Period(parameters.iteration_launches, parameters.first_launch, len(launches))
