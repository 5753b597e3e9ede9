"""Groups that never mix kernels, and the launch at which cumulative time reaches half of a group's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_sampling.launches.in_memory import Launches
from assay_sampling.methods.groups.kernel_groups import SHARED_TIME_PERCENT, KernelGroups, kernel_groups
from assay_sampling.methods.groups.saving import GroupTimes
from assay_sampling.methods.groups.weighted_median import weighted_median_rows
from tests.support.sampling.made_launches import made_launches
from tests.support.sampling.odd_workloads import OddWorkload, many_names

TIMES = st.integers(0, 1_000_000)
# Kernel, blocks, time.
LAUNCHES = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 9), TIMES), min_size=1, max_size=60)


def workload(kernels: list[int], blocks: list[int]) -> Launches:
    return made_launches([f"kernel {kernel}" for kernel in kernels], grid_x=blocks)


def grouped(drawn: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, KernelGroups]:
    kernel, blocks, time = (list(column) for column in zip(*drawn, strict=True))
    cost = np.array(time, np.float64)
    made = kernel_groups(workload(kernel, blocks), cost, target_error_percent=5.0, seed=0)
    return np.array(kernel), cost, made


@given(LAUNCHES)
def test_no_group_but_the_shared_one_has_two_kernels(drawn: list[tuple[int, int, int]]) -> None:
    kernel, cost, groups = grouped(drawn)
    labels, shared = groups.labels, groups.shared
    first = [int(np.argmax(labels == group)) for group in range(labels.max() + 1)]
    assert first == sorted(first) and set(labels) == set(range(labels.max() + 1))
    mixed = {group for group in set(labels.tolist()) if len(set(kernel[labels == group])) > 1}
    assert mixed == (set() if shared is None or not cost.any() else {shared.group})
    if shared is not None:
        within = labels == shared.group
        assert (shared.kernels, shared.launches) == (len(set(kernel[within])), within.sum())
        assert shared.time_percent == pytest.approx(100 * cost[within].sum() / cost.sum())
        if cost[within].any() and all(cost[within & (kernel == k)].any() for k in kernel[within]):
            each = np.bincount(kernel, cost)
            of_each = 100 * max(each[k] for k in kernel[within]) / cost.sum()
            assert min(shared.time_percent, of_each) < SHARED_TIME_PERCENT
    if cost.any():
        assert all(cost[labels == group].any() for group in range(labels.max() + 1))


@given(st.lists(st.tuples(st.integers(0, 3), TIMES), min_size=1, max_size=60))
def test_half_of_the_time_is_in_launches_no_longer_than_the_median(drawn: list[tuple[int, int]]) -> None:
    labels = np.unique([group for group, _ in drawn], return_inverse=True)[1]
    time = np.array([each for _, each in drawn], np.float64)
    rows = weighted_median_rows(labels, time)
    assert labels[rows].tolist() == list(range(labels.max() + 1))
    for group, row in enumerate(rows):
        members = np.flatnonzero(labels == group)
        shorter, upto = time[members][time[members] < time[row]], time[members][time[members] <= time[row]]
        half = time[members].sum() / 2
        assert shorter.sum() < half + 1e-6 or not half
        assert upto.sum() >= half - 1e-6
        assert row == members[time[members] == time[row]][0]


def test_a_size_that_repeats_is_a_group_even_where_it_takes_equal_time() -> None:
    kernel, cost, groups = grouped([(0, blocks, 100) for blocks in (1, 64) for _ in range(8)])
    assert groups.labels.tolist() == [0] * 8 + [1] * 8
    assert groups.shared is None and len(set(kernel)) == 1 and cost.sum() == 1600


def test_one_launch_with_half_of_the_time_stands_for_itself() -> None:
    _, _, groups = grouped([(0, 1, 10)] * 20 + [(0, 1, 200)])
    assert (groups.labels == groups.labels[-1]).sum() == 1


def test_all_launches_equal_are_one_group_a_kernel() -> None:
    _, _, groups = grouped([(kernel, 4, 7) for kernel in (0, 1) for _ in range(30)])
    assert groups.labels.tolist() == [0] * 30 + [1] * 30


def test_kernels_without_time_join_the_one_of_least_time_and_are_counted() -> None:
    _, _, groups = grouped([(0, 1, 0), (1, 1, 5), (2, 1, 995), (0, 1, 0)])
    shared = groups.shared
    assert shared is not None
    assert groups.labels.tolist() == [0, 0, 1, 0]
    assert (shared.kernels, shared.launches, shared.time_percent) == (2, 3, 0.5)
    assert "2 kernels with 0.50 % of the time share one group" in shared.note().text


def test_kernels_of_no_time_at_all_stay_apart() -> None:
    _, _, groups = grouped([(0, 1, 0), (1, 1, 0)])
    assert groups.labels.tolist() == [0, 1] and groups.shared is None


def of_odd(odd: OddWorkload) -> KernelGroups:
    cost = odd.nanoseconds.astype(float)
    return kernel_groups(odd.light(), cost, target_error_percent=5.0, seed=0)


def test_sizes_drawn_at_random_are_put_together_until_half_is_saved() -> None:
    odd = many_names(2_000, 400)
    groups = of_odd(odd)
    assert groups.put_together > 100
    assert GroupTimes.of(groups.labels, odd.nanoseconds.astype(float)).saves()
    assert "groups_put_together" in [note.code for note in groups.notes()]
    of_group = [set(odd.kernel[groups.labels == group]) for group in range(groups.labels.max() + 1)]
    mixed = [group for group, kernels in enumerate(of_group) if len(kernels) > 1]
    assert groups.shared is not None and mixed == [groups.shared.group]
    assert groups.shared.time_percent < SHARED_TIME_PERCENT


def test_kernels_launched_once_share_a_group_that_is_said_to_be_large() -> None:
    odd = many_names(400, 400)
    groups = of_odd(odd)
    assert groups.shared is not None
    assert 40 < groups.shared.time_percent < 60
    assert GroupTimes.of(groups.labels, odd.nanoseconds.astype(float)).saves()


@given(LAUNCHES)
def test_groups_are_put_together_only_where_they_would_not_save_half(
    drawn: list[tuple[int, int, int]],
) -> None:
    kernel, cost, groups = grouped(drawn)
    small = np.bincount(kernel, cost) < cost.sum() / 100
    # A launch of a tenth of the time is simulated by itself, whatever it costs.
    alone = GroupTimes.of(groups.labels, cost).alone
    if cost.any() and groups.put_together and not small.any() and not alone.any():
        one_each = GroupTimes.of(np.unique(kernel, return_inverse=True)[1], cost)
        assert GroupTimes.of(groups.labels, cost).saves() == one_each.saves()
