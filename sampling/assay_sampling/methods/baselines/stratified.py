"""Stratified random sampling by kernel name: the baseline between plain random and the clever methods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, Field

from assay_sampling.estimation.intervals import draw_per_group
from assay_sampling.estimation.light_time_draws import draw_by_light_time
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.launches.signatures import distinct_signatures
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
from assay_sampling.methods.baselines.random_sampling import sample_size
from assay_sampling.methods.budgets import LAUNCHES
from assay_sampling.methods.needs import INSTRUCTIONS_OF_ALL, NO_COUNTERS, Needs
from assay_sampling.methods.tried import Tried
from assay_sampling.parameters import MethodParameters
from assay_sampling.scoring.selection import Selection

_HALVINGS = 200
_LAST = 1e-12


class StratifiedParameters(MethodParameters):
    """What a group is, and how the launches to draw are spread over the groups."""

    launches: int | None = Field(
        default=None,
        ge=1,
        description=(
            "How many launches to draw in all; by default 1 % of them, at least 10; more if the groups "
            "need it."
        ),
    )
    groups: Literal["kernel", "signature"] = Field(
        default="kernel",
        description=(
            'What makes a group: launches of one "kernel" name, or of one "signature" (name, grid, '
            "block, NVTX path)."
        ),
    )
    allocation: Literal["proportional", "neyman"] = Field(
        default="proportional",
        description=(
            'How many are drawn from a group: "proportional" to its launches, or "neyman", to '
            "launches x standard deviation of the cost, which reads the cost of every launch before it "
            "draws."
        ),
    )
    launches_per_group: int = Field(
        default=2,
        ge=1,
        description="The fewest launches to draw from each group; from two on, its spread is known.",
    )
    estimator: Estimator = Field(
        default="expansion",
        description=(
            'How a total is projected: "expansion" by the number of launches, "ratio" by instructions.'
        ),
    )
    dominating: Dominating = Field(
        default="whole",
        description=(
            "What becomes of launches that cost at least their share, total / launches to draw, each: taken "
            '"whole", as groups of their own, or "drawn" like all others.'
        ),
    )
    repetitions: int = Field(
        default=0,
        ge=0,
        le=MOST_REPETITIONS,
        description="How many more samples to draw, to report their errors.",
    )


class StratifiedSampler:
    """Launches drawn at random within groups of one kernel; weight = launches of the group / drawn."""

    name = "stratified"
    parameters: type[BaseModel] = StratifiedParameters
    budget = LAUNCHES

    def needs(self, parameters: StratifiedParameters) -> Needs:
        """Which counters it looks at."""
        return INSTRUCTIONS_OF_ALL if parameters.estimator == "ratio" else NO_COUNTERS

    def select(self, profile: Profile, parameters: StratifiedParameters, *, seed: int) -> Selection:
        """Raises RefusedError for no launches, CounterUnavailableError where one lacks its cost, or its
        instructions where the estimator needs them."""
        return self.select_and_try(profile, parameters, seed=seed, count=0).selection

    def select_and_try(
        self, profile: Profile, parameters: StratifiedParameters, *, seed: int, count: int
    ) -> Tried:
        """As :meth:`select`, with ``count`` further draws."""
        profile = measured_for(profile, parameters.estimator, self.name)
        launches = profile.whole
        light_time = time_for_drawing(profile, parameters, parameters.repetitions, self.name)
        population = Population.of(
            profile, parameters.estimator, self.name, _groups(launches, parameters.groups), light_time
        )
        sample_count = sample_size(parameters.launches, len(population))
        dominating = DominatingLaunches.among(population.cost.values, sample_count)
        least: int | np.ndarray = parameters.launches_per_group
        extra: dict[str, Any] = {"allocation_uses_cost": parameters.allocation == "neyman"}
        if parameters.dominating == "whole" and len(dominating.rows):
            strata, whole = dominating.apart(population.labels)
            population = replace(population, labels=strata)
            least = np.where(whole, population.sizes, least)
            extra |= dominating.facts()
        sizes = population.sizes
        need = sizes.astype(np.float64)
        if parameters.allocation == "neyman":
            need *= _deviations(population.cost.values, population.labels)
        drawn = allocate(need, sizes, sample_count, least)

        def draw(rng: np.random.Generator) -> np.ndarray:
            if light_time is not None:
                return draw_by_light_time(population.labels, drawn, light_time, rng)
            return draw_per_group(population.labels, drawn, rng)

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


def allocate(need: np.ndarray, sizes: np.ndarray, launches: int, least: int | np.ndarray) -> np.ndarray:
    """Launches to draw of each group, shape (g,): in proportion to ``need``, between ``least`` and all.

    ``need``, ``sizes`` and, if it is not one number, ``least`` have shape (g,). The launches add up to
    ``launches``, or to what ``least`` makes necessary; groups without need get the least while others have
    launches left.
    """
    low, high = np.minimum(least, sizes), sizes
    target = min(max(launches, int(low.sum())), int(high.sum()))
    if target in (int(low.sum()), int(high.sum())):
        bound: np.ndarray = low if target == int(low.sum()) else high
        return bound.astype(np.int64)
    # Only proportions count: a power of two keeps them exactly, and needs of 1e-308 from overflowing below.
    need = np.ldexp(need, -int(np.frexp(need.max())[1]))
    each = need / sizes
    # Groups without need come last, in proportion to their launches.
    need = sizes * (each + (_LAST * float(each.max()) or 1.0))
    # The factor at which the bounded shares add up to the target, by bisection: their sum only grows.
    below, above = 0.0, 2 * float((high / need).max())
    for _ in range(_HALVINGS):
        middle = (below + above) / 2
        if np.clip(middle * need, low, high).sum() <= target:
            below = middle
        else:
            above = middle
    shares = np.clip(below * need, low, high)
    drawn = np.floor(shares).astype(np.int64)
    # The rest from rounding goes to the largest remainders; of equals, to the first groups.
    order = np.argsort(-(shares - drawn), kind="stable")
    room = order[drawn[order] < high[order]]
    drawn[room[: target - int(drawn.sum())]] += 1
    return drawn


def _groups(launches: Launches, by: str) -> np.ndarray:
    """Group of every launch, shape (n,), numbered by first appearance."""
    if by == "signature":
        return distinct_signatures(launches).inverse
    encoded = launches.table["kernel_id"].combine_chunks().dictionary_encode()
    groups: np.ndarray = encoded.indices.to_numpy(zero_copy_only=False)
    return groups


def _deviations(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Standard deviation within each group, shape (g,)."""
    counts = np.bincount(labels)
    means = np.bincount(labels, weights=values) / counts
    deviations: np.ndarray = np.sqrt(np.bincount(labels, weights=np.square(values - means[labels])) / counts)
    return deviations
