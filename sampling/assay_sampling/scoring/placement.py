"""A selection's representatives and groups in the rows of a recording, scored there.

Cycles and nanoseconds are never mixed: one quantity is scored, and the evaluation names it.

Source: docs/methods/comparing.md, "Scores".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from assay_sampling.counters.definitions import COST_UNITS, default_cost_counter
from assay_sampling.errors import ParameterError, RefusedError
from assay_sampling.estimation.sample_design import SampleDesign
from assay_sampling.estimation.target_intervals import SCALES_AT_MOST, TargetInterval, target_interval
from assay_sampling.launches.in_memory import Launches
from assay_sampling.notes.registry import make_note
from assay_sampling.parameters import WeightKind
from assay_sampling.running.identity import Origin
from assay_sampling.scoring.error_parts.decomposition import GroupFacts, all_together
from assay_sampling.scoring.evaluation import Cost, Evaluation, cost_of, evaluate
from assay_sampling.scoring.matching import source_of


@dataclass(frozen=True)
class Placed:
    """A selection's representatives and groups on a recording: ``rows`` and ``groups`` of shape (r,).

    ``labels``, and ``light_time`` where the selection was made, have shape (n,) or are None; ``facts`` is
    None without ``labels``. With ``parts_unknown`` nobody knows which groups a model predicted. ``design``
    says how the representatives were drawn, None if that is unknown. ``scales_at_most`` is the assumption
    behind the interval.
    """

    cost: Cost
    rows: np.ndarray
    groups: np.ndarray
    labels: np.ndarray | None
    instructions: np.ndarray | None
    facts: GroupFacts | None
    light_time: np.ndarray | None = None
    parts_unknown: bool = False
    design: SampleDesign | None = None
    at_home: bool = False
    scales_at_most: float = SCALES_AT_MOST

    def evaluation(self, weights: np.ndarray, kind: WeightKind) -> Evaluation:
        score = evaluate(
            self.cost,
            self.rows,
            weights,
            labels=self.labels,
            representative_groups=self.groups,
            instructions=self.instructions,
            facts=self._facts(kind),
            kind=kind,
        )
        there = self._interval(weights, kind)
        score = replace(
            score,
            interval=there.interval,
            interval_reason=there.reason,
            assumption=there.assumption,
            not_vouched_percent=there.not_vouched_percent,
        )
        if self.parts_unknown or self.facts is None:
            together = all_together(score.signed_error_percent, predicted=self.parts_unknown)
            return replace(score, parts=together)
        return score

    def _interval(self, weights: np.ndarray, kind: WeightKind) -> TargetInterval:
        if self.design is None:
            return TargetInterval(reason=make_note("interval_of_unknown_design"))
        if self.at_home and kind == "light_time":
            return TargetInterval(reason=make_note("interval_at_home"))
        return target_interval(
            self.design,
            self.cost.values[self.rows],
            self.groups,
            weights,
            kind=kind,
            instructions=None if self.instructions is None else self.instructions[self.rows],
            scales_at_most=self.scales_at_most,
        )

    def _facts(self, kind: WeightKind) -> GroupFacts | None:
        """The facts with the amounts that weights of this kind count."""
        if self.facts is None or kind == "launches":
            return self.facts
        amounts = self.light_time if kind == "light_time" else self.instructions
        return replace(self.facts, amounts=amounts, amounts_known=amounts is not None)


def checked_scale(scales_at_most: float | None) -> float:
    """By how many times its kernel a launch may scale, 3 unless given; raises ParameterError unless it is
    above 1 and finite."""
    if scales_at_most is None:
        return SCALES_AT_MOST
    if not 1 < scales_at_most < math.inf:
        raise ParameterError(
            "scales_at_most",
            f"{scales_at_most:g} is not above 1, or not a number",
            "say how many times as much as its kernel a launch may scale, such as 3",
        )
    return float(scales_at_most)


def scored_cost(launches: Launches, quantity: str | None, of_selection: str | None) -> Cost:
    """The cost to score: the one asked for, else the selection's, else the recording's own."""
    if quantity is not None:
        if quantity not in COST_UNITS:
            raise ParameterError(
                "quantity", f"there is no cost {quantity!r}", f"use one of {', '.join(COST_UNITS)}"
            )
        return cost_of(launches, quantity)
    for candidate in (of_selection, default_cost_counter(launches.table)):
        if candidate in COST_UNITS and measured(launches, candidate):
            return cost_of(launches, candidate)
    return cost_of(launches, "duration_ns")


def measured(launches: Launches, quantity: str) -> bool:
    """Whether a recording has the quantity for every launch."""
    return quantity in launches.table.schema.names and not launches.table[quantity].null_count


def refuse_mixed_origins(of_selection: Origin, launches: Launches) -> None:
    """Silicon and simulators are scored on each other, for that is what selections are for."""
    here = launches.metadata.origin
    if of_selection != here and "synthetic" in (of_selection, here):
        raise RefusedError(
            source_of(launches),
            f"the selection is of {of_selection} data and this recording is {here}",
            "never score one on the other; mark a file that is synthetic with --synthetic",
        )
