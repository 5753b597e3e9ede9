"""Launches drawn in proportion to a known amount, with replacement; those that dominate are taken whole.

    whole:  launches with d_i >= D / m, taken out one after another, each lowering D by d_i and m by one
    drawn:  m draws with p_i = d_i / D among the others; a launch met k_i times has the weight k_i D / (m d_i)
    total   = costs of the whole ones + (1 / m) sum over draws of z,   z = cost x D / d
    variance = s_z^2 / m, Student's t with m - 1 degrees of freedom

Source: Hansen and Hurwitz, Annals of Mathematical Statistics 1943; Cochran, Sampling Techniques, 3rd edition,
section 9A.3 (with replacement, in proportion to size); docs/methods/proportional.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from assay_sampling.estimation.intervals import DEFAULT_CONFIDENCE
from assay_sampling.estimation.student_t import t_quantile

# Amounts are sums of numbers with rounding: equal launches must not miss "at least D / m" by it.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class ProportionalDraws:
    """Launches drawn, each once, ascending.

    ``rows``, ``draws`` and ``weights`` have shape (r,): the row, how many draws met it (0: taken whole) and
    its expansion factor.
    """

    rows: np.ndarray
    draws: np.ndarray
    weights: np.ndarray


def taken_whole(amounts: np.ndarray, draws: int) -> np.ndarray:
    """Rows of the launches with at least their share of what is left, shape (w,), the largest first.

    ``amounts`` has shape (n,), none negative, ``draws`` is at least 1. A launch without any is never taken.
    """
    order = _largest(amounts, draws)
    largest = amounts[order]
    # What is left before each is taken: the sum of all that are not larger.
    rest = np.cumsum(largest[::-1])[::-1] + float(np.delete(amounts, order).sum())
    enough = (largest > 0) & (largest * (draws - np.arange(len(order))) >= rest * (1 - _ROUNDING))
    rows: np.ndarray = order[: int(np.argmin(enough))] if not enough.all() else order
    return rows


def _largest(amounts: np.ndarray, count: int) -> np.ndarray:
    """Rows of that many of the largest amounts, or of all, the largest first; of equals the first."""
    rows = np.arange(len(amounts))
    if count < len(amounts):
        # Only the launches that may be among them are sorted.
        rows = np.flatnonzero(amounts >= np.partition(amounts, -count)[-count])
    largest: np.ndarray = rows[np.argsort(-amounts[rows], kind="stable")][:count]
    return largest


def draw_in_proportion(amounts: np.ndarray, draws: int, rng: np.random.Generator) -> ProportionalDraws:
    """Launches that dominate whole, and the rest of ``draws`` drawn with replacement among the others.

    Args:
        amounts: of every launch, shape (n,), finite, none negative, the sum positive.
        draws: how many launches to take and draw in all, at least 1; a launch met twice counts twice.
        rng: the source of randomness.

    Memory: 40 bytes a launch.
    """
    whole = taken_whole(amounts, draws)
    others = np.array(amounts, np.float64)
    others[whole] = 0.0
    reach = np.cumsum(others)
    rest, total = draws - len(whole), float(reach[-1])
    if rest == 0 or not total > 0:
        rows = np.sort(whole)
        return ProportionalDraws(rows, np.zeros(len(rows), np.int64), np.ones(len(rows)))
    # side="right" never meets a launch without amount: its reach is that of the launch before it.
    met = np.searchsorted(reach, rng.random(rest) * total, side="right")
    # A product rounded up to the total would be after the last launch with an amount.
    met = np.minimum(met, int(np.flatnonzero(others)[-1]))
    drawn, times = np.unique(met, return_counts=True)
    rows = np.concatenate([whole, drawn])
    counts = np.concatenate([np.zeros(len(whole), np.int64), times])
    weights = np.concatenate([np.ones(len(whole)), times * total / (rest * others[drawn])])
    order = np.argsort(rows)
    return ProportionalDraws(rows[order], counts[order], weights[order])


@dataclass(frozen=True)
class DrawErrors:
    """Standard error of a total from ``draws`` draws, and the quantile to multiply it with."""

    draws: int
    error: float
    quantile: float


def hansen_hurwitz(
    costs: np.ndarray, weights: np.ndarray, draws: np.ndarray, *, confidence: float = DEFAULT_CONFIDENCE
) -> DrawErrors:
    """Error of the total that launches drawn by :func:`draw_in_proportion` project in another cost.

    Args:
        costs: of the launches, each once, shape (r,); in the cost of the target.
        weights, draws: as drawn, shape (r,).
        confidence: in (0, 1).

    Launches taken whole add no variance; with fewer than two draws nothing is known, and the error is 0.
    """
    of_draws = draws > 0
    count = int(draws.sum())
    if count < 2:
        return DrawErrors(count, 0.0, 0.0)
    times = draws[of_draws]
    values = weights[of_draws] * costs[of_draws] * count / times  # each draw's guess of the drawn total
    mean = float((times * values).sum()) / count
    variance = float((times * np.square(values - mean)).sum()) / (count - 1)
    third = float((times * (values - mean) ** 3).sum()) / count
    skewness = third / variance**1.5 if variance > 0 else 0.0
    quantile = _for_skewed(t_quantile((1 + confidence) / 2, count - 1), skewness, count)
    return DrawErrors(count, math.sqrt(variance / count), quantile)


def _for_skewed(quantile: float, skewness: float, draws: int) -> float:
    """Student's quantile, enlarged by what the skewness of the draws takes from a two-sided interval.

    Source: Hall, The Bootstrap and Edgeworth Expansion, 1992, section 2.6: the term of the squared skewness.
    """
    square = quantile * quantile
    return quantile * (1 + skewness**2 * (square * square + 2 * square - 3) / (18 * draws))
