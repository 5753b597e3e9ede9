"""Lloyd's algorithm on weighted points, for many sets of centres at once.

A *batch* of centres has shape (b, k, d): ``b`` solutions of ``k`` centres each. Distances are expanded,
``|x - c|^2 = |x|^2 - 2 x.c + |c|^2``, so that one matrix product serves the whole batch; points are stored
relative to their mean, which keeps the cancellation small, and inertias that leave this module are computed
from the differences themselves.

Source: Lloyd 1982; Hartigan 1975 for the transfer of single points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np

# Elements of a block of the distance matrix: it and its one-hot twin stay in a core's cache.
_BLOCK_ELEMENTS = 32768
_BLOCK_ROWS = 1 << 16
# A sum over so few is not divided among threads of OpenBLAS.
_SUMMED_ROWS = 1 << 13
MAX_STEPS = 300
_MOST_RANKS = 255  # of one byte
# Two solutions whose inertias differ relatively by less count as one.
_SAME_INERTIA = 1e-7
# Transfers that gain less, relative to the total scatter, are not worth a step.
_LEAST_GAIN = 1e-12
_TRANSFER_ROUNDS = 20
# Centres move a little while points are transferred: try somewhat more points than can gain at first.
_MARGIN = 1.05


@dataclass(frozen=True)
class WeightedPoints:
    """Distinct points with their multiplicities; 8 (d + 3) bytes a point.

    ``columns`` has shape (d + 1, n): the positions about ``origin``, their weighted mean, and a row of
    ones; products with few centres, and sums over groups, read whole columns. ``weights`` and ``squares``
    (of the distance from the origin) have shape (n,).
    """

    origin: np.ndarray
    columns: np.ndarray
    weights: np.ndarray
    squares: np.ndarray
    total_square: float

    @classmethod
    def of(cls, positions: np.ndarray, weights: np.ndarray) -> WeightedPoints:
        """Points at ``positions``, shape (n, d), finite, with positive ``weights``, shape (n,)."""
        weights = np.asarray(weights, np.float64)
        origin = weights @ positions / weights.sum()
        columns = np.ones((positions.shape[1] + 1, positions.shape[0]))
        squares = np.empty(len(positions))
        for block in _row_blocks(len(positions)):
            centred = positions[block] - origin
            columns[:-1, block] = centred.T
            with np.errstate(over="ignore"):  # callers that group the points check the total
                np.vecdot(centred, centred, out=squares[block])
        return cls(origin, columns, weights, squares, float(weights @ squares))

    def __len__(self) -> int:
        return len(self.weights)

    def weighted_columns(self) -> Iterable[np.ndarray]:
        """The ``columns`` times ``weights``, one after the other."""
        return self.columns if self.are_alike else (self.weights * column for column in self.columns)

    @cached_property
    def are_alike(self) -> bool:
        """Whether every weight is 1, so that nothing need be multiplied by it."""
        return bool((self.weights == 1.0).all())

    @property
    def mean_variance(self) -> float:
        """The mean over the axes of the variance along each."""
        return self.total_square / (float(self.weights.sum()) * (len(self.columns) - 1))

    @property
    def positions(self) -> np.ndarray:
        """Positions about ``origin``, shape (n, d)."""
        return self.columns[:-1].T


def blocks(rows: int, width: int) -> Iterator[slice]:
    """Slices of ``rows`` rows whose matrices of ``width`` columns fit a core's cache."""
    height = max(64, _BLOCK_ELEMENTS // width)
    for start in range(0, rows, height):
        yield slice(start, start + height)


def _row_blocks(rows: int) -> Iterator[slice]:
    """Slices of ``rows`` rows whose temporary arrays fit a core's cache."""
    for start in range(0, rows, _BLOCK_ROWS):
        yield slice(start, min(start + _BLOCK_ROWS, rows))


def products(centres: np.ndarray) -> np.ndarray:
    """``(-2 c, |c|^2)`` of centres (..., d), shape (..., d + 1): times a point's column it is the
    squared distance less the point's own square."""
    factors = np.empty((*centres.shape[:-1], centres.shape[-1] + 1))
    np.multiply(centres, -2.0, out=factors[..., :-1])
    np.vecdot(centres, centres, out=factors[..., -1])
    return factors


@dataclass(frozen=True)
class Batch:
    """Solutions of one K: ``centres`` (b, k, d), ``inertia`` (b,), ``weights`` of the groups (b, k)."""

    centres: np.ndarray
    inertia: np.ndarray
    weights: np.ndarray

    def __getitem__(self, which: np.ndarray | slice) -> Batch:
        return Batch(self.centres[which], self.inertia[which], self.weights[which])

    def joined(self, other: Batch) -> Batch:
        """The solutions of both batches."""
        return Batch(
            np.concatenate([self.centres, other.centres]),
            np.concatenate([self.inertia, other.inertia]),
            np.concatenate([self.weights, other.weights]),
        )


def lloyd_step(points: WeightedPoints, centres: np.ndarray) -> Batch:
    """One step of every solution of a batch (b, k, d); a centre that no point is nearest to stays.

    The inertias are those of the new centres under the assignment to the old ones: an upper bound of the
    new inertia, and never above that of the old centres. The weights are of the old assignment, too.
    """
    b, k, d = centres.shape
    sums = _step_sums(points, products(centres), _ties_in_full)
    tied = sums[:, :, -1].sum(axis=1) > points.weights.sum() * (1 + 1e-9)
    if tied.any():
        sums[tied] = _step_sums(points, products(centres[tied]), _ties_to_the_first)
    moved = _means(sums.reshape(b * k, d + 1), centres.reshape(b * k, d)).reshape(b, k, d)
    return Batch(moved, _inertia(points, sums, moved), sums[:, :, -1])


def _step_sums(
    points: WeightedPoints, factors: np.ndarray, nearest: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Sums of the points' columns over the groups of centres with these products, (b, k, d + 1) both."""
    b, k, width = factors.shape
    flat = factors.reshape(b * k, width)
    sums = np.zeros((b * k, width))
    for block in blocks(len(points), b * k):
        columns = points.columns[:, block]
        # Centres along the first axes: minima run over contiguous points, several at an instruction.
        distances = (flat @ columns).reshape(b, k, -1)
        sums += memberships(points, nearest(distances).reshape(b * k, -1), block) @ columns.T
    return sums.reshape(b, k, width)


def memberships(points: WeightedPoints, members: np.ndarray, block: slice) -> np.ndarray:
    """The weights of the points of a block in each of m groups, of the mask of the ``members`` (m, n)."""
    weights = members.astype(np.float64)  # NumPy multiplies a mask by numbers more slowly than numbers
    if not points.are_alike:
        weights *= points.weights[block]
    return weights


def _ties_in_full(distances: np.ndarray) -> np.ndarray:
    """Which centres (b, k, n) are nearest; a point between two equally near ones counts in both."""
    nearest: np.ndarray = np.equal(distances, distances.min(axis=1)[:, None])
    return nearest


def _ties_to_the_first(distances: np.ndarray) -> np.ndarray:
    """Which centres (b, k, n) are nearest, one a point; slower."""
    first = distances.argmin(axis=1)[:, None]
    nearest: np.ndarray = np.equal(np.arange(distances.shape[1])[:, None], first)
    return nearest


def settle(points: WeightedPoints, centres: np.ndarray, stages: Sequence[tuple[int, int]]) -> Batch:
    """Lloyd steps with elimination: a stage ``(steps, keep)`` makes at most ``steps`` steps, then keeps the
    ``keep`` best solutions that differ. A stage ends early once no centre moves."""
    for steps, keep in stages:
        for _ in range(steps):
            batch = lloyd_step(points, centres)
            still = (batch.centres == centres).all()
            centres = batch.centres
            if still:
                break
        batch = batch[best_distinct(batch.inertia, keep)]
        centres = batch.centres
    return batch


def best_distinct(inertia: np.ndarray, keep: int) -> np.ndarray:
    """Indices of the ``keep`` smallest inertias that differ from each other, ascending by inertia."""
    order = np.argsort(inertia, kind="stable")
    ordered = inertia[order]
    differs = np.ones(len(order), bool)
    differs[1:] = ordered[1:] - ordered[:-1] > _SAME_INERTIA * np.abs(ordered[1:])
    return order[differs][:keep]


@dataclass(frozen=True)
class Assignment:
    """Each point's nearest centre: ``labels``, and squared distances to it and to the second ``nearest``
    (infinite for a single centre), each of shape (n,)."""

    labels: np.ndarray
    nearest: np.ndarray
    second: np.ndarray


def assign(points: WeightedPoints, centres: np.ndarray, rows: np.ndarray | slice = slice(None)) -> Assignment:
    """Nearest and second nearest of the centres (k, d) for all points, or those at ``rows``."""
    chosen, squares = points.columns[:, rows], points.squares[rows]
    n = len(squares)
    labels = np.empty(n, np.intp)
    nearest, second = np.empty(n), np.empty(n)
    factors = products(centres)
    for block in blocks(n, len(centres)):
        labels[block], nearest[block], second[block] = _two_nearest(factors @ chosen[:, block])
    nearest += squares
    second += squares
    return Assignment(labels, np.maximum(nearest, 0.0, out=nearest), np.maximum(second, 0.0, out=second))


def _two_nearest(distances: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, nearest and second nearest, each (n,), of distances (k, n), which are overwritten."""
    nearest = distances.min(axis=0)
    labels = _first_true(np.equal(distances, nearest))
    distances[labels, np.arange(len(labels))] = np.inf
    return labels, nearest, distances.min(axis=0)


def _first_true(mask: np.ndarray) -> np.ndarray:
    """The first true row of each column, (n,), of a mask (k, n); ``argmax`` is slow along this axis."""
    k = len(mask)
    first: np.ndarray
    if k > _MOST_RANKS:
        first = mask.argmax(axis=0)
    else:
        ranks = np.arange(k, 0, -1, dtype=np.uint8)
        first = k - np.multiply(mask.view(np.uint8), ranks[:, None]).max(axis=0).astype(np.intp)
    return first


def removal_costs(points: WeightedPoints, now: Assignment, k: int) -> np.ndarray:
    """Growth of the inertia, shape (k,), when a centre is removed and its points go to their second
    nearest."""
    return np.bincount(now.labels, points.weights * (now.second - now.nearest), k)


def converge(
    points: WeightedPoints, centres: np.ndarray, *, tolerance: float = 0.0, bounds: Bounds | None = None
) -> tuple[Batch, np.ndarray]:
    """Lloyd steps from centres (k, d) until no point changes its group, at most MAX_STEPS; or, with a
    ``tolerance``, until the squared moves of the centres sum to less than it times the mean variance.

    Only points that can have changed are computed: the triangle inequality bounds how near a centre that
    moved can have come (Hamerly 2010). ``bounds`` at centres nearby, which are used up, save computing all
    points once. Returns a batch of one solution and the labels, shape (n,).
    """
    if bounds is None:
        bounds = Bounds(points, centres)
    else:
        bounds.reassign(centres)
    negligible = tolerance * points.mean_variance
    for _ in range(MAX_STEPS):
        means = _means(bounds.sums, centres)
        moves = np.square(means - centres).sum()
        centres = means
        if moves <= negligible:
            break
        bounds.reassign(centres)
    sums = bounds.sums[None]
    return Batch(centres[None], _inertia(points, sums, centres[None]), sums[:, :, -1]), bounds.labels


def nearly_converge(points: WeightedPoints, centres: np.ndarray, tolerance: float) -> list[Batch]:
    """:func:`converge` with a ``tolerance`` from every solution of a batch (b, k, d); mostly one step is
    enough, and needs no bounds."""
    stepped = lloyd_step(points, centres)
    moves = np.square(stepped.centres - centres).sum(axis=(1, 2))
    return [
        converge(points, stepped.centres[which], tolerance=tolerance)[0]
        if move > tolerance * points.mean_variance
        else stepped[which : which + 1]
        for which, move in enumerate(moves)
    ]


class Bounds:
    """Each point's group, an upper bound of its distance to that centre, and a lower bound to any other: a
    point changes only if the upper bound exceeds the lower one. ``sums`` are those of :func:`_group_sums`."""

    def __init__(self, points: WeightedPoints, centres: np.ndarray) -> None:
        self._points, self._centres = points, centres
        self._largest_square = float(points.squares.max())
        self.labels = np.empty(len(points), np.intp)
        self._upper, self._lower = np.empty(len(points)), np.empty(len(points))
        for block in _row_blocks(len(points)):
            self._look_at(block, assign(points, centres, block))
        self.sums = _group_sums(points, self.labels, len(centres))

    def _look_at(self, rows: np.ndarray | slice, now: Assignment) -> None:
        # The error of the expanded squares is added, so that the bounds stay bounds.
        slack = 1e-14 * (self._points.squares[rows] + self._largest_square)
        self.labels[rows] = now.labels
        self._upper[rows] = np.sqrt(now.nearest + slack)
        self._lower[rows] = np.sqrt(np.maximum(now.second - slack, 0.0))

    def reassign(self, centres: np.ndarray) -> None:
        """Update for centres (k, d) that moved there, and for points that change their group."""
        moved = np.sqrt(np.square(centres - self._centres).sum(axis=1))
        self._centres = centres
        changes = np.zeros_like(self.sums)
        half_gaps = _half_gaps(centres)
        for block in _row_blocks(len(self.labels)):
            labels, upper, lower = self.labels[block], self._upper[block], self._lower[block]
            upper += moved[labels]
            lower -= moved.max()
            doubtful = np.flatnonzero(upper > np.maximum(lower, half_gaps[labels]))
            if not len(doubtful):
                continue
            rows = doubtful + block.start
            before = labels[doubtful]
            now = assign(self._points, centres, rows)
            self._look_at(rows, now)
            changing = now.labels != before
            if changing.any():
                changes += _group_sums(self._points, now.labels[changing], len(centres), rows[changing])
                changes -= _group_sums(self._points, before[changing], len(centres), rows[changing])
        self.sums = self.sums + changes
        self.sums[self.sums[:, -1] < 0.5 * self._points.weights.min()] = 0.0  # what rounding leaves of none

    def movable(self) -> np.ndarray:
        """Rows of points that could lower the inertia in the group of their second nearest centre, if that
        were the lightest of all groups."""
        totals = self.sums[:, -1]
        movable = np.empty(len(self.labels), bool)
        for block in _row_blocks(len(movable)):
            weights, own = self._points.weights[block], totals[self.labels[block]]
            rest = own - weights
            least = totals.min() / (totals.min() + weights)
            inflated = np.square(self._upper[block]) * own
            inflated = np.divide(inflated, rest, out=np.zeros_like(rest), where=rest > 0)
            movable[block] = np.square(self._lower[block]) * least < inflated * _MARGIN
        return np.flatnonzero(movable)


def _half_gaps(centres: np.ndarray) -> np.ndarray:
    """Half the distance of each centre (k, d) to the nearest other: a point nearer than that stays."""
    gaps = np.square(centres[:, None] - centres).sum(axis=2)
    np.fill_diagonal(gaps, np.inf)
    half: np.ndarray = 0.5 * np.sqrt(gaps.min(axis=1))
    return half


def _group_sums(
    points: WeightedPoints, labels: np.ndarray, k: int, rows: np.ndarray | None = None
) -> np.ndarray:
    """Weighted sums of the columns over each group, shape (k, d + 1): the last is the weight."""
    columns = points.weighted_columns() if rows is None else points.columns[:, rows] * points.weights[rows]
    return np.stack([np.bincount(labels, column, k) for column in columns], axis=1)


def _inertia(points: WeightedPoints, sums: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Inertias (b,) of groups with these sums (b, k, d + 1) and means (b, k, d), up to rounding."""
    between = np.vecdot(sums[:, :, -1], np.vecdot(means, means))
    inertia: np.ndarray = np.maximum(points.total_square - between, 0.0)
    return inertia


def _means(sums: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """Means of groups from their sums (k, d + 1); a group without weight keeps its old centre."""
    weight = sums[:, -1:]
    means: np.ndarray = np.divide(sums[:, :-1], weight, out=otherwise.copy(), where=weight > 0)
    return means


def transfer(points: WeightedPoints, centres: np.ndarray) -> tuple[Batch, np.ndarray]:
    """Move points between the groups of centres (k, d) where that lowers the inertia although they are
    nearest to their own centre (Hartigan's criterion); then converge.

    It matters if one point weighs much, as thousands of equal launches do, and at the borders of groups.
    """
    bounds = Bounds(points, centres)
    rows, labels, sums = bounds.movable(), bounds.labels, bounds.sums
    for _ in range(_TRANSFER_ROUNDS if len(rows) else 0):
        means = _means(sums, centres)
        gains, targets = _gains(points, rows, labels[rows], means, sums[:, -1])
        moving = np.flatnonzero(gains > _LEAST_GAIN * points.total_square)
        if not len(moving):
            break
        before = _inertia(points, sums[None], means[None])[0]
        # All points that gain move together; if that makes it worse, only the one that gains most.
        for chosen in (moving, np.array([gains.argmax()])):
            group = labels[rows[chosen]]
            after = sums + _group_sums(points, targets[chosen], len(sums), rows[chosen])
            after -= _group_sums(points, group, len(sums), rows[chosen])
            if _inertia(points, after[None], _means(after, means)[None])[0] < before:
                break
        else:
            break
        labels = labels.copy()
        labels[rows[chosen]] = targets[chosen]
        sums = after
    return converge(points, _means(sums, centres), bounds=bounds)


def _gains(
    points: WeightedPoints, rows: np.ndarray, labels: np.ndarray, means: np.ndarray, totals: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Gain of moving each of the points at ``rows`` to its best other group, and that group."""
    gains, targets = np.empty(len(rows)), np.empty(len(rows), np.intp)
    factors = products(means).T
    for block in blocks(len(rows), len(means)):
        row, own = rows[block], labels[block]
        at = np.arange(len(row))
        weight, mine = points.weights[row], totals[own]
        distances = points.columns[:, row].T @ factors
        distances += points.squares[row, None]
        np.maximum(distances, 0.0, out=distances)
        rest = mine - weight
        saved = np.zeros(len(row))
        np.divide(mine * weight * distances[at, own], rest, out=saved, where=rest > 0)
        distances *= totals * weight[:, None] / (totals + weight[:, None])
        distances[at, own] = np.inf
        targets[block] = distances.argmin(axis=1)
        gains[block] = saved - distances[at, targets[block]]
    return gains, targets


def measure(points: WeightedPoints, labels: np.ndarray, k: int) -> tuple[np.ndarray, float]:
    """Centres (k, d) as the exact means of given groups, and the inertia summed from the differences."""
    weight = np.bincount(labels, points.weights, k)
    means = np.empty((k, points.positions.shape[1]))
    inertia = 0.0
    for axis, weighted in enumerate(islice(points.weighted_columns(), means.shape[1])):
        sums = np.bincount(labels, weighted, k)
        mean = np.divide(sums, weight, out=np.zeros(k), where=weight > 0)
        for start in range(0, len(points), _SUMMED_ROWS):
            block = slice(start, start + _SUMMED_ROWS)
            difference = points.columns[axis, block] - mean[labels[block]]
            inertia += float(points.weights[block] @ np.square(difference, out=difference))
        means[:, axis] = mean
    return means, inertia
