"""Errors of selections on another real GPU, over draws, with one partition for all group errors.

The partition is operator and exact input shapes (by launch: kernel, grid and block). A selection projects
each call: what it projects for the call's group, divided by light time (for weights by light time) or by
calls. Then the projections of each cell of the partition are added up and compared with the truth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from assay_sampling.errors import AssayError
from assay_sampling.launches.alignment import align
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.launches.signatures import distinct_signatures
from assay_sampling.methods.by_operation import OperationProfile, operation_profile, select_operations
from assay_sampling.methods.registry import select
from assay_sampling.operations.collapsing import operations_of
from assay_sampling.operations.matching import OperationSequence, match_operations
from assay_sampling.parameters import WeightKind
from assay_sampling.scoring.by_operation import SelectedCalls, place_matched
from assay_sampling.scoring.carried import score_on_by_weights
from assay_sampling.scoring.evaluation import Evaluation
from assay_sampling.scoring.selection import Selection
from tests.silicon.recordings import Case, Pair

DRAWS = 60


@dataclass(frozen=True)
class Score:
    """Root mean squares over draws, in percent; ``held`` and ``withheld`` are of the intervals, ``units`` the
    calls or launches of the recording."""

    weights: WeightKind
    units: int
    chosen: float
    speedup: float
    total_percent: float
    group_percent: float
    held_percent: float | None
    withheld_percent: float


@dataclass(frozen=True)
class Scored:
    """The scores of a case on a pair by each kind of weights, or why there are none."""

    pair: Pair
    case: Case
    scores: tuple[Score, ...] = ()
    refused: str = ""


class Bench:
    """Two recordings of a pair, matched once."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.here, self.there = pair.recording(pair.here), pair.recording(pair.there)
        self.operations: OperationProfile | None = None
        if pair.unit == "operation":
            self.operations = operation_profile(Profile(light=self.here))
            self._match_operations(self.operations)
        else:
            self._match_launches()

    def _match_operations(self, here: OperationProfile) -> None:
        there = operations_of(self.there)
        self.time = here.whole.launches.floats("duration_ns")
        cost = there.launches.floats("duration_ns")
        sides = OperationSequence.of(here.whole, self.time), OperationSequence.of(there, cost)
        match = match_operations(*sides, self.pair.workload)
        self.matched = there, match
        self.matched_time_percent = match.left_time_percent, match.right_time_percent
        shapes = {(one.name, one.shapes): place for place, one in enumerate(here.whole.identities)}
        cell = np.array([shapes[one.name, one.shapes] for one in here.whole.identities])
        self._place(cost, match.left_rows, match.right_rows, cell[here.whole.identity])

    def _match_launches(self) -> None:
        self.alignment = alignment = align(self.here, self.there, "name_block")
        self.time = self.here.floats("duration_ns")
        cost = self.there.floats("duration_ns")
        rows = alignment.left_rows, alignment.right_rows
        self.matched_time_percent = (
            100 * self.time[rows[0]].sum() / self.time.sum(),
            100 * cost[rows[1]].sum() / cost.sum(),
        )
        self._place(cost, *rows, distinct_signatures(self.here).inverse)

    def _place(self, cost: np.ndarray, here: np.ndarray, there: np.ndarray, cell: np.ndarray) -> None:
        self.truth = float(cost.sum())
        self.cost = np.zeros(len(self.time))
        self.cost[here] = cost[there]
        self.unmatched = self.truth - float(self.cost.sum())
        self.cell = cell

    def scored(self, case: Case, draws: int = DRAWS) -> Scored:
        """A case over draws; one where nothing is drawn."""
        try:
            found = [self._one(case, seed) for seed in range(draws if case.draws else 1)]
        except AssayError as error:
            return Scored(self.pair, case, refused=error.cause)
        kinds = list(found[0])
        return Scored(
            self.pair, case, tuple(self._together(kind, [one[kind] for one in found]) for kind in kinds)
        )

    def _one(self, case: Case, seed: int) -> dict[WeightKind, tuple[Selection, Evaluation]]:
        if self.operations is not None:
            made = select_operations(self.operations, case.method, case.parameters, seed)
            scores = place_matched(SelectedCalls.of(made), *self.matched).scores().scores
        else:
            made = select(case.method, Profile(light=self.here), case.parameters, seed)
            scores, _ = score_on_by_weights(
                made, self.there, reference=self.here, alignments={"name_block": self.alignment}
            )
        return {kind: (made, evaluation) for kind, evaluation in scores.items()}

    def _together(self, kind: WeightKind, found: list[tuple[Selection, Evaluation]]) -> Score:
        totals, groups, speedups, chosen = zip(*self._errors(kind, found), strict=True)
        intervals = [evaluation.interval for _, evaluation in found]
        given = [one for one in intervals if one is not None]
        held = [one.low <= self.truth <= one.high for one in given]
        return Score(
            weights=kind,
            units=len(self.time),
            chosen=float(np.mean(chosen)),
            speedup=float(np.mean(speedups)),
            total_percent=_root_mean_square(totals),
            group_percent=_root_mean_square(groups),
            held_percent=100 * float(np.mean(held)) if held else None,
            withheld_percent=100 * (len(intervals) - len(given)) / len(intervals),
        )

    def _errors(
        self, kind: WeightKind, found: list[tuple[Selection, Evaluation]]
    ) -> Iterator[tuple[float, float, float, int]]:
        for made, evaluation in found:
            yield (
                evaluation.signed_error_percent,
                self.group_error_percent(made, kind),
                float(self.time.sum() / self.time[made.representatives.row].sum()),
                len(made.representatives.row),
            )

    def group_error_percent(self, made: Selection, kind: WeightKind) -> float:
        """The group error over the cells of the fixed partition, with unmatched time as a cell of its own."""
        assert made.labels is not None
        chosen, groups = made.representatives, len(made.group_launches)
        projected = np.bincount(chosen.group, made.weights_of(kind) * self.cost[chosen.row], groups)
        amount = self.time if kind == "light_time" else np.ones(len(self.time))
        of_group = np.bincount(made.labels, amount, groups)
        each = (projected / of_group)[made.labels] * amount
        cells = np.bincount(self.cell, each - self.cost)
        return 100 * float(np.abs(cells).sum() + self.unmatched) / self.truth


def _root_mean_square(values: tuple[float, ...]) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def launches_refused(here: Launches, there: Launches) -> str:
    """Why a selection by launch cannot be scored there: how many launches and kernel names agree."""
    names = [{side.names[i] for i in np.unique(side.column("kernel_id")).tolist()} for side in (here, there)]
    match = align(here, there, "name_block").match_percent
    return (
        f"{len(here):,} launches here and {len(there):,} there; {len(names[0] & names[1]):,} of "
        f"{len(names[0]):,} kernel names agree; {match:.1f} % of the launches match"
    )
