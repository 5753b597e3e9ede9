"""How well a selection predicts the speedup between two recordings: two GPUs, or two shares of the SMs.

Source: docs/methods/comparing.md, "Scores".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from assay_sampling.counters.definitions import COST_UNITS
from assay_sampling.errors import CounterUnavailableError, MisalignedError
from assay_sampling.launches.alignment import MatchKind
from assay_sampling.launches.in_memory import Launches
from assay_sampling.parameters import WeightKind
from assay_sampling.scoring.elsewhere import saved_quantity, score_saved_by_weights
from assay_sampling.scoring.error_parts.ratio_spread import Chosen, GroupSpread, widest_groups
from assay_sampling.scoring.evaluation import Evaluation, cost_of
from assay_sampling.scoring.matching import row_keys, same_sequence, source_of
from assay_sampling.scoring.placement import measured
from assay_sampling.scoring.saved_selection import SavedSelection
from assay_sampling.scoring.selection import ProfileSummary


@dataclass(frozen=True)
class RelativeScore:
    """How well one selection predicts how much faster the second recording is than the first.

    speedup_true      = total of the first / total of the second
    speedup_predicted = projected of the first / projected of the second

    Both are of one quantity; ``error_percent`` is 100 |predicted - true| / true. ``widest_groups`` are those
    whose launches scale least alike from the first to the second.
    """

    first: Evaluation
    second: Evaluation
    widest_groups: tuple[GroupSpread, ...] = ()

    @property
    def speedup_true(self) -> float:
        return self.first.total / self.second.total

    @property
    def speedup_predicted(self) -> float:
        return self.first.projected / self.second.projected

    @property
    def error_percent(self) -> float:
        return 100.0 * abs(self.speedup_predicted - self.speedup_true) / self.speedup_true

    def to_dict(self) -> dict[str, Any]:
        return {
            "quantity": self.first.quantity,
            "unit": self.first.unit,
            "speedup_true": self.speedup_true,
            "speedup_predicted": self.speedup_predicted,
            "speedup_error_percent": self.error_percent,
            "widest_groups": [each.to_dict() for each in self.widest_groups],
        }

    def weighted_dict(self) -> dict[str, Any]:
        """The numbers that depend on the weights."""
        return {"speedup_predicted": self.speedup_predicted, "speedup_error_percent": self.error_percent}


def score_relative_by_weights(
    saved: SavedSelection,
    first: Launches,
    second: Launches,
    quantity: str | None = None,
    *,
    scales_at_most: float | None = None,
) -> dict[WeightKind, RelativeScore]:
    """Score a saved selection on two recordings of its launches: two GPUs, or two shares of the SMs of one.

    Args:
        saved: the selection; each kind of weights that it has is used on both recordings.
        first, second: the recordings.
        quantity: the cost (a key of COST_UNITS); None takes that of the selection where both recordings
            have it, else ``duration_ns``, else the first that both have.
        scales_at_most: as in :func:`assay_sampling.scoring.elsewhere.score_saved_by_weights`.

    Raises what that raises; MisalignedError too if both are of one GPU and their grids differ, and
    CounterUnavailableError if no cost was measured on both.
    """
    shared = set(first.device_labels()) & set(second.device_labels())
    kind: MatchKind = "exact" if shared else "name_block"
    evaluated = common_quantity(saved, first, second) if quantity is None else quantity
    before, after = (
        score_saved_by_weights(saved, each, evaluated, scales_at_most=scales_at_most)
        for each in (first, second)
    )
    if not same_sequence(ProfileSummary.of(first).sequence(), ProfileSummary.of(second).sequence(), kind):
        raise MisalignedError(
            f"{source_of(first)} and {source_of(second)}",
            f"both hold the launches of the selection, but differ from each other ({kind} comparison)",
            "record both with the same command, input and seeds",
        )
    scores = {used: RelativeScore(before[used], after[used]) for used in before}
    labels = saved.labels()
    if labels is None:
        return scores
    keys = row_keys(first.column("process"), first.column("launch"))
    rows = np.searchsorted(keys, row_keys(saved.process, saved.launch))
    here, there = (cost_of(each, evaluated).values for each in (first, second))
    for used, score in scores.items():
        chosen = Chosen(rows, rows, saved.group, saved.weights_of(used), saved.kernel, saved.grid)
        scores[used] = replace(score, widest_groups=widest_groups(here, there, labels, chosen))
    return scores


def common_quantity(saved: SavedSelection, first: Launches, second: Launches) -> str:
    """The cost to compare two recordings in: the selection's if both have it, else the first that both have.

    Raises CounterUnavailableError if there is none."""
    candidates = [saved_quantity(saved), "duration_ns", *COST_UNITS]
    for candidate in candidates:
        if candidate in COST_UNITS and measured(first, candidate) and measured(second, candidate):
            return candidate
    raise CounterUnavailableError(
        f"{source_of(first)} and {source_of(second)}",
        "no cost was measured for all launches of both",
        "record both with durations, or both with the same cycle counter",
    )
