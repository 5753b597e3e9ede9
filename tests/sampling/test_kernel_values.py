"""Distinct values by kernel, and launches drawn at random within groups."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.estimation.rank_draws import draw_ranks, draw_rows, order_by_group
from assay_sampling.methods import kernel_values as kv
from assay_sampling.methods.kernel_values import kernel_values


def test_atoms_are_in_the_order_of_kernel_and_value() -> None:
    values = kernel_values(np.array([9, 4, 9, 9, 4], np.uint64), np.array([5.0, 7.0, 2.0, 5.0, 7.0]))
    assert values.kernel_start.tolist() == [0, 2, 3]  # kernel 9 was launched first
    assert values.value.tolist() == [2.0, 5.0, 7.0]
    assert values.count.tolist() == [1, 2, 2]
    assert values.first_row.tolist() == [2, 0, 1]
    assert values.atom.tolist() == [1, 2, 0, 1, 2]
    assert values.groups(np.array([0, 1, 3])).tolist() == [1, 1, 0, 1, 1]


def test_no_launches_have_no_atoms() -> None:
    values = kernel_values(np.empty(0, np.uint64), np.empty(0))
    assert values.kernels == 0
    assert len(values.value) == len(values.atom) == 0


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from([-0.0, 0.0, 1.0, 1e12, 1e12 + 1, 0.5])), max_size=60
    )
)
@settings(max_examples=100, deadline=None)
def test_every_launch_is_in_the_atom_of_its_kernel_and_value(launches: list[tuple[int, float]]) -> None:
    kernel = np.array([k for k, _ in launches], np.uint64)
    value = np.array([v for _, v in launches])
    values = kernel_values(kernel, value)
    assert np.array_equal(values.value[values.atom], value)
    assert np.array_equal(kernel[values.first_row][values.atom], kernel)
    assert values.count.sum() == len(launches)
    assert len(values.value) == len(set(launches))
    for first, last in zip(values.kernel_start[:-1], values.kernel_start[1:], strict=True):
        assert (np.diff(values.value[first:last]) > 0).all()


def test_hashing_and_sorting_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    kernel = rng.integers(0, 40, 20_000).astype(np.uint64)
    value = rng.integers(0, 3000, 20_000).astype(np.float64)
    hashed = kernel_values(kernel, value)
    monkeypatch.setattr(kv, "_mostly_distinct", lambda _: True)
    monkeypatch.setattr(kv, "_SAMPLED", 0)
    monkeypatch.setattr(kv, "_DENSE_CELLS_PER_LAUNCH", 0)
    sorted_ = kernel_values(kernel, value)
    for name in ("atom", "value", "count", "first_row", "kernel_start"):
        assert np.array_equal(getattr(hashed, name), getattr(sorted_, name)), name


def test_all_but_distinct_values_are_sorted_not_hashed() -> None:
    assert kv._mostly_distinct(np.arange(200_000.0))
    assert not kv._mostly_distinct(np.arange(200_000.0) % 1000)
    assert not kv._mostly_distinct(np.arange(1000.0))


def test_the_order_by_group_is_that_of_a_stable_sort() -> None:
    rng = np.random.default_rng(0)
    for groups in (1, 7, 65_536, 65_537, 300_000):
        labels = rng.integers(0, groups, 5000)
        assert np.array_equal(order_by_group(labels, groups), np.argsort(labels, kind="stable"))


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40)), min_size=1, max_size=20), st.integers(0, 99)
)
@settings(max_examples=100, deadline=None)
def test_as_many_distinct_ranks_are_drawn_as_wanted(groups: list[tuple[int, int]], seed: int) -> None:
    sizes = np.array([size for size, _ in groups])
    wanted = np.array([min(size, m) for size, m in groups])
    group, rank = draw_ranks(sizes, wanted, np.random.default_rng(seed))
    assert np.bincount(group, minlength=len(sizes)).tolist() == wanted.tolist()
    assert (rank >= 0).all()
    assert (rank < sizes[group]).all()
    assert len(set(zip(group.tolist(), rank.tolist(), strict=True))) == wanted.sum()


@pytest.mark.parametrize("wanted", [2, 5])
def test_every_launch_of_a_group_is_drawn_as_often(wanted: int) -> None:
    # Three fifths and more go by the launches that are left out.
    labels = np.tile([0, 1], 7)
    counts = np.zeros(14)
    for seed in range(3000):
        rows, groups = draw_rows(labels, np.array([7, 7]), np.array([wanted, 0]), np.random.default_rng(seed))
        assert (groups == 0).all()
        counts[rows] += 1
    assert (counts[1::2] == 0).all()
    # Standard deviation below 27.
    assert (np.abs(counts[::2] - 3000 * wanted / 7) < 120).all()


def test_the_same_seed_draws_the_same_launches() -> None:
    labels, sizes = np.arange(1000) % 3, np.array([334, 333, 333])
    first, again, other = (
        draw_rows(labels, sizes, np.array([5, 300, 333]), np.random.default_rng(seed))[0]
        for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
