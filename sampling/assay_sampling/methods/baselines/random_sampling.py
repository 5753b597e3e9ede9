"""Simple random sampling: launches drawn without replacement, the plainest honest baseline."""

from __future__ import annotations

import math

import numpy as np
from pydantic import BaseModel, Field

from assay_sampling.estimation.light_time_draws import draw_by_light_time
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.baselines.drawing import (
    MOST_REPETITIONS,
    Estimator,
    Population,
    drawn_selection,
    measured_for,
    repeated,
    time_for_drawing,
)
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
    repetitions: int = Field(
        default=0,
        ge=0,
        le=MOST_REPETITIONS,
        description="How many more samples to draw, to report their errors.",
    )


def sample_size(asked: int | None, launches: int) -> int:
    """How many of ``launches`` to select: the number ``asked``, or the default if that is None."""
    if asked is None:
        asked = max(_LEAST_LAUNCHES, math.ceil(launches / _DEFAULT_SHARE))
    return min(asked, launches)


class RandomSampler:
    """Launches drawn uniformly without replacement; weight = launches / drawn (an unbiased total), or
    all instructions / drawn instructions (a ratio, of small bias and often less spread)."""

    name = "random"
    parameters: type[BaseModel] = RandomParameters

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
        total = len(population)
        size = sample_size(parameters.launches, total)

        def draw(rng: np.random.Generator) -> np.ndarray:
            if light_time is not None:
                return draw_by_light_time(population.labels, size, light_time, rng)
            return np.sort(rng.choice(total, size, replace=False, shuffle=False))

        rows = draw(np.random.default_rng(seed))
        extra = {}
        if parameters.repetitions:
            extra["repetitions"] = repeated(draw, population, seed, parameters.repetitions)
        selection = drawn_selection(
            profile,
            self.name,
            parameters.model_copy(update={"launches": size}),
            seed,
            population=population,
            rows=rows,
            interval=population.interval(rows),
            extra=extra,
        )
        return Tried(selection, population.trials(draw, seed, count))
