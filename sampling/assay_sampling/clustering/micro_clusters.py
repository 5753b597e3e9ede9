"""A few hundred weighted micro-clusters that stand for many points during the search for solutions.

A tree splits, level by level, every leaf whose scatter is above average at its mean along the axis where
it scatters most. Solutions on micro-clusters are only starting points: callers finish on the points
themselves.

Source: variance-based divisive partitioning, Su and Dy 2007 (VAR-PART).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import numpy as np

from assay_sampling.clustering.lloyd import WeightedPoints


@dataclass(frozen=True)
class _Leaves:
    weight: np.ndarray  # (g,)
    means: np.ndarray  # (g, d)
    scatter: np.ndarray  # (g, d)


def micro_clusters(points: WeightedPoints, most: int, *, coarse: int, tolerance: float) -> WeightedPoints:
    """At most ``most`` micro-clusters of ``points``, positions about the same origin.

    Splitting stops early once the scatter within the leaves is below ``tolerance`` of that within the first
    ``coarse`` of them. Fewer points than ``coarse`` are returned unchanged.
    """
    if len(points) <= coarse:
        return points
    labels = np.zeros(len(points), np.intp)
    groups, reference = 1, None
    while True:
        leaves = _leaves(points, labels, groups)
        total = float(leaves.scatter.sum())
        if reference is None and groups >= coarse:
            reference = total
        if groups >= most or (reference is not None and total <= tolerance * reference):
            break
        grown = _split(points, labels, leaves, most)
        if grown == groups:
            break
        groups = grown
    coarse_points = WeightedPoints.of(leaves.means, leaves.weight)
    return coarse_points


def _leaves(points: WeightedPoints, labels: np.ndarray, groups: int) -> _Leaves:
    weight = np.bincount(labels, points.weights, groups)
    d = points.positions.shape[1]
    means, scatter = np.empty((groups, d)), np.empty((groups, d))
    for axis, weighted in enumerate(islice(points.weighted_columns(), d)):
        means[:, axis] = np.bincount(labels, weighted, groups) / weight
        difference = points.columns[axis] - means[:, axis][labels]
        difference *= difference if points.are_alike else points.weights * difference
        scatter[:, axis] = np.bincount(labels, difference, groups)
    return _Leaves(weight, means, scatter)


def _split(points: WeightedPoints, labels: np.ndarray, leaves: _Leaves, most: int) -> int:
    """Split leaves in place of ``labels``; returns the number of leaves afterwards."""
    groups = len(leaves.weight)
    scatter = leaves.scatter.sum(axis=1)
    chosen = np.flatnonzero(scatter > 0.5 * scatter.sum() / most)
    if len(chosen) > most - groups:
        chosen = chosen[np.argsort(-scatter[chosen], kind="stable")[: most - groups]]
    axes = leaves.scatter.argmax(axis=1)
    thresholds = leaves.means[np.arange(groups), axes]
    splitting = np.zeros(groups, bool)
    splitting[chosen] = True
    above = np.flatnonzero(splitting[labels])
    above = above[points.positions[above, axes[labels[above]]] > thresholds[labels[above]]]
    # Rounding can put all points of a leaf on one side: only leaves that do split get a number.
    remaining = np.bincount(labels, minlength=groups) - np.bincount(labels[above], minlength=groups)
    parents = np.unique(labels[above])
    parents = parents[remaining[parents] > 0]
    numbers = np.full(groups, -1)
    numbers[parents] = groups + np.arange(len(parents))
    above = above[numbers[labels[above]] >= 0]
    labels[above] = numbers[labels[above]]
    return groups + len(parents)
