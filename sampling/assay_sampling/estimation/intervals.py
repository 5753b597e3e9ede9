"""Intervals of projected totals: how far off a sample of launches may be.

Only methods that draw at least two launches of a group at random have such an interval; the others give
the reason why not. All sampling is within groups and without replacement.

Source: Cochran, Sampling Techniques, 3rd edition, section 5.3 (stratified total).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from assay_sampling.estimation.rank_draws import draw_rows
from assay_sampling.estimation.student_t import t_quantile
from assay_sampling.notes.registry import make_note

NO_INTERVAL_FIXED_RULE = make_note("interval_of_fixed_rule")

DEFAULT_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A two-sided interval of a projected total, in the unit of the cost.

    ``expected_error_percent`` is the expected absolute error in percent of the projected total,
    ``basis`` how it was found: "known_design" (the errors of many draws of the same design, where all costs
    are known: :mod:`assay_sampling.estimation.known_design`) or "known_variance" (the group variances of the
    whole profile); on another GPU those of :mod:`assay_sampling.estimation.target_intervals`.
    """

    low: float
    high: float
    expected_error_percent: float
    basis: str
    confidence: float = DEFAULT_CONFIDENCE

    def to_dict(self) -> dict[str, Any]:
        return {
            "low": self.low,
            "high": self.high,
            "confidence": self.confidence,
            "expected_error_percent": self.expected_error_percent,
            "basis": self.basis,
        }


def known_variance_interval(
    projected: float,
    deviations: np.ndarray,
    sampled: np.ndarray,
    group_sizes: np.ndarray,
    *,
    drawn_cost: float = 0.0,
    confidence: float = DEFAULT_CONFIDENCE,
) -> Interval:
    """Interval if the spread of each group is known from all its launches, not estimated from the drawn ones.

    ``deviations`` (of the cost, divisor N_g), ``sampled`` (launches drawn, m_g >= 1 where the group spreads)
    and ``group_sizes`` (N_g) have shape (g,). The total is assumed to be normal. No bound is below
    ``drawn_cost``, the cost of the drawn launches.
    """
    sizes = group_sizes.astype(np.float64)
    # Divisor N - 1: then the variance of a sample without replacement is exactly this.
    variance = np.square(deviations) * _over(sizes, sizes - 1)
    share = _over(sampled.astype(np.float64), sizes)
    error = math.sqrt(float((np.square(sizes) * (1 - share) * _over(variance, sampled)).sum()))
    interval = _around(projected, error, math.inf, confidence, "known_variance")
    high = max(interval.high, drawn_cost)
    return replace(interval, low=min(max(interval.low, drawn_cost), high), high=high)


def draw_per_group(labels: np.ndarray, per_group: int | np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rows drawn uniformly without replacement within each group, ascending.

    Args:
        labels: group of every launch, shape (n,), 0-based.
        per_group: launches to draw of each, a number or shape (g,); a smaller group gives all it has.
        rng: the source of randomness.
    """
    if not len(labels):
        return np.empty(0, np.int64)
    sizes = np.bincount(labels)
    draws = np.minimum(np.broadcast_to(np.asarray(per_group, np.int64), sizes.shape), sizes)
    return np.sort(draw_rows(labels, sizes, draws, rng)[0])


def _over(numerator: np.ndarray, denominator: np.ndarray, otherwise: float = 0.0) -> np.ndarray:
    """The quotient, and ``otherwise`` where the denominator is not positive."""
    top = np.asarray(numerator, np.float64)
    quotient = np.full_like(top, otherwise)
    np.divide(top, denominator, out=quotient, where=np.asarray(denominator) > 0)
    return quotient


def _around(
    projected: float, standard_error: float, degrees_of_freedom: float, confidence: float, basis: str
) -> Interval:
    half = standard_error * t_quantile((1 + confidence) / 2, degrees_of_freedom)
    # The mean absolute value of a normal variable.
    expected = math.sqrt(2 / math.pi) * standard_error
    return Interval(projected - half, projected + half, _percent(expected, projected), basis, confidence)


def _percent(part: float, whole: float) -> float:
    return 100.0 * part / whole if whole > 0 else 0.0
