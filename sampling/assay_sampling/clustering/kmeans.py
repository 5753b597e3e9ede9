"""K-means over a sweep of K: exact, deterministic by seed, and far from the first local minimum.

Equal rows are one point with a weight, which leaves the optimum as it is. Good solutions are searched
for on a few hundred weighted micro-clusters (:mod:`assay_sampling.clustering.micro_clusters`,
:mod:`assay_sampling.clustering.kmeans_search`) and, where these blur the points, on samples; of very many
points they are compared on a coreset. The best are finished on all points, by Lloyd steps until no point
changes its group and by transfers of single heavy points.

Written here because scikit-learn takes 6 times as long for a sweep of 5,000 rows of which 1,406 are
distinct, and 7 times as long for 180,000 distinct ones (``docs/benchmarks.md``); its answers also differ
between releases.

Sources: Lloyd 1982; Hartigan 1975; those of the search are in its module.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from assay_sampling.clustering.distinct import DistinctRows, distinct_rows
from assay_sampling.clustering.kmeans_search import grown, pruned, search, swaps
from assay_sampling.clustering.lloyd import (
    Batch,
    WeightedPoints,
    assign,
    best_distinct,
    converge,
    measure,
    nearly_converge,
    settle,
    transfer,
)
from assay_sampling.clustering.micro_clusters import coreset, micro_clusters
from assay_sampling.errors import ParameterError, RefusedError

_MICRO_CLUSTERS = 512
_MICRO_TOLERANCE = 3e-3
# Scatter within micro-clusters: above this share of the total, small K are searched for on a sample of
# the points too; above this share of a solution's inertia, its centres are swapped on the points.
_BLURRED = 1e-3
_LOSSY = 5e-3
_SAMPLE = 2048
# Up to this K more candidates converge before one is chosen: the landscape is rough and trying is cheap.
_SMALL_K = 7
_SAMPLED_K = 10
# Of so many points, if blurred, candidates are compared on the first of these coresets, where trying is cheap
# for every K, and the search runs on the others; for more groups they would be too coarse.
_MANY = 3 << 15
_MOST_GROUPS = 64
_CORESETS = (1 << 15, _SAMPLE, _SAMPLE)
_GROWN = 4
_PRUNED = 3
# Candidates kept until all points decide.
_FINALISTS = 2
# Candidates converge to this tolerance before one is chosen.
_NEARLY = 1e-3


@dataclass(frozen=True)
class Clustering:
    """Groups of rows. ``centres`` has shape (g, d), ``labels`` shape (n,), groups numbered by the first
    row in them, in the smallest unsigned type that holds them; ``inertia`` is the sum of squared distances to
    the centres. There are fewer groups than asked for if there are fewer distinct rows.
    """

    centres: np.ndarray
    labels: np.ndarray
    inertia: float

    @property
    def groups(self) -> int:
        return len(self.centres)


@dataclass(frozen=True)
class _Solution:
    """Groups of points, none empty: ``labels`` (n,), and their exact means (g, d) and inertia."""

    labels: np.ndarray
    centres: np.ndarray
    inertia: float

    @classmethod
    def of(cls, points: WeightedPoints, labels: np.ndarray, groups: int) -> _Solution:
        return cls(labels.astype(_label_type(groups)), *measure(points, labels, groups))

    def __len__(self) -> int:
        return len(self.centres)


def cluster_sweep(
    rows: np.ndarray, k_max: int, *, weights: np.ndarray | None = None, seed: int = 0
) -> list[Clustering]:
    """K-means of ``rows``, shape (n, d), for every K = 1..k_max; entry K - 1 is the solution for K.

    A row may stand for several, ``weights``, shape (n,), positive. The inertia never grows with K. The
    groups depend on the set of rows and the seed; only their numbers depend on the order of the rows.

    Raises RefusedError for no rows, or rows that are not finite or too far apart to square their
    distances; ParameterError for ``k_max`` below 1.
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
    del rows, multiplicities
    if not np.isfinite(points.total_square):
        raise RefusedError("k-means", "the rows are too far apart for floating-point numbers", "scale them")
    solutions = _sweep(points, min(k_max, len(points)), np.random.default_rng(seed))
    clusterings = [_clustering(points, solution, distinct) for solution in solutions]
    return clusterings + [clusterings[-1]] * (k_max - len(clusterings))


def cluster(rows: np.ndarray, k: int, *, weights: np.ndarray | None = None, seed: int = 0) -> Clustering:
    """K-means of ``rows``, shape (n, d), for one K: the last entry of a sweep up to it."""
    return cluster_sweep(rows, k, weights=weights, seed=seed)[-1]


def _clustering(points: WeightedPoints, solution: _Solution, distinct: DistinctRows) -> Clustering:
    appearance = np.full(len(solution), len(distinct.inverse))
    np.minimum.at(appearance, solution.labels, distinct.first)
    order = np.argsort(appearance, kind="stable")
    number = np.empty(len(solution), solution.labels.dtype)
    number[order] = np.arange(len(solution))
    labels = number[solution.labels][distinct.inverse]
    return Clustering(solution.centres[order] + points.origin, labels, solution.inertia)


def _label_type(groups: int) -> np.dtype[np.unsignedinteger]:
    return np.min_scalar_type(groups - 1)


