"""Evaluations of selections by operation, as documents."""

from __future__ import annotations

from typing import Any

from assay_client.recordings import evaluated as parts
from assay_sampling.launches.in_memory import Launches
from assay_sampling.parameters import WeightKind
from assay_sampling.scoring.by_operation import OperationScores, score_saved_operations
from assay_sampling.scoring.elsewhere import default_weights
from assay_sampling.scoring.evaluation import Evaluation
from assay_sampling.scoring.relative_by_operation import score_relative_operations
from assay_sampling.scoring.saved_selection import SavedSelection
from assay_sampling.scoring.selection import ProfileSummary


def evaluated(
    saved: SavedSelection,
    launches: Launches,
    quantity: str | None,
    weights: WeightKind | None,
    *,
    scales_at_most: float | None = None,
) -> tuple[dict[str, Any], Evaluation]:
    """The document of a selection's scores on a recording, and the scores by the weights that it says.

    Raises as :func:`assay_sampling.scoring.by_operation.score_saved_operations`.
    """
    operation_scores = score_saved_operations(saved, launches, quantity, scales_at_most=scales_at_most)
    used = default_weights(saved, launches) if weights is None else weights
    saved.weights_of(used)
    return _document(saved, launches, operation_scores, used), operation_scores.scores[used]


def evaluated_relative(
    saved: SavedSelection,
    recordings: tuple[Launches, Launches],
    quantity: str | None,
    weights: WeightKind | None,
    *,
    scales_at_most: float | None = None,
) -> dict[str, Any]:
    """The document of the speedup between two recordings, true and predicted.

    Raises as :func:`assay_sampling.scoring.relative_by_operation.score_relative_operations`.
    """
    first, second = recordings
    relative_scores = score_relative_operations(saved, first, second, quantity, scales_at_most=scales_at_most)
    used = default_weights(saved, first, second) if weights is None else weights
    saved.weights_of(used)
    of_first, of_second = (
        _document(saved, launches, each, used)
        for launches, each in ((first, relative_scores.first), (second, relative_scores.second))
    )
    return parts.relative(saved, relative_scores.scores, used, of_first, of_second)


def _document(
    saved: SavedSelection, launches: Launches, operation_scores: OperationScores, used: WeightKind
) -> dict[str, Any]:
    evaluation, match = operation_scores.scores[used], operation_scores.match
    unmatched = 100.0 - min(match.left_time_percent, match.right_time_percent)
    return {
        **parts.verdict_part(saved, launches, evaluation, unmatched),
        **parts.selection_part(saved),
        "unit": saved.unit,
        "evaluated_on": ProfileSummary.of(launches).document().to_dict(),
        "operations": {"calls": len(operation_scores.operations), **operation_scores.match.to_dict()},
        "weights": evaluation.weights,
        **evaluation.to_dict(),
        **evaluation.interval_dict(),
        "notes": [note.to_dict() for note in (*parts.notes(saved, evaluation), *operation_scores.notes)],
        "by_weights": parts.by_weights(operation_scores.scores),
    }
