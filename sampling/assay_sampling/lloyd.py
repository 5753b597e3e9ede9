"""Lloyd's algorithm on weighted points, for many sets of centres at once.

A *batch* of centres has shape (b, k, d): ``b`` solutions of ``k`` centres each. Distances are expanded,
``|x - c|^2 = |x|^2 - 2 x.c + |c|^2``, so that one matrix product serves the whole batch; points are held
about their mean, which keeps the cancellation small, and inertias that leave this module are computed
from the differences themselves.

Source: Lloyd 1982; Hartigan 1975 for the transfer of single points.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

# Elements of a block of the distance matrix: it and its one-hot twin stay in a core's cache.
_BLOCK_ELEMENTS = 32768
MAX_STEPS = 300
# Two solutions whose inertias differ relatively by less are held to be one.
_SAME_INERTIA = 1e-7


@dataclass(frozen=True)
class WeightedPoints:
    """Distinct points with their multiplicities; 8 (d + 3) bytes a point.

    ``augmented`` has shape (n, d + 1): the positions about ``origin``, their weighted mean, and a
    column of ones. ``weights`` and ``squares`` (of the distance from the origin) have shape (n,).
    """

    origin: np.ndarray
    augmented: np.ndarray
    weights: np.ndarray
    squares: np.ndarray
    total_square: float

    @classmethod
    def of(cls, positions: np.ndarray, weights: np.ndarray) -> WeightedPoints:
        """Points at ``positions``, shape (n, d), finite, with positive ``weights``, shape (n,)."""
        weights = np.asarray(weights, np.float64)
        origin = weights @ positions / weights.sum()
        augmented = np.ones((positions.shape[0], positions.shape[1] + 1))
        np.subtract(positions, origin, out=augmented[:, :-1])
        squares = np.einsum("ij,ij->i", augmented[:, :-1], augmented[:, :-1])
        return cls(origin, augmented, weights, squares, float(weights @ squares))

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def positions(self) -> np.ndarray:
        """Positions about ``origin``, shape (n, d)."""
        return self.augmented[:, :-1]

    def blocks(self, width: int) -> Iterator[slice]:
        """Slices of the points whose matrices of ``width`` columns fit a core's cache."""
        rows = max(64, _BLOCK_ELEMENTS // width)
        for start in range(0, len(self), rows):
            yield slice(start, start + rows)


def products(centres: np.ndarray) -> np.ndarray:
    """``(-2 c, |c|^2)`` of centres (..., d), shape (..., d + 1): times an augmented point it is the
    squared distance less the point's own square."""
    squares = np.einsum("...i,...i->...", centres, centres)
    return np.concatenate([-2.0 * centres, squares[..., None]], axis=-1)


def lloyd_step(points: WeightedPoints, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One step of every solution of a batch (b, k, d); a centre that no point is nearest to stays.

    Returns the new centres and the inertias, shape (b,), of the new centres under the assignment to the
    old ones: an upper bound of the new inertia, and never above that of the old centres.
    """
    b, k, d = centres.shape
    factors = products(centres).reshape(b * k, d + 1).T
    offsets = np.arange(b) * k
    sums = np.zeros((b * k, d + 1))
    for block in points.blocks(b * k):
        augmented = points.augmented[block]
        nearest = (augmented @ factors).reshape(-1, b, k).argmin(axis=2)
        nearest += offsets
        membership = np.zeros((len(augmented), b * k))
        membership[np.arange(len(augmented))[:, None], nearest] = points.weights[block, None]
        sums += membership.T @ augmented
    weight = sums[:, -1:]
    moved = np.divide(sums[:, :-1], weight, out=centres.reshape(b * k, d).copy(), where=weight > 0)
    within = (weight[:, 0] * np.einsum("ij,ij->i", moved, moved)).reshape(b, k).sum(axis=1)
    return moved.reshape(b, k, d), np.maximum(points.total_square - within, 0.0)


def settle(
    points: WeightedPoints, centres: np.ndarray, stages: Sequence[tuple[int, int]]
) -> tuple[np.ndarray, np.ndarray]:
    """Lloyd steps with elimination: a stage ``(steps, keep)`` makes at most so many steps, then keeps so
    many of the best solutions that differ. A stage ends early once no centre moves."""
    inertia = np.full(len(centres), np.inf)
    for steps, keep in stages:
        for _ in range(steps):
            moved, inertia = lloyd_step(points, centres)
            still = np.array_equal(moved, centres)
            centres = moved
            if still:
                break
        best = best_distinct(inertia, keep)
        centres, inertia = centres[best], inertia[best]
    return centres, inertia


def best_distinct(inertia: np.ndarray, keep: int) -> np.ndarray:
    """Indices of the ``keep`` smallest inertias that differ from each other, ascending by inertia."""
    order = np.argsort(inertia, kind="stable")
    ordered = inertia[order]
    differs = np.ones(len(order), bool)
    differs[1:] = ordered[1:] - ordered[:-1] > _SAME_INERTIA * np.abs(ordered[1:])
    return order[differs][:keep]


@dataclass(frozen=True)
class Assignment:
    """Each point's nearest centre: ``labels`` and squared distance ``nearest``, shape (n,).

    ``removal`` has shape (k,): by how much the inertia grows when a centre is taken away and its points
    go to their second nearest, before any further step (infinite for a single centre).
    """

    labels: np.ndarray
    nearest: np.ndarray
    removal: np.ndarray


def assign(points: WeightedPoints, centres: np.ndarray) -> Assignment:
    """Nearest and second nearest of the centres (k, d) for every point."""
    k = len(centres)
    labels = np.empty(len(points), np.intp)
    nearest = np.empty(len(points))
    removal = np.zeros(k)
    factors = products(centres).T
    for block in points.blocks(k):
        distances = points.augmented[block] @ factors
        own = distances.argmin(axis=1)
        rows = np.arange(len(own))
        first = distances[rows, own]
        distances[rows, own] = np.inf
        loss = points.weights[block] * (distances.min(axis=1) - first)
        removal += np.bincount(own, loss, k)
        labels[block] = own
        nearest[block] = np.maximum(first + points.squares[block], 0.0)
    return Assignment(labels, nearest, removal)


def transfer(points: WeightedPoints, centres: np.ndarray, rounds: int) -> np.ndarray:
    """Move single points between groups where that lowers the inertia although they are nearest to their
    own centre (Hartigan's criterion), one point a solution and round, each followed by a Lloyd step.

    It matters where one point weighs much: thousands of equal launches are one point. Batch (b, k, d).
    """
    for _ in range(rounds):
        moved = _best_transfer(points, centres)
        if moved is None:
            break
        centres, _ = lloyd_step(points, moved)
    return centres


def _best_transfer(points: WeightedPoints, centres: np.ndarray) -> np.ndarray | None:
    b, k, d = centres.shape
    if k < 2:
        return None
    factors = products(centres).reshape(b * k, d + 1).T
    sums = _group_weights(points, factors, b, k)
    solutions = np.arange(b)
    best = np.zeros((4, b))  # gain, point, source, target
    for block in points.blocks(b * k):
        distances = (points.augmented[block] @ factors + points.squares[block, None]).reshape(-1, b, k)
        np.maximum(distances, 0.0, out=distances)
        own = distances.argmin(axis=2)
        rows = np.arange(len(own))[:, None]
        weight = points.weights[block, None]
        left = sums[solutions, own] - weight
        saved = np.divide(
            (left + weight) * weight * distances[rows, solutions, own],
            left, out=np.zeros_like(left), where=left > 0,
        )  # fmt: skip
        distances *= weight[:, :, None] * (sums / (sums + weight[:, :, None]))
        distances[rows, solutions, own] = np.inf
        target = distances.argmin(axis=2)
        gain = saved - distances[rows, solutions, target]
        point = gain.argmax(axis=0)
        found = np.stack(
            [gain[point, solutions], point + block.start, own[point, solutions], target[point, solutions]]
        )
        best = np.where(found[0] > best[0], found, best)
    moving = np.flatnonzero(best[0] > 1e-9 * points.total_square)
    if not len(moving):
        return None
    point, source, target = best[1:, moving].astype(np.intp)
    position, weight = points.positions[point], points.weights[point][:, None]
    moved = centres.copy()
    for group, sign in ((source, -1.0), (target, 1.0)):
        held = sums[moving, group][:, None]
        moved[moving, group] = (held * centres[moving, group] + sign * weight * position) / (
            held + sign * weight
        )
    return moved


def _group_weights(points: WeightedPoints, factors: np.ndarray, b: int, k: int) -> np.ndarray:
    sums = np.zeros(b * k)
    for block in points.blocks(b * k):
        own = (points.augmented[block] @ factors).reshape(-1, b, k).argmin(axis=2) + np.arange(b) * k
        sums += np.bincount(own.ravel(), np.repeat(points.weights[block], b), b * k)
    return sums.reshape(b, k)


def measure(points: WeightedPoints, labels: np.ndarray, groups: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Centres (about the origin) as the exact means of given groups, their weights, and the inertia
    summed from the differences."""
    weight = np.bincount(labels, points.weights, groups)
    positions = points.positions
    means = np.empty((groups, positions.shape[1]))
    inertia = 0.0
    for axis in range(positions.shape[1]):
        values = positions[:, axis]
        sums = np.bincount(labels, points.weights * values, groups)
        means[:, axis] = np.divide(sums, weight, out=np.zeros(groups), where=weight > 0)
        difference = values - means[labels, axis]
        inertia += float(points.weights @ (difference * difference))
    return means, weight, inertia
