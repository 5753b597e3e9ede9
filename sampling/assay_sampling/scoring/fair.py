"""Fair scores of methods next to each other, which of them no other beats, and which to take.

Source: docs/methods/comparing.md, "Fair scores".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from assay_sampling.notes.registry import Note, in_unit, make_note
from assay_sampling.parameters import Unit
from assay_sampling.scoring.trials import Trials

FairBasis = Literal["draws", "split_halves", "as_scored", "in_sample", "by_construction"]
LEAST_COVERAGE_PERCENT = 90.0
# A projection that is off by a quarter of the truth does not stand for the workload, however fast it is.
MOST_ERROR_PERCENT = 25.0
TARGET_ERROR_PERCENT = 5.0


@dataclass(frozen=True)
class Fair:
    """The fair score of one method.

    ``basis``: "draws" and "split_halves", as in :class:`Trials`; "as_scored", where a fixed rule that reads
    no cost chose, so that there is one try; "in_sample", where the method chose by the error that it is
    scored by; "by_construction", where the error is 0 whatever the method draws.
    """

    basis: FairBasis
    trials: int
    error_percent: float
    mean_signed_error_percent: float
    speedup: float | None
    coverage_percent: float | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "basis": self.basis,
            "trials": self.trials,
            "error_percent": self.error_percent,
            "mean_signed_error_percent": self.mean_signed_error_percent,
            "speedup": self.speedup,
            "coverage_percent": self.coverage_percent,
        }

    @classmethod
    def of(
        cls, trials: Trials | None, signed_error_percent: float, speedup: float, otherwise: FairBasis
    ) -> Fair:
        """From its tries; without tries the score as it is, on the basis ``otherwise``."""
        if trials is None or not len(trials):
            return cls(otherwise, 1, abs(signed_error_percent), signed_error_percent, speedup, None)
        return cls(
            trials.basis,
            len(trials),
            trials.error_percent,
            trials.mean_signed_error_percent,
            trials.speedup,
            trials.coverage_percent,
        )


@dataclass(frozen=True)
class Contender:
    """A method that applies: its name, the cost it is scored in, and its fair score."""

    method: str
    quantity: str
    fair: Fair


@dataclass(frozen=True)
class Recommendation:
    """The method to take on this recording, and why; ``method`` is None where none can be recommended."""

    method: str | None
    reason: Note

    def in_unit(self, unit: Unit) -> Recommendation:
        """The same, of methods that select by ``unit``."""
        return replace(self, reason=in_unit(self.reason, unit))

    def to_dict(self) -> dict[str, Any]:
        return {"method": self.method, "reason": self.reason.to_dict()}


def no_star(one: Contender, others: Sequence[Contender]) -> Note | None:
    """Why a method gets no star; None if it gets one: it can be judged, and no other of the same cost that
    can be judged has less error at no less speedup, or more speedup at no more error."""
    doubt = _doubt(one.fair)
    if doubt is not None:
        return doubt
    for other in others:
        if other.quantity == one.quantity and _doubt(other.fair) is None and _beats(other.fair, one.fair):
            return make_note("beaten_by", method=other.method)
    return None


def recommend(
    contenders: Sequence[Contender], target_error_percent: float = TARGET_ERROR_PERCENT
) -> Recommendation:
    """Of the methods with a star, the fastest within the target; if none is, the one of least error.

    Only methods scored in the cost that most of them are scored in compete; of equals, the first.
    """
    costs = Counter(each.quantity for each in contenders)
    quantity = costs.most_common(1)[0][0] if costs else ""
    rivals = [each for each in contenders if each.quantity == quantity and no_star(each, contenders) is None]
    if not rivals:
        return Recommendation(None, make_note("nothing_to_recommend"))
    within = [each for each in rivals if each.fair.error_percent <= target_error_percent]
    if within:
        best = max(within, key=lambda each: each.fair.speedup or 0.0)
        return Recommendation(best.method, _why("fastest_within_target", best, target_error_percent))
    best = min(rivals, key=lambda each: each.fair.error_percent)
    return Recommendation(best.method, _why("least_error", best, target_error_percent))


def _why(code: str, best: Contender, target: float) -> Note:
    fair = best.fair
    return make_note(
        code,
        method=best.method,
        error_percent=round(fair.error_percent, 2),
        speedup=round(fair.speedup or 0.0, 1),
        target_error_percent=target,
        basis=fair.basis,
        trials=fair.trials,
    )


def _doubt(fair: Fair) -> Note | None:
    if fair.basis == "by_construction":
        return make_note("exact_by_construction")
    if fair.basis == "in_sample":
        return make_note("chosen_by_own_error")
    if fair.coverage_percent is not None and fair.coverage_percent < LEAST_COVERAGE_PERCENT:
        return make_note(
            "interval_seldom_held", coverage_percent=fair.coverage_percent, least=LEAST_COVERAGE_PERCENT
        )
    if fair.error_percent > MOST_ERROR_PERCENT:
        return make_note(
            "error_above_most", error_percent=round(fair.error_percent, 2), most=MOST_ERROR_PERCENT
        )
    return None


def _beats(one: Fair, other: Fair) -> bool:
    fast, slow = one.speedup or 0.0, other.speedup or 0.0
    no_worse = one.error_percent <= other.error_percent and fast >= slow
    return no_worse and (one.error_percent < other.error_percent or fast > slow)
