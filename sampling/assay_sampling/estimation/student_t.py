"""Quantiles of Student's t distribution, for any real degrees of freedom, without SciPy.

Source: the regularised incomplete beta function by its continued fraction (Numerical Recipes, 3rd edition,
section 6.4), inverted by bisection.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

# Above this the normal quantile differs by less than one part in a million.
_NORMAL_FROM = 1e6
_TINY = 1e-300
_MOST_TERMS = 10_000


def t_quantile(probability: float, degrees_of_freedom: float) -> float:
    """The value that a t variable stays below with ``probability``, in (0.5, 1); relative error < 1e-9.

    Infinite ``degrees_of_freedom`` give the normal quantile. Raises ValueError outside these ranges.
    """
    if not 0.5 < probability < 1 or not degrees_of_freedom > 0:
        raise ValueError(f"no t quantile of {probability} with {degrees_of_freedom} degrees of freedom")
    if degrees_of_freedom > _NORMAL_FROM:
        return NormalDist().inv_cdf(probability)
    return _quantile(probability, degrees_of_freedom)


@lru_cache(maxsize=1024)
def _quantile(probability: float, degrees_of_freedom: float) -> float:
    tail = 2 * (1 - probability)
    low, high = 0.0, 1.0
    while _two_tails(high, degrees_of_freedom) > tail:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if _two_tails(middle, degrees_of_freedom) > tail:
            low = middle
        else:
            high = middle
    return high


def _two_tails(t: float, degrees_of_freedom: float) -> float:
    """P(|T| > t)."""
    half = degrees_of_freedom / 2
    square = t * t
    # x and 1 - x, each without cancellation.
    x, rest = degrees_of_freedom / (degrees_of_freedom + square), square / (degrees_of_freedom + square)
    if rest == 0:
        return 1.0
    front = math.exp(
        math.lgamma(half + 0.5)
        - math.lgamma(half)
        - math.lgamma(0.5)
        + half * math.log(x)
        + 0.5 * math.log(rest)
    )
    # The fraction converges fast on the side of the mean of the beta distribution where x lies.
    if x < (half + 1) / (half + 2.5):
        return front * _fraction(half, 0.5, x) / half
    return 1.0 - front * _fraction(0.5, half, rest) / 0.5


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    c, d = 1.0, 1.0 / _away_from_zero(1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, _MOST_TERMS):
        change = 1.0
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / _away_from_zero(1 + numerator * d)
            c = _away_from_zero(1 + numerator / c)
            change = c * d
            fraction *= change
        if abs(change - 1) < 1e-15:
            break
    return fraction


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
