"""How many launches STEM samples of each cluster, and which clusters ROOT makes."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.clustering.segments import Moments, moments
from assay_sampling.methods.kernel_values import kernel_values
from assay_sampling.methods.stem.allocation import allocate, best_whole, spread_of, variance
from assay_sampling.methods.stem.root_splits import Bound, split_as_artifact, split_jointly

BOUND = Bound(0.05, 1.96)


def clusters_of(*groups: list[float]) -> Moments:
    values = kernel_values(
        np.repeat(np.arange(len(groups)), [len(g) for g in groups]), np.concatenate(groups)
    )
    return moments(values.value, values.count, values.kernel_start)


def test_the_variance_is_that_of_a_sample_without_replacement() -> None:
    clusters = clusters_of([1.0, 2.0, 6.0], [5.0, 5.0])
    # All samples of two of the three: projected totals 4.5, 10.5, 12 around 9.
    assert variance(clusters, np.array([2.0, 1.0])) == pytest.approx(np.var([4.5, 10.5, 12.0]))
    assert spread_of(clusters).tolist() == pytest.approx([np.std([1, 2, 6], ddof=1), 0])
    assert variance(clusters, np.array([3.0, 2.0])) == 0


group = st.lists(st.integers(1, 50).map(float), min_size=1, max_size=6)


@given(st.lists(group, min_size=1, max_size=3), st.floats(0.02, 0.6))
@settings(max_examples=60, deadline=None)
def test_the_allocation_keeps_its_bound_at_hardly_more_than_the_least_cost(
    groups: list[list[float]], epsilon: float
) -> None:
    clusters = clusters_of(*groups)
    half_width = epsilon * sum(map(sum, groups))
    allocation = allocate(clusters, half_width, 1.96, 1)
    sampled = allocation.sampled
    assert (sampled >= 1).all()
    assert (sampled <= clusters.launches).all()
    assert 1.96 * variance(clusters, sampled) ** 0.5 <= half_width * (1 + 1e-12)
    best = min(
        float((np.array(m) * clusters.mean).sum())
        for m in product(*(range(1, len(g) + 1) for g in groups))
        if 1.96 * variance(clusters, np.array(m, float)) ** 0.5 <= half_width
    )
    # One multiplier for all cannot always end on the cheapest whole numbers: at most one launch too many.
    assert float((sampled * clusters.mean).sum()) <= best + clusters.mean.max() * 1.000001


def test_real_numbers_of_launches_are_those_of_the_optimality_conditions() -> None:
    launches, mean, deviation = (
        np.array([1e9, 4e9, 2e9]),
        np.array([10.0, 3.0, 700.0]),
        np.array([4.0, 3.0, 90.0]),
    )
    total = (launches * mean).sum()
    sampled = allocate(Moments(launches, mean, deviation), 0.0005 * total, 1.96, 1).sampled
    needed = (launches * deviation * np.sqrt(mean)).sum()
    expected = (1.96 / (0.0005 * total)) ** 2 * needed * launches * deviation / np.sqrt(mean)
    assert sampled == pytest.approx(expected, rel=2e-3)


def test_a_cluster_at_its_limits_leaves_the_rest_to_the_others() -> None:
    # One launch of a thousand times the cost among ten: all are taken, and the others need no more.
    clusters = clusters_of([1.0] * 9 + [10_000.0], list(np.linspace(90, 110, 1000)))
    sampled = allocate(clusters, 0.05 * 110_009, 1.96, 1).sampled
    # The bound needs 5 of the second; the price at which the tenth of the first pays gives 6.
    assert sampled.tolist() == [10, 6]
    assert allocate(clusters, 0.05 * 110_009, 1.96, 40).sampled.tolist() == [10, 40]


def test_clusters_that_are_alike_do_not_all_get_one_more() -> None:
    clusters = clusters_of(*([list(np.linspace(50, 150, 200))] * 40))
    half_width = 1.96 * variance(clusters, np.array([2.0] * 3 + [1.0] * 37)) ** 0.5
    sampled = allocate(clusters, half_width * (1 + 1e-9), 1.96, 1).sampled
    assert sorted(sampled.tolist()) == [1] * 37 + [2] * 3


def test_whole_launches_go_on_as_long_as_one_more_pays() -> None:
    real = np.array([0.2, 1.3, 1.5, 2.4, 2.5, 90.0])
    # Cost m + r^2 / m: one more than m pays as long as m (m + 1) < r^2.
    assert best_whole(real, np.ones(6), np.full(6, 80.0)).tolist() == [1, 1, 2, 2, 3, 80]
    every = np.arange(1, 81)[:, None]
    assert (1 + np.argmin(every + np.square(real) / every, axis=0)).tolist() == [1, 1, 2, 2, 3, 80]


def test_clusters_that_do_not_spread_get_the_least() -> None:
    allocation = allocate(clusters_of([5.0] * 8, [7.0], [0.0, 0.0]), 1.0, 1.96, 3)
    assert allocation.sampled.tolist() == [3, 1, 2]
    assert allocation.multiplier == 0


def test_costs_of_ten_to_the_twelve_do_not_overflow() -> None:
    clusters = Moments(np.array([1e7, 1e7]), np.array([1e12, 1e12]), np.array([5e11, 1.0]))
    allocation = allocate(clusters, 0.05 * 2e19, 1.96, 1)
    # Within the five percent of both, and only one spreads: z^2 (0.5 / 0.1)^2, and the share drawn.
    assert allocation.sampled.tolist() == [97, 1]


def test_a_kernel_of_two_speeds_is_divided_between_them() -> None:
    values = kernel_values(np.zeros(100), np.array([100.0] * 50 + [400.0] * 50))
    price = allocate(
        moments(values.value, values.count, values.kernel_start), 0.05 * 25_000, 1.96, 1
    ).multiplier
    assert split_jointly(values, price, 2, 1).tolist() == [0, 1, 2]
    assert split_jointly(values, price, 101, 1).tolist() == [0, 2]
    assert split_jointly(values, 0.0, 2, 1).tolist() == [0, 2]  # variance costs nothing: nothing is gained


def test_the_artifact_samples_none_of_launches_that_cost_the_same() -> None:
    for costs in ([100.0, 100.0], [100.0] * 50 + [400.0] * 50):
        _, sampled = split_as_artifact(kernel_values(np.zeros(len(costs)), np.array(costs)), BOUND)
        assert sampled.sum() == 0


def test_the_artifact_samples_a_launch_that_stands_alone() -> None:
    start, sampled = split_as_artifact(
        kernel_values(np.array([0, 1, 1]), np.array([7.0, 100.0, 400.0])), BOUND
    )
    assert start.tolist() == [0, 1, 2, 3]
    assert sampled.tolist() == [1, 1, 1]


def test_the_artifact_bounds_each_kernel_alone() -> None:
    rng = np.random.default_rng(0)
    kernel, cost = np.repeat(np.arange(4), 3000), rng.normal(1000, 200, 12_000).round()
    values = kernel_values(kernel, cost)
    start, sampled = split_as_artifact(values, BOUND)
    parts = moments(values.value, values.count, start)
    assert (sampled > 0).all()
    for index in range(4):
        inside = (start[:-1] >= values.kernel_start[index]) & (start[:-1] < values.kernel_start[index + 1])
        bound = 1.96 * variance(parts.at(inside), sampled[inside].astype(float)) ** 0.5
        assert 0.01 * 3e6 < bound < 0.06 * 3e6
