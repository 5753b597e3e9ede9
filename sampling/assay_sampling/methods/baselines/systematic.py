"""Systematic sampling: launches at equal spacing from a start within the first period."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import BaseModel, Field

from assay_sampling.errors import ParameterError
from assay_sampling.estimation.intervals import Interval
from assay_sampling.estimation.known_design import interval_of_errors
from assay_sampling.estimation.light_time_draws import draw_by_light_time
from assay_sampling.launches.periodicity import Period, find_period
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
from assay_sampling.methods.baselines.random_sampling import sample_size
from assay_sampling.methods.budgets import LAUNCHES
from assay_sampling.methods.needs import INSTRUCTIONS_OF_ALL, NO_COUNTERS, Needs
from assay_sampling.methods.tried import Tried
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.parameters import MethodParameters
from assay_sampling.scoring.selection import Selection

# Below this share of the positions that a random sample would meet, the spacing is reported.
_LEAST_POSITIONS_MET = 0.9
# As many starts stand for all: more than the launches of most periods.
_STARTS = 1024
_LEAST_STARTS = 128
_LAUNCHES_OF_STARTS = 1 << 27
_CHUNK_LAUNCHES = 1 << 20


class SystematicParameters(MethodParameters):
    """Which launches are taken, and how a total is projected from them."""

    launches: int | None = Field(
        default=None,
        ge=1,
        description=(
            "How many launches to take; by default 1 % of them, at least 10; never more than there are."
        ),
    )
    start: float | None = Field(
        default=None,
        ge=0,
        description=(
            "The first launch, in [0, all launches / launches taken); by default the seed draws it."
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
        description="How many other starts to try, to report their errors.",
    )


class SystematicSampler:
    """Launches at equal spacing; weight = launches / selected. It fails if the workload repeats with the
    same period, of which ``warnings`` warns."""

    name = "systematic"
    parameters: type[BaseModel] = SystematicParameters
    budget = LAUNCHES

    def needs(self, parameters: SystematicParameters) -> Needs:
        """Which counters it looks at."""
        return INSTRUCTIONS_OF_ALL if parameters.estimator == "ratio" else NO_COUNTERS

    def select(self, profile: Profile, parameters: SystematicParameters, *, seed: int) -> Selection:
        """Raises RefusedError for no launches, CounterUnavailableError where one lacks its cost, or its
        instructions where the estimator needs them, ParameterError for a start outside the period."""
        return self.select_and_try(profile, parameters, seed=seed, count=0).selection

    def select_and_try(
        self, profile: Profile, parameters: SystematicParameters, *, seed: int, count: int
    ) -> Tried:
        """As :meth:`select`, with ``count`` further draws."""
        profile = measured_for(profile, parameters.estimator, self.name)
        light_time = time_for_drawing(profile, parameters, parameters.repetitions, self.name)
        population = Population.of(profile, parameters.estimator, self.name, light_time=light_time)
        total = len(population)
        selected = sample_size(parameters.launches, total)
        spacing = total / selected

        def draw(rng: np.random.Generator) -> np.ndarray:
            return _equally_spaced(float(rng.random()) * spacing, total, selected)

        start = parameters.start
        if start is None and light_time is not None:
            start = _start_by_light_time(light_time, spacing, np.random.default_rng(seed))
        elif start is None:
            start = float(np.random.default_rng(seed).random()) * spacing
        if not start < spacing:
            raise ParameterError(
                self.name,
                f"start is {start:g}, but the period is {spacing:g} launches",
                "give a start of at least 0 and below the period",
            )
        rows = _equally_spaced(start, total, selected)
        extra: dict[str, Any] = {}
        if parameters.repetitions:
            extra["repetitions"] = repeated(draw, population, seed, parameters.repetitions)
        random_start = parameters.start is None or selected == total
        errors = _errors_of_starts(population, selected) if random_start else None

        def interval_of(rows: np.ndarray) -> Interval | Note:
            if errors is None:
                return make_note("interval_of_one_start")
            drawn = population.cost.values[rows]
            projected = float(population.weights(rows) @ drawn)
            return interval_of_errors(
                projected, errors, total=population.total, drawn_cost=float(drawn.sum())
            )

        warning = _blind_to(find_period(profile.whole), rows) if selected < total else None
        selection = drawn_selection(
            profile,
            self.name,
            parameters.model_copy(update={"launches": selected, "start": start}),
            seed,
            population=population,
            rows=rows,
            interval=interval_of(rows),
            warnings=() if warning is None else (warning,),
            extra=extra,
            by_rule=True,
        )
        return Tried(selection, population.trials(draw, seed, count, interval=interval_of))


def _start_by_light_time(light_time: np.ndarray, spacing: float, rng: np.random.Generator) -> float:
    """A start whose launches are taken in proportion to the sum of their light times.

    A launch is drawn in proportion to its light time, then any of the starts whose launches it is among: a
    range of length 1 before it, carried back by whole spacings.
    """
    row = int(draw_by_light_time(np.zeros(len(light_time), np.int64), 1, light_time, rng)[0])
    return float((row + rng.random()) % spacing)


def starts_tried(selected: int) -> int:
    """From how many starts errors are found if that many launches are taken: from 128 for millions of
    launches, whose errors are small, up to 1,024."""
    return int(np.clip(_LAUNCHES_OF_STARTS // selected, _LEAST_STARTS, _STARTS))


def _errors_of_starts(population: Population, selected: int) -> np.ndarray:
    """Projected - true total from starts all over the first period, shape (s,)."""
    total, costs, amounts = len(population), population.cost.values, population.instructions
    count = starts_tried(selected)
    starts = (np.arange(count) + 0.5) * (total / selected / count)
    step = max(1, _CHUNK_LAUNCHES // selected)
    errors = []
    for first in range(0, count, step):
        rows = _equally_spaced(starts[first : first + step, None], total, selected)
        expansion = np.full(len(rows), total / selected)
        if amounts is not None:
            of_drawn = amounts[rows].sum(axis=1)
            np.divide(amounts.sum(), of_drawn, out=expansion, where=of_drawn > 0)
        errors.append(expansion * costs[rows].sum(axis=1))
    return np.concatenate(errors) - population.total


def _equally_spaced(start: float | np.ndarray, total: int, selected: int) -> np.ndarray:
    """Rows from a start, shape (selected,), or from each of several, given as a column."""
    # Whole launches and fractions are kept apart: rounding must not carry a launch into the next.
    whole, rest = np.divmod(np.arange(selected) * total, selected)
    rows = whole + np.floor(start + rest / selected).astype(np.int64)
    # A start just below the period may round up to the launch after the last.
    capped_rows: np.ndarray = np.minimum(rows, total - 1)
    return capped_rows


def _blind_to(period: Period | None, rows: np.ndarray) -> Note | None:
    """The warning for a sample that keeps meeting the same positions of a repeating workload."""
    if period is None:
        return None
    inside = rows[(rows >= period.start) & (rows < period.stop)]
    if not len(inside):
        return None
    met = len(np.unique((inside - period.start) % period.launches))
    # Drawn at random, this many of the positions would be met on average.
    missed = (1 - 1 / period.launches) ** len(inside)
    expected = period.launches * (1 - missed)
    if met >= _LEAST_POSITIONS_MET * expected:
        return None
    return make_note("spacing_meets_period", period=period.launches, met=met, expected=expected)
