"""Intervals of projected totals: exact small cases, and how often they hold the truth."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.estimation.intervals import (
    Interval,
    bootstrap_interval,
    draw_per_group,
    known_variance_interval,
    ratio_interval,
    stratified_interval,
)
from assay_sampling.estimation.student_t import t_quantile
from assay_sampling.notes.registry import make_note

Answer = tuple[Interval | None, str]


def half_width(interval: Interval | None) -> float:
    assert interval is not None
    return (interval.high - interval.low) / 2


# Tables of the distribution; one degree of freedom is tan(pi (p - 1/2)), two have a closed form too.
@pytest.mark.parametrize(
    ("probability", "freedom", "expected"),
    [
        (0.975, 1, 12.706204736432095),
        (0.975, 2, 4.302652729911275),
        (0.975, 10, 2.2281388519649385),
        (0.995, 30, 2.7499956535670305),
        (0.95, 2.5, 2.5582186141359355),
        (0.9, 0.5, 10.27032441023451),
        (0.975, 999_999.0, 1.959966357),
        (0.975, math.inf, 1.959963984540054),
    ],
)
def test_quantiles_of_students_t(probability: float, freedom: float, expected: float) -> None:
    assert t_quantile(probability, freedom) == pytest.approx(expected, rel=2e-9)


@given(st.floats(0.501, 0.9999), st.floats(0.3, 1e5))
@settings(max_examples=80, deadline=None)
def test_quantiles_of_students_t_are_those_of_scipy(probability: float, freedom: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    assert t_quantile(probability, freedom) == pytest.approx(stats.t.ppf(probability, freedom), rel=1e-7)


@pytest.mark.parametrize(("probability", "freedom"), [(0.5, 3), (1.0, 3), (0.9, 0), (0.9, math.nan)])
def test_quantiles_that_do_not_exist(probability: float, freedom: float) -> None:
    with pytest.raises(ValueError, match="no t quantile"):
        t_quantile(probability, freedom)


def test_one_group_by_hand() -> None:
    # Three of ten: mean 4, s^2 = 4; variance = 100 x 0.7 x 4 / 3, two degrees of freedom.
    interval, reason = stratified_interval(
        np.array([2.0, 4.0, 6.0]), np.zeros(3, int), np.array([10]), confidence=0.95
    )
    assert interval is not None
    assert reason is None
    error = math.sqrt(100 * 0.7 * 4 / 3)
    assert interval.low == pytest.approx(40 - 4.302652729911275 * error)
    assert interval.high == pytest.approx(40 + 4.302652729911275 * error)
    assert interval.expected_error_percent == pytest.approx(100 * math.sqrt(2 / math.pi) * error / 40)
    assert interval.basis == "stratified_t"


def test_two_groups_have_the_degrees_of_freedom_of_satterthwaite() -> None:
    costs, groups = np.array([1.0, 3.0, 10.0, 14.0, 18.0]), np.array([0, 0, 1, 1, 1])
    sizes = np.array([4, 30])
    interval, _ = stratified_interval(costs, groups, sizes)
    first, second = 16 * 0.5 * 2 / 2, 900 * 0.9 * 16 / 3
    freedom = (first + second) ** 2 / (first**2 / 1 + second**2 / 2)
    assert half_width(interval) == pytest.approx(t_quantile(0.975, freedom) * math.sqrt(first + second))


def test_groups_drawn_whole_add_nothing() -> None:
    costs, groups = np.array([1.0, 900.0, 5.0]), np.array([0, 0, 1])
    interval, _ = stratified_interval(costs, groups, np.array([2, 1]))
    assert interval == Interval(906.0, 906.0, 0.0, "stratified_t")


@pytest.mark.parametrize("make", [stratified_interval, bootstrap_interval])
def test_where_no_spread_is_known_the_reason_is(make: Callable[..., Answer]) -> None:
    costs = np.array([1.0, 2.0, 3.0])
    assert make(costs, np.array([0, 0, 1]), np.array([2, 2])) == (
        None,
        make_note("interval_of_single_launch"),
    )
    assert make(costs, np.zeros(3, int), np.array([4, 2])) == (None, make_note("interval_of_unsampled_group"))
    with pytest.raises(ValueError, match="more launches are drawn"):
        make(costs, np.zeros(3, int), np.array([2]))


def test_the_residuals_of_a_ratio_are_what_spreads() -> None:
    amounts, groups = np.array([1.0, 2.0, 5.0, 7.0]), np.zeros(4, int)
    sizes, whole = np.array([40]), np.array([200.0])
    exact, _ = ratio_interval(3 * amounts, amounts, groups, sizes, whole)
    assert exact is not None
    assert (exact.low, exact.high) == pytest.approx((600, 600))
    # Ratio 46 / 15; residuals by hand, expanded by 200 / 15 x 4 launches.
    costs = np.array([4.0, 6.0, 15.0, 21.0])
    # Each as if the ratio had been found without it: times (m - 1) / m / (1 - share of the amount).
    residuals = (costs - 46 / 15 * amounts) * 0.75 / (1 - amounts / 15)
    variance = (200 / 15 * 4) ** 2 * 0.9 * (residuals @ residuals / 3) / 4
    interval, _ = ratio_interval(costs, amounts, groups, sizes, whole)
    assert half_width(interval) == pytest.approx(t_quantile(0.975, 3) * math.sqrt(variance))
    assert interval is not None
    assert interval.basis == "ratio_t"
    none, reason = ratio_interval(costs, np.zeros(4), groups, sizes, whole)
    assert none is None
    assert reason == make_note("interval_without_instructions")


def test_a_spread_that_is_known_needs_no_t() -> None:
    interval = known_variance_interval(500.0, np.array([2.0, 0.0]), np.array([5, 1]), np.array([50, 10]))
    variance = 50**2 * (4 * 50 / 49) / 5 * (1 - 5 / 50)
    assert half_width(interval) == pytest.approx(NormalDist().inv_cdf(0.975) * math.sqrt(variance))
    assert interval.basis == "known_variance"


def known_profile(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Costs, instructions and groups of 3,000 launches in 12 groups; the costs are moderately skewed."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 12, 3000)
    instructions = rng.lognormal(labels * 0.3, 0.25)
    return instructions * rng.normal(2.0, 0.1, 3000), instructions, labels


@pytest.mark.parametrize(("per_group", "bootstrap"), [(2, False), (4, False), (30, True)])
def test_intervals_hold_the_truth_as_often_as_they_say(per_group: int, bootstrap: bool) -> None:
    costs, instructions, labels = known_profile(0)
    sizes, amounts = np.bincount(labels), np.bincount(labels, instructions)
    held = {"plain": 0, "ratio": 0, "bootstrap": 0}
    samples = 400
    for seed in range(samples):
        rows = draw_per_group(labels, per_group, np.random.default_rng(seed))
        drawn = (costs[rows], labels[rows], sizes)
        found: dict[str, Answer] = {
            "plain": stratified_interval(*drawn),
            "ratio": ratio_interval(costs[rows], instructions[rows], labels[rows], sizes, amounts),
        }
        if bootstrap:
            found["bootstrap"] = bootstrap_interval(*drawn, seed=seed, resamples=200)
        for name, (interval, _) in found.items():
            assert interval is not None
            held[name] += interval.low <= costs.sum() <= interval.high
    for name in ("plain", "ratio", *(["bootstrap"] if bootstrap else [])):
        # Ratios of two launches: the jackknife is on the safe side.
        assert 0.92 <= held[name] / samples <= 0.985, (name, held)


def test_the_expected_error_is_the_mean_of_the_errors() -> None:
    costs, _, labels = known_profile(1)
    sizes = np.bincount(labels)
    errors, expected = [], []
    for seed in range(400):
        rows = draw_per_group(labels, 6, np.random.default_rng(seed))
        interval, _ = stratified_interval(costs[rows], labels[rows], sizes)
        assert interval is not None
        projected = (interval.low + interval.high) / 2
        errors.append(100 * abs(projected - costs.sum()) / costs.sum())
        expected.append(interval.expected_error_percent)
    assert np.mean(expected) == pytest.approx(np.mean(errors), rel=0.12)


@given(st.lists(st.integers(0, 6), max_size=60), st.integers(1, 5), st.integers(0, 1000))
@settings(max_examples=100, deadline=None)
def test_what_is_drawn_of_each_group(given_labels: list[int], per_group: int, seed: int) -> None:
    labels = np.array(given_labels, np.int32)
    rows = draw_per_group(labels, per_group, np.random.default_rng(seed))
    assert (np.diff(rows) > 0).all()
    drawn, there = np.bincount(labels[rows], minlength=7), np.bincount(labels, minlength=7)
    assert drawn.tolist() == np.minimum(there, per_group).tolist()
    assert np.array_equal(rows, draw_per_group(labels, per_group, np.random.default_rng(seed)))


def test_a_number_of_its_own_for_each_group_and_every_launch_alike() -> None:
    labels = np.array([1, 0, 1, 1, 0, 1, 1, 0])
    counts = np.zeros(8, int)
    for seed in range(1000):
        rows = draw_per_group(labels, np.array([1, 2]), np.random.default_rng(seed))
        assert np.bincount(labels[rows]).tolist() == [1, 2]
        counts[rows] += 1
    # 333 of group 0 and 400 of group 1 expected; standard deviation 15.
    assert (np.abs(counts - np.where(labels == 0, 1000 / 3, 400)) < 75).all()
