"""Where errors on another GPU come from: saved selections know as much as those in memory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_sampling.documents.selection import LabelsEntry
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.registry import select
from assay_sampling.readers.base import ReadOptions
from assay_sampling.readers.opening import read_launches
from assay_sampling.scoring.carried import score_on_by_weights
from assay_sampling.scoring.elsewhere import score_saved_by_weights
from assay_sampling.scoring.error_parts.cells import Cells, CellTimes, kernel_and_size
from assay_sampling.scoring.saved.labels import cell_times_from, labels_document, right_labels_from
from assay_sampling.scoring.saved_selection import SavedSelection
from assay_sampling.scoring.selection import Selection
from tests.support.sampling.made_launches import made_launches

KERNELS = ["a", "b"] * 20
# Two sizes of each kernel; there "a" costs twice as much and "b" half, the larger size a fifth more.
GRIDS = [1, 1, 4, 4] * 10


def recording(ratio_of: dict[str, float], larger: float) -> Launches:
    time = np.array([100 * grid * ratio_of[name] for name, grid in zip(KERNELS, GRIDS, strict=True)])
    time = time * np.where(np.array(GRIDS) > 1, larger, 1.0)
    return made_launches(KERNELS, grid_x=GRIDS, duration_ns=time.round().astype(int))


def made(parameters: dict[str, object]) -> tuple[Selection, Launches, Launches]:
    here = recording({"a": 1.0, "b": 1.0}, 1.0)
    return select("random", Profile(light=here), parameters, 3), here, recording({"a": 2.0, "b": 0.5}, 1.2)


def test_a_saved_selection_tells_apart_what_one_in_memory_does() -> None:
    selection, here, there = made({"launches": 5, "weights": "light_time"})
    carried, _ = score_on_by_weights(selection, there, reference=here)
    text = json.dumps(selection.document(labels=True).to_dict())
    saved = score_saved_by_weights(SavedSelection.read(json.loads(text), "s.json"), there)
    for kind, score in carried.items():
        assert score.parts is not None
        known, again = score.parts.measured(), saved[kind].parts
        assert again is not None
        assert again.measured() == pytest.approx(known, abs=1e-9)
        assert score.parts.whole == pytest.approx(score.signed_error_percent)
    # Every launch is like its kernel and size: all of the error is that one group holds four of them.
    by_time = carried["light_time"].parts
    assert by_time is not None
    assert by_time.representatives == pytest.approx(0.0, abs=0.1)
    assert by_time.group_spread == pytest.approx(carried["light_time"].signed_error_percent, abs=0.1)
    assert abs(by_time.group_spread) > 1


def test_without_light_time_groups_of_several_sizes_are_not_separated() -> None:
    selection, _, there = made({"launches": 5, "weights": "light_time"})
    document = replace(selection, cell_times=None).document(labels=True)
    parts = score_saved_by_weights(SavedSelection.of(document, "s"), there)["light_time"].parts
    assert parts is not None
    assert parts.not_separated_parts == ("representatives", "group_spread")
    assert parts.whole == parts.not_separated


def test_without_labels_nothing_is_separated() -> None:
    selection, _, there = made({"launches": 5})
    parts = score_saved_by_weights(SavedSelection.of(selection.document(), "s"), there)["launches"].parts
    assert parts is not None
    assert (parts.representatives, parts.group_spread) == (None, None)
    assert parts.not_separated_parts == ("representatives", "group_spread")


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.floats(0, 1e6)), min_size=1))
def test_light_times_of_cells_keep_their_sums(launches: list[tuple[int, int, float]]) -> None:
    labels, kinds, time = (np.array(values) for values in zip(*launches, strict=True))
    kinds = kinds.astype(np.uint64)
    cells = Cells.of(labels, kinds)
    pairs = sorted(set(zip(labels.tolist(), kinds.tolist(), strict=True)))
    assert list(zip(cells.group.tolist(), cells.kind.tolist(), strict=True)) == pairs
    assert [pairs[cell] for cell in cells.of_launch] == list(
        zip(labels.tolist(), kinds.tolist(), strict=True)
    )
    times = CellTimes(cells.launches(), cells.sums(time))
    entry = labels_document(labels, 4, times=times)
    again = cell_times_from(LabelsEntry.model_validate_json(json.dumps(entry.to_dict())))
    assert again is not None
    spread = again.of_launches(labels, kinds)
    assert spread is not None
    assert cells.sums(spread) == pytest.approx(times.light_time)
    assert again.of_launches(labels, np.arange(len(kinds)).astype(np.uint64) + 10) is None or len(
        pairs
    ) == len(kinds)


def test_damaged_texts_of_cells_and_right_groups_are_ignored() -> None:
    labels = np.array([0, 1, 1])
    times = CellTimes(np.array([1, 2]), np.array([5.0, 7.0]))
    entry = labels_document(labels, 2, right=np.array([-1, 0, 1]), times=times)
    assert entry.cells is not None
    found = right_labels_from(entry, 2)
    assert found is not None
    assert found.tolist() == [-1, 0, 1]
    assert right_labels_from(entry, 1) is None
    for text in ("!", "", entry.data):
        assert right_labels_from(entry.model_copy(update={"right": text}), 2) is None
        for name in ("launches", "light_time"):
            cells = entry.cells.model_copy(update={name: text})
            assert cell_times_from(entry.model_copy(update={"cells": cells})) is None
    for odd in (np.array([5.0, np.nan]), np.array([5.0, -1.0])):
        damaged = labels_document(labels, 2, times=replace(times, light_time=odd))
        assert cell_times_from(damaged) is None


def test_sizes_are_blocks_however_they_are_written() -> None:
    grids = made_launches("aab", grid_x=[6, 3, 6], grid_y=[1, 2, 1])
    first, second, other = kernel_and_size(grids).tolist()
    assert first == second != other


@pytest.mark.parametrize("mixing", ["never", "allowed"])
def test_two_levels_are_separated_on_the_next_gpu(shared_data: Path, mixing: str) -> None:
    """Windows of the shared three GPUs: at most a fifth of the error is not separated."""
    light, counted, other = (
        read_launches(shared_data / "three_gpus" / name, ReadOptions(synthetic=True))
        for name in ("v100_light.json.gz", "v100.csv.gz", "rtx2060.csv.gz")
    )
    profile = Profile(detailed=counted.slice(9_750, 500), light=light)
    selection = select("pks", profile, {"mixing": mixing})
    scores, _ = score_on_by_weights(selection, other, reference=light)
    for score in scores.values():
        assert score.parts is not None
        assert abs(score.parts.not_separated or 0.0) < 0.2 * score.error_percent
        assert score.parts.whole == pytest.approx(score.signed_error_percent)
