"""Systematic sampling: launches at equal spacing from a start within the first period."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import BaseModel, Field

from assay_sampling.errors import ParameterError
from assay_sampling.intervals import RANDOM_INSTEAD
from assay_sampling.periodicity import Period, find_period
from assay_sampling.profile import Profile
from assay_sampling.samplers.base import Parameters
from assay_sampling.samplers.drawing import (
    MOST_REPETITIONS,
    Estimator,
    Population,
    drawn_selection,
    measured_for,
    repeated,
)
from assay_sampling.samplers.needs import INSTRUCTIONS_OF_ALL, NO_COUNTERS, Needs
from assay_sampling.samplers.random_sampling import sample_size
from assay_sampling.selection import Selection

NO_INTERVAL_ONE_START = (
    "launches at equal spacing have one random start: their spread is not known; repetitions=30 shows the "
    f"errors of other starts; {RANDOM_INSTEAD}"
)
# Fewer positions of the iteration than this share are ever met: the others go unseen.
_LEAST_POSITIONS_MET = 0.9


class SystematicParameters(Parameters):
    """``launches`` to select, as for random sampling. ``start`` lies in [0, period), the period being all
    launches / launches selected, in launches; by default it is drawn by the seed. ``estimator`` "ratio"
    projects by instructions. ``repetitions`` starts that often elsewhere and reports the errors."""

    launches: int | None = Field(default=None, ge=1)
    start: float | None = Field(default=None, ge=0)
    estimator: Estimator = "expansion"
    repetitions: int = Field(default=0, ge=0, le=MOST_REPETITIONS)


class SystematicSampler:
    """Launches at equal spacing; weight = launches / selected. It fails where the workload repeats with
    the same period: ``warnings`` then says so."""

    name = "systematic"
    parameters: type[BaseModel] = SystematicParameters

    def needs(self, parameters: SystematicParameters) -> Needs:
        """Which counters it looks at."""
        return INSTRUCTIONS_OF_ALL if parameters.estimator == "ratio" else NO_COUNTERS

    def select(self, profile: Profile, parameters: SystematicParameters, *, seed: int) -> Selection:
        """Raises RefusedError for no launches, CounterUnavailableError where one lacks its cost, or its
        instructions where the estimator needs them, ParameterError for a start outside the period."""
        profile = measured_for(profile, parameters.estimator, self.name)
        population = Population.of(profile, parameters.estimator, self.name)
        total = len(population)
        selected = sample_size(parameters.launches, total)
        spacing = total / selected

        def draw(rng: np.random.Generator) -> np.ndarray:
            return _equally_spaced(float(rng.random()) * spacing, total, selected)

        start = parameters.start
        if start is None:
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
        warning = _blind_to(find_period(profile.whole), rows) if selected < total else None
        if warning:
            extra["warnings"] = [warning]
        return drawn_selection(
            profile,
            self.name,
            parameters.model_copy(update={"launches": selected, "start": start}),
            seed,
            population=population,
            rows=rows,
            interval=(None, NO_INTERVAL_ONE_START) if selected < total else population.interval(rows),
            extra=extra,
        )


def _equally_spaced(start: float, total: int, selected: int) -> np.ndarray:
    # Whole launches and fractions apart: rounding must not carry a launch into the next.
    whole, rest = np.divmod(np.arange(selected) * total, selected)
    rows = whole + np.floor(start + rest / selected).astype(np.int64)
    # A start just below the period may round up to the launch after the last.
    found: np.ndarray = np.minimum(rows, total - 1)
    return found


def _blind_to(period: Period | None, rows: np.ndarray) -> str | None:
    """What to warn of where the sample keeps meeting the same positions of a repeating workload."""
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
    return (
        f"the workload repeats every {period.launches:,} launches, and equal spacing meets only {met:,} of "
        f"these positions (random draws: {expected:,.0f}): choose another number of launches, or random"
    )
