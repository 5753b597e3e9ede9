"""Intervals of speedups between two designs: by hand, and against many draws of a known population."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.estimation.moderated_errors import LEAST_SPREAD
from assay_sampling.estimation.sample_design import Drawing, SampleDesign
from assay_sampling.estimation.speedup_intervals import speedup_interval
from assay_sampling.estimation.student_t import t_quantile


def design(drawing: Drawing, sizes: list[int], **more: np.ndarray) -> SampleDesign:
    count = len(sizes)
    return SampleDesign(drawing, np.array(sizes), np.ones(count, np.int64), np.zeros(count), **more)


def test_one_stratum_of_three_launches_is_as_by_hand() -> None:
    first, second = np.array([100.0, 120.0, 140.0]), np.array([200.0, 210.0, 290.0])
    weights = np.full(3, 4.0)
    found = speedup_interval(
        design("uniform", [12]), (first, second), np.zeros(3, np.int64), weights, kind="launches"
    )
    pull = first / 360 - second / 700  # the mean is 0
    variance = float(np.square(pull).sum()) / 2 * 3**2
    error = math.sqrt((1 - 3 / 12) / 3 * variance)
    half = t_quantile(0.975, 2) * error
    assert variance > LEAST_SPREAD**2
    assert found.low == pytest.approx(360 / 700 * math.exp(-half))
    assert found.high == pytest.approx(360 / 700 * math.exp(half))
    assert found.not_vouched_percent == 0


def test_nothing_vouches_for_a_stratum_of_one_launch() -> None:
    cycles = np.array([100.0, 110.0, 300.0]), np.array([50.0, 60.0, 150.0])
    weights, groups = np.array([5.0, 5.0, 4.0]), np.array([0, 0, 1])
    found = speedup_interval(design("uniform", [10, 4]), cycles, groups, weights, kind="launches")
    shares = [4 * each[2] / (weights * each).sum() for each in cycles]
    assert found.not_vouched_percent == pytest.approx(100 * sum(shares) / 2)
    assert found.low is not None and found.low < found.high
    # A stratum that is simulated whole needs nobody to vouch for it.
    whole = speedup_interval(
        design("uniform", [10, 1]), cycles, groups, np.array([5.0, 5.0, 1.0]), kind="launches"
    )
    assert whole.not_vouched_percent == 0


@pytest.mark.parametrize(
    ("drawing", "sizes", "code", "percent"),
    [
        ("rule", [10, 4], "interval_of_no_draw", 100.0),
        ("rule", [2, 1], "interval_of_all_launches", 0.0),
        ("uniform", [2, 1], "interval_of_all_launches", 0.0),
    ],
)
def test_there_is_no_interval_without_a_draw_or_where_all_are_simulated(
    drawing: Drawing, sizes: list[int], code: str, percent: float
) -> None:
    cycles = np.array([100.0, 110.0, 300.0]), np.array([50.0, 60.0, 150.0])
    found = speedup_interval(
        design(drawing, sizes), cycles, np.array([0, 0, 1]), np.array([5.0, 5.0, 4.0]), kind="launches"
    )
    assert (found.low, found.high) == (None, None)
    assert found.reason is not None and found.reason.code == code
    assert found.not_vouched_percent == pytest.approx(percent)


def test_strata_of_one_launch_each_have_no_interval() -> None:
    cycles = np.array([100.0, 300.0]), np.array([50.0, 150.0])
    found = speedup_interval(
        design("uniform", [10, 4]), cycles, np.array([0, 1]), np.array([10.0, 4.0]), kind="launches"
    )
    assert found.reason is not None and found.reason.code == "interval_of_single_launch"
    assert found.not_vouched_percent == pytest.approx(100)


def test_nobody_vouches_where_the_draw_is_unknown_or_of_other_weights() -> None:
    cycles = np.array([100.0, 110.0]), np.array([50.0, 60.0])
    groups, weights = np.zeros(2, np.int64), np.full(2, 5.0)
    unknown = speedup_interval(None, cycles, groups, weights, kind="launches")
    assert (unknown.low, unknown.not_vouched_percent) == (None, 100.0)
    of_steps = design("light_time", [10], light_time=np.array([1.0, 2.0]))
    other = speedup_interval(of_steps, cycles, groups, weights, kind="launches")
    assert other.reason is not None and other.reason.code == "interval_of_weights_not_drawn_for"


@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.floats(0.1, 10))
@settings(max_examples=60)
def test_an_interval_has_a_width_holds_the_speedup_and_turns_with_it(
    seed: int, drawn: int, factor: float
) -> None:
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(3), drawn)
    first = rng.lognormal(5, 0.5, 3 * drawn)
    second = first * factor * (1 if seed % 2 else rng.lognormal(0, 0.2, 3 * drawn))
    weights = np.full(3 * drawn, 7.0)
    of = design("uniform", [7 * drawn] * 3)
    found = speedup_interval(of, (first, second), groups, weights, kind="launches")
    turned = speedup_interval(of, (second, first), groups, weights, kind="launches")
    speedup = float(first.sum() / second.sum())
    assert found.low is not None and found.high is not None
    assert found.low < speedup < found.high
    assert turned.low == pytest.approx(1 / found.high)
    assert turned.high == pytest.approx(1 / found.low)


@pytest.mark.parametrize("drawing", ["uniform", "light_time_weights", "proportional"])
def test_nine_of_ten_intervals_or_more_hold_the_true_speedup(drawing: str) -> None:
    """Of 400 draws from a population that is known; the seeds are fixed, so the count is, too."""
    rng = np.random.default_rng(5)
    sizes = [300, 200, 100]
    labels = np.repeat(np.arange(3), sizes)
    first = rng.lognormal(6, 0.6, 600) * (1 + labels)
    second = first * (0.5 + 0.3 * labels) * rng.lognormal(0, 0.25, 600)
    truth, held = float(first.sum() / second.sum()), 0
    for _ in range(400):
        if drawing == "proportional":
            share = first / first.sum()
            rows, draws = np.unique(rng.choice(600, 30, p=share), return_counts=True)
            weights = draws / (30 * share[rows])
            of = design("proportional", sizes, light_time=first[rows], draws=draws)
        else:
            rows = np.concatenate([rng.choice(np.flatnonzero(labels == g), 10, False) for g in range(3)])
            of = design("uniform", sizes, light_time=first[rows])
            weights = np.repeat([30.0, 20.0, 10.0], 10)
            if drawing == "light_time_weights":
                time = [first[labels == g].sum() / first[rows[labels[rows] == g]].sum() for g in range(3)]
                weights = np.repeat(time, 10)
        kind = "launches" if drawing == "uniform" else "light_time"
        cycles = first[rows], second[rows]
        found = speedup_interval(of, cycles, labels[rows], weights, kind=kind)  # type: ignore[arg-type]
        assert found.low is not None and found.high is not None
        held += found.low <= truth <= found.high
    assert 0.90 <= held / 400 <= 0.995
