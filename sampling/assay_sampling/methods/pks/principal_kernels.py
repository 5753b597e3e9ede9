"""Principal kernel selection (PKS): group launches by their counters, one representative a group.

Counters are standardised and projected on their principal components, launches are grouped by k-means
for every K, and the smallest K wins whose projected cycles come close enough to the true ones.

Source: Principal Kernel Analysis (Avalos Baddouh et al., MICRO 2021), section 3.2 and its artifact.
Memory: at most 400 bytes a launch besides the launches, when all of them are distinct.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from assay_sampling.clustering.distinct import DistinctRows, distinct_rows, distinct_rows_on_disk
from assay_sampling.clustering.feature_space import (
    FeatureSpace,
    feature_matrix,
    feature_parts,
    require_features,
)
from assay_sampling.clustering.kmeans import Clustering, cluster_sweep
from assay_sampling.clustering.lloyd import blocks
from assay_sampling.counters.definitions import ALL_CYCLES, CYCLE_COUNTERS
from assay_sampling.counters.features import fitted_features, named_features
from assay_sampling.counters.missing import how_to_collect
from assay_sampling.engines.blockwise import counts_by, relabelled, total
from assay_sampling.errors import CounterUnavailableError, ParameterError, RefusedError
from assay_sampling.launches.in_memory import Launches
from assay_sampling.scoring.evaluation import Cost, Evaluation, cost_of, evaluate, instructions_of

# Rules for the representative of a group of counters, as published.
Representative = Literal["first", "centre", "random"]
DEFAULT_K_MAX = 20
DEFAULT_TARGET_ERROR_PERCENT = 5.0


@dataclass(frozen=True)
class SweepEntry:
    """Scores of one K. ``speedup`` is None if the representatives cost nothing."""

    k: int
    error_percent: float
    speedup: float | None
    inertia: float


class LabelsByK(Mapping[int, np.ndarray]):
    """Group of every launch, shape (n,), for each K of the sweep; expanded on request."""

    def __init__(self, of_distinct: Mapping[int, np.ndarray], inverse: np.ndarray) -> None:
        self._of_distinct = of_distinct
        self.inverse = inverse

    def of_distinct(self, k: int) -> np.ndarray:
        """Groups of the distinct launches, shape (m,); ``inverse``, shape (n,), says which one each is."""
        return self._of_distinct[k]

    def __getitem__(self, k: int) -> np.ndarray:
        return relabelled(self.inverse, self._of_distinct[k], np.intp)

    def __iter__(self) -> Iterator[int]:
        return iter(self._of_distinct)

    def __len__(self) -> int:
        return len(self._of_distinct)


@dataclass(frozen=True)
class PrincipalKernels:
    """The groups of the chosen K, g of them, and the sweep they were chosen from.

    ``labels`` has shape (n,), groups numbered by their first launch; ``representative_rows`` and
    ``counts``, the launches of each group, shape (g,). There are fewer groups than ``k`` if there are
    fewer distinct launches. ``rows_by_k`` are the representatives of each K of the sweep. ``space`` and
    ``centres``, shape (g, c), place other launches (:func:`nearest_groups`); ``grouping`` has every K.
    """

    features: tuple[str, ...]
    k: int
    labels: np.ndarray
    representative_rows: np.ndarray
    counts: np.ndarray
    sweep: tuple[SweepEntry, ...]
    labels_by_k: LabelsByK
    rows_by_k: Mapping[int, np.ndarray]
    evaluation: Evaluation
    space: FeatureSpace
    centres: np.ndarray
    grouping: Grouping

    @property
    def pca_components(self) -> int:
        return self.space.components


def principal_kernels(
    launches: Launches,
    *,
    features: str = "table2",
    k: int | None = None,
    k_max: int = DEFAULT_K_MAX,
    target_error_percent: float = DEFAULT_TARGET_ERROR_PERCENT,
    representative: str = "first",
    cost: str | None = None,
    seed: int = 0,
) -> PrincipalKernels:
    """Group launches by their counters and choose K by the error of the projected cost.

    Args:
        launches: detailed launches, n of them.
        features: a feature set, or a list of counters (:mod:`assay_sampling.counters.features`).
        k: fixed number of groups, clustered as in a sweep to ``k_max``; None sweeps K = 1..min(k_max, n)
        and takes the smallest K with an error strictly below ``target_error_percent``, else the one of
        least error.
        representative: of each group, its "first" launch, the one nearest to its "centre" (the first
            such), or a "random" one.
        cost: a key of COST_UNITS to project; None takes the first of ALL_CYCLES that was measured
            for all launches.
        seed: of k-means and of random representatives.

    Raises RefusedError for no launches, no cost, or representatives without any;
    CounterUnavailableError where a counter is missing; ParameterError for a value out of range.
    """
    if representative not in get_args(Representative):
        raise ParameterError(
            "pks", f"there is no representative rule {representative!r}", "use first, centre or random"
        )
    if len(launches) == 0:
        raise RefusedError(_source(launches), "it holds no launches")
    names = named_features(fitted_features(features, launches, "pks"))
    ks = _range_of_k(len(launches), k, k_max)
    costs = cost_of(launches, cost or _default_cost(launches))
    grouping = Grouping.of(launches, names, max(ks[-1], k_max), seed)
    choose = _Chooser(grouping, representative, seed)
    chosen_rows = {each: choose.rows(each) for each in ks}
    whole = total(costs.values)
    sweep = tuple(grouping.score(each, chosen_rows[each], costs, whole) for each in ks)
    best = best_k(sweep, target_error_percent)
    labels_by_k = grouping.labels_of(ks)
    labels = labels_by_k[best]
    counts = counts_by(labels)
    return PrincipalKernels(
        features=names,
        k=best,
        labels=labels,
        representative_rows=chosen_rows[best],
        counts=counts,
        sweep=sweep,
        labels_by_k=labels_by_k,
        rows_by_k=chosen_rows,
        evaluation=evaluate(
            costs,
            chosen_rows[best],
            counts.astype(np.float64),
            labels=labels,
            representative_groups=np.arange(len(counts)),
            instructions=instructions_of(launches),
        ),
        space=grouping.space,
        centres=grouping.solutions[best].centres,
        grouping=grouping,
    )


def seed_spread(
    launches: Launches, parameters: Mapping[str, Any], seed: int, seeds: int
) -> list[dict[str, Any]]:
    """K and scores of each of ``seeds`` seeds from ``seed`` on: how far both depend on chance.

    ``parameters`` are those of :func:`principal_kernels` without ``seed``, which documents the errors raised.
    """
    by_seed = []
    for each in range(seed, seed + seeds):
        principal = principal_kernels(launches, **parameters, seed=each)
        scores = principal.evaluation
        by_seed.append(
            {
                "seed": each,
                "k": principal.k,
                "error_percent": scores.error_percent,
                "group_error_percent": scores.group_error_percent,
                "speedup": scores.speedup,
            }
        )
    return by_seed


def nearest_groups(principal: PrincipalKernels, launches: Launches) -> np.ndarray:
    """Group of other launches, shape (m,), by the nearest centre; ties go to the first.

    Raises CounterUnavailableError if the launches lack one of the features.
    """
    if len(launches) == 0:
        return np.empty(0, np.intp)
    matrix = feature_matrix(launches, principal.features)
    labels = np.empty(len(launches), np.intp)
    placed = principal.space.project(matrix)
    for block in blocks(len(launches), len(principal.centres)):
        distances = np.stack([np.square(placed[block] - centre).sum(axis=1) for centre in principal.centres])
        labels[block] = distances.argmin(axis=0)
    return labels


@dataclass(frozen=True)
class Grouping:
    """K-means of the distinct launches, m of them in the order of their first launch, for each K.

    ``first`` and ``counts`` have shape (m,): the first launch of each and how many there are;
    ``inverse``, shape (n,), which of them each launch is; ``placed``, shape (m, c), where they lie.
    """

    space: FeatureSpace
    first: np.ndarray
    counts: np.ndarray
    inverse: np.ndarray
    placed: np.ndarray
    solutions: Mapping[int, Clustering]

    @classmethod
    def of(cls, launches: Launches, features: Sequence[str], k_max: int, seed: int) -> Grouping:
        distinct, matrix = _distinct_launches(launches, features)
        # Fitted in an order that does not depend on the order of the launches.
        space = FeatureSpace.fit(matrix, distinct.counts)
        placed = space.project(matrix)
        order = np.argsort(distinct.first)
        rank = np.empty(len(order), np.intp)
        rank[order] = np.arange(len(order))
        first, counts = distinct.first[order], distinct.counts[order]
        inverse = relabelled(distinct.inverse, rank, np.intp)
        placed = placed[order]
        # Of all launches distinct, each of these is as large as the launches themselves.
        del matrix, distinct, order, rank
        solutions = dict(enumerate(cluster_sweep(placed, k_max, weights=counts, seed=seed), start=1))
        return cls(space, first, counts, inverse, placed, solutions)

    def labels_of(self, ks: range) -> LabelsByK:
        return LabelsByK({k: self.solutions[k].labels for k in ks}, self.inverse)

    def distances(self, k: int) -> np.ndarray:
        """Squared distance of each distinct launch from the centre of its group, shape (m,)."""
        clustering = self.solutions[k]
        difference = self.placed - clustering.centres[clustering.labels]
        squared: np.ndarray = np.einsum("ij,ij->i", difference, difference)
        return squared

    def nearest_to_centres(self, rows: np.ndarray | None, labels: np.ndarray) -> np.ndarray:
        """Of each group of some launches the one nearest to the mean of their counters, the first of equals,
        shape (g,), counted within ``rows``.

        ``rows``, shape (m,), are the launches, None for all; ``labels``, shape (m,), 0-based, their groups.
        """
        of_launch = self.inverse if rows is None else self.inverse[rows]
        sizes = np.bincount(labels)
        squared = np.zeros(len(labels))
        for column in self.placed.T:
            values = column[of_launch]
            squared += np.square(values - (np.bincount(labels, values) / sizes)[labels])
        order = np.lexsort((squared, labels))
        return order[np.flatnonzero(np.diff(labels[order], prepend=-1))]

    def launches(self, k: int) -> np.ndarray:
        """Launches of each group, shape (g,)."""
        clustering = self.solutions[k]
        return np.bincount(clustering.labels, self.counts, clustering.groups)

    def score(self, k: int, rows: np.ndarray, cost: Cost, total: float) -> SweepEntry:
        """Error and speedup of K with these representatives, shape (g,); ``total`` is that of the cost."""
        of_representatives = cost.values[rows]
        projected = float((self.launches(k) * of_representatives).sum())
        simulated = float(of_representatives.sum())
        return SweepEntry(
            k=k,
            error_percent=abs(100.0 * (projected - total) / total),
            speedup=total / simulated if simulated > 0 else None,
            inertia=self.solutions[k].inertia,
        )


def _distinct_launches(launches: Launches, features: Sequence[str]) -> tuple[DistinctRows, np.ndarray]:
    """The distinct launches by their counters, and these, shape (m, f)."""
    if not launches.is_on_disk:
        matrix = feature_matrix(launches, features)
        distinct = distinct_rows(matrix)
        return distinct, matrix[distinct.first]
    require_features(launches, features)
    return distinct_rows_on_disk(lambda: feature_parts(launches, features), launches.array("kernel_id"))


class _Chooser:
    """Chooses the representatives of each group, rows of shape (g,), by one rule."""

    def __init__(self, grouping: Grouping, rule: str, seed: int) -> None:
        self._grouping = grouping
        self._rule = rule
        self._seed = seed

    def rows(self, k: int) -> np.ndarray:
        rules = {"first": self._first, "centre": self._nearest_to_centre, "random": self._random}
        return rules[self._rule](k)

    def _first(self, k: int) -> np.ndarray:
        labels = self._grouping.solutions[k].labels
        # Distinct launches are in the order of their first launch, so the first of a group holds it.
        return self._grouping.first[np.unique(labels, return_index=True)[1]]

    def _nearest_to_centre(self, k: int) -> np.ndarray:
        clustering = self._grouping.solutions[k]
        order = np.lexsort((self._grouping.distances(k), clustering.labels))
        starts = np.unique(clustering.labels[order], return_index=True)[1]
        return self._grouping.first[order[starts]]

    def _random(self, k: int) -> np.ndarray:
        """Uniform among the launches of each group, with one random stream for each K, so that a fixed K
        draws the same as a sweep."""
        grouping = self._grouping
        labels = grouping.solutions[k].labels
        by_group = np.argsort(labels, kind="stable")
        ends = np.cumsum(grouping.counts[by_group])
        sizes = np.bincount(labels, grouping.counts).astype(np.int64)
        drawn = np.cumsum(sizes) - sizes + np.random.default_rng([self._seed, k]).integers(sizes)
        position = np.searchsorted(ends, drawn, side="right")
        which = by_group[position]
        within = drawn - (ends[position] - grouping.counts[which])
        return np.array(
            [np.flatnonzero(grouping.inverse == j)[i] for j, i in zip(which, within, strict=True)], np.int64
        )


def _range_of_k(launches: int, k: int | None, k_max: int) -> range:
    if k is not None:
        if not 1 <= k <= launches:
            raise ParameterError("pks", f"k is {k}", f"give a number from 1 to the {launches:,} launches")
        return range(k, k + 1)
    if k_max < 1:
        raise ParameterError("pks", f"k_max is {k_max}", "give a number of at least 1")
    return range(1, min(k_max, launches) + 1)


def best_k(sweep: Sequence[SweepEntry], target_error_percent: float) -> int:
    """The smallest K within the target, else that of least error."""
    for entry in sweep:
        if entry.error_percent < target_error_percent:
            return entry.k
    return min(sweep, key=lambda entry: entry.error_percent).k


def _default_cost(launches: Launches) -> str:
    """The first cycle counter that was measured for all launches."""
    table = launches.table
    measured = {name: table[name].null_count for name in ALL_CYCLES if name in table.schema.names}
    for name, missing in measured.items():
        if missing == 0:
            return name
    partial = next((name for name in measured if measured[name] < len(launches)), None)
    if partial is not None:
        return partial  # reading it raises an error with the number of launches that lack it
    raise CounterUnavailableError(
        _source(launches),
        "no cycles were measured",
        how_to_collect(CYCLE_COUNTERS[:1], "pks", launches.table),
    )


def _source(launches: Launches) -> str:
    return ", ".join(launches.sources) or "launches"
