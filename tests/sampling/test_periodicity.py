"""Periods of workloads that repeat."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.launches import periodicity
from assay_sampling.launches.periodicity import Period, find_period, period_of
from tests.support.sampling.made_launches import made_launches


def codes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8).astype(np.int32)


@pytest.mark.parametrize(
    ("sequence", "expected"),
    [
        ("abcabcabc", Period(3, 0, 9)),
        ("aaaa", Period(1, 0, 4)),
        ("xyabcabcabcab", Period(3, 2, 13)),
        ("xyabcabcabcz", Period(3, 2, 11)),
        # Inner repetitions are not the iteration: each covers less than all of it.
        ("abababcabababcabababc", Period(7, 0, 21)),
        ("abcdefgh", None),
        ("ababcdefghij", None),  # a third of it repeats
        ("a", None),
        ("aa", Period(1, 0, 2)),
    ],
)
def test_what_repeats(sequence: str, expected: Period | None) -> None:
    assert period_of(codes(sequence)) == expected


@given(st.integers(1, 40), st.integers(3, 30), st.integers(0, 20), st.integers(0, 9), st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_period_is_found_whatever_stands_around_it(
    length: int, times: int, setup: int, seed: int, by_sampling: bool
) -> None:
    rng = np.random.default_rng(seed)
    once = rng.integers(0, 5, length)
    setup = min(setup, length * times // 2)
    sequence = np.concatenate([100 + np.arange(setup), np.tile(once, times), [200]])
    with pytest.MonkeyPatch.context() as patch:
        if by_sampling:
            patch.setattr(periodicity, "_EVERY_LAG_UP_TO", 64)
        found = period_of(sequence)
    assert found is not None
    # The smallest period of the iteration itself may be a divisor of its length.
    assert length % found.launches == 0
    assert np.array_equal(
        sequence[found.start + found.launches : found.stop],
        sequence[found.start : found.stop - found.launches],
    )
    assert (found.start, found.stop) == (setup, setup + length * times)


def test_long_sequences_with_inner_layers() -> None:
    layer = np.arange(10)
    iteration = np.concatenate([np.tile(layer, 40), 100 + np.arange(31)])
    sequence = np.concatenate([500 + np.arange(77), np.tile(iteration, 30), 900 + np.arange(5)])
    assert period_of(sequence) == Period(431, 77, 77 + 30 * 431)


def test_another_grid_is_another_launch() -> None:
    kernels = ["a", "b"] * 6
    assert find_period(made_launches(kernels)) == Period(2, 0, 12)
    grids = [1, 1, 2, 1] * 3
    assert find_period(made_launches(kernels, grid_x=grids)) == Period(4, 0, 12)
    assert find_period(made_launches(["a"])) is None
