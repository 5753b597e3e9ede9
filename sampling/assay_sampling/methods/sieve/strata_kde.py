"""Strata of one kernel's instruction counts by kernel density: cut between modes, halve strata that are still
too wide, then join neighbours that fit together.

    density  Gaussian, of log x, weighted by launches, bandwidth 0.9 min(sd, IQR / 1.34) n^(-1/5) (Silverman)
    cuts     at the valleys of the density
    split    exact 2-means while CoV >= theta
    merge    neighbours from left to right while the joint CoV < theta, until nothing changes; where three or
             more strata are left, exactly the fewest over blocks of an eighth of theta, if those are fewer

Source: Sieve, section III-B (the paper names the goals, few strata and CoV < theta, not the algorithm);
docs/methods/sieve.md, "Strata".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from assay_sampling.clustering.segments import Moments, Rule, moments, split_segments
from assay_sampling.methods.sieve.strata_dp import below, joined_blocks, under

_LEAST_POINTS = 512
_MOST_POINTS = 1 << 16
_POINTS_PER_BANDWIDTH = 4
_REACH = 4  # bandwidths: values farther off add less than 0.04 %
_LEAST_VALUES = 8  # fewer distinct values have no useful density: they are halved as needed
_LEAST_DEPTH = 0.01
_BLOCKS_PER_STRATUM = 8


def kde_strata(
    value: np.ndarray, count: np.ndarray, kernel_start: np.ndarray, theta: float, *, merge: bool
) -> np.ndarray:
    """Bounds of the strata of several kernels, shape (strata + 1,), from 0 to u.

    ``value`` and ``count`` are their atoms, shape (u,), those of kernel k from kernel_start[k] to
    kernel_start[k + 1]. Every stratum has CoV < theta.
    """
    cuts = [kernel_start]
    for low, high in _worth_a_density(kernel_start):
        cuts.append(low + density_cuts(value[low:high], count[low:high]))
    start = np.unique(np.concatenate(cuts))
    start, _ = split_segments(value, count, start, _too_wide(theta))
    if not merge:
        return start
    merged = _merged(moments(value, count, start), start, kernel_start, theta)
    return _fewer(value, count, (start, merged, kernel_start), theta)


def _worth_a_density(kernel_start: np.ndarray) -> Iterator[tuple[int, int]]:
    sizes = np.diff(kernel_start)
    for kernel in np.flatnonzero(sizes >= _LEAST_VALUES).tolist():
        yield int(kernel_start[kernel]), int(kernel_start[kernel + 1])


def density_cuts(value: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Indices of the atoms at which a valley of the density begins a new group, shape (cuts,), ascending."""
    position = np.log(np.maximum(value, value[value > 0][0] / 2))  # zero: half of the smallest
    bandwidth = _bandwidth(position, count)
    span = float(position[-1] - position[0])
    if not (bandwidth > 0 and span > 0):
        return np.empty(0, np.int64)
    points = math.ceil(span / bandwidth * _POINTS_PER_BANDWIDTH) + 1
    points = min(max(points, _LEAST_POINTS), _MOST_POINTS)
    step = span / (points - 1)
    bandwidth = max(bandwidth, _POINTS_PER_BANDWIDTH * step)
    bins = np.rint((position - position[0]) / step).astype(np.int64)
    reach = math.ceil(_REACH * bandwidth / step)
    bell = np.exp(-0.5 * np.square(np.arange(-reach, reach + 1) * step / bandwidth))
    density = np.convolve(np.bincount(bins, count, points), bell)[reach : reach + points]
    return np.unique(np.searchsorted(bins, _valleys(density), side="right"))


def _bandwidth(position: np.ndarray, count: np.ndarray) -> float:
    launches = float(count.sum())
    mean = float((count * position).sum()) / launches
    deviation = math.sqrt(float((count * np.square(position - mean)).sum()) / launches)
    quartiles = position[np.searchsorted(np.cumsum(count), np.array([0.25, 0.75]) * launches)]
    spread = float(quartiles[1] - quartiles[0]) / 1.34
    return 0.9 * (min(deviation, spread) if spread > 0 else deviation) * float(launches**-0.2)


