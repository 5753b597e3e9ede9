"""The share of an amount that a sample may have missed, however unlike the drawn the rest is.

A sample of n draws in proportion to the amount misses a part that holds the share x of it with the
probability (1 - x)^n. A uniform draw of one of N misses it with 1 - q, where q is the part's share of the
numbers; whatever the part, q >= x^2 / (1 + v^2) for amounts with the coefficient of variation v (Cauchy and
Schwarz). The largest x that all draws miss with the probability 1 - confidence is found by bisection:

    a log(1 - x) + u log(1 - x^2 / (1 + v^2)) = log(1 - confidence)

Source: docs/methods/target-intervals.md, "The derivation"; for u = 0 and small x this is the
rule of three (Hanley and Lippman-Hand, JAMA 1983).
"""

from __future__ import annotations

import math

_STEPS = 60


def unlike_share(in_proportion: float, uniform: float, variation: float, confidence: float) -> float:
    """The largest share of the amount that such draws all miss with the probability 1 - ``confidence``.

    Args:
        in_proportion: effective number of draws in proportion to the amount, at least 0.
        uniform: effective number of uniform draws, at least 0.
        variation: coefficient of variation of the amounts that are drawn from.
        confidence: in (0, 1).

    Returns a share in [0, 1]; 1 without any draw.
    """
    limit = math.log(1 - confidence)
    square = 1 + variation * variation
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        share = (low + high) / 2
        rest = max(1 - share * share / square, 1e-300)
        missed = in_proportion * math.log(1 - share) + uniform * math.log(rest) if share < 1 else -math.inf
        low, high = (share, high) if missed > limit else (low, share)
    return high
