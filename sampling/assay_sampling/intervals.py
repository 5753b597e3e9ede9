"""Intervals of projected totals: how far a sample of launches may be off, by theory or by resampling.

Only methods that draw at least two launches of a group at random can say this of themselves. The others
carry the reason why they cannot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

NO_INTERVAL_FIXED_RULE = (
    "the representatives are chosen by a fixed rule, not at random: nothing is known of how they spread; "
    "launches_per_group=2 draws two at random"
)
NO_INTERVAL_SINGLE_LAUNCH = (
    "a group has one launch drawn of several: its spread is not known; launches_per_group=2 draws two"
)


@dataclass(frozen=True)
class Interval:
    """A two-sided interval of a projected total, in the unit of the cost.

    ``expected_error_percent`` is the expected absolute error in percent of the projected total,
    ``basis`` how it was found: "stratified_t" (Student's t over group variances), "known_variance" (the
    group variances of the whole profile), "bootstrap".
    """

    low: float
    high: float
    expected_error_percent: float
    basis: str
    confidence: float = 0.95

    def to_dict(self) -> dict[str, Any]:
        return {
            "low": self.low,
            "high": self.high,
            "confidence": self.confidence,
            "expected_error_percent": self.expected_error_percent,
            "basis": self.basis,
        }
