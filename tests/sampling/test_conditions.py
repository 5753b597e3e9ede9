"""Two conditions compared: exact values, and what must hold for any."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_sampling.errors import ParameterError, RefusedError
from assay_sampling.running.identity import Condition, condition_conflict
from assay_sampling.scoring.two_conditions import (
    chunks_of_share,
    counterparts,
    differences_percent,
    effective_sms,
    has_static_partitions,
    ipc_differences_percent,
    ratio_of_totals,
    relative_standard_deviation_percent,
    share_bounds,
    shares_over_percent,
    weighted_difference_percent,
)

WARM = np.array([100.0, 200.0, 100.0])
FLUSHED = np.array([150.0, 190.0, 100.0])


def test_a_speedup_is_a_ratio_of_totals() -> None:
    assert ratio_of_totals(np.array([30.0, 10.0]), np.array([15.0, 10.0])) == 1.6
    with pytest.raises(RefusedError, match="total is not positive"):
        ratio_of_totals(np.array([1.0]), np.array([0.0]))


def test_differences_do_not_cancel_and_follow_the_weights() -> None:
    assert weighted_difference_percent(WARM, FLUSHED) == 15.0  # (50 + 10 + 0) / 400
    weights = np.array([1.0, 10.0, 0.0])
    assert weighted_difference_percent(WARM, FLUSHED, weights) == pytest.approx(100 * 150 / 2100)
    with pytest.raises(RefusedError):
        weighted_difference_percent(WARM, FLUSHED, np.zeros(3))


def test_each_launch_moves_by_its_own_percentage() -> None:
    assert differences_percent(WARM, FLUSHED).tolist() == [50.0, -5.0, 0.0]
    assert np.isnan(differences_percent(np.zeros(1), np.ones(1)))
    assert ipc_differences_percent(np.array([100.0, 80.0]), np.array([125.0, 80.0])).tolist() == [-20.0, 0.0]


def test_shares_of_instructions_in_launches_that_move() -> None:
    shares = shares_over_percent(np.array([10.0, 20.0, 30.0, 40.0]), np.array([-20.0, 5.0, 4.999, np.nan]))
    assert shares == [30.0, 10.0, 10.0, 10.0]


@pytest.mark.parametrize(
    ("sm_count", "percent", "expected"),
    [(80, 100, 80), (80, 50, 40), (30, 50, 14), (46, 50, 22), (20, 30, 6), (80, 0.1, 2), (1, 100, 1)],
)
def test_shares_are_rounded_down_to_tpcs(sm_count: int, percent: float, expected: int) -> None:
    assert effective_sms(sm_count, percent) == expected


@pytest.mark.parametrize(("sm_count", "percent"), [(80, 0), (80, 101), (0, 50), (80, float("nan"))])
def test_what_is_no_share_is_refused(sm_count: int, percent: float) -> None:
    with pytest.raises(ParameterError, match="is not a share"):
        effective_sms(sm_count, percent)


@pytest.mark.parametrize(
    ("sm_count", "percent", "capability", "bounds"),
    [
        (80, 50.0, "7.0", (38, 42)), (80, 1.0, "7.0", (1, 3)), (80, 99.0, "7.0", (76, 79)),
        (108, 50.0, "8.0", (52, 56)), (132, 50.0, "9.0", (62, 68)), (132, 10.0, "9.0", (6, 16)),
        (132, 50.0, "10.0", (62, 68)), (80, 50.0, "", (38, 42)), (84, 50.0, "?", (38, 44)),
        (2, 50.0, "7.0", (1, 1)),
    ],
)  # fmt: skip
def test_the_sms_with_which_a_share_counts_as_in_force(
    sm_count: int, percent: float, capability: str, bounds: tuple[int, int]
) -> None:
    assert share_bounds(sm_count, percent, capability) == bounds


@pytest.mark.parametrize(
    ("sm_count", "percent", "capability", "chunks"),
    [
        (132, 50.0, "9.0", 8), (132, 100.0, "9.0", 16), (108, 50.0, "8.0", 13), (84, 30.0, "8.6", 6),
        (80, 9.9, "9.0", 0),
    ],
)  # fmt: skip
def test_chunks_of_a_static_partition(sm_count: int, percent: float, capability: str, chunks: int) -> None:
    assert chunks_of_share(sm_count, percent, capability) == chunks


@pytest.mark.parametrize(
    ("capability", "has"), [("7.5", False), ("8.0", True), ("12.0", True), ("", False), ("?", False)]
)
def test_which_gpus_have_static_partitions(capability: str, has: bool) -> None:
    assert has_static_partitions(capability) is has


@given(st.integers(2, 400), st.floats(0.01, 99.99), st.sampled_from(["", "6.1", "7.5", "8.6", "9.0", "12.0"]))
def test_the_share_rounded_down_to_pairs_or_eights_is_always_in_force(
    sm_count: int, percent: float, capability: str
) -> None:
    least, most = share_bounds(sm_count, percent, capability)
    assert 1 <= least <= most < sm_count
    assert least <= min(effective_sms(sm_count, percent), sm_count - 1) <= most
    if capability in ("9.0", "12.0", ""):
        assert least <= max(1, int(sm_count * percent / 100 / 8) * 8) <= most


def test_noise_is_the_sample_deviation_of_the_totals() -> None:
    assert relative_standard_deviation_percent([90.0, 110.0]) == pytest.approx(100 * 200**0.5 / 100)
    assert relative_standard_deviation_percent([5.0, 5.0, 5.0]) == 0.0
    with pytest.raises(ParameterError, match="1 of them cannot show noise"):
        relative_standard_deviation_percent([1.0])


def test_counterparts_are_found_or_missing() -> None:
    rows = np.array([0, 2, 5, 9])
    assert counterparts(rows, np.array([0, 5, 7]), np.array([1, 4, 8])).tolist() == [1, -1, 4, -1]
    assert counterparts(rows, np.empty(0, np.int64), np.empty(0, np.int64)).tolist() == [-1] * 4


@given(
    st.lists(st.tuples(st.floats(1, 1e6), st.floats(1, 1e6), st.floats(0.1, 1e3)), min_size=1, max_size=30)
)
def test_the_weighted_difference_is_never_below_that_of_the_totals(
    launches: list[tuple[float, float, float]],
) -> None:
    warm, flushed, weights = (np.array(column) for column in zip(*launches, strict=True))
    of_totals = 100 * abs((weights * flushed).sum() - (weights * warm).sum()) / (weights * warm).sum()
    assert weighted_difference_percent(warm, flushed, weights) >= of_totals - 1e-6 * (1 + of_totals)
    assert weighted_difference_percent(warm, warm, weights) == 0.0


@pytest.mark.parametrize(
    ("one", "other", "conflict"),
    [
        (Condition("none", "base", 50.0), Condition("none", "base", 50.0), None),
        (Condition("none", "base", 50.0), Condition("all", "boost", 100.0), "cache"),
        (Condition("none", "base", 50.0), Condition(None, "boost", 100.0), "clock"),
        (Condition("none", "base", 50.0), Condition(None, None, 100.0), "sm_percent"),
        (Condition("none", "base", 50.0), Condition("none", "base", 50.0, "partition"), "sm_share"),
        (Condition(), Condition("none", "base", 50.0, "partition"), None),  # a file that records nothing
    ],
)
def test_the_first_thing_in_which_two_conditions_differ(
    one: Condition, other: Condition, conflict: str | None
) -> None:
    assert condition_conflict(one, other) == condition_conflict(other, one) == conflict
