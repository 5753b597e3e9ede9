"""A selection's representatives and groups in the rows of a recording, scored there.

Cycles and nanoseconds are never mixed: one quantity is scored, and the evaluation names it.

Source: docs/methods/comparing.md, "Scores".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from assay_sampling.counters.definitions import COST_UNITS, default_cost_counter
from assay_sampling.errors import ParameterError, RefusedError
from assay_sampling.estimation.intervals import Interval
from assay_sampling.estimation.sample_design import SampleDesign
from assay_sampling.estimation.target_intervals import target_interval
from assay_sampling.launches.in_memory import Launches
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.parameters import WeightKind
from assay_sampling.running.identity import Origin
from assay_sampling.scoring.decomposition import LabelFacts, all_together
from assay_sampling.scoring.evaluation import Cost, Evaluation, cost_of, evaluate
from assay_sampling.scoring.matching import source_of


@dataclass(frozen=True)
class Placed:
    """A selection's representatives and groups on a recording: ``rows`` and ``groups`` of shape (r,).

    ``labels``, and ``light_time`` where the selection was made, have shape (n,) or are None; with
    ``parts_unknown`` nobody knows which groups a model predicted. ``design`` says how the representatives
    were drawn, None if that is unknown; ``kernels``, shape (r,), are their kernels' ids.
    """

    cost: Cost
    rows: np.ndarray
    groups: np.ndarray
    labels: np.ndarray | None
    instructions: np.ndarray | None
    facts: LabelFacts | None
    light_time: np.ndarray | None = None
    parts_unknown: bool = False
    design: SampleDesign | None = None
    kernels: np.ndarray | None = None
    at_home: bool = False

    def evaluation(self, weights: np.ndarray, kind: WeightKind) -> Evaluation:
        found = evaluate(
            self.cost,
            self.rows,
            weights,
            labels=self.labels,
            representative_groups=self.groups,
            instructions=self.instructions,
            facts=self._facts(kind),
            kind=kind,
        )
        interval, reason = self._interval(weights, kind)
        found = replace(found, interval=interval, interval_reason=reason)
        return replace(found, parts=all_together(found.signed_error_percent)) if self.parts_unknown else found

    def _interval(self, weights: np.ndarray, kind: WeightKind) -> tuple[Interval | None, Note | None]:
        if self.design is None or self.kernels is None:
            return None, make_note("interval_of_unknown_design")
        if self.at_home and kind == "light_time":
            return None, make_note("interval_at_home")
        executed = None if self.instructions is None else self.instructions[self.rows]
        costs = self.cost.values[self.rows]
        return target_interval(
            self.design,
            costs,
            self.groups,
            weights,
            kind=kind,
            kernels=self.kernels,
            instructions=executed,
        )

    def _facts(self, kind: WeightKind) -> LabelFacts | None:
        """The facts with the amounts that weights of this kind count."""
        if self.facts is None or self.labels is None or kind == "launches":
            return self.facts
        if kind == "light_time" and self.light_time is not None:
            return replace(self.facts, amounts=self.light_time)
        return self.facts.by_whole_groups(self.labels)


def scored_cost(launches: Launches, asked: str | None, of_selection: str | None) -> Cost:
    """The cost to score: the one asked for, else the selection's, else the recording's own."""
    if asked is not None:
        if asked not in COST_UNITS:
            raise ParameterError(
                "quantity", f"there is no cost {asked!r}", f"use one of {', '.join(COST_UNITS)}"
            )
        return cost_of(launches, asked)
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
