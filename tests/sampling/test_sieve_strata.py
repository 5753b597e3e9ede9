"""Strata of Sieve: density, exact and as the authors' scripts make them."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.clustering.segments import Moments
from assay_sampling.methods.kernel_values import kernel_values
from assay_sampling.methods.sieve.strata_dp import dp_cuts, joined_blocks
from assay_sampling.methods.sieve.strata_kde import density_cuts, kde_strata
from assay_sampling.methods.sieve.strata_script import script_cuts
from assay_sampling.methods.sieve.tiers import Strata, Stratification, stratify

counts = st.one_of(
    st.integers(0, 12), st.integers(1, 10**4), st.integers(1, 10**12), st.sampled_from([3, 7, 30, 70])
)
launches = st.lists(st.tuples(st.integers(0, 2), counts), min_size=1, max_size=60)
thetas = st.sampled_from([0.05, 0.2, 0.4, 0.7, 1.0])


def cov(values: np.ndarray) -> float:
    exact = [int(v) for v in values]
    n, s, q = len(exact), sum(exact), sum(v * v for v in exact)
    return ((n * q - s * s) / (s * s)) ** 0.5 if s else 0.0


def strata_of(
    drawn: list[tuple[int, int]], theta: float, method: Stratification, *, merge: bool = True
) -> tuple[Strata, np.ndarray]:
    values = kernel_values(np.array([k for k, _ in drawn], np.uint64), np.array([float(x) for _, x in drawn]))
    strata = stratify(values, theta, method, merge=merge)
    return strata, values.groups(strata.start)


@given(launches, thetas, st.booleans())
@settings(max_examples=150, deadline=None)
def test_what_holds_for_the_strata_of_density_and_of_exact_search(
    drawn: list[tuple[int, int]], theta: float, merge: bool
) -> None:
    kernel, executed = np.array([k for k, _ in drawn]), np.array([x for _, x in drawn])
    density, by_density = strata_of(drawn, theta, "kde", merge=merge)
    exact, by_exact = strata_of(drawn, theta, "dp")
    for strata, labels in ((density, by_density), (exact, by_exact)):
        assert np.unique(labels).tolist() == list(range(len(strata)))
        for group in range(len(strata)):
            members = labels == group
            assert len(np.unique(kernel[members])) == 1
            assert cov(executed[members]) < theta
            assert strata.launches[group] == members.sum()
            assert strata.instructions[group] == pytest.approx(executed[members].sum())
        for k in np.unique(kernel):  # strata are intervals of instructions
            order = np.argsort(executed[kernel == k], kind="stable")
            assert (np.diff(labels[kernel == k][order]) >= 0).all()
    assert len(exact) <= len(density)
    if merge:
        assert len(density) <= len(exact) + 8
    again, same = strata_of(drawn, theta, "kde", merge=merge)
    assert np.array_equal(by_density, same)
    assert np.array_equal(density.tier, again.tier)


def fewest(values: list[float], count: list[float], theta: float) -> int:
    for parts in range(1, len(values) + 1):
        for cuts in combinations(range(1, len(values)), parts - 1):
            bounds = [0, *cuts, len(values)]
            groups = [np.repeat(values[a:b], np.array(count[a:b], int)) for a, b in pairwise(bounds)]
            if all(g.min() == g.max() or g.std() / g.mean() < theta for g in groups):
                return parts
    raise AssertionError


few_atoms = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 30)), min_size=1, max_size=7, unique_by=lambda a: a[0]
)


@given(few_atoms, st.sampled_from([0.113, 0.271, 0.437, 0.913]))
@settings(max_examples=80, deadline=None)
def test_exact_search_finds_the_fewest_of_all_strata(atoms: list[tuple[int, int]], theta: float) -> None:
    value, count = (list(map(float, column)) for column in zip(*sorted(atoms), strict=True))
    cuts = dp_cuts(np.array(value), np.array(count), theta)
    assert cuts[0] == 0
    assert len(cuts) == fewest(value, count, theta)


def test_a_longer_stratum_may_do_where_a_shorter_does_not() -> None:
    # {1, 10} alone has CoV 0.8; a thousand launches of 10 more lower it: a greedy search would cut.
    cuts = dp_cuts(np.array([1.0, 10.0, 10.5]), np.array([1.0, 1.0, 1000.0]), 0.4)
    assert cuts.tolist() == [0]


def test_of_equally_many_strata_those_of_least_squares_are_taken() -> None:
    cuts = dp_cuts(np.array([10.0, 13.0, 14.0, 17.0, 40.0, 41.0]), np.ones(6), 0.4)
    assert cuts.tolist() == [0, 4]


def test_many_distinct_counts_are_put_into_bins_first() -> None:
    value = np.unique(np.round(np.exp(np.random.default_rng(0).uniform(3, 12, 900))))
    direct = dp_cuts(value, np.ones(len(value)), 0.2)
    binned = dp_cuts(value, np.ones(len(value)), 0.2, most_blocks=100)
    assert len(direct) <= len(binned) <= len(direct) + 1
    bounds = [*binned.tolist(), len(value)]
    assert all(cov(value[a:b]) < 0.2 for a, b in pairwise(bounds))
    with_zero = dp_cuts(np.concatenate([[0.0], value]), np.ones(len(value) + 1), 0.2, most_blocks=100)
    assert with_zero[:2].tolist() == [0, 1]


def test_tiers_are_by_the_spread_of_the_kernel() -> None:
    drawn = [(0, 5), (0, 5), (1, 90), (1, 110), (2, 10), (2, 1000), (2, 1001), (3, 0), (3, 0)]
    values = kernel_values(np.array([k for k, _ in drawn], np.uint64), np.array([float(x) for _, x in drawn]))
    strata = stratify(values, 0.4, "kde", merge=True)
    assert strata.tier.tolist() == [1, 2, 3, 3, 1]
    assert strata.launches.tolist() == [2, 2, 1, 2, 2]
    assert strata.instructions.tolist() == [10, 200, 10, 2001, 0]
    tiers = strata.tiers(values.kernel_start)
    assert [t["kernels"] for t in tiers] == [2, 1, 1]
    assert [t["strata"] for t in tiers] == [2, 1, 2]
    assert [t["launch_share"] for t in tiers] == [4 / 9, 2 / 9, 3 / 9]
    assert [t["instruction_share"] for t in tiers] == [10 / 2221, 200 / 2221, 2011 / 2221]


def test_a_cov_of_exactly_theta_is_too_wide() -> None:
    # 3 and 7: mean 5, deviation 2.
    strata, _ = strata_of([(0, 3), (0, 7)], 0.4, "kde")
    assert strata.tier.tolist() == [3, 3]
    strata, _ = strata_of([(0, 3), (0, 7)], 0.401, "kde")
    assert strata.tier.tolist() == [2]


def test_modes_are_told_apart_by_the_valleys_between_them() -> None:
    rng = np.random.default_rng(1)
    modes = np.concatenate([np.round(rng.normal(m, m / 50, 400)) for m in (1000, 3000, 9000)])
    value, count = np.unique(modes, return_counts=True)
    cuts = density_cuts(value, count.astype(float))
    assert len(cuts) == 2
    assert value[cuts[0] - 1] < 1500 < value[cuts[0]]
    assert value[cuts[1] - 1] < 5000 < value[cuts[1]]
    kept = kde_strata(value, count.astype(float), np.array([0, len(value)]), 1.0, merge=False)
    assert len(kept) - 1 == 3
    joined = kde_strata(value, count.astype(float), np.array([0, len(value)]), 1.0, merge=True)
    assert len(joined) - 1 == 1


def test_evenly_spread_counts_have_no_valley() -> None:
    value = np.exp(np.linspace(0, 5, 300))
    assert density_cuts(value, np.ones(300)).tolist() == []


def test_half_the_launches_at_one_count_do_not_exhaust_memory() -> None:
    value = np.concatenate([[1000.0, 1000.0 + 1e-6, 1000.0 + 2e-6], np.linspace(2e3, 1e12, 9)])
    count = np.array([1e6, 1e6, 1e6, *np.ones(9)])
    assert len(density_cuts(value, count)) >= 1


def test_the_script_cuts_where_its_grid_falls_into_gaps() -> None:
    # A step of the grid is 20.4 here, and 4.5 in the second pass over the wide group below 1,000.
    assert script_cuts(np.array([10.0, 20.0, 1000.0, 1010.0])).tolist() == [0, 2]
    assert script_cuts(np.array([10.0, 11.0, 13.0, 230.0, 1010.0])).tolist() == [0, 3, 4]
    # An end is compared with itself: the largest of two close counts is cut off.
    assert script_cuts(np.array([10.0, 11.0])).tolist() == [0, 1]
    assert script_cuts(np.array([5.0])).tolist() == [0]


def test_the_script_cuts_a_group_again_only_where_its_distinct_counts_spread_by_more_than_half() -> None:
    # CoV of the first four: 0.47 and 0.60.
    assert script_cuts(np.array([100.0, 150.0, 200.0, 350.0, 10_000.0])).tolist() == [0, 4]
    again = script_cuts(np.array([100.0, 150.0, 200.0, 450.0, 10_000.0])).tolist()
    assert len(again) > 2
    assert again[-1] == 4


def test_the_spread_within_blocks_counts() -> None:
    # Means 100 and 200, each with CoV 0.3: together they have CoV 0.46, their means alone 0.33.
    blocks = Moments(np.array([5.0, 5.0]), np.array([100.0, 200.0]), np.array([30.0, 60.0]))
    assert joined_blocks(blocks, 0.44).tolist() == [0, 1]
    assert joined_blocks(blocks, 0.47).tolist() == [0]


@pytest.mark.parametrize("width", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("theta", [0.1, 0.2, 0.4, 1.0])
def test_wide_kernels_take_hardly_more_strata_than_the_fewest(width: float, theta: float) -> None:
    value = np.unique(np.round(np.exp(np.random.default_rng(7).normal(14, width, 1200))))
    drawn = [(0, int(v)) for v in value]
    assert len(strata_of(drawn, theta, "kde")[0]) <= len(strata_of(drawn, theta, "dp")[0]) + 2


@pytest.mark.parametrize(("separation", "cuts"), [(1.0, 0), (2.6, 1), (3.0, 1)])
def test_a_shallow_valley_divides_and_a_level_top_does_not(separation: float, cuts: int) -> None:
    # Two bells of log counts; 2.6 deviations apart the valley is some 10 % below its peaks.
    values = np.arange(800.0, 1250.0, 2)
    position, deviation = np.log(values / 1000), 0.03
    bells = [np.exp(-0.5 * (position / deviation + side * separation / 2) ** 2) for side in (-1, 1)]
    count = np.rint(1000 * (bells[0] + bells[1]))
    used = count > 0
    assert len(density_cuts(values[used], count[used])) == cuts