def _sweep(points: WeightedPoints, k_max: int, rng: np.random.Generator) -> list[_Solution]:
    """Solutions for K = 1..k_max."""
    coarse = micro_clusters(
        points, max(_MICRO_CLUSTERS, 4 * k_max), coarse=2 * k_max, tolerance=_MICRO_TOLERANCE
    )
    shift = coarse.origin if coarse is not points else np.zeros_like(points.origin)
    pools = [pool + shift for pool in search(coarse, min(k_max, len(coarse)), rng)]
    lost = points.total_square - coarse.total_square
    blurred = lost > _BLURRED * points.total_square
    trial = points
    if blurred:
        trial, pools = _with_sampled(points, pools, rng)
    centres, solutions = np.zeros((1, len(shift))), [_Solution.of(points, np.zeros(len(points), np.intp), 1)]
    for k in range(2, k_max + 1):
        if len(centres) < k - 1:  # the points differ by less than rounding
            solutions.append(solutions[-1])
            continue
        tries = 4 if k <= _SMALL_K or trial is not points else 2
        # One centre more than the last solution, so that the inertia cannot grow.
        candidates = grown(trial, centres, rng, _GROWN if blurred and tries == 4 else 1)
        one_more = candidates[:1]
        if k <= len(pools):
            candidates = np.concatenate([candidates, pools[k - 1]])
        best = _best(trial, candidates, tries if blurred else 1)
        if lost > _LOSSY * best.inertia[0]:
            best = _swapped(trial, best, rng, tries)
        if trial is not points:
            best = settle(points, np.concatenate([one_more, best.centres]), ((1, 1),))
        best, labels = transfer(points, best.centres[0])
        centres, labels = _without_empty(points, best.centres[0], labels)
        solutions.append(_Solution.of(points, labels, len(centres)))
    return _pruned_downwards(points, trial, solutions) if blurred else solutions


def _pruned_downwards(
    points: WeightedPoints, trial: WeightedPoints, solutions: list[_Solution]
) -> list[_Solution]:
    """Try for each K, from the largest down, the solution for K + 1 without one of its cheapest centres: late
    finds of the sweep upwards help the smaller K too."""
    better = list(solutions)
    for k in range(len(solutions) - 1, 1, -1):
        larger, now = better[k], better[k - 1]
        if len(larger) != len(now) + 1:
            continue
        tried = _best(trial, pruned(trial, larger.centres, _PRUNED), 1)
        if trial is not points:
            tried = settle(points, tried.centres, ((1, 1),))
        # Mostly it leads back to a known solution: only a lower inertia is worth the last steps.
        if not tried.inertia[0] < now.inertia:
            continue
        tried, labels = transfer(points, tried.centres[0])
        moved, labels = _without_empty(points, tried.centres[0], labels)
        lower = _Solution.of(points, labels, len(moved))
        # Below that of K + 1 it would call for another search there; the inertia must not grow.
        if len(lower) == len(now) and larger.inertia <= lower.inertia < now.inertia:
            better[k - 1] = lower
    return better


def _with_sampled(
    points: WeightedPoints, pools: list[np.ndarray], rng: np.random.Generator
) -> tuple[WeightedPoints, list[np.ndarray]]:
    """The points to compare candidates on, and the pools plus solutions found on samples of the points, which
    do not blur borders."""
    if len(points) < _MANY or len(pools) > _MOST_GROUPS:
        rows = rng.choice(len(points), min(len(points), _SAMPLE), replace=False)
        samples = [WeightedPoints.of(points.positions[rows], points.weights[rows])]
        trial, k_max = points, _SAMPLED_K
    else:
        nearest = assign(points, pools[-1][0]).nearest
        trial, *samples = [coreset(points, nearest, most, rng) for most in _CORESETS]
        k_max = len(pools)
    for sample in samples:
        sampled = search(sample, min(len(pools), k_max), rng)
        both = [
            np.concatenate([pool, more + sample.origin]) for pool, more in zip(pools, sampled, strict=False)
        ]
        pools = both + pools[len(both) :]
    return trial, pools


def _best(points: WeightedPoints, candidates: np.ndarray, best_count: int) -> Batch:
    """The best that differ of candidates (b, k, d), best first, after the ``best_count`` best so far nearly
    converged."""
    nearly = settle(points, candidates, ((1, 7), (10 // candidates.shape[1], best_count)))
    return _finalists(reduce(Batch.joined, nearly_converge(points, nearly.centres, _NEARLY)))


def _finalists(batch: Batch) -> Batch:
    return batch[best_distinct(batch.inertia, _FINALISTS)]


def _swapped(points: WeightedPoints, best: Batch, rng: np.random.Generator, tries: int) -> Batch:
    """Swap centres on the points themselves, where micro-clusters blur too much."""
    for _ in range(tries // 2):
        candidates = swaps(points, best.centres[0], rng)
        if not len(candidates):
            break
        batch = _best(points, candidates, tries)
        before = best.inertia[0]
        best = _finalists(best.joined(batch))
        if not best.inertia[0] < before:
            break
    return best


def _without_empty(
    points: WeightedPoints, centres: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Give every centre at least one point: empty ones move, one at a time, to the point that costs most.
    If even that point is at its centre, up to rounding, the empty centres are dropped."""
    while True:
        used = np.bincount(labels, minlength=len(centres)) > 0
        if used.all():
            return centres, labels
        costs = points.weights * assign(points, centres).nearest
        costliest = int(costs.argmax())
        if not costs[costliest] > 1e-14 * points.total_square / len(points):
            return centres[used], (np.cumsum(used) - 1)[labels]
        centres = centres.copy()
        centres[np.argmin(used)] = points.positions[costliest]
        batch, labels = converge(points, centres)
        centres = batch.centres[0]
