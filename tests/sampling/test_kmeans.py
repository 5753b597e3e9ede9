"""K-means: what every solution must be, and that the solutions are good ones."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from assay_sampling.clustering import kmeans
from assay_sampling.clustering.feature_space import FeatureSpace, feature_matrix
from assay_sampling.clustering.kmeans import Clustering, _pruned_downwards, _Solution, cluster, cluster_sweep
from assay_sampling.clustering.kmeans_search import Seeding
from assay_sampling.clustering.lloyd import (
    WeightedPoints,
    assign,
    converge,
    lloyd_step,
    nearly_converge,
    settle,
    transfer,
)
from assay_sampling.clustering.micro_clusters import coreset, micro_clusters
from assay_sampling.counters.definitions import FEATURE_SETS
from assay_sampling.errors import ParameterError, RefusedError
from assay_sampling.readers.base import ReadOptions
from assay_sampling.readers.opening import read_launches

LATTICE = hnp.arrays(
    np.float64, st.tuples(st.integers(1, 40), st.integers(1, 3)), elements=st.integers(-4, 4).map(float)
)


def inertia_of(rows: np.ndarray, found: Clustering) -> float:
    return float(np.square(rows - found.centres[found.labels]).sum())


def blobs(rng: np.random.Generator, groups: int, each: int, d: int = 3) -> np.ndarray:
    centres = rng.normal(0, 50, (groups, d))
    return np.repeat(centres, each, axis=0) + rng.normal(size=(groups * each, d))


@given(LATTICE, st.integers(1, 8), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_every_solution_of_a_sweep_is_a_local_optimum(rows: np.ndarray, k_max: int, seed: int) -> None:
    sweep = cluster_sweep(rows, k_max, seed=seed)
    distinct = len(np.unique(rows, axis=0))
    scatter = float(np.square(rows - rows.mean(axis=0)).sum())
    assert len(sweep) == k_max
    assert sweep[0].inertia == pytest.approx(scatter, abs=1e-9)
    for k, found in enumerate(sweep, start=1):
        assert found.groups == min(k, distinct)
        assert np.bincount(found.labels, minlength=found.groups).all()
        for group in range(found.groups):
            assert found.centres[group] == pytest.approx(rows[found.labels == group].mean(axis=0), abs=1e-9)
        assert found.inertia == pytest.approx(inertia_of(rows, found), abs=1e-9)
        distances = np.square(rows[:, None] - found.centres).sum(axis=2)
        assert distances[np.arange(len(rows)), found.labels] == pytest.approx(distances.min(axis=1), abs=1e-9)
        appearance = [int(np.flatnonzero(found.labels == group)[0]) for group in range(found.groups)]
        assert appearance == sorted(appearance)
    for fewer, more in itertools.pairwise(sweep):
        assert more.inertia <= fewer.inertia + 1e-9
    if distinct <= k_max:
        assert sweep[distinct - 1].inertia == pytest.approx(0, abs=1e-25)


@given(LATTICE, st.integers(1, 5), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_the_order_of_the_rows_does_not_matter(rows: np.ndarray, k: int, random: object) -> None:
    order = np.random.default_rng(random.randrange(2**32)).permutation(len(rows))  # type: ignore[attr-defined]
    one, other = cluster(rows, k), cluster(rows[order], k)
    assert one.inertia == pytest.approx(other.inertia, rel=1e-12, abs=1e-12)
    back = np.empty_like(other.labels)
    back[order] = other.labels
    pairs = set(zip(one.labels.tolist(), back.tolist(), strict=True))
    assert len(pairs) == one.groups == other.groups


@given(LATTICE, st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_a_weight_is_as_good_as_repeated_rows(rows: np.ndarray, k: int) -> None:
    distinct, counts = np.unique(rows, axis=0, return_counts=True)
    repeated = cluster(np.repeat(distinct, counts, axis=0), k)
    weighted = cluster(distinct, k, weights=counts)
    assert weighted.inertia == repeated.inertia
    assert np.array_equal(weighted.labels[np.repeat(np.arange(len(distinct)), counts)], repeated.labels)


def test_to_leave_out_weights_of_one_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(5).normal(size=(1200, 4))
    found = cluster_sweep(rows, 4)
    monkeypatch.setattr(WeightedPoints, "are_alike", False)
    for one, other in zip(found, cluster_sweep(rows, 4), strict=True):
        assert one.centres.tobytes() == other.centres.tobytes()
        assert (one.labels.tobytes(), one.inertia) == (other.labels.tobytes(), other.inertia)


@given(st.integers(0, 1000), st.integers(2, 6))
@settings(max_examples=40, deadline=None)
def test_steps_never_raise_the_inertia_of_their_seeding(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    rows = blobs(rng, 8, 5)
    points = WeightedPoints.of(rows, rng.integers(1, 50, len(rows)).astype(float))
    seeding = Seeding(points, rng)
    for _ in range(k - 1):
        seeded = seeding.extend(5)
    before = np.array([points.weights @ assign(points, centres).nearest for centres in seeded])
    stepped = lloyd_step(points, seeded)
    assert (stepped.inertia <= before * (1 + 1e-12)).all()
    settled = settle(points, seeded, ((50, 5),))
    assert settled.inertia[0] <= before.min() * (1 + 1e-12)
    for centres, at_first in zip(seeded, before, strict=True):
        converged, _ = converge(points, centres)
        assert converged.inertia[0] <= at_first * (1 + 1e-12)
        moved, _ = transfer(points, converged.centres[0])
        assert moved.inertia[0] <= converged.inertia[0] * (1 + 1e-12)


@pytest.mark.parametrize("tolerance", [1e-3, 0.5])
def test_solutions_that_nearly_converge_together_are_those_of_each_alone(tolerance: float) -> None:
    rng = np.random.default_rng(3)
    points = WeightedPoints.of(rng.normal(size=(400, 2)), rng.integers(1, 9, 400).astype(float))
    centres = points.positions[rng.choice(400, (6, 5))]
    alone = [converge(points, each, tolerance=tolerance)[0] for each in centres]
    together = nearly_converge(points, centres, tolerance)
    assert len(together) == len(alone)
    for one, other in zip(together, alone, strict=True):
        assert one.centres == pytest.approx(other.centres, abs=1e-12)
        assert one.inertia == pytest.approx(other.inertia)


@given(st.integers(0, 1000), st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_bounds_leave_out_no_point_that_changes(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(200, 2)) * rng.lognormal(0, 2, (200, 1))
    points = WeightedPoints.of(rows, np.ones(200))
    centres = points.positions[rng.choice(200, k, replace=False)]
    _, labels = converge(points, centres)
    for _ in range(300):
        nearest = np.square(points.positions[:, None] - centres).sum(axis=2).argmin(axis=1)
        held = [points.positions[nearest == group] for group in range(k)]
        moved = np.array([h.mean(axis=0) if len(h) else c for h, c in zip(held, centres, strict=True)])
        if np.allclose(moved, centres, rtol=0, atol=1e-13):
            break
        centres = moved
    assert np.array_equal(labels, nearest)


def test_small_cases_end_in_the_global_optimum() -> None:
    rng = np.random.default_rng(5)
    for _ in range(40):
        rows = rng.integers(0, 20, (8, 2)).astype(float)
        for k in (2, 3):
            # Every way to give the other seven rows a group; the first row is in group 0.
            labels = np.array([(0, *others) for others in itertools.product(range(k), repeat=7)])
            inertia = np.zeros(len(labels))
            for group in range(k):
                member = (labels == group).astype(float)
                mean = member @ rows / np.maximum(member.sum(axis=1), 1)[:, None]
                inertia += (np.square(rows - mean[:, None]).sum(axis=2) * member).sum(axis=1)
            assert cluster(rows, k).inertia == pytest.approx(inertia.min(), abs=1e-9)


def test_a_heavy_point_moves_where_lloyd_is_stuck() -> None:
    # Nearest to its own centre, yet its weight is better held by the other, heavier group.
    rows = np.array([[0.0], [4.0], [9.2]])
    points = WeightedPoints.of(rows, np.array([1.0, 1.0, 1.0]))
    centres = rows[[0, 2]] - points.origin
    centres[1] = (rows[1] + rows[2]) / 2 - points.origin
    stuck, labels = converge(points, centres)
    assert labels.tolist() == [0, 1, 1]
    moved, labels = transfer(points, stuck.centres[0])
    assert labels.tolist() == [0, 0, 1]
    assert stuck.inertia[0] == pytest.approx(5.2**2 / 2)
    assert moved.inertia[0] == pytest.approx(8.0)


def test_a_centre_without_points_stays_and_is_filled_in_the_end() -> None:
    rows = np.concatenate([np.zeros((50, 2)), np.ones((50, 2)), [[100.0, 100.0]]])
    points = WeightedPoints.of(rows, np.ones(len(rows)))
    far = np.array([[[-1e6, -1e6], [0.0, 0.0], [1.0, 1.0]]])
    assert np.array_equal(lloyd_step(points, far).centres[0, 0], [-1e6, -1e6])
    assert np.bincount(cluster(rows, 3).labels).tolist() == [50, 50, 1]


@pytest.mark.parametrize("offset", [0.0, 1e9, -1e12])
def test_far_from_the_origin_small_distances_still_count(offset: float) -> None:
    rows = blobs(np.random.default_rng(1), 4, 20) + offset
    found = cluster(rows, 4)
    assert np.bincount(found.labels).tolist() == [20] * 4
    # The centres come back at the offset, where they can be told only to its rounding.
    assert found.inertia == pytest.approx(inertia_of(rows, found), rel=1e-6)


def test_rows_that_differ_by_less_than_rounding_end_in_fewer_groups_or_as_many() -> None:
    rows = 1e8 + np.arange(10)[:, None] * 2.0**-25
    for k, found in enumerate(cluster_sweep(rows, 12), start=1):
        assert 1 <= found.groups <= min(k, 10)
        assert np.bincount(found.labels, minlength=found.groups).all()


def test_degenerate_rows() -> None:
    assert cluster(np.zeros((5, 0)), 3).labels.tolist() == [0] * 5
    assert cluster(np.full((5, 2), 7.0), 3).inertia == 0
    assert cluster(np.full((5, 2), 7.0), 3).groups == 1
    assert cluster(np.array([[3.0]]), 1).centres.tolist() == [[3.0]]
    # Squares of the first distance vanish: the two rows cannot be told apart.
    assert cluster(np.array([[0.0], [1e-300], [1.0]]), 3).labels.tolist() == [0, 0, 1]


def test_what_cannot_be_grouped_is_refused() -> None:
    with pytest.raises(RefusedError, match="no rows"):
        cluster_sweep(np.empty((0, 2)), 3)
    with pytest.raises(RefusedError, match="not a finite number"):
        cluster_sweep(np.array([[1.0], [np.nan]]), 3)
    with pytest.raises(RefusedError, match="too far apart"):
        cluster_sweep(np.array([[1e200], [-1e200]]), 2)
    with pytest.raises(ParameterError, match="number of groups is 0"):
        cluster_sweep(np.ones((3, 1)), 0)


def test_one_k_is_the_end_of_its_sweep() -> None:
    rows = blobs(np.random.default_rng(2), 6, 30)
    one, swept = cluster(rows, 6, seed=4), cluster_sweep(rows, 6, seed=4)[-1]
    assert np.array_equal(one.labels, swept.labels)
    assert one.inertia == swept.inertia


def test_as_many_groups_as_blobs_are_the_blobs() -> None:
    rows = blobs(np.random.default_rng(3), 25, 40, d=5)
    found = cluster(rows, 25)
    assert np.array_equal(found.labels, np.repeat(np.arange(25), 40))


def test_many_groups_of_many_rows() -> None:
    rows = blobs(np.random.default_rng(4), 60, 100)
    found = cluster(rows, 60)
    assert np.bincount(found.labels).tolist() == [100] * 60


def test_micro_clusters_keep_weight_and_mean_and_bound_the_scatter() -> None:
    rows = blobs(np.random.default_rng(6), 30, 200)
    points = WeightedPoints.of(rows, np.random.default_rng(7).integers(1, 9, len(rows)).astype(float))
    coarse = micro_clusters(points, 256, coarse=40, tolerance=1e-3)
    assert 40 <= len(coarse) <= 256
    assert coarse.weights.sum() == points.weights.sum()
    assert coarse.origin == pytest.approx(np.zeros(3), abs=1e-9)
    assert coarse.total_square <= points.total_square
    few = WeightedPoints.of(rows[:30], np.ones(30))
    assert micro_clusters(few, 256, coarse=40, tolerance=1e-3) is few


def test_a_coreset_costs_what_all_points_cost_about_any_centres() -> None:
    rng = np.random.default_rng(8)
    rows = np.concatenate([blobs(rng, 10, 2000), rng.normal(5e4, 1e3, (3, 3))])
    points = WeightedPoints.of(rows, rng.zipf(2.0, len(rows)).clip(max=2000).astype(float))
    near = points.positions[::2000]
    core = coreset(points, assign(points, near).nearest, 2000, rng)
    assert len(core) <= 2000
    assert core.weights.sum() == pytest.approx(points.weights.sum(), rel=0.02)
    assert core.positions[-3:] == pytest.approx(points.positions[-3:])  # few and far
    for centres in (near, near[:4], np.zeros((1, 3)), 10 * rng.normal(size=(6, 3))):
        all_points, few = (each.weights @ assign(each, centres).nearest for each in (points, core))
        assert few == pytest.approx(all_points, rel=0.05)


def test_a_coreset_about_centres_on_every_point_is_drawn_by_weight_and_scatter() -> None:
    points = WeightedPoints.of(np.repeat([[0.0], [1.0]], 50, axis=0), np.ones(100))
    core = coreset(points, np.zeros(100), 20, np.random.default_rng(0))
    assert core.weights == pytest.approx(np.full(20, 5.0))
    assert core.total_square == pytest.approx(points.total_square)


def test_candidates_compared_on_a_coreset_end_as_good_and_exact_on_all_points(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(9)
    rows = rng.normal(0, 2, (12, 4))[rng.integers(0, 12, 6000)] + rng.normal(size=(6000, 4))
    plain = cluster_sweep(rows, 12)
    monkeypatch.setattr(kmeans, "_MANY", 6000)
    monkeypatch.setattr(kmeans, "_CORESETS", (1500, 500, 500))
    for k, (found, before) in enumerate(zip(cluster_sweep(rows, 12), plain, strict=True), start=1):
        distances = np.square(rows[:, None] - found.centres).sum(axis=2)
        assert np.array_equal(found.labels, distances.argmin(axis=1)), f"K = {k}"
        assert found.inertia == pytest.approx(inertia_of(rows, found))
        assert found.inertia == pytest.approx(before.inertia, rel=0.01)


def test_few_points_are_compared_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kmeans, "coreset", lambda *_: pytest.fail("a coreset of few points"))
    rng = np.random.default_rng(9)
    assert len(cluster_sweep(rng.normal(size=(6000, 4)), 8)) == 8


SAME_EVERYWHERE = """
import numpy as np
from assay_sampling.clustering.kmeans import cluster_sweep
rng = np.random.default_rng(0)
rows = rng.normal(0, 50, (12, 4))[rng.integers(0, 12, 3000)] + rng.normal(size=(3000, 4))
for found in cluster_sweep(rows, 12, seed=1):
    print(found.inertia.hex(), found.labels.sum())
