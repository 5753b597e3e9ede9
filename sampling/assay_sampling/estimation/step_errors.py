"""Standard error of a total from launches drawn at equal steps in order of size, group by group.

    T_g = w_i x cost, summed over the m_g launches drawn of group g;   r_i = cost / light time, in units of
    their mean;   b = mean over groups of (r of the longest - r of the shortest) x m_g / (m_g - 1)

    s_g^2    = sum over neighbours in size of (difference of r - b / m_g)^2 / (2 (m_g - 1)) x G / (G - 1)
    error^2  = sum over groups of T_g^2 / m_g x mean(1 - 1 / w_i) x (s_g^2 + b^2 / (12 m_g))

Steps take the same sizes from every sample, so what ratios change with size does not vary the total: it is
left out of the spread as far as neighbours share it, and so is b, the rise over a whole group that G groups
of two or more drawn launches have in common. A start that is random within its step leaves b^2 / (12 m_g^2).
The s_g^2 are moderated; a group of one launch has that of all.

Source: Wolter, Introduction to Variance Estimation, 2nd edition, section 8.2 (successive differences);
Cochran, Sampling Techniques, 3rd edition, sections 8.5 (linear trend) and 9A.10; Hartley and Rao, Annals of
Mathematical Statistics 1962 (1 - 1 / w_i); docs/methods/target-intervals.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from assay_sampling.estimation.moderated_errors import moderated_error, pooled_variance


@dataclass(frozen=True)
class StepErrors:
    """Standard error of the total, the same as if each group had no say in the common trend, its degrees of
    freedom, and so many draws from one group as tell as much."""

    standard: float
    without_own: float
    freedom: float
    effective_draws: float


def step_errors(
    groups: np.ndarray, light_time: np.ndarray, costs: np.ndarray, weights: np.ndarray
) -> StepErrors:
    """Errors of sum(weights x costs) of launches that stand for others of their groups.

    Args:
        groups: 0-based, shape (r,); at least one with two launches.
        light_time: positive, shape (r,).
        costs, weights: on the target, and as the draw gave them, shape (r,).
    """
    order = np.lexsort((light_time, groups))
    group = np.unique(groups[order], return_inverse=True)[1]
    drawn = np.bincount(group)
    weights, costs = weights[order], costs[order]
    ratio = costs / light_time[order]
    mean = np.bincount(group, ratio) / drawn
    ratio = ratio / np.where(mean > 0, mean, 1.0)[group]
    projected = np.bincount(group, weights * costs)
    several = drawn >= 2
    freedom = drawn - 1.0
    neighbours = np.flatnonzero(group[1:] == group[:-1])
    of_group = group[neighbours]
    rise = ratio[neighbours + 1] - ratio[neighbours]
    trend, correction = 0.0, 1.0
    if several.sum() >= 2:
        whole_rise = np.bincount(of_group, rise, len(drawn)) * drawn / np.maximum(freedom, 1)
        trend = float(whole_rise[several].mean())
        correction = float(several.sum() / (several.sum() - 1))
    squares = np.square(rise - trend / drawn[of_group])
    own = correction * np.bincount(of_group, squares, len(drawn)) / (2 * np.maximum(freedom, 1))
    unsampled = np.bincount(group, 1 - 1 / weights) / drawn
    standard, degrees = moderated_error(
        np.square(projected) * unsampled / drawn,
        own,
        pooled_variance(projected * several, own),
        freedom,
        trend**2 / (12 * drawn),
    )
    share = projected / projected.sum() if projected.sum() > 0 else np.full(len(drawn), 1 / len(drawn))
    return StepErrors(
        standard,
        standard * math.sqrt(correction),
        degrees,
        1 / float((np.square(share) / drawn).sum()),
    )
