"""K-means over a sweep of K: exact, deterministic by seed, and far from the first local minimum.

Equal rows are one point with a weight, which leaves the optimum as it is. The search for good solutions
runs on a few hundred weighted micro-clusters (:mod:`assay_sampling.micro_clusters`); for each K, in
ascending order, it takes restarts seeded by greedy k-means++, and the best solutions for K - 1 with one
centre more, runs Lloyd steps on all of them together while dropping the worse, then tries to swap
centres that cost little for ones that gain much, and to transfer single heavy points. Downwards, the
best solutions for K + 1 lose their cheapest centre. What is best is finished on all points until no
point changes its group.

Sources: Lloyd 1982; Arthur and Vassilvitskii 2007 (k-means++); Likas et al. 2003 (global k-means);
Fritzke 2021 (breathing k-means); Hartigan 1975.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assay_sampling.distinct import DistinctRows, distinct_rows
from assay_sampling.errors import ParameterError, RefusedError
from assay_sampling.lloyd import (
    MAX_STEPS,
    WeightedPoints,
    assign,
    best_distinct,
    measure,
    products,
    settle,
    transfer,
)
from assay_sampling.micro_clusters import micro_clusters

# The effort of the search: solutions kept for each K, restarts (fewer as K grows), candidates of each
# seeding step, points drawn as new centres and kept of them, centres tried for removal.
_POOL = 3
_MOST_RESTARTS, _LEAST_RESTARTS, _RESTART_CENTRES = 16, 2, 60
_TRIALS = 3
_DRAWN, _GROWN = 12, 4
_BEAM = 2
_REMOVED = 3
_SWAP_ROUNDS = 2
_TRANSFER_ROUNDS = 6
# Up to this K every centre is tried for removal: the landscape is rough and trying is cheap.
_SMALL_K = 7
_MICRO_CLUSTERS = 512
_MICRO_TOLERANCE = 3e-3


@dataclass(frozen=True)
class Clustering:
    """Groups of rows. ``centres`` has shape (g, d), ``labels`` shape (n,), groups numbered by the first
    row that is in them; ``inertia`` is the sum of squared distances to the centres. There are fewer
    groups than asked for where there are fewer distinct rows."""

    centres: np.ndarray
    labels: np.ndarray
    inertia: float

    @property
    def groups(self) -> int:
        return len(self.centres)


def cluster_sweep(
    rows: np.ndarray, k_max: int, *, weights: np.ndarray | None = None, seed: int = 0
) -> list[Clustering]:
    """K-means of ``rows``, shape (n, d), for every K = 1..k_max; entry K - 1 is the solution for K.

    A row may stand for several, ``weights``, shape (n,), positive. The inertia never grows with K. The
    groups depend on the set of rows and the seed, not on the order of the rows, but for their numbers.

    Raises RefusedError for no rows or rows that are not finite, ParameterError for ``k_max`` below 1.
    """
    if k_max < 1:
        raise ParameterError("k-means", f"the number of groups is {k_max}", "give a number of at least 1")
    if len(rows) == 0:
        raise RefusedError("k-means", "there are no rows to group")
    if not np.isfinite(rows).all():
        raise RefusedError("k-means", "a row holds a value that is not a finite number")
    if rows.shape[1] == 0:
        rows = np.zeros((len(rows), 1))
    distinct = distinct_rows(rows)
    multiplicities = (
        distinct.counts if weights is None else np.bincount(distinct.inverse, weights, len(distinct.first))
    )
    points = WeightedPoints.of(np.asarray(rows[distinct.first], np.float64), multiplicities)
    solutions = _sweep(points, min(k_max, len(points)), np.random.default_rng(seed))
    found = [_clustering(points, centres, distinct) for centres in solutions]
    return found + [found[-1]] * (k_max - len(found))


def cluster(rows: np.ndarray, k: int, *, weights: np.ndarray | None = None, seed: int = 0) -> Clustering:
    """K-means of ``rows``, shape (n, d), for one K: the entry of :func:`cluster_sweep` for it."""
    return cluster_sweep(rows, k, weights=weights, seed=seed)[-1]


def _clustering(points: WeightedPoints, centres: np.ndarray, distinct: DistinctRows) -> Clustering:
    labels = assign(points, centres).labels
    appearance = np.full(len(centres), len(distinct.inverse))
    np.minimum.at(appearance, labels, distinct.first)
    order = np.argsort(appearance, kind="stable")
    number = np.empty(len(order), np.intp)
    number[order] = np.arange(len(order))
    labels = number[labels]
    means, _, inertia = measure(points, labels, len(centres))
    return Clustering(means + points.origin, labels[distinct.inverse], inertia)


def _sweep(points: WeightedPoints, k_max: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Settled centres (K, d) about the origin of ``points`` for K = 1..k_max."""
    coarse = micro_clusters(
        points, max(_MICRO_CLUSTERS, 4 * k_max), coarse=2 * k_max, tolerance=_MICRO_TOLERANCE
    )
    shift = coarse.origin if coarse is not points else np.zeros_like(points.origin)
    pools = _search(coarse, min(k_max, len(coarse)), rng)
    solutions = [np.zeros((1, points.positions.shape[1]))]
    for k in range(2, k_max + 1):
        candidates = [_grown(points, solutions[-1], rng, 1)]
        if k <= len(pools):
            candidates.append(pools[k - 1] + shift)
        solutions.append(_finish(points, np.concatenate(candidates)))
    return solutions


