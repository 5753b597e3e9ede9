"""Intervals of projected totals from known variances, quantiles of Student's t, and draws within groups."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.estimation.intervals import (
    draw_per_group,
    known_variance_interval,
)
from assay_sampling.estimation.student_t import t_quantile


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


def test_a_spread_that_is_known_needs_no_t() -> None:
    interval = known_variance_interval(500.0, np.array([2.0, 0.0]), np.array([5, 1]), np.array([50, 10]))
    variance = 50**2 * (4 * 50 / 49) / 5 * (1 - 5 / 50)
    assert (interval.high - interval.low) / 2 == pytest.approx(
        NormalDist().inv_cdf(0.975) * math.sqrt(variance)
    )
    assert interval.basis == "known_variance"


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
