"""Score selections by operation on another recording, whatever kernels its libraries launch.

The error is against the recording's whole cost: operations that match nothing belong to no group, so all of
their cost counts in the group error. A representative without a counterpart cannot be measured there; the
others of its group take over its weight, and a group that loses all of them is projected as 0.

Source: docs/methods/comparing.md, "By operation".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from assay_sampling.errors import InputError, MisalignedError, RefusedError
from assay_sampling.estimation.sample_design import SampleDesign, nothing_drawn
from assay_sampling.launches.in_memory import Launches
from assay_sampling.notes.registry import Note, in_unit, make_note
from assay_sampling.operations.collapsing import Operations, operations_of
from assay_sampling.operations.matching import (
    LEAST_MATCHED_TIME_PERCENT,
    OperationMatch,
    OperationSequence,
    match_operations,
    require_operations_match,
)
from assay_sampling.parameters import WeightKind
from assay_sampling.running.identity import Origin
from assay_sampling.scoring.elsewhere import is_at_home, saved_quantity
from assay_sampling.scoring.error_parts.cells import kernel_and_size
from assay_sampling.scoring.error_parts.decomposition import UNKNOWN_GROUP, GroupFacts
from assay_sampling.scoring.evaluation import Evaluation, instructions_of
from assay_sampling.scoring.matching import source_of
from assay_sampling.scoring.placement import Placed, checked_scale, refuse_mixed_origins, scored_cost
from assay_sampling.scoring.saved.operations import sequence_from
from assay_sampling.scoring.saved_selection import SavedSelection
from assay_sampling.scoring.selection import Selection

_RECORD_SELECTION = "write it again with: assay select METHOD FILE --unit operation -o selection.json"


@dataclass(frozen=True)
class SelectedCalls:
    """A selection by operation as far as scoring it elsewhere needs it.

    ``rows`` (of ``sequence``), ``groups`` and the weights of each kind have shape (r,); ``labels``,
    ``origins`` and ``right`` (the groups that counters give) shape (m,) or None.
    """

    sequence: OperationSequence
    rows: np.ndarray
    groups: np.ndarray
    group_count: int
    weights: Mapping[WeightKind, np.ndarray]
    labels: np.ndarray | None
    origins: np.ndarray | None
    right: np.ndarray | None
    design: SampleDesign | None
    origin: Origin
    quantity: str | None

    @classmethod
    def of_saved(cls, saved: SavedSelection) -> SelectedCalls:
        """Raises InputError if its operations or labels cannot be read."""
        sequence = sequence_from(saved.document.operations)
        labels, origins = saved.labels(), saved.origins()
        for column in (labels, origins):
            if column is not None and len(column) != len(sequence):
                cause = f"{len(column):,} operations have a group, and its profile calls {len(sequence):,}"
                raise InputError("selection", cause, _RECORD_SELECTION, field="labels")
        rows = _rows_of(saved, sequence)
        return cls(
            sequence=sequence,
            rows=rows,
            groups=saved.group,
            group_count=len(saved.document.groups),
            weights={kind: saved.weights_of(kind) for kind in saved.weight_kinds},
            labels=labels,
            origins=origins,
            right=saved.right_labels(),
            design=saved.design,
            origin=saved.origin,
            quantity=saved_quantity(saved),
        )

    @classmethod
    def of(cls, selection: Selection) -> SelectedCalls:
        """Of a selection in memory; raises RefusedError for one by launch."""
        if selection.operations is None:
            raise RefusedError("selection", "it is by launch", _RECORD_SELECTION)
        chosen = selection.representatives
        return cls(
            sequence=selection.operations.sequence,
            rows=chosen.row,
            groups=chosen.group,
            group_count=len(selection.group_launches),
            weights={kind: selection.weights_of(kind) for kind in selection.weight_kinds},
            labels=selection.labels,
            origins=selection.label_origins,
            right=selection.right_labels,
            design=selection.design or nothing_drawn(selection.drawing, selection.group_launches),
            origin=selection.profile.origin,
            quantity=selection.evaluation.quantity,
        )


def _rows_of(saved: SavedSelection, sequence: OperationSequence) -> np.ndarray:
    """The operation of each representative, shape (r,): rows of the sequence."""
    entries = [entry.operation for group in saved.document.groups for entry in group.representatives]
    positions = [-1 if entry is None else entry.row for entry in entries]
    if min(positions) < 0 or max(positions) >= len(sequence):
        cause = "a representative is not among its operations"
        raise InputError("selection", cause, _RECORD_SELECTION, field="groups")
    rows = np.array(positions, np.int64)
    other = (sequence.process[rows] != saved.process) | (sequence.launch[rows] != saved.launch)
    if other.any():
        at = int(np.argmax(other))
        where = f"launch {saved.launch[at]} of process {saved.process[at]}"
        cause = f"operation {rows[at]} is not the operation that begins with {where}"
        raise InputError("selection", cause, _RECORD_SELECTION, field="groups")
    return rows


@dataclass(frozen=True)
class OperationScores:
    """Scores by each kind of weights, how the operations matched, and what is doubtful. ``operations`` are
    those of the recording."""

    scores: Mapping[WeightKind, Evaluation]
    match: OperationMatch
    notes: tuple[Note, ...]
    operations: Operations


@dataclass(frozen=True)
class PlacedOperations:
    """Where a selection by operation is on a recording: ``placed`` has the representatives that have a
    counterpart there, ``has_counterpart`` of shape (r,) says which. ``labels`` of it are the group of each
    operation, and the number after the last group for those without a counterpart."""

    calls: SelectedCalls
    operations: Operations
    match: OperationMatch
    placed: Placed
    has_counterpart: np.ndarray

    @property
    def every_operation_matched(self) -> bool:
        """Whether every operation of the recording has a counterpart in the selection's."""
        return len(self.match.right_rows) == len(self.operations)

    def weights_of(self, kind: WeightKind) -> np.ndarray:
        """The weights of one kind of the representatives that have a counterpart, shape (k,)."""
        return _taken_over(self.calls, self.calls.weights[kind], self.has_counterpart)

    def scores(self) -> OperationScores:
        """Scores by each kind of weights."""
        scores = {kind: self._evaluation(kind) for kind in self.calls.weights}
        if not self.has_counterpart.all():
            why = make_note(
                "interval_of_missing_representatives", representatives=int((~self.has_counterpart).sum())
            )
            scores = {
                kind: replace(score, interval=None, interval_reason=why) for kind, score in scores.items()
            }
        notes = (
            *_unmatched(self.match, self.calls, self.operations),
            *_notes(self.calls, self.has_counterpart),
        )
        return OperationScores(scores, self.match, notes, self.operations)

    def _evaluation(self, kind: WeightKind) -> Evaluation:
        evaluation = self.placed.evaluation(self.weights_of(kind), kind)
        why = evaluation.interval_reason
        return evaluation if why is None else replace(evaluation, interval_reason=in_unit(why, "operation"))


