"""Helpers of the methods that draw launches at random: sizes, estimators, intervals and repetitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel

from assay_sampling.counters.missing import cannot_be_read
from assay_sampling.errors import CounterUnavailableError, ParameterError
from assay_sampling.estimation.intervals import Interval
from assay_sampling.estimation.known_design import errors_of_design, known_design_interval
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.base import grouped_selection, source_of, time_to_draw_by, whole_cost
from assay_sampling.methods.joined_instructions import with_instructions_of_both_levels
from assay_sampling.methods.needs import INSTRUCTIONS_OF_ALL
from assay_sampling.methods.registry import without_counters
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.parameters import MethodParameters
from assay_sampling.scoring.evaluation import Cost, instructions_of
from assay_sampling.scoring.selection import Selection
from assay_sampling.scoring.trials import Draw, Trials, drawn_trials

Estimator = Literal["expansion", "ratio"]
MOST_REPETITIONS = 10_000
_BAND_PERCENT = (2.5, 97.5)


def instructions_needed(launches: Launches, why: str, method: str) -> np.ndarray:
    """Instructions of every launch, shape (n,); raises CounterUnavailableError where one lacks them."""
    instructions = instructions_of(launches)
    if instructions is None:
        unreadable = launches.unreadable.get("instructions")
        if unreadable is not None:
            cause, remedy = cannot_be_read("instructions", unreadable)
            raise CounterUnavailableError(source_of(launches), f"{cause}; {why} needs it", remedy)
        raise CounterUnavailableError(
            source_of(launches),
            f"the counter 'instructions' was not measured for all launches, and {why} needs it",
            without_counters(method, INSTRUCTIONS_OF_ALL, launches),
        )
    return instructions


def measured_for(profile: Profile, estimator: Estimator, method: str) -> Profile:
    """The profile with the counters that an estimator uses in the whole workload.

    Raises RefusedError if a ratio needs the instructions of launches that only the other level has.
    """
    if estimator == "expansion":
        return profile
    return with_instructions_of_both_levels(profile, f"{method} with estimator=ratio")


def time_for_drawing(
    profile: Profile, parameters: MethodParameters, repetitions: int, method: str
) -> np.ndarray | None:
    """As :func:`time_to_draw_by`; raises ParameterError if repetitions are asked for too."""
    light_time = time_to_draw_by(profile, parameters)
    if light_time is not None and repetitions:
        raise ParameterError(
            method,
            "repetitions shows errors on the profile itself, and weights=light_time draws for other GPUs",
            "leave one of them out",
        )
    return light_time


@dataclass(frozen=True)
class Population:
    """The launches to draw from: cost and group of each, shape (n,), and how a total is projected.

    ``instructions`` is given for the ratio estimator only: projected = X_g x costs / instructions of the
    drawn launches, instead of N_g x mean cost. ``light_time``, shape (n,), is given if launches are to be
    drawn in proportion to it.
    """

    cost: Cost
    labels: np.ndarray
    instructions: np.ndarray | None = None
    light_time: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        profile: Profile,
        estimator: Estimator,
        method: str,
        labels: np.ndarray | None = None,
        light_time: np.ndarray | None = None,
    ) -> Population:
        """All launches of the whole workload, in one group unless ``labels`` are given, for a ``method``.

        Raises what :func:`whole_cost` raises, CounterUnavailableError for a ratio without instructions.
        """
        cost = whole_cost(profile)
        if labels is None:
            labels = np.zeros(len(cost.values), np.int32)
        if estimator == "expansion":
            return cls(cost, labels, light_time=light_time)
        executed = instructions_needed(profile.whole, "the ratio estimator", method)
        return cls(cost, labels, executed, light_time)

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def sizes(self) -> np.ndarray:
        """Launches of each group, shape (g,)."""
        return np.bincount(self.labels)

    @cached_property
    def group_instructions(self) -> np.ndarray:
        """Instructions of each group, shape (g,)."""
        return np.bincount(self.labels, self.instructions)

    @cached_property
    def total(self) -> float:
        return float(self.cost.values.sum())

    def weights(self, rows: np.ndarray) -> np.ndarray:
        """Weight of each drawn launch, shape (m,)."""
        groups, sizes = self.labels[rows], self.sizes
        drawn = np.bincount(groups, minlength=len(sizes))
        if self.instructions is not None:
            whole = self.group_instructions
            of_drawn = np.bincount(groups, self.instructions[rows], minlength=len(sizes))
            # Launches without instructions say nothing about the others: they count as launches.
            ratio = of_drawn > 0
            expansion = np.divide(whole, of_drawn, out=np.divide(sizes, np.maximum(drawn, 1)), where=ratio)
        else:
            expansion = sizes / np.maximum(drawn, 1)
        weights: np.ndarray = expansion[groups]
        return weights

    def interval(self, rows: np.ndarray) -> Interval:
        """Interval of the projected total of launches drawn at random within groups."""
        drawn = np.bincount(self.labels[rows], minlength=len(self.sizes))
        return known_design_interval(
            self.cost.values, self.labels, rows, amounts=self.instructions, errors=self._errors(drawn)
        )

    def _errors(self, drawn: np.ndarray) -> np.ndarray:
        """Those of the design; draws of one population have the same one, so it is kept."""
        key = drawn.tobytes()
        if key not in self._of_designs:
            self._of_designs.clear()
            self._of_designs[key] = errors_of_design(self.cost.values, self.labels, drawn, self.instructions)
        return self._of_designs[key]

    @cached_property
    def _of_designs(self) -> dict[bytes, np.ndarray]:
        return {}

    def trials(
        self,
        draw: Callable[[np.random.Generator], np.ndarray],
        seed: int,
        count: int,
        *,
        interval: Callable[[np.ndarray], Interval | Note] | None = None,
    ) -> Trials | None:
        """``count`` further draws with their errors and, where the method gives one, their intervals; None
        for none. ``interval`` gives that of drawn rows; by default :meth:`interval`."""
        if not count:
            return None
        interval_of = interval or self.interval

        def one(rng: np.random.Generator) -> Draw:
            rows = draw(rng)
            interval = interval_of(rows)
            ends = (interval.low, interval.high) if isinstance(interval, Interval) else None
            return rows, self.weights(rows), ends

        return drawn_trials(self.cost.values, one, seed, count)

    def error_percent(self, rows: np.ndarray) -> float:
        """Signed error of the total that these launches project."""
        return 100.0 * (float(self.weights(rows) @ self.cost.values[rows]) - self.total) / self.total


def repeated(
    draw: Callable[[np.random.Generator], np.ndarray], population: Population, seed: int, repetitions: int
) -> dict[str, Any]:
    """Errors of that many further samples, each with its own random stream: mean, and the 95 % band.

    ``draw`` gives the rows of one sample.
    """
    signed = np.array(
        [
            population.error_percent(draw(np.random.default_rng([seed, 1 + index])))
            for index in range(repetitions)
        ]
    )
    low, high = np.percentile(signed, _BAND_PERCENT)
    return {
        "count": repetitions,
        "mean_error_percent": float(np.abs(signed).mean()),
        "mean_signed_error_percent": float(signed.mean()),
        "low_signed_error_percent": float(low),
        "high_signed_error_percent": float(high),
    }


def drawn_selection(
    profile: Profile,
    method: str,
    parameters: BaseModel,
    seed: int,
    *,
    population: Population,
    rows: np.ndarray,
    interval: Interval | Note,
    warnings: tuple[Note, ...] = (),
    extra: Mapping[str, Any] | None = None,
    by_rule: bool = False,
) -> Selection:
    """The selection of launches at ``rows``, shape (m,), ascending, with the population's weights; without an
    ``interval`` it is the reason why not.

    The interval is that of a uniform draw, so it is withheld for one in proportion to light time. ``by_rule``
    says that the launches were not drawn one by one.
    """
    if population.light_time is not None and len(rows) < len(population):
        interval = make_note("interval_of_light_time_draw")
    return grouped_selection(
        profile,
        method,
        parameters,
        seed,
        labels=population.labels,
        rows=rows,
        weights=population.weights(rows),
        cost=population.cost,
        interval=interval if isinstance(interval, Interval) else None,
        interval_reason=interval if isinstance(interval, Note) else None,
        warnings=warnings,
        extra=extra,
        weighed_by="launches" if population.instructions is None else "instructions",
        drawing="rule" if by_rule else "uniform" if population.light_time is None else "light_time",
    )
