"""Labels in a selection's JSON, and where another recording first differs."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.documents.selection import CheckpointsEntry, LabelsEntry
from assay_sampling.errors import InputError, MisalignedError
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.registry import select
from assay_sampling.scoring.saved.labels import Checkpoints, first_difference, labels_document, labels_from
from assay_sampling.scoring.saved_selection import SavedSelection
from assay_sampling.scoring.selection import Selection
from tests.support.sampling.made_launches import made_launches
from tests.support.sampling.saved_scores import score_saved


@given(st.lists(st.integers(0, 70_000), max_size=300), st.integers(0, 300))
@settings(max_examples=100, deadline=None)
def test_labels_are_read_back(given_labels: list[int], empty: int) -> None:
    labels = np.array(given_labels, np.int64)
    groups = int(labels.max(initial=0)) + 1 + empty
    entry = LabelsEntry.model_validate_json(json.dumps(labels_document(labels, groups).to_dict()))
    found = labels_from(entry, np.bincount(labels, minlength=groups))
    assert found is not None
    assert found.tolist() == given_labels


@pytest.mark.parametrize(
    ("groups", "kind"), [(1, "uint8"), (256, "uint8"), (257, "uint16"), (65_537, "uint32")]
)
def test_labels_take_no_more_bytes_than_they_need(groups: int, kind: str) -> None:
    labels = np.arange(groups)
    entry = labels_document(labels, groups)
    assert entry.type == kind
    assert len(zlib.decompress(base64.b64decode(entry.data))) == groups * int(kind[4:]) // 8


def test_a_repeating_workload_takes_few_bytes() -> None:
    labels = np.tile(np.arange(40) % 17, 25_000)
    assert len(labels_document(labels, 17).data) < 8_000


def broken(**changes: Any) -> LabelsEntry:
    return labels_document(np.array([0, 1, 1]), 2).model_copy(update=changes)


@pytest.mark.parametrize(
    "entry",
    [
        broken(type="float64"), broken(encoding="zip"), broken(launches=4), broken(data="!"),
        broken(data=base64.b64encode(b"no zlib").decode()),
        broken(data=base64.b64encode(zlib.compress(bytes(10**6))).decode()),
        broken(data=base64.b64encode(zlib.compress(bytes([0, 1]))).decode()),
        broken(data=base64.b64encode(zlib.compress(bytes([0, 0, 1]))).decode()),
        broken(data=base64.b64encode(zlib.compress(bytes([0, 1, 9]))).decode()),
    ],
)  # fmt: skip
def test_labels_that_cannot_be_are_an_input_error(entry: LabelsEntry) -> None:
    with pytest.raises(InputError, match="field 'labels'"):
        labels_from(entry, np.array([1, 2]))


@pytest.mark.parametrize("entry", [None, broken(version=2)])
def test_labels_of_no_known_version_are_none(entry: LabelsEntry | None) -> None:
    assert labels_from(entry, np.array([1, 2])) is None


def saved(selection: Selection) -> SavedSelection:
    return SavedSelection.read(
        json.loads(json.dumps(selection.document(labels=True).to_dict())), "selection.json"
    )


def test_a_saved_selection_is_scored_by_groups() -> None:
    launches = made_launches(["a", "b"] * 20, duration_ns=np.arange(1, 41))
    selection = select("stratified", Profile(light=launches), {"launches": 8}, seed=3)
    found = score_saved(saved(selection), launches)
    assert found.group_error_percent == selection.evaluation.group_error_percent
    assert selection.evaluation.group_error_percent is not None
    slower = made_launches(["a", "b"] * 20, duration_ns=np.arange(1, 41) * np.tile([1, 5], 20))
    elsewhere = score_saved(saved(selection), slower)
    assert elsewhere.group_error_percent is not None
    assert elsewhere.group_error_percent >= elsewhere.error_percent


def test_the_first_launch_that_differs_is_named() -> None:
    kernels = ["a", "b"] * 20
    launches = made_launches(kernels, duration_ns=np.ones(40, int))
    selection = select("systematic", Profile(light=launches), {"launches": 4, "start": 0})
    other = [*kernels]
    other[25], other[26] = other[26], other[25]
    with pytest.raises(
        MisalignedError, match=r"process 0 launch 25 is 'a', grid \[1, 1, 1\], block"
    ) as caught:
        score_saved(saved(selection), made_launches(other, duration_ns=np.ones(40, int)))
    assert len(caught.value.differences) == 1


def with_checkpoints(checkpoints: Checkpoints) -> LabelsEntry:
    return labels_document(np.array([0]), 1, checkpoints)


def test_of_many_launches_the_block_is_named() -> None:
    kernels = ["a", "b", "c"] * 1500
    launches = made_launches(kernels)
    document = with_checkpoints(Checkpoints.of(launches))
    assert document.checkpoints is not None and document.checkpoints.launches_per_block == 5
    assert first_difference(document, launches, "exact") is None
    kernels[3003] = "z"
    text = first_difference(document, made_launches(kernels), "name_block")
    assert text == "between process 0 launch 3000 and process 0 launch 3004"
    grids = [1] * 4499 + [2]
    other_grid = made_launches(["a", "b", "c"] * 1500, grid_x=grids)
    assert first_difference(document, other_grid, "name_block") is None
    assert (
        first_difference(document, other_grid, "exact")
        == "between process 0 launch 4495 and process 0 launch 4499"
    )


@pytest.mark.parametrize(
    "document",
    [None, broken(), broken(checkpoints=CheckpointsEntry(launches_per_block=0, exact="", name_block="")),
     broken(checkpoints=CheckpointsEntry(launches_per_block=1, exact="!", name_block=""))],
)  # fmt: skip
def test_without_checkpoints_nothing_is_named(document: LabelsEntry | None) -> None:
    assert first_difference(document, made_launches(["a"]), "exact") is None


def test_two_launches_of_one_block_that_change_places_are_a_difference() -> None:
    kernels = ["a", "b", "c"] * 1500
    document = with_checkpoints(Checkpoints.of(made_launches(kernels)))
    kernels[11], kernels[12] = kernels[12], kernels[11]
    text = first_difference(document, made_launches(kernels), "exact")
    assert text == "between process 0 launch 10 and process 0 launch 14"