def _valleys(density: np.ndarray) -> np.ndarray:
    """Middles of the local minima, shape (v,), that lie 1 % or more below the peaks on both sides.

    A level stretch counts as one point. Shallower ones are ripples of the grid.
    """
    begin = np.flatnonzero(np.concatenate([[True], density[1:] != density[:-1]]))
    height = density[begin]
    rises = height[1:] > height[:-1]
    lows = np.flatnonzero(~rises[:-1] & rises[1:]) + 1
    # Between two minima there is one peak; the ends may be peaks too.
    peaks = np.concatenate([[0], np.flatnonzero(rises[:-1] & ~rises[1:]) + 1, [len(height) - 1]])
    after = np.searchsorted(peaks, lows)
    lower = np.minimum(height[peaks[after - 1]], height[peaks[after]])
    lows = lows[height[lows] <= (1 - _LEAST_DEPTH) * lower]
    middles: np.ndarray = (begin[lows] + begin[lows + 1] - 1) // 2
    return middles


def _too_wide(theta: float) -> Rule:
    def rule(
        parent: Moments, left: Moments, right: Moments, state: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        wide = ~below(parent.cov(), theta)
        return wide, state, state

    return rule


def _fewer(
    value: np.ndarray, count: np.ndarray, bounds: tuple[np.ndarray, np.ndarray, np.ndarray], theta: float
) -> np.ndarray:
    """Bounds of the fewest strata over finer blocks, for kernels that the merge left in three or more.

    ``bounds`` are those of the strata before the merge, after it, and of the kernels.
    """
    start, merged, kernel_start = bounds
    edges = np.searchsorted(merged, kernel_start)
    many = np.flatnonzero((np.diff(edges) > 2) & (np.diff(kernel_start) >= _LEAST_VALUES))
    if not many.size:
        return merged
    # Strata before the merge are cut finer, so that valleys and best cuts remain possible bounds.
    finer, _ = split_segments(value, count, start, _too_wide(theta / _BLOCKS_PER_STRATUM))
    blocks = moments(value, count, finer)
    unchanged = np.repeat(True, len(merged))
    fewer = []
    for kernel in many.tolist():
        low, high = np.searchsorted(finer, kernel_start[kernel : kernel + 2])
        chosen = finer[low:high][joined_blocks(blocks.at(slice(low, high)), theta)]
        if len(chosen) < edges[kernel + 1] - edges[kernel]:
            unchanged[edges[kernel] : edges[kernel + 1]] = False
            fewer.append(chosen)
    return np.sort(np.concatenate([merged[unchanged], *fewer]))


def _merged(parts: Moments, start: np.ndarray, kernel_start: np.ndarray, theta: float) -> np.ndarray:
    """Bounds after the merge pass. A loop over strata, in plain numbers: there are few."""
    squares = np.square(parts.deviation) * parts.launches
    columns = (start[:-1].tolist(), parts.launches.tolist(), parts.mean.tolist(), squares.tolist())
    entries: list[_Part] = list(zip(*columns, strict=True))
    bounds = np.searchsorted(start, kernel_start).tolist()
    starts: list[int] = []
    for low, high in pairwise(bounds):
        of_kernel = entries[low:high]
        before = len(of_kernel) + 1
        while 1 < len(of_kernel) < before:
            before = len(of_kernel)
            of_kernel = _one_pass(of_kernel, theta)
        starts.extend(part[0] for part in of_kernel)
    return np.array([*starts, int(start[-1])], np.int64)


_Part = tuple[int, float, float, float]  # first atom, launches, mean, sum of squared deviations


def _one_pass(parts: list[_Part], theta: float) -> list[_Part]:
    joined = [parts[0]]
    for part in parts[1:]:
        first, launches, mean, squares = joined[-1]
        total = launches + part[1]
        difference = part[2] - mean
        # Chan's update: sums of deviations add up without cancelling.
        both = squares + part[3] + difference * difference * launches * part[1] / total
        centre = mean + difference * part[1] / total
        if math.sqrt(both / total) < under(theta) * centre:
            joined[-1] = (first, total, centre, both)
        else:
            joined.append(part)
    return joined
