"""The accuracy to expect after the window, from both ways of holding out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from assay_sampling.labelling.classifiers import Answers, Examples
from assay_sampling.labelling.held_out import (
    NOTHING_HELD_OUT,
    Accuracy,
    Behind,
    accuracy,
    expected_accuracy,
    folds_of,
    grouped_answers,
)


def examples(signature: list[int], weight: list[float]) -> Examples:
    """Pairs that are all in group 0; four signatures."""
    return Examples(
        np.zeros((4, 1), np.float32), np.ones(1, bool), np.array(signature),
        np.zeros(len(signature), int), np.array(weight),
    )  # fmt: skip


def answers(labels: list[int]) -> Answers:
    return Answers(np.array(labels, np.int32), np.full((len(labels), 2), 0.5))


# Signatures 0 and 1 are of kernel 7 in different folds, 2 and 3 of two kernels of their own.
BEHIND = Behind(
    unseen_share=0.25,
    light_ns=np.array([1.0, 3.0, 5.0, 7.0]),
    seen_early=np.array([True, True, False, False]),
    folds=np.array([0, 1, 2, 0]),
    kernel=np.array([7, 7, 8, 9]),
)
LATER = examples([0, 1, 2], [6.0, 2.0, 50.0])
UNSEEN = examples([0, 1, 2, 3], [90.0, 10.0, 50.0, 50.0])


def test_later_launches_count_by_light_time_and_held_out_signatures_once() -> None:
    # Of those seen before, 6 x 1 ns right and 2 x 3 ns wrong; signature 2 is new, so it does not count.
    later = (answers([0, 1, 1]), LATER)
    # Signature 0 right, 1 wrong, whatever their launches; kernels 8 and 9 are in one fold each.
    unseen = (answers([0, 1, 1, 1]), UNSEEN)
    assert expected_accuracy(later, unseen, BEHIND) == pytest.approx(0.75 * 50 + 0.25 * 50)
    better = (answers([0, 0, 1, 1]), UNSEEN)
    assert expected_accuracy(later, better, BEHIND) == pytest.approx(0.75 * 50 + 0.25 * 100)
    only_new = replace(BEHIND, unseen_share=1.0)
    assert expected_accuracy((None, LATER), better, only_new) == 100.0


def test_a_signature_in_two_groups_counts_once_by_its_launches() -> None:
    unseen = examples([0, 0, 1], [3.0, 1.0, 1.0])
    only_new = replace(BEHIND, unseen_share=1.0)
    found = expected_accuracy((None, LATER), (answers([0, 1, 1]), unseen), only_new)
    assert found == pytest.approx(100 * 0.75 / 2)


def test_what_counts_and_was_not_measured_is_not_guessed() -> None:
    right = answers([0, 0, 0])
    assert expected_accuracy((None, LATER), (answers([0] * 4), UNSEEN), BEHIND) is None
    assert expected_accuracy((right, LATER), (None, UNSEEN), BEHIND) is None
    assert expected_accuracy((right, LATER), (None, UNSEEN), replace(BEHIND, unseen_share=0.0)) == 100.0
    unseen_before = replace(BEHIND, seen_early=np.zeros(4, bool))
    assert expected_accuracy((right, LATER), (answers([0] * 4), UNSEEN), unseen_before) is None


def test_without_a_kernel_in_two_folds_all_held_out_signatures_count() -> None:
    apart = replace(BEHIND, unseen_share=1.0, kernel=np.array([1, 2, 3, 4]))
    assert expected_accuracy((None, LATER), (answers([0, 1, 1, 1]), UNSEEN), apart) == pytest.approx(25.0)


def test_folds_are_even_and_follow_from_the_signatures_alone() -> None:
    hashes = np.random.default_rng(0).integers(0, 2**63, 23).astype(np.uint64)
    folds = folds_of(hashes, 3)
    assert sorted(np.bincount(folds).tolist()) == [4, 4, 5, 5, 5]
    assert np.array_equal(folds_of(hashes[::-1], 3), folds[::-1])
    assert folds_of(hashes[:3], 3).max() == 2
    assert grouped_answers(lambda _: pytest.fail("no training"), UNSEEN, folds[:1]) is None


def test_an_accuracy_of_nothing_is_none() -> None:
    assert accuracy(None, UNSEEN) == NOTHING_HELD_OUT
    assert accuracy(answers([0] * 4), UNSEEN, np.zeros(4)) == NOTHING_HELD_OUT
    assert accuracy(answers([0, 0, 0, 1]), UNSEEN) == Accuracy(75.0, 75.0)
