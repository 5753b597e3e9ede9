"""How many launches to sample from each cluster, for all clusters of all kernels at once.

    minimise  sum m_i mu_i   subject to   z^2 sum N_i^2 S_i^2 (1 / m_i - 1 / N_i) <= (epsilon T)^2
    and       least_i <= m_i <= N_i, whole numbers

T = sum N_i mu_i, S_i^2 = sd_i^2 N_i / (N_i - 1): then the left side is exactly the variance of a sample drawn
without replacement. For a multiplier q the best real m_i is q N_i S_i / sqrt(mu_i), clipped to its bounds
(a cluster at its upper bound is a census and has no variance); the best whole m_i is the smallest with
m_i (m_i + 1) >= that squared. The variance falls as q grows, so q is found by bisection.

Source: STEM+ROOT, the Karush-Kuhn-Tucker conditions of its model; docs/methods/stem.md, "The model".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assay_sampling.clustering.segments import Moments

_HALVINGS = 100


@dataclass(frozen=True)
class Allocation:
    """``sampled`` launches of each cluster, shape (c,), int64, and the multiplier q that gave them."""

    sampled: np.ndarray
    multiplier: float


def allocate(clusters: Moments, half_width: float, z: float, least: int) -> Allocation:
    """Least cost with z standard errors of the total within ``half_width``, in the unit of the cost.

    At least ``least`` (1 or more) launches of every cluster, or all it has; the bound is always met.
    """
    spread = spread_of(clusters)
    ceiling = clusters.launches
    floor = np.minimum(float(least), ceiling)
    free = (spread > 0) & (floor < ceiling)
    sampled = floor.copy()
    proportions = np.zeros(len(spread))
    proportions[free] = clusters.launches[free] * spread[free] / np.sqrt(clusters.mean[free])
    allowed = (half_width / z) ** 2
    if not free.any() or variance(clusters.at(free), floor[free]) <= allowed:
        return Allocation(sampled.astype(np.int64), 0.0)
    inner, bounds = clusters.at(free), (floor[free], ceiling[free])
    # In logarithms: between a multiplier that leaves all at their floor and one that makes all a census.
    low, high = np.log(0.5 / proportions[free].max()), np.log(2 * (ceiling[free] / proportions[free]).max())
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        if variance(inner, best_whole(np.exp(middle) * proportions[free], *bounds)) <= allowed:
            high = middle
        else:
            low = middle
    fewer, more = (best_whole(np.exp(power) * proportions[free], *bounds) for power in (low, high))
    sampled[free] = _just_enough(inner, fewer, more, allowed)
    return Allocation(sampled.astype(np.int64), float(np.exp(high)))


def _just_enough(clusters: Moments, fewer: np.ndarray, more: np.ndarray, allowed: float) -> np.ndarray:
    """Between two allocations, the first beyond ``allowed``: as many steps as needed, first clusters first.

    Both belong to the same multiplier up to rounding. Clusters that are alike step at the same one, although
    not all of them have to.
    """
    steps = np.flatnonzero(more > fewer)
    squares = np.square(clusters.launches * spread_of(clusters))[steps]
    gained = np.cumsum(squares * (1 / fewer[steps] - 1 / more[steps]))
    excess = variance(clusters, fewer) - allowed
    needed = steps[: int(np.searchsorted(gained, excess)) + 1]
    chosen = fewer.copy()
    chosen[needed] = more[needed]
    return chosen if variance(clusters, chosen) <= allowed else more


def spread_of(clusters: Moments) -> np.ndarray:
    """S of each cluster, shape (c,): standard deviation with divisor N - 1; 0 for a single launch."""
    several = clusters.launches > 1
    factor = np.divide(
        clusters.launches, clusters.launches - 1, out=np.zeros_like(clusters.mean), where=several
    )
    spread: np.ndarray = clusters.deviation * np.sqrt(factor)
    return spread


def variance(clusters: Moments, sampled: np.ndarray) -> float:
    """Variance of the projected total; ``sampled`` has shape (c,), at least 1 where a cluster spreads."""
    launches = clusters.launches
    factor = np.divide(launches - sampled, sampled, out=np.zeros_like(launches), where=sampled > 0)
    # N^2 S^2 (1/m - 1/N) as (S sqrt(N (N - m) / m))^2: the squares of large costs come last.
    return float(np.square(spread_of(clusters) * np.sqrt(launches * factor)).sum())


def best_whole(real: np.ndarray, floor: np.ndarray, ceiling: np.ndarray) -> np.ndarray:
    """The best whole numbers, shape (c,), for the best real ones, within their bounds."""
    # Cost m mu + c / m: going from m to m + 1 pays as long as m (m + 1) < real^2.
    whole: np.ndarray = np.clip(np.ceil(np.sqrt(0.25 + np.square(real)) - 0.5), floor, ceiling)
    return whole
