"""What every selection method promises on operations: a right answer, or an error with a type.

A method that is added to the registry is tested here without a line of its own.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from assay_sampling.errors import AssayError
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.by_operation import operation_profile, select_operations, try_operations
from assay_sampling.methods.registry import samplers, select
from assay_sampling.scoring.by_operation import score_saved_operations
from assay_sampling.scoring.saved_selection import SavedSelection
from assay_sampling.scoring.selection import Selection
from tests.support.sampling.made_operations import made_training

METHODS = list(samplers())
STEPS = 40
PROFILES = {
    "counters": lambda: Profile(detailed=made_training(STEPS, counted=True)),
    "both levels": lambda: Profile(
        detailed=made_training(STEPS, counted=True).slice(0, 100), light=made_training(STEPS)
    ),
    "light": lambda: Profile(light=made_training(STEPS)),
}


def selected(method: str, profile: Profile) -> Selection | None:
    try:
        return select_operations(operation_profile(profile), method, {}, seed=3)
    except AssayError as error:
        assert error.subject
        assert error.cause
        assert error.remedy
        return None


def applies_to_launches(method: str, profile: Profile) -> bool:
    try:
        select(method, profile, {}, 3)
    except AssayError:
        return False
    return True


def check(selection: Selection) -> None:
    chosen, labels = selection.representatives, selection.labels
    assert selection.unit == "operation"
    assert selection.operations is not None
    assert len(selection.operations.operations) == 4 * STEPS
    assert selection.profile.launches == 7 * STEPS
    assert labels is not None
    assert labels.shape == (4 * STEPS,)
    assert np.array_equal(np.bincount(labels), selection.group_launches)
    assert np.array_equal(labels[chosen.row], chosen.group)
    assert len(np.unique(chosen.row)) == len(chosen.row)
    assert np.isfinite(chosen.weight).all()
    sizes = [len(entry.launches) for entry in selection.operations.entries()]
    assert sizes == [(3, 1, 1, 2)[row % 4] for row in chosen.row.tolist()]


@pytest.mark.parametrize("kind", PROFILES)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_selects_operations_and_scores_elsewhere(method: str, kind: str) -> None:
    selection = selected(method, PROFILES[kind]())
    if selection is None:
        return
    check(selection)
    document = json.loads(json.dumps(selection.document(labels=True).to_dict()))
    saved = SavedSelection.read(document, "selection.json")
    there = made_training(STEPS, seed=9, prefix="other", device="MI300X")
    found = score_saved_operations(saved, there, "duration_ns")
    assert found.match.left_time_percent == found.match.right_time_percent == 100
    total = float(there.floats("duration_ns").sum())
    for evaluation in found.scores.values():
        assert evaluation.total == total
        assert np.isfinite([evaluation.projected, evaluation.speedup]).all()
    assert sorted(set(saved.by_launch().launch.tolist())) == sorted(
        one.launch
        for entry in selection.operations.entries()
        for one in entry.launches  # type: ignore[union-attr]
    )


@pytest.mark.parametrize("method", METHODS)
def test_tries_by_operation_begin_with_the_selection(method: str) -> None:
    of = operation_profile(PROFILES["counters"]())
    try:
        tried = try_operations(of, method, {}, 3, 30)
    except AssayError:
        return
    alone = select_operations(of, method, {}, seed=3)
    assert np.array_equal(tried.selection.representatives.row, alone.representatives.row)
    assert tried.selection.unit == "operation"


@pytest.mark.parametrize("kind", PROFILES)
def test_methods_that_apply_to_launches_with_these_data_apply_to_operations(kind: str) -> None:
    profile = PROFILES[kind]()
    refused = {method for method in METHODS if selected(method, profile) is None}
    assert refused == {method for method in METHODS if not applies_to_launches(method, profile)}
    assert len(METHODS) - len(refused) > 5
