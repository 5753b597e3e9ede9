"""How well a selection by operation predicts the speedup between two recordings.

Each recording is matched with the selection by itself, so the libraries of both may launch what they like.
The true speedup is that of the whole costs, with what matches nothing.

Source: docs/methods/comparing.md, "By operation".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from assay_sampling.launches.in_memory import Launches
from assay_sampling.parameters import WeightKind
from assay_sampling.scoring.by_operation import OperationScores, PlacedOperations, place_saved_operations
from assay_sampling.scoring.error_parts.ratio_spread import Chosen, GroupSpread, widest_groups
from assay_sampling.scoring.relative import RelativeScore, common_quantity
from assay_sampling.scoring.saved_selection import SavedSelection


@dataclass(frozen=True)
class RelativeOperations:
    """Scores of the speedup by each kind of weights, and how either recording matched."""

    scores: Mapping[WeightKind, RelativeScore]
    first: OperationScores
    second: OperationScores


def score_relative_operations(
    saved: SavedSelection,
    first: Launches,
    second: Launches,
    quantity: str | None = None,
    *,
    scales_at_most: float | None = None,
) -> RelativeOperations:
    """Score a saved selection by operation on two recordings, its weights equal on both.

    Raises what :func:`assay_sampling.scoring.by_operation.score_saved_operations` raises for either, and
    CounterUnavailableError if no cost was measured on both.
    """
    evaluated = common_quantity(saved, first, second) if quantity is None else quantity
    here, there = (
        place_saved_operations(saved, each, evaluated, scales_at_most=scales_at_most)
        for each in (first, second)
    )
    before, after = here.scores(), there.scores()
    scores = {
        kind: RelativeScore(before.scores[kind], after.scores[kind], _widest(here, there, saved, kind))
        for kind in before.scores
    }
    return RelativeOperations(scores, before, after)


def _widest(
    here: PlacedOperations, there: PlacedOperations, saved: SavedSelection, kind: WeightKind
) -> tuple[GroupSpread, ...]:
    """The groups whose operations scale least alike, of those that both recordings have."""
    labels = here.placed.labels
    if labels is None:
        return ()
    _, ours, theirs = np.intersect1d(
        here.match.left_rows, there.match.left_rows, assume_unique=True, return_indices=True
    )
    both = here.has_counterpart & there.has_counterpart
    places = np.flatnonzero(both)
    chosen = Chosen(
        rows_here=here.placed.rows[both[here.has_counterpart]],
        rows_there=there.placed.rows[both[there.has_counterpart]],
        group=here.calls.groups[both],
        weight=there.weights_of(kind)[both[there.has_counterpart]],
        kernel=tuple(saved.kernel[place] for place in places.tolist()),
        grid=np.zeros((len(places), 3), np.int64),
    )
    return widest_groups(
        here.placed.cost.values,
        there.placed.cost.values,
        labels,
        chosen,
        rows_here=here.match.right_rows[ours],
        rows_there=there.match.right_rows[theirs],
    )
