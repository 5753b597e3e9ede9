"""Sizes of slices: what a slice costs is learned from those that were made, and little of it is skipping."""

from __future__ import annotations

from itertools import islice, takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_server.campaign_file.compiled import Slicing
from assay_server.campaign_file.slices import (
    LEAST_SLICE_LAUNCHES,
    MOST_SKIPPED_PERCENT,
    Assumptions,
    SliceCost,
    SliceSample,
    assumed_cost,
    cut,
    fitted_cost,
)

PRIOR = assumed_cost(3, Assumptions())
COSTS = st.builds(
    SliceCost, st.floats(0, 100), st.floats(0, 1e-2, allow_subnormal=False), st.floats(1e-5, 1.0)
)


def test_the_cost_before_anything_is_measured_is_that_of_the_forecast() -> None:
    # 60 s a program of 100,000 launches; 5 ms a pass, and 20 ms more where memory is saved and restored.
    assert assumed_cost(3, Assumptions()) == SliceCost(10.0, 0.0006, 0.035)
    assert assumed_cost(1, Assumptions()).launch_seconds == 0.005


@pytest.mark.parametrize(
    "true", [SliceCost(4.0, 0.0002, 0.009), SliceCost(0.5, 0.03, 0.3), SliceCost(30, 0, 1)]
)
def test_slices_that_differ_enough_tell_the_whole_cost(true: SliceCost) -> None:
    windows = [(0, 500), (500, 700), (1200, 1500), (2700, 800)]
    samples = [SliceSample(skip, n, 3, true.seconds(skip, n)) for skip, n in windows]
    found = fitted_cost(samples, 3, PRIOR)
    for skip, n in [*windows, (50_000, 20_000)]:
        assert found.seconds(skip, n) == pytest.approx(true.seconds(skip, n), rel=0.01)
    # Passes scale the part of profiling alone.
    one_pass = fitted_cost(samples, 1, assumed_cost(1, Assumptions()))
    assert one_pass.launch_seconds == pytest.approx(true.launch_seconds / 3, rel=0.02)


@given(st.floats(1e-3, 1e5))
def test_one_slice_sets_the_scale_and_the_assumptions_the_proportions(seconds: float) -> None:
    found = fitted_cost([SliceSample(0, 500, 3, seconds)], 3, PRIOR)
    assert found.seconds(0, 500) == pytest.approx(seconds, rel=0.01)
    assert min(found.start_seconds, found.skip_seconds, found.launch_seconds) >= 0


def test_without_a_slice_or_with_one_that_tells_nothing_the_assumptions_stay() -> None:
    assert fitted_cost([], 3, PRIOR) == PRIOR
    assert fitted_cost([SliceSample(9, 0, 3, 5.0), SliceSample(0, 5, 3, 0.0)], 3, PRIOR) == PRIOR


@given(COSTS, st.integers(1, 200_000))
def test_windows_cover_the_first_launches_once_and_skip_for_less_than_a_fifth_of_their_time(
    cost: SliceCost, first: int
) -> None:
    windows = list(cut(Slicing(first), cost))
    assert [skip for skip, _ in windows] == [0, *(skip + n for skip, n in windows[:-1])]
    assert windows[-1][0] + windows[-1][1] == first
    # Rounding alone may reach the limit; what is left over is never a slice of its own that is too small.
    limit = MOST_SKIPPED_PERCENT + 1e-9
    assert max(cost.skipped_percent(skip, n) for skip, n in windows) < limit
    assert len(windows) <= 200


def test_slices_are_no_larger_than_they_must_be() -> None:
    cheap = SliceCost(10.0, 1e-6, 0.05)
    assert list(cut(Slicing(2600), cheap)) == [(0, 500), (500, 500), (1000, 500), (1500, 500), (2000, 600)]
    dear = SliceCost(0.0, 0.01, 0.02)
    # Behind s launches, a slice that skips for under 18 % takes more than 82 / 18 x s x 0.01 / 0.02 of them.
    assert list(cut(Slicing(30_000), dear)) == [(0, 500), (500, 1139), (1639, 3734), (5373, 24_627)]
    assert next(cut(Slicing(1_000_000), cheap)) == (0, 5000)  # at most 200 slices a run


def test_a_size_that_the_file_gives_is_kept() -> None:
    dear = SliceCost(0.0, 1.0, 0.02)
    assert list(cut(Slicing(1000, 400), dear)) == [(0, 400), (400, 400), (800, 200)]


def test_an_open_run_goes_on_for_as_long_as_it_is_asked() -> None:
    assert list(islice(cut(Slicing(0, 7), PRIOR, begin=3), 3)) == [(3, 7), (10, 7), (17, 7)]
    assert list(cut(Slicing(0), PRIOR, most=2)) == [(0, 500), (500, LEAST_SLICE_LAUNCHES)]
    # Of ten million launches it makes 353 slices, not 20,000.
    free = SliceCost(10.0, 0.0, 1e-6)
    assert sum(1 for _ in takewhile(lambda window: window[0] < 10_000_000, cut(Slicing(0), free))) == 353


@pytest.mark.parametrize(
    ("slicing", "fixed"),
    [(Slicing(10, 5), True), (Slicing(10), False), (Slicing(0, 5), False), (Slicing(10, 5, 60.0), False)],
)
def test_only_what_the_file_says_whole_is_fixed(slicing: Slicing, fixed: bool) -> None:
    assert slicing.is_fixed is fixed