def _finish(points: WeightedPoints, candidates: np.ndarray) -> np.ndarray:
    """The best of a batch (b, k, d), settled on the points, without empty groups: (k, d)."""
    k = candidates.shape[1]
    centres, _ = settle(points, candidates, ((4 + 60 // k, 1), (MAX_STEPS, 1)))
    centres = transfer(points, centres, _TRANSFER_ROUNDS)
    centres, _ = settle(points, centres, ((MAX_STEPS, 1),))
    return _without_empty(points, centres[0])


def _without_empty(points: WeightedPoints, centres: np.ndarray) -> np.ndarray:
    """Give every centre at least one point: those without go, one at a time, to the point that costs
    most. Where even that one lies on its centre, to rounding, the empty centres are dropped."""
    while True:
        now = assign(points, centres)
        empty = np.flatnonzero(np.bincount(now.labels, minlength=len(centres)) == 0)
        if not len(empty):
            return centres
        costs = points.weights * now.nearest
        costliest = int(costs.argmax())
        if not costs[costliest] > 1e-14 * points.total_square / len(points):
            return np.delete(centres, empty, axis=0)
        centres = centres.copy()
        centres[empty[0]] = points.positions[costliest]
        centres = settle(points, centres[None], ((MAX_STEPS, 1),))[0][0]


def _search(points: WeightedPoints, k_max: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Good solutions on few points: for K = 1..k_max a batch (p, K, d), best first."""
    pools = [_Pool(np.zeros((1, 1, points.positions.shape[1])), np.array([points.total_square]))]
    seeding = _Seeding(points, rng)
    for k in range(2, k_max + 1):
        restarts = max(_LEAST_RESTARTS, min(_MOST_RESTARTS, _RESTART_CENTRES // k))
        grown = [_grown(points, centres, rng, _GROWN) for centres in pools[-1].centres[:_BEAM]]
        candidates = np.concatenate([seeding.extend(restarts), *grown])
        pool = _Pool.of(points, candidates, ((2, 18), (2 + 10 // k, 6)))
        pools.append(_swapped(points, pool, rng))
    for k in range(k_max - 1, 1, -1):
        pools[k - 1] = pools[k - 1].joined(_pruned(points, pools[k]))
    return [pool.centres for pool in pools]


@dataclass(frozen=True)
class _Pool:
    """Solutions for one K, best first: ``centres`` (p, k, d), ``inertia`` (p,)."""

    centres: np.ndarray
    inertia: np.ndarray

    @classmethod
    def of(cls, points: WeightedPoints, candidates: np.ndarray, stages: tuple[tuple[int, int], ...]) -> _Pool:
        k = candidates.shape[1]
        last = ((2 + 20 // k, _POOL), (4 + 40 // k, _POOL))
        centres, _ = settle(points, candidates, (*stages, *last))
        centres = transfer(points, centres, _TRANSFER_ROUNDS)
        return cls(*settle(points, centres, ((1, _POOL),)))

    def joined(self, other: _Pool) -> _Pool:
        centres = np.concatenate([self.centres, other.centres])
        inertia = np.concatenate([self.inertia, other.inertia])
        best = best_distinct(inertia, _POOL)
        return _Pool(centres[best], inertia[best])


def _swapped(points: WeightedPoints, pool: _Pool, rng: np.random.Generator) -> _Pool:
    """Take centres that cost little away from the best solution and put them where they gain much."""
    k = pool.centres.shape[1]
    for _ in range(_SWAP_ROUNDS if k > 2 else 0):
        best = pool.centres[0]
        now = assign(points, best)
        drawn, gains = _new_centres(points, now.nearest, rng, _GROWN)
        removed = np.argsort(now.removal, kind="stable")[: k if k <= _SMALL_K else _REMOVED]
        least_gain = np.zeros(len(removed)) if k <= _SMALL_K else 0.5 * now.removal[removed]
        new, old = np.nonzero(gains[:, None] > least_gain)
        if not len(new):
            break
        candidates = np.repeat(best[None], len(new), axis=0)
        candidates[np.arange(len(new)), removed[old]] = drawn[new]
        found = _Pool.of(points, candidates, ((2, 6),))
        better = found.inertia[0] < pool.inertia[0] * (1 - 1e-9)
        pool = pool.joined(found)
        if not better:
            break
    return pool


def _pruned(points: WeightedPoints, pool: _Pool) -> _Pool:
    """Solutions with one centre less than the best of ``pool``."""
    best = pool.centres[0]
    k = len(best)
    removed = np.argsort(assign(points, best).removal, kind="stable")[: k if k <= _SMALL_K else _REMOVED]
    return _Pool.of(points, np.stack([np.delete(best, j, axis=0) for j in removed]), ((2, 2),))


def _grown(points: WeightedPoints, centres: np.ndarray, rng: np.random.Generator, keep: int) -> np.ndarray:
    """Solutions (b, k + 1, d), b <= keep, that add one centre to ``centres`` (k, d) where it gains most."""
    if len(centres) == 1:
        difference = points.positions - centres[0]
        nearest = np.einsum("ij,ij->i", difference, difference)
    else:
        nearest = assign(points, centres).nearest
    drawn, _ = _new_centres(points, nearest, rng, keep)
    old = np.broadcast_to(centres, (len(drawn), *centres.shape))
    return np.concatenate([old, drawn[:, None]], axis=1)


def _new_centres(
    points: WeightedPoints, nearest: np.ndarray, rng: np.random.Generator, keep: int
) -> tuple[np.ndarray, np.ndarray]:
    """Places for one more centre (b, d), b <= keep, and how much each lowers the inertia, best first.

    Points are drawn in proportion to their share of the inertia, ``nearest`` being their squared
    distances; each draws the points that are nearer to it than to their centre, and moves to their mean.
    """
    centres = points.positions[_draw(points.weights * nearest, rng.random((1, _DRAWN)))[0]]
    for _ in range(2):
        factors = products(centres).T
        sums = np.zeros((_DRAWN, centres.shape[1] + 1))
        for block in points.blocks(_DRAWN):
            augmented = points.augmented[block]
            drawn = augmented @ factors < (nearest[block] - points.squares[block])[:, None]
            sums += (drawn * points.weights[block, None]).T @ augmented
        centres = np.divide(sums[:, :-1], sums[:, -1:], out=centres.copy(), where=sums[:, -1:] > 0)
    gains = np.zeros(_DRAWN)
    factors = products(centres).T
    for block in points.blocks(_DRAWN):
        excess = (nearest[block] - points.squares[block])[:, None] - points.augmented[block] @ factors
        gains += points.weights[block] @ np.maximum(excess, 0.0)
    best = best_distinct(-gains, keep) if gains.any() else np.arange(1)
    return centres[best], gains[best]


def _draw(costs: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Indices drawn in proportion to each row of ``costs``, (r, n) or (n,), from ``uniform`` (r, t)."""
    cumulative = np.cumsum(np.atleast_2d(costs), axis=1)
    drawn = [
        np.searchsorted(row, u * row[-1], side="right") for row, u in zip(cumulative, uniform, strict=True)
    ]
    indices: np.ndarray = np.minimum(np.stack(drawn), cumulative.shape[1] - 1)
    return indices


class _Seeding:
    """Greedy k-means++ for several restarts at once; each call adds a centre to every restart.

    The first k centres of a seeding are a seeding for k, so a sweep over K seeds only once.
    """

    def __init__(self, points: WeightedPoints, rng: np.random.Generator) -> None:
        self._points, self._rng = points, rng
        first = _draw(points.weights, rng.random((1, _MOST_RESTARTS)))[0]
        self._centres = points.positions[first][:, None]
        self._nearest = self._distances(self._centres)[:, 0]

    def _distances(self, centres: np.ndarray) -> np.ndarray:
        r, t, d = centres.shape
        flat = products(centres).reshape(r * t, d + 1) @ self._points.augmented.T
        distances: np.ndarray = np.maximum(flat + self._points.squares, 0.0)
        return distances.reshape(r, t, -1)

    def extend(self, restarts: int) -> np.ndarray:
        """Add a centre to the first ``restarts`` restarts (the others end): (restarts, k, d)."""
        points = self._points
        centres, nearest = self._centres[:restarts], self._nearest[:restarts]
        drawn = _draw(nearest * points.weights, self._rng.random((len(centres), _TRIALS)))
        trials = points.positions[drawn]
        distances = np.minimum(self._distances(trials), nearest[:, None])
        rows = np.arange(len(centres))
        best = (distances @ points.weights).argmin(axis=1)
        self._nearest = distances[rows, best]
        extended = np.concatenate([centres, trials[rows, best][:, None]], axis=1)
        self._centres = extended
        return extended
