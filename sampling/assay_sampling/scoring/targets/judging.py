"""Methods judged by other GPUs: which of them no other beats there, and which to take.

Judged are the worst error of the total and the worst error by kernel and grid over the GPUs that were scored.

Source: docs/methods/comparing.md, "On other GPUs".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from assay_sampling.notes.registry import Note, make_note
from assay_sampling.parameters import WeightKind
from assay_sampling.scoring.fair import MOST_ERROR_PERCENT, Recommendation

# What a projection is worth trusting for on another GPU: its total, and its kernels and grids.
GOAL_ERROR_PERCENT = 3.0
GOAL_PART_ERROR_PERCENT = 6.0
# Speedups this near to each other count as equal.
EQUAL_WITHIN = 1.1


@dataclass(frozen=True)
class ContenderElsewhere:
    """A method with one kind of weights, its speedup at home, and its errors over the targets in percent:
    of the total, and by kernel and grid (None if it does not say which launches a group has)."""

    method: str
    weights: WeightKind
    speedup: float
    worst_error_percent: float
    worst_part_error_percent: float | None
    mean_error_percent: float
    mean_part_error_percent: float | None

    @classmethod
    def of(
        cls,
        method: str,
        weights: WeightKind,
        speedup: float,
        there: Sequence[tuple[float, float | None]],
    ) -> ContenderElsewhere:
        """``there``: error of the total and error by kernel and grid on each target, at least one."""
        totals = [total for total, _ in there]
        parts = [part for _, part in there if part is not None]
        complete = len(parts) == len(there)
        return cls(
            method=method,
            weights=weights,
            speedup=speedup,
            worst_error_percent=max(totals),
            worst_part_error_percent=max(parts) if complete else None,
            mean_error_percent=math.fsum(totals) / len(totals),
            mean_part_error_percent=math.fsum(parts) / len(parts) if complete else None,
        )

    @property
    def share_of_goals(self) -> float:
        """The larger of its two worst errors, each as a share of its goal: at most 1 where both are kept."""
        return max(self.worst_error_percent / GOAL_ERROR_PERCENT, self._part / GOAL_PART_ERROR_PERCENT)

    @property
    def _part(self) -> float:
        error_percent = self.worst_part_error_percent
        return math.inf if error_percent is None else error_percent

    def beats(self, other: ContenderElsewhere, speedup: float | None) -> bool:
        """Whether neither error is larger and one is smaller, at no less speedup: than that of ``other``, or,
        where all are compared at one ``speedup``, than that."""
        least_speedup = other.speedup if speedup is None else min(speedup, other.speedup)
        if self.speedup < least_speedup / (1 if speedup is None else EQUAL_WITHIN):
            return False
        ours = self.worst_error_percent, self._part
        theirs = other.worst_error_percent, other._part
        return ours[0] <= theirs[0] and ours[1] <= theirs[1] and ours != theirs


def no_star_elsewhere(
    one: ContenderElsewhere, others: Sequence[ContenderElsewhere], speedup: float | None = None
) -> Note | None:
    """Why a method gets no star; None if it gets one.

    ``speedup`` is the one at which all are compared; None: each has its own.
    """
    doubt = _doubt(one, speedup)
    if doubt is not None:
        return doubt
    for other in others:
        if _doubt(other, speedup) is None and other.beats(one, speedup):
            return make_note("beaten_elsewhere", method=other.method, weights=other.weights)
    return None


def _doubt(one: ContenderElsewhere, speedup: float | None) -> Note | None:
    if speedup is not None and one.speedup < speedup / EQUAL_WITHIN:
        return make_note("slower_than_compared", speedup=round(one.speedup, 1), compared_at=speedup)
    if one.worst_part_error_percent is None:
        return make_note("groups_unknown")
    worst = max(one.worst_error_percent, one.worst_part_error_percent)
    if worst > MOST_ERROR_PERCENT:
        return make_note("error_above_most", error_percent=round(worst, 2), most=MOST_ERROR_PERCENT)
    return None


def recommend_elsewhere(
    contenders: Sequence[ContenderElsewhere], targets: int, speedup: float | None = None
) -> tuple[Recommendation, ContenderElsewhere | None]:
    """Of those with a star, the one whose worse error is the smallest share of its goal; of equals the one of
    less mean error. ``targets``: how many GPUs were scored."""
    rivals = [each for each in contenders if no_star_elsewhere(each, contenders, speedup) is None]
    if not rivals:
        return Recommendation(None, make_note("nothing_to_recommend_elsewhere")), None
    best = min(rivals, key=lambda each: (each.share_of_goals, each.mean_error_percent))
    note = make_note(
        "best_elsewhere",
        method=best.method,
        weights=best.weights,
        error_percent=round(best.worst_error_percent, 2),
        part_error_percent=round(best.worst_part_error_percent or 0.0, 2),
        speedup=round(best.speedup, 1),
        targets=targets,
        within_goals=best.share_of_goals <= 1,
    )
    return Recommendation(best.method, note), best