"""


def test_the_same_seed_gives_the_same_bits_in_every_process() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", SAME_EVERYWHERE],
            env={**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for threads in ("1", "2")
    }
    assert len(outputs) == 1
    assert len(outputs.pop().splitlines()) == 12


@pytest.mark.parametrize(
    "ks", [(2, 5, 9, 14, 20), pytest.param(range(1, 21), marks=pytest.mark.campaigns)], ids=["some", "all"]
)
def test_inertias_are_not_above_the_median_of_scikit_learn(shared_data: Path, ks: Sequence[int]) -> None:
    """On all 5,000 rows, KMeans(n_init=10), seeds 0..9."""
    clustering = pytest.importorskip("sklearn.cluster")
    path = shared_data / "ncu" / "synthetic_v100_5000_raw_page.csv.gz"
    launches = read_launches(path, ReadOptions(synthetic=True))
    matrix = feature_matrix(launches, FEATURE_SETS["artifact12"])
    rows = FeatureSpace.fit(matrix, np.ones(len(matrix))).project(matrix)
    assert rows.shape == (5000, 9)
    ours = [found.inertia for found in cluster_sweep(rows, 20)]
    for k in ks:
        theirs = [clustering.KMeans(k, n_init=10, random_state=seed).fit(rows).inertia_ for seed in range(10)]
        assert ours[k - 1] <= np.median(theirs) * (1 + 1e-9), f"K = {k}"


def test_a_point_between_two_equally_near_centres_counts_once() -> None:
    points = WeightedPoints.of(np.array([[-1.0], [0.0], [1.0]]), np.array([1.0, 5.0, 1.0]))
    # Both centres are as near to the middle point: it goes to the first, -1, and not to both.
    stepped = lloyd_step(points, np.array([[[-1.0], [1.0]], [[-0.5], [0.75]]]))
    assert np.array_equal(stepped.weights, [[6.0, 1.0], [6.0, 1.0]])
    assert stepped.centres[0].ravel() == pytest.approx([-1 / 6, 1.0])


@pytest.mark.parametrize("k", [2, 10, 11, 20])
def test_the_two_nearest_centres_are_found_for_few_and_many(k: int) -> None:
    rng = np.random.default_rng(k)
    points = WeightedPoints.of(rng.normal(size=(500, 3)), np.ones(500))
    centres = rng.normal(size=(k, 3))
    distances = np.square(points.positions[:, None] - centres).sum(axis=2)
    found = assign(points, centres)
    assert np.array_equal(found.labels, distances.argmin(axis=1))
    assert found.nearest == pytest.approx(np.sort(distances, axis=1)[:, 0])
    assert found.second == pytest.approx(np.sort(distances, axis=1)[:, 1])


def _solutions(points: WeightedPoints, starts: list[np.ndarray]) -> list[_Solution]:
    labels = [converge(points, centres)[1] for centres in starts]
    return [_Solution.of(points, each, k) for k, each in enumerate(labels, start=1)]


def test_the_pass_downwards_mends_what_is_bad_and_makes_nothing_worse() -> None:
    """Three far groups; for K = 3 two centres are caught in one of them, and K = 4 has all three."""
    rng = np.random.default_rng(5)
    corners = np.array([[0.0, 0.0], [100.0, 0.0], [0.0, 100.0]])
    rows = np.repeat(corners, 50, axis=0) + rng.normal(size=(150, 2))
    points = WeightedPoints.of(rows, np.ones(len(rows)))
    one, two, three = points.positions[[0, 50, 100]]
    caught = np.stack([one, points.positions[1], (two + three) / 2])
    starts = [
        np.zeros((1, 2)),
        np.stack([one, two]),
        caught,
        np.stack([one, two, three, points.positions[1]]),
    ]
    found = _solutions(points, starts)
    better = _pruned_downwards(points, points, found)
    before, after = ([solution.inertia for solution in each] for each in (found, better))
    assert before[2] > 100_000
    assert after[2] < 400
    assert all(later <= earlier for earlier, later in zip(before, after, strict=True))
    assert after == sorted(after, reverse=True)
    # What is good already stays, group for group.
    again = _pruned_downwards(points, points, better)
    assert all(new is old for new, old in zip(again, better, strict=True))
