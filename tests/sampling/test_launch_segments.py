"""Segments of sorted values: moments without cancellation, exact 2-means, recursive splitting."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.clustering.segments import Moments, best_cuts, moments, split_segments

atom = st.tuples(st.integers(0, 10**12), st.integers(1, 1000))
atoms = st.lists(st.lists(atom, min_size=2, max_size=12, unique_by=lambda a: a[0]), min_size=1, max_size=5)


def flattened(segments: list[list[tuple[int, int]]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ordered = [sorted(segment) for segment in segments]
    flat = [atom for segment in ordered for atom in segment]
    start = np.concatenate([[0], np.cumsum([len(s) for s in ordered])])
    return np.array([float(v) for v, _ in flat]), np.array([float(c) for _, c in flat]), start


def exact_squares(part: list[tuple[int, int]]) -> Fraction:
    launches = sum(c for _, c in part)
    mean = Fraction(sum(v * c for v, c in part), launches)
    return sum((c * (v - mean) ** 2 for v, c in part), Fraction(0))


@given(atoms)
@settings(max_examples=100, deadline=None)
def test_moments_are_those_of_exact_arithmetic(segments: list[list[tuple[int, int]]]) -> None:
    found = moments(*flattened(segments))
    for index, segment in enumerate(segments):
        launches = sum(c for _, c in segment)
        mean = Fraction(sum(v * c for v, c in segment), launches)
        assert found.launches[index] == launches
        assert found.mean[index] == pytest.approx(float(mean), rel=1e-12)
        assert found.deviation[index] == pytest.approx(
            float(exact_squares(segment) / launches) ** 0.5, rel=1e-9
        )


@given(atoms)
@settings(max_examples=100, deadline=None)
def test_the_best_cut_leaves_the_least_squares_of_all_cuts(segments: list[list[tuple[int, int]]]) -> None:
    value, count, start = flattened(segments)
    cuts = best_cuts(value, count, start, moments(value, count, start)) - start[:-1]
    for segment, cut in zip(segments, cuts.tolist(), strict=True):
        ordered = sorted(segment)
        every = [exact_squares(ordered[:i]) + exact_squares(ordered[i:]) for i in range(1, len(ordered))]
        assert 1 <= cut < len(ordered)
        # Cuts that are equal but for rounding may be taken for one another.
        assert float(every[cut - 1]) == pytest.approx(
            float(min(every)), rel=1e-6, abs=1e-9 * float(exact_squares(ordered))
        )


def test_a_spread_of_one_in_ten_to_the_twelve_is_not_lost() -> None:
    value = np.array([1e12, 1e12 + 1, 1.0, 2.0])
    found = moments(value, np.array([3.0, 1.0, 3.0, 1.0]), np.array([0, 2, 4]))
    assert found.deviation == pytest.approx(np.sqrt([3 / 16, 3 / 16]), rel=1e-12)
    assert found.mean.tolist() == [1e12 + 0.25, 1.25]


def test_equal_values_have_no_deviation_at_all() -> None:
    found = moments(np.array([0.1]), np.array([3.0]), np.array([0, 1]))
    assert found.mean.tolist() == [0.1]
    assert found.deviation.tolist() == [0.0]
    assert found.cov().tolist() == [0.0]


def test_a_large_neighbour_does_not_move_the_cut_of_a_small_segment() -> None:
    # Sums over the large one are off by more than the small one holds.
    large = np.sort(np.random.default_rng(0).uniform(1e15, 3e15, 1000))
    value = np.concatenate([large, [1.0, 1.25, 7.0]])
    count = np.concatenate([np.full(1000, 7e6), np.ones(3)])
    start = np.array([0, 1000, 1003])
    assert best_cuts(value, count, start, moments(value, count, start))[1] == 1002


def test_splitting_goes_on_as_long_as_the_rule_wants() -> None:
    def wide(
        parent: Moments, left: Moments, right: Moments, state: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return parent.deviation > 1, state + 1, state + 10

    value = np.array([1.0, 2.0, 100.0, 101.0, 1000.0, 5.0])
    bounds, state = split_segments(value, np.ones(6), np.array([0, 5, 6]), wide)
    assert bounds.tolist() == [0, 2, 4, 5, 6]
    assert state.tolist() == [2, 11, 10, 0]


def test_splitting_nothing_gives_nothing() -> None:
    def never(*_: object) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        raise AssertionError

    bounds, state = split_segments(np.empty(0), np.empty(0), np.array([0]), never)
    assert bounds.tolist() == [0]
    assert state.tolist() == []
    assert len(moments(np.empty(0), np.empty(0), np.array([0])).mean) == 0
