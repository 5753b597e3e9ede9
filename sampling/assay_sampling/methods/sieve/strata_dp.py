"""Exact strata of one kernel's instruction counts: the fewest with CoV < theta in each, and of these the ones
with the least within-stratum squares.

    best(j) = min over feasible [i, j) of best(i) + (1, squares of [i, j)), compared by strata first

Feasibility is not monotone in an interval's length (more mass at the top lowers the CoV), so greedy extension
is not exact. Cost grows with the square of the distinct counts; above 10,000 these are first put into bins a
thousandth wide, which only restricts where strata may begin.

Source: docs/methods/sieve.md, "Strata".
"""

from __future__ import annotations

import numpy as np

from assay_sampling.clustering.segments import Moments, moments

_ROUNDED_AWAY = 1e-12
_MOST_BLOCKS = 10_000
_BIN_WIDTH = 1e-3  # of log x


def below(cov: np.ndarray, theta: float) -> np.ndarray:
    """Whether CoV < theta, by a margin above rounding, so that computing it again gives the same answer."""
    mask: np.ndarray = cov < under(theta)
    return mask


def under(theta: float) -> float:
    """The limit for the CoV: ``theta`` minus the margin."""
    return theta * (1 - _ROUNDED_AWAY)


def dp_cuts(
    value: np.ndarray, count: np.ndarray, theta: float, *, most_blocks: int = _MOST_BLOCKS
) -> np.ndarray:
    """First atoms of the strata of one kernel, shape (strata,), ascending from 0; atoms have shape (u,)."""
    first = np.arange(len(value)) if len(value) <= most_blocks else _binned(value, min(_BIN_WIDTH, theta))
    blocks = moments(value, count, np.append(first, len(value)))
    cuts: np.ndarray = first[joined_blocks(blocks, theta)]
    return cuts


def joined_blocks(blocks: Moments, theta: float) -> np.ndarray:
    """First blocks of the fewest strata with CoV < theta, shape (strata,), ascending from 0.

    ``blocks`` are b neighbouring segments of one kernel, each with CoV < theta. Cost b^2.
    """
    launches, mean, squares = blocks.launches, blocks.mean, np.square(blocks.deviation) * blocks.launches
    scale = max(float(mean[-1]), 1.0)
    strata = np.zeros(len(mean) + 1, np.int64)
    cost = np.zeros(len(mean) + 1)
    came_from = np.zeros(len(mean) + 1, np.int64)
    for last in range(len(mean)):
        cov, within = _intervals_up_to(launches, mean, squares, last)
        feasible = below(cov, theta)
        feasible[last] = True
        candidates = np.flatnonzero(feasible)
        fewest = strata[candidates].min()
        candidates = candidates[strata[candidates] == fewest]
        costs = cost[candidates] + within[candidates] / scale**2
        chosen = int(np.argmin(costs))
        strata[last + 1], cost[last + 1] = fewest + 1, costs[chosen]
        came_from[last + 1] = candidates[chosen]
    cuts = []
    end = len(mean)
    while end > 0:
        end = int(came_from[end])
        cuts.append(end)
    return np.array(cuts[::-1], np.int64)


def _intervals_up_to(
    launches: np.ndarray, mean: np.ndarray, squares: np.ndarray, last: int
) -> tuple[np.ndarray, np.ndarray]:
    """CoV and within-squares of the blocks [i, last] for every i, shape (last + 1,)."""
    top = float(mean[last])
    if top <= 0:
        return np.zeros(last + 1), np.zeros(last + 1)
    # Distances from the top value, divided by it and summed downwards: a narrow stratum sums small numbers.
    distance = (top - mean[last::-1]) / top
    count = launches[last::-1]
    number = np.cumsum(count)
    total = np.cumsum(count * distance)
    square = np.cumsum(count * np.square(distance) + squares[last::-1] / top**2)
    offset = total / number
    within = np.maximum(square - total * offset, 0)
    cov = np.sqrt(within / number) / np.maximum(1 - offset, np.finfo(float).tiny)
    return cov[::-1], (within * top**2)[::-1]


def _binned(value: np.ndarray, width: float) -> np.ndarray:
    """First atoms of bins of log x, shape (bins,); zero has a separate bin."""
    positive = value > 0
    bins = np.full(len(value), -1, np.int64)
    logarithm = np.log(value[positive])
    bins[positive] = ((logarithm - logarithm[0]) / width).astype(np.int64)
    return np.flatnonzero(np.concatenate([[True], bins[1:] != bins[:-1]]))