def score_saved_operations(
    saved: SavedSelection,
    launches: Launches,
    quantity: str | None = None,
    *,
    scales_at_most: float | None = None,
) -> OperationScores:
    """Score a saved selection by operation on a recording.

    ``scales_at_most``: no operation scales more than so many times as its operator does, the assumption of
    the interval; None: 3.

    Raises RefusedError for a recording that knows no operations or is of another origin, MisalignedError,
    with the first differences, where operations with less than 95 % of the time of either side match, or only
    one side has input shapes, InputError if the selection's operations cannot be read.
    """
    return place_saved_operations(saved, launches, quantity, scales_at_most=scales_at_most).scores()


def score_operations(
    calls: SelectedCalls,
    launches: Launches,
    quantity: str | None = None,
    *,
    at_home: bool = False,
    scales_at_most: float | None = None,
) -> OperationScores:
    """As :func:`score_saved_operations`; ``at_home`` says that it is the GPU of the selection."""
    placed = place_operations(calls, launches, quantity, at_home=at_home, scales_at_most=scales_at_most)
    return placed.scores()


def place_saved_operations(
    saved: SavedSelection,
    launches: Launches,
    quantity: str | None = None,
    *,
    scales_at_most: float | None = None,
) -> PlacedOperations:
    """Where a saved selection by operation is on a recording; raises as :func:`score_saved_operations`."""
    calls = SelectedCalls.of_saved(saved)
    at_home = is_at_home(saved, launches)
    return place_operations(calls, launches, quantity, at_home=at_home, scales_at_most=scales_at_most)


def place_operations(
    calls: SelectedCalls,
    launches: Launches,
    quantity: str | None = None,
    *,
    at_home: bool = False,
    scales_at_most: float | None = None,
) -> PlacedOperations:
    """As :func:`place_saved_operations`; ``at_home`` says that it is the GPU of the selection."""
    refuse_mixed_origins(calls.origin, launches)
    there = operations_of(launches)
    cost = scored_cost(there.launches, quantity, calls.quantity)
    match = match_operations(
        calls.sequence, OperationSequence.of(there, cost.values), f"selection on {source_of(launches)}"
    )
    return place_matched(calls, there, match, quantity, at_home=at_home, scales_at_most=scales_at_most)


