"""Simple random sampling: launches drawn without replacement, the plainest honest baseline."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import BaseModel, Field

from assay_sampling.estimation.light_time_draws import draw_by_light_time
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.baselines.dominating import Dominating, DominatingLaunches
from assay_sampling.methods.baselines.drawing import (
    MOST_REPETITIONS,
    Estimator,
    Population,
    drawn_selection,
    measured_for,
    repeated,
    time_for_drawing,
)
from assay_sampling.methods.budgets import LAUNCHES
from assay_sampling.methods.needs import INSTRUCTIONS_OF_ALL, NO_COUNTERS, Needs
from assay_sampling.methods.tried import Tried
from assay_sampling.parameters import MethodParameters
from assay_sampling.scoring.selection import Selection

_LEAST_LAUNCHES = 10
_DEFAULT_SHARE = 100


class RandomParameters(MethodParameters):
    """Which launches are drawn, and how a total is projected from them."""

    launches: int | None = Field(
        default=None,
        ge=1,
        description=(
            "How many launches to draw; by default 1 % of them, at least 10; never more than there are."
        ),
    )
    estimator: Estimator = Field(
        default="expansion",
        description=(
            'How a total is projected: "expansion" by the number of launches, "ratio" by instructions.'
        ),
    )
    dominating: Dominating = Field(
        default="drawn",
        description=(
            "What becomes of launches that cost at least their share, total / launches to draw, each: "
            '"drawn" like all others, as published, or taken "whole", and the rest drawn.'
        ),
    )
    repetitions: int = Field(
        default=0,
        ge=0,
        le=MOST_REPETITIONS,
        description="How many more samples to draw, to report their errors.",
    )


def sample_size(number: int | None, launches: int) -> int:
    """How many of ``launches`` to select: ``number``, or the default if that is None."""
    if number is None:
        number = max(_LEAST_LAUNCHES, math.ceil(launches / _DEFAULT_SHARE))
    return min(number, launches)


class RandomSampler:
    """Launches drawn uniformly without replacement; weight = launches / drawn (an unbiased total), or
    all instructions / drawn instructions (a ratio, of small bias and often less spread)."""

    name = "random"
    parameters: type[BaseModel] = RandomParameters
    budget = LAUNCHES

    def needs(self, parameters: RandomParameters) -> Needs:
        """Which counters it looks at."""
        return INSTRUCTIONS_OF_ALL if parameters.estimator == "ratio" else NO_COUNTERS

    def select(self, profile: Profile, parameters: RandomParameters, *, seed: int) -> Selection:
        """Raises RefusedError for no launches, CounterUnavailableError where one lacks its cost, or its
        instructions where the estimator needs them."""
        return self.select_and_try(profile, parameters, seed=seed, count=0).selection

    def select_and_try(
        self, profile: Profile, parameters: RandomParameters, *, seed: int, count: int
    ) -> Tried:
        """As :meth:`select`, with ``count`` further draws."""
        profile = measured_for(profile, parameters.estimator, self.name)
        light_time = time_for_drawing(profile, parameters, parameters.repetitions, self.name)
        population = Population.of(profile, parameters.estimator, self.name, light_time=light_time)
        size = sample_size(parameters.launches, len(population))
        dominating = DominatingLaunches.among(population.cost.values, size)
        whole = dominating.rows[:0]
        extra: dict[str, Any] = {}
        if parameters.dominating == "whole" and len(dominating.rows):
            whole, extra = dominating.rows, dominating.facts()
            population = replace(population, labels=dominating.apart(population.labels)[0])
        others = np.delete(np.arange(len(population)), whole)
        # Of others without any cost one is still drawn: no group is without a launch.
        draws = min(max(size - len(whole), 1), len(others))

        def draw(rng: np.random.Generator) -> np.ndarray:
            if light_time is not None:
                chosen = draw_by_light_time(np.zeros(len(others), np.int64), draws, light_time[others], rng)
            else:
                chosen = rng.choice(len(others), draws, replace=False, shuffle=False)
            return np.sort(np.concatenate([whole, others[chosen]]))

        rows = draw(np.random.default_rng(seed))
        warns = light_time is None and parameters.dominating == "drawn"
        if parameters.repetitions:
            extra["repetitions"] = repeated(draw, population, seed, parameters.repetitions)
        selection = drawn_selection(
            profile,
            self.name,
            parameters.model_copy(update={"launches": len(rows)}),
            seed,
            population=population,
            rows=rows,
            interval=population.interval(rows),
            warnings=dominating.warnings(all_drawn=len(rows) == len(population)) if warns else (),
            extra=extra,
        )
        return Tried(selection, population.trials(draw, seed, count))
