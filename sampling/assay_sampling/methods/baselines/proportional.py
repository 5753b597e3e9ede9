"""Sampling in proportion to light time: with replacement, launches that dominate taken whole.

On the recording that it draws from, the projected total is exact by construction: each draw stands for an
equal part of the time. What the draw is worth shows on another GPU, as its error and interval.

Source: docs/methods/proportional.md.
"""

from __future__ import annotations

import math

import numpy as np
from pydantic import BaseModel, Field

from assay_sampling.estimation.proportional_draws import draw_in_proportion
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.base import grouped_selection, whole_cost
from assay_sampling.methods.baselines.random_sampling import sample_size
from assay_sampling.methods.budgets import LAUNCHES
from assay_sampling.methods.needs import NO_COUNTERS, Needs
from assay_sampling.methods.tried import Tried
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.parameters import MethodParameters
from assay_sampling.scoring.selection import Selection

# With some of them taken whole, enough are drawn for an interval on another GPU.
_LEAST_LAUNCHES = 50


class ProportionalParameters(MethodParameters):
    """How many launches are taken and drawn."""

    launches: int | None = Field(
        default=None,
        ge=1,
        description=(
            "How many launches to take whole and draw, one that is drawn twice counted twice; by default 1 % "
            "of them, at least 50; never more than there are."
        ),
    )


class ProportionalSampler:
    """Launches drawn with replacement in proportion to their light time; weight = time that a draw stands
    for / time of the launch. Launches that last as long as a draw stands for are taken whole."""

    name = "proportional"
    parameters: type[BaseModel] = ProportionalParameters
    budget = LAUNCHES

    def needs(self, parameters: ProportionalParameters) -> Needs:
        """Which counters it looks at."""
        return NO_COUNTERS

    def select(self, profile: Profile, parameters: ProportionalParameters, *, seed: int) -> Selection:
        """Raises RefusedError for no launches, CounterUnavailableError where one lacks its time."""
        return self.select_and_try(profile, parameters, seed=seed, count=0).selection

    def select_and_try(
        self, profile: Profile, parameters: ProportionalParameters, *, seed: int, count: int
    ) -> Tried:
        """As :meth:`select`, without tries: each draw projects the total exactly."""
        cost = whole_cost(profile)
        number = parameters.launches or max(_LEAST_LAUNCHES, math.ceil(len(cost.values) / 100))
        size = sample_size(number, len(cost.values))
        drawn = draw_in_proportion(cost.values, size, np.random.default_rng(seed))
        labels = _strata(len(cost.values), drawn.rows, drawn.draws)
        selection = grouped_selection(
            profile,
            self.name,
            parameters.model_copy(update={"launches": size}),
            seed,
            labels=labels,
            rows=drawn.rows,
            weights=drawn.weights,
            draws=drawn.draws,
            weighed_by="light_time",
            drawing="proportional",
            cost=cost,
            interval_reason=make_note("interval_exact_by_construction", quantity=cost.quantity),
            warnings=_without_time(cost.values, cost.quantity),
        )
        return Tried(selection, otherwise="by_construction")


def _strata(launches: int, rows: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Group of every launch, shape (n,): those drawn from, and, if there are any, those taken whole."""
    labels = np.zeros(launches, np.int32)
    if draws.any():
        labels[rows[draws == 0]] = 1
    return labels


def _without_time(amounts: np.ndarray, quantity: str) -> tuple[Note, ...]:
    count = int((amounts == 0).sum())
    return (make_note("launches_never_drawn", launches=count, quantity=quantity),) if count else ()
