"""What has the most time in recordings: by kernel, operator and range, with shares; cycles without times."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay_sampling.readers.inspection.recording import inspect_recording
from assay_sampling.readers.inspection.top import TopEntry, top_by_time
from tests.support.small_recordings import recording

LINEAR, OTHER_SHAPE = '["operator","aten::linear","[[2]]",0]', '["operator","aten::linear","[[3]]",0]'
ALONE = '["kernel","c","",0]'


def test_kernels_and_operators_are_added_up_over_files(tmp_path: Path) -> None:
    one = recording(
        tmp_path / "1.parquet", ["a", "b", "a", "a"],
        operation_id=[LINEAR, OTHER_SHAPE, ALONE, LINEAR], call=[0, 1, 2, 0], duration_ns=[10, 50, 10, 10],
    )  # fmt: skip
    two = recording(tmp_path / "2.parquet", ["b"], operation_id=[ALONE], call=[0], duration_ns=[20])
    top = top_by_time([one, two], most=1)
    assert (top.quantity, top.unit, top.launches, top.cost) == ("duration_ns", "ns", 5, 100)
    assert top.kernels == (TopEntry("b", 2, 70, 70.0),)
    # Three launches in two calls: launches 0 and 3 are of one.
    assert top.operators == (TopEntry("aten::linear", 3, 70, 70.0, 2),)
    assert [each.name for each in top_by_time([one]).kernels] == ["b", "a"]
    assert top_by_time([recording(tmp_path / "3.parquet", ["a"], duration_ns=[1])]).operators == ()


def test_ranges_are_paths_without_the_numbers_of_calls(tmp_path: Path) -> None:
    paths = ["step/aten::mm, seq = 7, op_id = 1", "step/aten::mm, seq = 8, op_id = 2", "step", None]
    path = recording(tmp_path / "r.parquet", ["a"] * 4, nvtx_id=paths, duration_ns=[10, 20, 50, 20])
    ranges = top_by_time([path]).ranges
    assert ranges == (TopEntry("step", 1, 50, 50.0), TopEntry("step/aten::mm", 2, 30, 30.0))


def test_cycles_count_where_there_are_no_times(tmp_path: Path) -> None:
    path = recording(tmp_path / "c.parquet", ["a", "b", "b"], cycles_simulated=[300.0, 50.0, None])
    top = top_by_time([path])
    assert (top.quantity, top.unit, top.launches_without_cost, top.cost) == (
        "cycles_simulated", "cycle", 1, 350,
    )  # fmt: skip
    assert top.kernels[1] == TopEntry("b", 2, 50, pytest.approx(100 / 7))


def test_the_quantity_is_the_one_measured_most_often(tmp_path: Path) -> None:
    path = recording(tmp_path / "m.parquet", ["a", "b"], duration_ns=[None, 5], cycles_gpc_avg=[30.0, 10.0])
    assert top_by_time([path]).quantity == "cycles_gpc_avg"


def test_without_times_and_cycles_launches_rank(tmp_path: Path) -> None:
    path = recording(tmp_path / "n.parquet", ["a", "b", "b"])
    top = top_by_time([path])
    assert (top.quantity, top.cost) == ("", 0)
    assert top.kernels == (TopEntry("b", 2, 0, None), TopEntry("a", 1, 0, None))


def test_an_inspection_has_it_where_asked(tmp_path: Path) -> None:
    path = recording(tmp_path / "i.parquet", ["a", "b"], duration_ns=[30, 10])
    assert "top" not in inspect_recording(path)
    (kernel,) = inspect_recording(path, top=1)["top"]["kernels"]
    assert kernel == {"name": "a", "launches": 1, "cost": 30.0, "percent": 75.0, "calls": None}
