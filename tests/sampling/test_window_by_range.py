"""The window that a program names itself by an NVTX range: which launches of a light recording count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from assay_sampling.errors import MisalignedError
from assay_sampling.gathering import from_batches as gathering
from assay_sampling.gathering.named_range import rows_in_window
from assay_sampling.launches.alignment import align_window
from assay_sampling.launches.table import TableMetadata
from assay_sampling.readers.inspection.top import top_by_time
from assay_sampling.readers.opening import read_launches
from tests.support.sampling.made_launches import made_launches
from tests.support.small_recordings import recording

KERNELS = ["load", "a", "b", "check", "a", "b", "save"]
RANGES = [None, "assay", "assay/step", "assayed", "epoch/assay", None, "x"]
INSIDE = [1, 2, 4]


def light(path: Path, ranges: list[str | None] = RANGES) -> Path:
    return recording(path, KERNELS, nvtx_id=ranges, duration_ns=[10, 20, 30, 40, 50, 60, 70])


def test_only_launches_in_the_range_count_and_they_keep_their_ordinals(tmp_path: Path) -> None:
    path = light(tmp_path / "light.parquet")
    launches = read_launches(path)
    assert launches.column("launch").tolist() == INSIDE and launches.in_named_range
    assert [note.text for note in launches.notes] == [
        "only the 3 of 7 launches in the NVTX range 'assay' count"
    ]
    whole = read_launches(path, whole=True)
    assert (len(whole), whole.in_named_range, rows_in_window(whole).tolist()) == (7, False, INSIDE)
    top = top_by_time([path])
    assert (top.launches, top.cost, top.in_named_range_of) == (3, 100.0, 7)
    assert [(each.name, each.cost) for each in top.kernels] == [("a", 70.0), ("b", 30.0)]


def test_without_such_a_range_and_with_counters_all_launches_count(tmp_path: Path) -> None:
    path = light(tmp_path / "light.parquet", ["assayed" if name else None for name in RANGES])
    launches = read_launches(path)
    assert (len(launches), launches.notes, top_by_time([path]).in_named_range_of) == (7, (), None)
    detailed = made_launches(list("abc"), metadata=TableMetadata("detailed"), nvtx_id=["assay"] * 3)
    assert rows_in_window(detailed).tolist() == []


def test_beyond_memory_the_same_launches_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "LEAST_BEYOND_MEMORY_BYTES", 1000)
    path = light(tmp_path / "light.parquet")
    launches = read_launches(path, memory_limit_bytes=1000)
    assert launches.in_named_range and launches.array("launch").tolist() == INSIDE
    assert [note.code for note in launches.notes] == ["window_is_range"]


def test_launches_with_counters_outside_of_the_range_count_nowhere(tmp_path: Path) -> None:
    window = read_launches(light(tmp_path / "light.parquet"))
    counted = recording(tmp_path / "counted.parquet", KERNELS[:4], cycles_gpc_avg=[1.0, 2.0, 3.0, 4.0])
    found = align_window(read_launches(counted), window)
    assert (found.match_percent, found.left_rows.tolist(), found.right_rows.tolist()) == (100, [1, 2], [0, 1])
    whole = replace(window, in_named_range=False)
    assert align_window(read_launches(counted), whole).match_percent == 50.0


def test_counters_of_other_launches_alone_are_refused(tmp_path: Path) -> None:
    window = read_launches(light(tmp_path / "light.parquet"))
    counted = recording(tmp_path / "counted.parquet", KERNELS[:1], cycles_gpc_avg=[1.0])
    with pytest.raises(MisalignedError, match="none of its launches is in the NVTX range 'assay'"):
        align_window(read_launches(counted), window)
