"""The parts of an error: exact values, that they add up, and that what was not measured is never 0."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.scoring.error_parts.decomposition import (
    UNKNOWN_GROUP,
    ErrorParts,
    GroupFacts,
    decompose,
    with_costs_elsewhere,
)
from assay_sampling.scoring.error_parts.ratio_spread import Chosen, widest_groups

# Two groups of the window, 0 and 1, and group 2 of a kernel that it lacks; the last launch is 1, not 0.
COSTS = np.array([10.0, 14.0, 40.0, 60.0, 5.0, 7.0, 30.0])
LABELS = np.array([0, 0, 1, 1, 2, 2, 0])
ORIGINS = np.array([0, 0, 0, 0, 2, 2, 1], np.uint8)
# Kernel and size of each: group 0 has a second kind, the last launch; group 1 has two.
KINDS = np.array([5, 5, 6, 7, 8, 8, 9], np.uint64)
ROWS, WEIGHTS = np.array([0, 2, 4]), np.array([3.0, 2.0, 2.0])
GROUPS = np.arange(3)
TOTAL = COSTS.sum()
WHOLE = 100 * ((WEIGHTS * COSTS[ROWS]).sum() - TOTAL) / TOTAL


def parts(facts: GroupFacts | None) -> ErrorParts:
    return decompose(COSTS, ROWS, WEIGHTS, labels=LABELS, representative_groups=GROUPS, facts=facts)


def points(amount: float) -> object:
    return pytest.approx(100 * amount / TOTAL)


def test_where_no_group_is_predicted_all_is_the_representatives() -> None:
    assert parts(None) == ErrorParts(representatives=pytest.approx(WHOLE))


def test_a_representative_is_held_against_its_kernel_and_size_and_these_against_the_group() -> None:
    found = parts(GroupFacts(KINDS))
    # Launches of kind 5 cost 12 on average and stand for three; the one of kind 6 is its kind's only one;
    # those of kind 8 cost 6 on average and stand for two.
    assert found.representatives == points(3 * (10 - 12) + 2 * (5 - 6))
    assert found.group_spread == points(3 * 12 - 54 + 2 * 40 - 100 + 2 * 6 - 12)
    assert found.whole == pytest.approx(WHOLE)
    assert (found.labels, found.kernels_never_profiled, found.not_separated) == (None, None, None)


def test_two_levels_by_hand() -> None:
    """Every launch's part, in the order of the steps: the representative, its label, its group."""
    right = np.full(len(COSTS), UNKNOWN_GROUP)
    right[6] = 1
    found = parts(GroupFacts(KINDS, ORIGINS, right=right))
    assert found.representatives == points(3 * (10 - 12))
    # Launches like its representative's kind: 12 under its label, 40 in its right group; it costs 30.
    assert found.labels == points(12 - 40)
    assert found.group_spread == points((24 - 24) + (80 - 100) + (40 - 30))
    assert found.kernels_never_profiled == points(10 - 12)
    assert found.not_separated is None
    assert found.not_separated_parts == ()
    assert found.whole == pytest.approx(WHOLE)


def test_labels_that_nobody_can_judge_are_not_separated_and_never_zero() -> None:
    found = parts(GroupFacts(KINDS, ORIGINS))
    assert found.labels is None
    assert found.representatives == points(3 * (10 - 12))
    assert found.not_separated == points(12 - 30)
    assert found.not_separated_parts == ("labels", "group_spread")
    assert found.kernels_never_profiled == points(10 - 12)
    assert found.group_spread == points(80 - 100)
    assert found.cold_start is None
    assert found.projection_within_launches is None


def test_a_right_label_is_a_label_part_of_zero() -> None:
    right = np.where(ORIGINS == 1, 0, UNKNOWN_GROUP)
    found = parts(GroupFacts(KINDS, ORIGINS, right=right))
    assert found.labels == 0.0
    assert found.whole == pytest.approx(WHOLE)


def test_without_amounts_a_group_of_several_kinds_cannot_be_divided() -> None:
    found = parts(replace(GroupFacts(KINDS, ORIGINS), amounts_known=False))
    assert found.not_separated == points((30 - 54) + (80 - 100))
    assert found.not_separated_parts == ("representatives", "labels", "group_spread")
    assert found.kernels_never_profiled == points(10 - 12)
    assert found.representatives is None
    # Where each group has one kind, nothing has to be divided.
    alone = parts(replace(GroupFacts(LABELS.astype(np.uint64)), amounts_known=False))
    assert alone.representatives == pytest.approx(WHOLE)
    assert alone.not_separated is None


def test_amounts_divide_a_group_by_what_its_weight_counts() -> None:
    light = np.array([2.0, 2.0, 1.0, 1.0, 1.0, 1.0, 4.0])
    found = parts(replace(GroupFacts(KINDS, ORIGINS), amounts=light))
    # Group 0 projects 30 for 8 of light time; its representative's kind costs 24 for 4, 6 for one.
    assert found.representatives == points(30 - 6 * 8)
    assert found.not_separated == points(6 * 4 - 30)


