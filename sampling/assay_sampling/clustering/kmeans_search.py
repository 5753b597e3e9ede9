"""The search for good k-means solutions on few points: restarts, growth, swaps, transfers, pruning.

For each K, in ascending order, there is a pool of solutions: restarts seeded by greedy k-means++, and the
best solutions for K - 1 with one centre more, after Lloyd steps on all of them together that drop the
worse. The best then has centres that cost little swapped for ones that gain much. Downwards, the best
solution for K + 1 loses its cheapest centre.

Sources: Arthur and Vassilvitskii 2007 (k-means++); Likas et al. 2003 (global k-means); Fritzke 2021
(breathing k-means).
"""

from __future__ import annotations

import numpy as np

from assay_sampling.clustering.lloyd import (
    Batch,
    WeightedPoints,
    assign,
    best_distinct,
    blocks,
    converge,
    lloyd_step,
    memberships,
    products,
    removal_costs,
    settle,
    transfer,
)

# The effort of the search: solutions kept for each K, restarts (fewer as K grows), candidates of each
# seeding step, points drawn as new centres and how many are kept, centres tried for removal.
_POOL = 3
_MOST_RESTARTS, _LEAST_RESTARTS, _RESTART_CENTRES = 24, 2, 80
_TRIALS = 3
_DRAWN, _GROWN = 12, 4
_BEAM = 2
_REMOVED = 3
_SWAP_ROUNDS = 2
# Up to this K every centre is tried for removal: the landscape is rough and trying is cheap.
_SMALL_K = 7


def search(points: WeightedPoints, k_max: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Good solutions on few points: for K = 1..k_max a batch (p, K, d), best first."""
    pools = [lloyd_step(points, np.zeros((1, 1, points.positions.shape[1])))]
    seeding = Seeding(points, rng)
    for k in range(2, k_max + 1):
        restarts = max(_LEAST_RESTARTS, min(_MOST_RESTARTS, _RESTART_CENTRES // k))
        more = [grown(points, centres, rng, _GROWN) for centres in pools[-1].centres[:_BEAM]]
        candidates = np.concatenate([seeding.extend(restarts), *more])
        pool = _pool(points, candidates, ((2, 18), (2 + 10 // k, 6)))
        pool = _swapped(points, pool, rng)
        pools.append(_transferred(points, pool) if k <= _SMALL_K else pool)
    for k in range(k_max - 1, 1, -1):
        pools[k - 1] = _joined(pools[k - 1], _pruned(points, pools[k]))
    return [pool.centres for pool in pools]


def _pool(points: WeightedPoints, candidates: np.ndarray, stages: tuple[tuple[int, int], ...]) -> Batch:
    """The best distinct candidates (b, k, d), best first, after ``stages`` and a few more steps."""
    k = candidates.shape[1]
    last = ((2 + 20 // k, _POOL), (4 + 40 // k, _POOL))
    return settle(points, candidates, (*stages, *last))


def _transferred(points: WeightedPoints, pool: Batch) -> Batch:
    """The pool, plus its best solution after transfers of single points."""
    converged, _ = converge(points, pool.centres[0])
    best, _ = transfer(points, converged.centres[0])
    return _joined(best, pool)


def _joined(pool: Batch, other: Batch) -> Batch:
    both = pool.joined(other)
    return both[best_distinct(both.inertia, _POOL)]


def _swapped(points: WeightedPoints, pool: Batch, rng: np.random.Generator) -> Batch:
    for _ in range(_SWAP_ROUNDS):
        candidates = swaps(points, pool.centres[0], rng)
        if not len(candidates):
            break
        batch = _pool(points, candidates, ((2, 6),))
        better = batch.inertia[0] < pool.inertia[0] * (1 - 1e-9)
        pool = _joined(pool, batch)
        if not better:
            break
    return pool


def swaps(points: WeightedPoints, centres: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Solutions (b, k, d), b >= 0, that move one of ``centres`` (k, d) from where it costs little to where it
    gains much."""
    k = len(centres)
    if k <= 2:
        return np.empty((0, *centres.shape))
    now = assign(points, centres)
    drawn, gains = _new_centres(points, now.nearest, rng, _GROWN)
    costs = removal_costs(points, now, k)
    removed = np.argsort(costs, kind="stable")[: k if k <= _SMALL_K else _REMOVED]
    least_gain = np.zeros(len(removed)) if k <= _SMALL_K else 0.5 * costs[removed]
    new, old = np.nonzero(gains[:, None] > least_gain)
    candidates = np.repeat(centres[None], len(new), axis=0)
    candidates[np.arange(len(new)), removed[old]] = drawn[new]
    return candidates


def _pruned(points: WeightedPoints, pool: Batch) -> Batch:
    """Solutions with one centre less than the best of ``pool``."""
    best = pool.centres[0]
    tried = len(best) if len(best) <= _SMALL_K else _REMOVED
    return _pool(points, pruned(points, best, tried), ((2, 2),))


def pruned(points: WeightedPoints, centres: np.ndarray, tried: int) -> np.ndarray:
    """Solutions (b, k - 1, d), b <= tried, that lack one of the cheapest of ``centres`` (k, d)."""
    costs = removal_costs(points, assign(points, centres), len(centres))
    removed = np.argsort(costs, kind="stable")[:tried]
    return np.stack([np.delete(centres, j, axis=0) for j in removed])


def grown(points: WeightedPoints, centres: np.ndarray, rng: np.random.Generator, keep: int) -> np.ndarray:
    """Solutions (b, k + 1, d), b <= keep, that add one centre to ``centres`` (k, d) where it gains most."""
    drawn, _ = _new_centres(points, assign(points, centres).nearest, rng, keep)
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
    excess = nearest - points.squares
    for _ in range(2):
        factors = products(centres)
        sums = np.zeros((_DRAWN, centres.shape[1] + 1))
        for block in blocks(len(points), _DRAWN):
            columns = points.columns[:, block]
            drawn = factors @ columns < excess[block]
            sums += memberships(points, drawn, block) @ columns.T
        centres = np.divide(sums[:, :-1], sums[:, -1:], out=centres.copy(), where=sums[:, -1:] > 0)
    gains = np.zeros(_DRAWN)
    factors = products(centres)
    for block in blocks(len(points), _DRAWN):
        saved = excess[block] - factors @ points.columns[:, block]
        gains += np.maximum(saved, 0.0, out=saved) @ points.weights[block]
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


class Seeding:
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
        flat = products(centres).reshape(r * t, d + 1) @ self._points.columns
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
