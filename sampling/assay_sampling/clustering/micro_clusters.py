"""Few weighted points that stand for many during the search for solutions: micro-clusters and coresets.

For a few hundred micro-clusters, a tree splits, level by level, every leaf whose scatter is above average at
its mean along the axis where it scatters most. A coreset is a weighted sample in which points that cost much
are likelier. Solutions on either are only starting points: callers finish on the points themselves.

Sources: variance-based divisive partitioning, Su and Dy 2007 (VAR-PART); Feldman and Langberg 2011 and Bachem
et al. 2018 (coresets).
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


def coreset(
    points: WeightedPoints, nearest: np.ndarray, most: int, rng: np.random.Generator
) -> WeightedPoints:
    """At most ``most`` of the points, positions about the same origin, weighted so that their inertia about
    any centres is nearly that of all points.

    A third each is drawn by weight, by share of the total scatter, and by share of the inertia about good
    centres, to which ``nearest``, shape (n,), are the squared distances: few far points may cost the most.
    """
    share = np.zeros(len(points))
    for part in (points.weights, points.weights * points.squares, points.weights * nearest):
        share += part / max(part.sum(), np.finfo(float).tiny)
    ends = np.cumsum(share)
    step = ends[-1] / most
    drawn = np.searchsorted(ends, step * (np.arange(most) + rng.random()), side="right")
    rows, counts = np.unique(np.minimum(drawn, len(points) - 1), return_counts=True)
    weights, squares = points.weights[rows] * counts * step / share[rows], points.squares[rows]
    scatter = float((weights * squares).sum())
    return WeightedPoints(np.zeros_like(points.origin), points.columns[:, rows], weights, squares, scatter)


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
