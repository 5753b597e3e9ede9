"""Other GPUs that selections are scored on: matched once, however many selections follow.

Every method is scored by one partition of the workload: kernel and grid (by operation: stratum and size), as
they are where the selections were made. A method's own groups would flatter those that have few: with one
group the group error is the error of the total. A group's projection is spread over the parts that it covers
in proportion to what its weights count:

    projected of part p  = sum over groups g of  projected_g  x  m(g and p) / m(g)
    part_error_percent   = 100 (sum over parts |projected_p - true_p| + what has no counterpart) / true total

with m the light time of launches for weights by light time, their number for weights by launches, their
instructions for weights by instructions.

Source: docs/methods/comparing.md, "On other GPUs".
Memory: at most 100 bytes a launch of either side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assay_sampling.errors import MisalignedError
from assay_sampling.launches.alignment import Alignment, align, require_match
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.joining import refuse_same_content
from assay_sampling.operations.collapsing import Operations, operations_of
from assay_sampling.operations.matching import (
    OperationMatch,
    OperationSequence,
    match_operations,
    require_operations_match,
)
from assay_sampling.parameters import WeightKind
from assay_sampling.scoring.by_operation import SelectedCalls
from assay_sampling.scoring.evaluation import Cost, instructions_of
from assay_sampling.scoring.matching import refuse_other_counts, source_of
from assay_sampling.scoring.placement import refuse_mixed_origins, scored_cost
from assay_sampling.scoring.selection import Selection
from assay_sampling.scoring.weights import light_time_of


@dataclass(frozen=True)
class Workload:
    """The launches or operations that selections divide: the recording where they are made.

    ``part`` of each, shape (n,), 0-based: its kernel and grid. ``light_time`` and ``instructions``, shape
    (n,), are None where they are unknown.
    """

    part: np.ndarray
    parts: int
    light_time: np.ndarray | None
    instructions: np.ndarray | None

    @classmethod
    def of(cls, launches: Launches, light_time: np.ndarray | None = None) -> Workload:
        """``light_time``, shape (n,), replaces that of the launches: the mean over repeats."""
        part, parts = parts_of(launches)
        time = light_time_of(launches) if light_time is None else light_time
        return cls(part, parts, time, instructions_of(launches))

    @classmethod
    def of_calls(cls, sequence: OperationSequence) -> Workload:
        """Of the operations of a selection whose launches are gone: their parts are what they call."""
        return cls(sequence.identity, len(sequence.identities), sequence.time, None)

    def measure(self, kind: WeightKind) -> np.ndarray:
        """What weights of a kind count of every launch, shape (n,): its light time where instructions are
        unknown, and one where that is unknown, too."""
        amounts = self.instructions if kind == "instructions" else None
        if amounts is None and kind != "launches":
            amounts = self.light_time
        return np.ones(len(self.part)) if amounts is None else np.asarray(amounts, np.float64)


def parts_of(launches: Launches) -> tuple[np.ndarray, int]:
    """The part of every launch, shape (n,), and how many there are: kernels and grids, numbered from 0."""
    part = np.zeros(len(launches), np.int64)
    parts = min(len(launches), 1)
    for name in ("kernel_id", "grid_x", "grid_y", "grid_z"):
        values, code = np.unique(launches.column(name), return_inverse=True)
        pairs, part = np.unique(part * max(len(values), 1) + code.reshape(-1), return_inverse=True)
        part, parts = part.reshape(-1), len(pairs)
    return part, parts


def counterparts(launches: int, match: Alignment | OperationMatch) -> np.ndarray:
    """The row on the right of each of the launches or operations on the left, -1 without any."""
    rows = np.full(launches, -1, np.int64)
    rows[match.left_rows] = match.right_rows
    return rows


@dataclass(frozen=True)
class TargetScore:
    """The score of a selection on another GPU, in percent of the true total there, and its speedup there.
    ``part_error_percent`` is None for a selection that does not say which launches a group has."""

    signed_error_percent: float
    part_error_percent: float | None
    speedup: float | None


@dataclass(frozen=True)
class _Chosen:
    """Representatives: ``rows``, ``groups``, ``weights`` of shape (r,); ``labels``, shape (n,), or None."""

    rows: np.ndarray
    groups: np.ndarray
    count: int
    weights: np.ndarray
    labels: np.ndarray | None


@dataclass(frozen=True)
class Target:
    """Another GPU's recording of a workload, matched with it.

    ``cost`` is that of every launch or operation there; ``counterpart``, shape (n,), the row there of each
    one here, -1 without any. ``alignment`` or ``operations`` with ``match`` say how they were matched.
    """

    name: str
    workload: Workload
    launches: Launches
    cost: Cost
    counterpart: np.ndarray
    alignment: Alignment | None = None
    operations: Operations | None = None
    match: OperationMatch | None = None

    @classmethod
    def by_launch(cls, workload: Workload, here: Launches, other: Launches, quantity: str) -> Target:
        """Match launch by launch, by kernel and block.

        Args:
            workload: of ``here``, where selections are made.
            here: its launches.
            other: the other GPU's recording.
            quantity: the cost that is scored here; there it is the same where it was measured.

        Raises MisalignedError where the numbers of launches differ or less than 99 % match, RefusedError for
        synthetic beside other data, NotJoinableError for the same recording.
        """
        subject = f"{source_of(here)} and {source_of(other)}"
        refuse_mixed_origins(here.metadata.origin, other)
        refuse_same_content(here, other)
        refuse_other_counts(subject, here, other)
        match = align(here, other, "name_block")
        require_match(match, subject=subject)
        cost = scored_cost(other, None, quantity)
        return cls(source_of(other), workload, other, cost, counterparts(len(here), match), alignment=match)

    @classmethod
    def by_operation(
        cls, workload: Workload, here: Operations, time: np.ndarray, other: Launches, quantity: str
    ) -> Target:
        """Match operation by operation; ``time``, shape (n,), is that of the operations ``here``.

        Raises RefusedError for a recording that knows no operations, MisalignedError where operations with
        less than 95 % of the time of either side match, and otherwise as :meth:`by_launch`.
        """
        refuse_mixed_origins(here.source.metadata.origin, other)
        refuse_same_content(here.source, other)
        there = operations_of(other)
        cost = scored_cost(there.launches, None, quantity)
        subject = f"selection on {source_of(other)}"
        match = match_operations(
            OperationSequence.of(here, time), OperationSequence.of(there, cost.values), subject
        )
        require_operations_match(match, subject)
        counterpart = counterparts(len(here), match)
        return cls(source_of(other), workload, other, cost, counterpart, operations=there, match=match)

    def score(self, selection: Selection, kind: WeightKind) -> TargetScore:
        """Score a selection made on the workload, with its weights of ``kind``.

        The others of its group take over the weight of a representative without a counterpart; raises
        MisalignedError where none has one.
        """
        chosen = selection.representatives
        groups = len(selection.group_launches)
        return self._score(
            _Chosen(chosen.row, chosen.group, groups, selection.weights_of(kind), selection.labels), kind
        )

    def score_calls(self, calls: SelectedCalls, kind: WeightKind) -> TargetScore:
        """As :meth:`score`, of a selection by operation whose launches are gone."""
        return self._score(
            _Chosen(calls.rows, calls.groups, calls.group_count, calls.weights[kind], calls.labels), kind
        )

    def _score(self, chosen: _Chosen, kind: WeightKind) -> TargetScore:
        rows = self.counterpart[chosen.rows]
        has_counterpart = rows >= 0
        if not has_counterpart.any():
            raise MisalignedError(
                f"selection on {self.name}",
                "none of the representatives has a counterpart",
                "choose other representatives: another seed, or more of them",
            )
        costs = np.asarray(self.cost.values[rows[has_counterpart]], np.float64)
        total = float(np.sum(self.cost.values))
        projected = self._taken_over(chosen, has_counterpart) * costs
        simulated = float(costs.sum())
        return TargetScore(
            signed_error_percent=100.0 * (float(projected.sum()) - total) / total,
            part_error_percent=self._part_error(chosen, kind, projected, has_counterpart, total=total),
            speedup=total / simulated if simulated > 0 else None,
        )

    def _taken_over(self, chosen: _Chosen, has_counterpart: np.ndarray) -> np.ndarray:
        if has_counterpart.all():
            return chosen.weights
        stands_for = chosen.weights * self.workload.measure("light_time")[chosen.rows]
        whole = np.bincount(chosen.groups, stands_for, chosen.count)
        part = np.bincount(chosen.groups[has_counterpart], stands_for[has_counterpart], chosen.count)
        factor = np.divide(whole, part, out=np.ones_like(whole), where=part > 0)
        weights: np.ndarray = chosen.weights[has_counterpart] * factor[chosen.groups[has_counterpart]]
        return weights

    def _part_error(
        self,
        chosen: _Chosen,
        kind: WeightKind,
        projected: np.ndarray,
        has_counterpart: np.ndarray,
        *,
        total: float,
    ) -> float | None:
        labels = chosen.labels
        if labels is None:
            return None
        measure = self.workload.measure(kind)
        of_group = np.bincount(labels, measure, chosen.count)
        if (of_group <= 0).any():
            # A group without any of the measure has nothing to be spread by but its launches.
            measure = np.where(of_group[labels] > 0, measure, 1.0)
            of_group = np.bincount(labels, measure, chosen.count)
        rate = np.bincount(chosen.groups[has_counterpart], projected, chosen.count) / np.maximum(
            of_group, 1e-300
        )
        by_part = np.bincount(self.workload.part, measure * rate[labels], self.workload.parts)
        true, unmatched = self._true_parts()
        return 100.0 * (float(np.abs(by_part - true).sum()) + unmatched) / total

    def _true_parts(self) -> tuple[np.ndarray, float]:
        """The true cost of each part there, and that of what has no counterpart here."""
        matched = self.counterpart >= 0
        costs = np.asarray(self.cost.values, np.float64)
        there = costs[self.counterpart[matched]]
        true = np.bincount(self.workload.part[matched], there, self.workload.parts)
        return true, max(float(costs.sum()) - float(there.sum()), 0.0)
