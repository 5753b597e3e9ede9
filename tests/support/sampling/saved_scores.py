"""Scores of saved selections with one kind of weights: that of the caller, or the product's default."""

from __future__ import annotations

from assay_sampling.launches.in_memory import Launches
from assay_sampling.parameters import WeightKind
from assay_sampling.scoring.elsewhere import default_weights, score_saved_by_weights
from assay_sampling.scoring.evaluation import Evaluation
from assay_sampling.scoring.relative import RelativeScore, score_relative_by_weights
from assay_sampling.scoring.saved_selection import SavedSelection


def score_saved(
    saved: SavedSelection,
    launches: Launches,
    quantity: str | None = None,
    weights: WeightKind | None = None,
) -> Evaluation:
    used = default_weights(saved, launches) if weights is None else weights
    saved.weights_of(used)
    return score_saved_by_weights(saved, launches, quantity)[used]


def score_relative(
    saved: SavedSelection,
    first: Launches,
    second: Launches,
    quantity: str | None = None,
) -> RelativeScore:
    used = default_weights(saved, first, second)
    return score_relative_by_weights(saved, first, second, quantity)[used]