def test_launches_without_a_counterpart_are_a_part_of_their_own() -> None:
    lost = np.zeros(len(COSTS), bool)
    lost[1] = True
    labels = np.where(lost, 3, LABELS)
    found = decompose(
        COSTS, ROWS, WEIGHTS, labels=labels, representative_groups=GROUPS,
        facts=replace(GroupFacts(KINDS), unmatched=lost),
    )  # fmt: skip
    assert found.unmatched == points(-14)
    assert found.whole == pytest.approx(WHOLE)


def test_a_group_whose_representative_stands_for_nothing_lacks_it() -> None:
    found = decompose(
        COSTS, ROWS, np.array([3.0, 0.0, 2.0]), labels=LABELS, representative_groups=GROUPS,
        facts=GroupFacts(KINDS),
    )  # fmt: skip
    assert found.representatives == points(3 * (10 - 12) - 100 + 2 * (5 - 6))


def test_cold_caches_and_projection_are_parts_where_they_were_measured() -> None:
    recorded, cold, stopped = COSTS[ROWS], COSTS[ROWS] * 1.5, np.array([16.0, 55.0, 7.0])
    found = with_costs_elsewhere(parts(None), TOTAL, WEIGHTS, recorded, cold=cold, projected=stopped)
    assert found.cold_start == pytest.approx(100 * 0.5 * (WEIGHTS * recorded).sum() / TOTAL)
    assert found.projection_within_launches == pytest.approx(100 * (3 * 1 + 2 * -5 + 2 * -0.5) / TOTAL)
    assert found.whole == pytest.approx(100 * ((WEIGHTS * stopped).sum() - TOTAL) / TOTAL)
    only_cold = with_costs_elsewhere(parts(None), TOTAL, WEIGHTS, recorded, cold=cold)
    assert only_cold.projection_within_launches is None


def test_the_right_group_of_a_launch_may_have_neither_launches_nor_a_representative() -> None:
    right = np.full(len(COSTS), UNKNOWN_GROUP)
    right[6] = 3
    found = parts(GroupFacts(KINDS, ORIGINS, right=right))
    # As by hand above, but nothing stands for the last launch in its right group.
    assert found.labels == points(12 - 0)
    assert found.group_spread == points((24 - 24) + (80 - 100) + (0 - 30))
    assert found.whole == pytest.approx(WHOLE)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_the_parts_add_up_to_the_whole_error(data: st.DataObject) -> None:
    launches, groups = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 5))
    numbers = st.floats(0.1, 1e6)

    def drawn(values: st.SearchStrategy, size: int = launches) -> np.ndarray:
        return np.array(data.draw(st.lists(values, min_size=size, max_size=size)))

    costs, labels = drawn(numbers), drawn(st.integers(0, groups - 1))
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, launches - 1), min_size=1))))
    weights = drawn(st.one_of(st.just(0.0), numbers), len(rows))
    facts = replace(
        GroupFacts(
            drawn(st.integers(0, 6)).astype(np.uint64),
            drawn(st.integers(0, 4)).astype(np.uint8),
            right=drawn(st.integers(UNKNOWN_GROUP, groups - 1)),
        ),
        unmatched=drawn(st.booleans()),
        amounts=drawn(st.one_of(st.just(0.0), numbers)),
        amounts_known=data.draw(st.booleans()),
    )
    found = decompose(costs, rows, weights, labels=labels, representative_groups=labels[rows], facts=facts)
    whole = 100 * ((weights * costs[rows]).sum() - costs.sum()) / costs.sum()
    assert found.whole == pytest.approx(whole, rel=1e-9, abs=1e-7)
    assert (found.not_separated is None) == (not found.not_separated_parts)


CHOSEN = Chosen(
    rows_here=np.array([0, 2, 4]), rows_there=np.array([0, 2, 4]), group=GROUPS, weight=np.full(3, 2.0),
    kernel=("a", "b", "c"), grid=np.array([[8, 1, 1], [16, -1, -1], [4, 2, 1]]),
)  # fmt: skip


def test_the_group_whose_launches_do_not_scale_alike_is_named_although_the_total_is_right() -> None:
    here = np.array([10.0, 10.0, 20.0, 20.0, 1.0, 1.0])
    # Group 0 halves, group 1: one launch halves and one grows; group 2: one doubles.
    there = np.array([5.0, 5.0, 10.0, 30.0, 1.0, 2.0])
    found = widest_groups(here, there, np.array([0, 0, 1, 1, 2, 2]), CHOSEN)
    assert [each.group for each in found] == [1, 2]
    first = found[0]
    assert (first.kernel, first.grid, first.launches) == ("b", (16,), 2)
    assert first.ratio == 1.0
    assert first.representative_ratio == 0.5
    assert first.spread_percent == pytest.approx(50.0)
    assert first.misfit_points == pytest.approx(100 * 20 / 53)
    assert first.error_points == pytest.approx(100 * (20 - 40) / 53)


def test_at_most_five_groups_are_named() -> None:
    here = np.ones(16)
    there = np.where(np.arange(16) % 2, 1.0 + np.arange(16), 1.0)
    rows = np.arange(0, 16, 2)
    chosen = Chosen(rows, rows, np.arange(8), np.full(8, 2.0), ("k",) * 8, np.ones((8, 3), int))
    found = widest_groups(here, there, np.repeat(np.arange(8), 2), chosen)
    assert [each.group for each in found] == [7, 6, 5, 4, 3]
