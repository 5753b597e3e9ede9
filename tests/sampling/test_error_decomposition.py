"""The parts of an error: exact values, that they add up, and that what was not measured is never 0."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.scoring.decomposition import (
    UNKNOWN_GROUP,
    ErrorParts,
    LabelFacts,
    decompose,
    with_costs_elsewhere,
)
from assay_sampling.scoring.ratio_spread import Chosen, widest_groups

# Two groups of the window, 0 and 1, and group 2 of a kernel that it lacks; the last launch is 1, not 0.
COSTS = np.array([10.0, 14.0, 40.0, 60.0, 5.0, 7.0, 30.0])
LABELS = np.array([0, 0, 1, 1, 2, 2, 0])
ORIGINS = np.array([0, 0, 0, 0, 2, 2, 1], np.uint8)
ROWS, WEIGHTS = np.array([0, 2, 4]), np.array([3.0, 2.0, 2.0])
GROUPS = np.arange(3)
TOTAL = COSTS.sum()
WHOLE = 100 * ((WEIGHTS * COSTS[ROWS]).sum() - TOTAL) / TOTAL


def parts(facts: LabelFacts | None) -> ErrorParts:
    return decompose(
        COSTS, WEIGHTS * COSTS[ROWS], labels=LABELS, representative_groups=GROUPS, facts=facts
    )  # fmt: skip


def test_where_no_group_is_predicted_all_is_the_representatives() -> None:
    assert parts(None) == ErrorParts(representatives=pytest.approx(WHOLE))


def test_labels_that_nobody_can_judge_are_not_separated_and_never_zero() -> None:
    found = parts(LabelFacts.of(ORIGINS))
    assert found.labels is None
    assert found.not_separated == pytest.approx(100 * (10 - 30) / TOTAL)
    assert found.not_separated_parts == ("representatives", "labels")
    assert found.kernels_never_profiled == pytest.approx(100 * (10 - 12) / TOTAL)
    assert found.representatives == pytest.approx(100 * (20 - 24 + 80 - 100) / TOTAL)
    assert found.cold_start is None
    assert found.projection_within_launches is None


def test_labels_that_counters_judge_are_a_part_of_their_own() -> None:
    right = np.full(len(COSTS), UNKNOWN_GROUP)
    right[6] = 1
    found = parts(LabelFacts.of(ORIGINS, right=right))
    # The launch was projected with 10, its right group projects 40, and it costs 30.
    assert found.labels == pytest.approx(100 * (10 - 40) / TOTAL)
    assert found.representatives == pytest.approx(100 * (-4 - 20 + 40 - 30) / TOTAL)
    assert found.not_separated is None
    assert found.not_separated_parts == ()


def test_a_right_label_is_a_label_part_of_zero() -> None:
    right = np.where(ORIGINS == 1, 0, UNKNOWN_GROUP)
    found = parts(LabelFacts.of(ORIGINS, right=right))
    assert found.labels == 0.0
    assert found.whole == pytest.approx(WHOLE)


def test_without_amounts_a_mixed_group_cannot_be_divided() -> None:
    facts = LabelFacts.of(ORIGINS)
    found = parts(facts.by_whole_groups(LABELS))
    assert found.not_separated == pytest.approx(100 * (30 - 54) / TOTAL)
    assert found.representatives == pytest.approx(100 * (80 - 100) / TOTAL)


def test_amounts_divide_a_group_by_what_its_weight_counts() -> None:
    light = np.array([2.0, 2.0, 1.0, 1.0, 1.0, 1.0, 4.0])
    found = parts(replace(LabelFacts.of(ORIGINS), amounts=light))
    # Group 0 projects 30, half of it by the light time of the launch that a model labelled.
    assert found.not_separated == pytest.approx(100 * (15 - 30) / TOTAL)


def test_launches_without_a_counterpart_are_not_separated() -> None:
    lost = np.zeros(len(COSTS), bool)
    lost[1] = True
    found = parts(replace(LabelFacts.of(np.zeros(len(COSTS), np.uint8)), unmatched=lost))
    assert found.not_separated == pytest.approx(100 * (10 - 14) / TOTAL)
    assert found.whole == pytest.approx(WHOLE)


def test_cold_caches_and_projection_are_parts_where_they_were_measured() -> None:
    recorded, cold, stopped = COSTS[ROWS], COSTS[ROWS] * 1.5, np.array([16.0, 55.0, 7.0])
    found = with_costs_elsewhere(parts(None), TOTAL, WEIGHTS, recorded, cold=cold, projected=stopped)
    assert found.cold_start == pytest.approx(100 * 0.5 * (WEIGHTS * recorded).sum() / TOTAL)
    assert found.projection_within_launches == pytest.approx(100 * (3 * 1 + 2 * -5 + 2 * -0.5) / TOTAL)
    assert found.whole == pytest.approx(100 * ((WEIGHTS * stopped).sum() - TOTAL) / TOTAL)
    only_cold = with_costs_elsewhere(parts(None), TOTAL, WEIGHTS, recorded, cold=cold)
    assert only_cold.projection_within_launches is None


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_parts_add_up_to_the_whole_error(data: st.DataObject) -> None:
    launches, groups = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 5))
    numbers = st.floats(0.1, 1e6)

    def drawn(values: st.SearchStrategy, size: int) -> np.ndarray:
        return np.array(data.draw(st.lists(values, min_size=size, max_size=size)))

    costs, labels = drawn(numbers, launches), drawn(st.integers(0, groups - 1), launches)
    origins = drawn(st.integers(0, 3), launches).astype(np.uint8)
    right = drawn(st.integers(UNKNOWN_GROUP, groups - 1), launches)
    unmatched = drawn(st.booleans(), launches)
    amounts = drawn(st.one_of(st.just(0.0), numbers), launches)
    projected = drawn(numbers, groups)
    found = decompose(
        costs,
        projected,
        labels=labels,
        representative_groups=np.arange(groups),
        facts=replace(LabelFacts.of(origins, right=right, amounts=amounts), unmatched=unmatched),
    )
    whole = 100 * (projected.sum() - costs.sum()) / costs.sum()
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