def place_matched(
    calls: SelectedCalls,
    there: Operations,
    match: OperationMatch,
    quantity: str | None = None,
    *,
    at_home: bool = False,
    scales_at_most: float | None = None,
) -> PlacedOperations:
    """As :func:`place_operations`, on operations that are matched already: callers with several selections
    of one recording match once. ``match`` has the selection's recording on the left."""
    subject = f"selection on {source_of(there.source)}"
    require_operations_match(match, subject)
    rows, has_counterpart = _counterparts(calls, match)
    if not has_counterpart.any():
        raise MisalignedError(
            subject, "none of the representatives has a counterpart", _RECORD_SELECTION, match.differences
        )
    unmatched = np.ones(len(there), bool)
    unmatched[match.right_rows] = False
    placed = Placed(
        cost=scored_cost(there.launches, quantity, calls.quantity),
        rows=rows[has_counterpart],
        groups=calls.groups[has_counterpart],
        labels=_carried(calls.labels, match, len(there), calls.group_count),
        instructions=instructions_of(there.launches),
        facts=_facts(calls, match, there.launches, unmatched),
        light_time=_time_there(calls, there, match),
        design=calls.design if has_counterpart.all() else None,
        at_home=at_home,
        scales_at_most=checked_scale(scales_at_most),
    )
    return PlacedOperations(calls, there, match, placed, has_counterpart)


def _counterparts(calls: SelectedCalls, match: OperationMatch) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the representatives in the other recording, shape (r,), and which of them have one."""
    if not len(match.left_rows):
        return np.zeros(len(calls.rows), np.int64), np.zeros(len(calls.rows), bool)
    position = np.minimum(np.searchsorted(match.left_rows, calls.rows), len(match.left_rows) - 1)
    return match.right_rows[position], match.left_rows[position] == calls.rows


def _carried(
    labels: np.ndarray | None, match: OperationMatch, operations: int, groups: int
) -> np.ndarray | None:
    """The group of every operation there, shape (n,): ``groups`` for those without a counterpart."""
    if labels is None:
        return None
    labels_there = np.full(operations, groups, np.int64)
    labels_there[match.right_rows] = labels[match.left_rows]
    return labels_there


def _facts(
    calls: SelectedCalls, match: OperationMatch, there: Launches, unmatched: np.ndarray
) -> GroupFacts | None:
    """What is known of the groups of operations there; ``there`` has a launch for each of them."""
    if calls.labels is None:
        return None
    origins = right = None
    if calls.origins is not None:
        origins = np.zeros(len(there), np.uint8)
        origins[match.right_rows] = calls.origins[match.left_rows]
    if calls.right is not None:
        right = np.full(len(there), UNKNOWN_GROUP)
        right[match.right_rows] = calls.right[match.left_rows]
    return GroupFacts(kernel_and_size(there), origins, right=right, unmatched=unmatched)


def _time_there(calls: SelectedCalls, there: Operations, match: OperationMatch) -> np.ndarray:
    """The light time where the selection was made of every operation there; 0 without a counterpart."""
    light_time = np.zeros(len(there))
    light_time[match.right_rows] = calls.sequence.time[match.left_rows]
    return light_time


def _taken_over(calls: SelectedCalls, weights: np.ndarray, has_counterpart: np.ndarray) -> np.ndarray:
    """The weights of the representatives that have a counterpart, shape (k,): those of a group add up, in the
    time that they stand for, to what all of its representatives did."""
    stands_for = weights * calls.sequence.time[calls.rows]
    whole = np.bincount(calls.groups, stands_for, calls.group_count)
    part = np.bincount(calls.groups[has_counterpart], stands_for[has_counterpart], calls.group_count)
    factor = np.divide(whole, part, out=np.ones_like(whole), where=part > 0)
    scaled_weights: np.ndarray = weights[has_counterpart] * factor[calls.groups[has_counterpart]]
    return scaled_weights


def _unmatched(match: OperationMatch, calls: SelectedCalls, there: Operations) -> list[Note]:
    if not match.differences:
        return []
    return [
        make_note(
            "operations_unmatched",
            selection_calls=len(calls.sequence) - len(match.left_rows),
            recording_calls=len(there) - len(match.right_rows),
            time_percent=100.0 - min(match.left_time_percent, match.right_time_percent),
            difference=match.differences[0],
        )
    ]


def _notes(calls: SelectedCalls, has_counterpart: np.ndarray) -> list[Note]:
    notes = []
    if not has_counterpart.all():
        lost = np.setdiff1d(calls.groups, calls.groups[has_counterpart])
        count = int((~has_counterpart).sum())
        notes.append(make_note("representatives_unmatched", representatives=count, groups=len(lost)))
    by_name = _time_by_name_percent(calls.sequence)
    if by_name >= 100 - LEAST_MATCHED_TIME_PERCENT:
        notes.append(make_note("operations_without_shapes", time_percent=by_name))
    return notes


def _time_by_name_percent(sequence: OperationSequence) -> float:
    """The share of the time in operations without input shapes, which match by name and order alone."""
    without = np.array([not one.shapes for one in sequence.identities], bool)[sequence.identity]
    return 100.0 * float(sequence.time[without].sum()) / float(sequence.time.sum())
