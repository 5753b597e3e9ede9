"""Detailed windows with gaps, by operation: a slice that lost launches does not end the selection."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from assay_sampling.errors import MisalignedError
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.joining import join
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.by_operation import operation_profile, select_operations
from tests.support.sampling.made_operations import made_training

# A step has four operators, which launch seven kernels.
STEPS = 40


def window(*slices: Launches) -> Launches:
    return join([replace(one, sources=(f"slice-{number}.csv",)) for number, one in enumerate(slices)])


def slice_of(first: int, last: int, *lost: int) -> Launches:
    """The launches of a slice with counters, but for some."""
    return made_training(STEPS, counted=True).take(np.setdiff1d(np.arange(first, last + 1), lost))


def test_a_slice_that_lost_launches_is_left_out_with_a_note() -> None:
    detailed = window(slice_of(0, 69), slice_of(140, 174, 150, 151), slice_of(210, 223))
    of = operation_profile(Profile(detailed=detailed, light=made_training(STEPS)))
    assert of.profile.detailed is not None
    kept = of.profile.detailed.column("launch")
    assert len(kept) == (10 + 2) * 4
    assert not ((kept >= 140) & (kept <= 174)).any()
    [note] = of.notes
    parameters = dict(note.parameters)
    difference = str(parameters.pop("difference"))
    assert (note.code, parameters) == (
        "operation_slices_left_out", {"slices": 1, "of": 3, "first_launch": 140, "last_launch": 174}
    )  # fmt: skip
    assert difference.startswith("process 0: detailed run has nothing there; light run has at launch 150 ")
    selection = select_operations(of, "pks", {})
    assert note in selection.warnings
    assert selection.evaluation.total == made_training(STEPS).floats("duration_ns").sum()


def test_where_no_slice_matches_the_refusal_begins_with_the_first_difference() -> None:
    detailed = window(slice_of(0, 69, 30), slice_of(140, 174, 150, 151))
    with pytest.raises(MisalignedError) as caught:
        operation_profile(Profile(detailed=detailed, light=made_training(STEPS)))
    # The second slice matches least.
    assert "light run has at launch 150 " in caught.value.differences[0]


def test_slices_that_all_match_have_no_note() -> None:
    detailed = window(slice_of(0, 69), slice_of(140, 174))
    assert operation_profile(Profile(detailed=detailed, light=made_training(STEPS))).notes == ()
