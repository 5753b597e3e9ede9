"""Kernel rows that an export holds twice: an export that was merged, or joined with itself."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from assay_sampling.notes.registry import make_note
from assay_sampling.readers.opening import read_launches
from tests.support.sampling.reader_files import PID, nsys_call, nsys_export, nsys_kernel, parquet_folder


def test_kernel_rows_given_twice_count_once(tmp_path: Path) -> None:
    kernels = [nsys_kernel(1000 * (i + 1), i) for i in range(400)]
    calls = [nsys_call(1000 * i + 500, i) for i in range(400)]
    export = nsys_export(tmp_path / "twice.sqlite", [*kernels, *kernels[7:11]], calls)
    for path in (export, parquet_folder(export, tmp_path / "folder")):
        launches = read_launches(path)
        assert launches.table["launch"].to_pylist() == list(range(400))
        assert launches.table["start_ns"].to_pylist() == [kernel["start"] for kernel in kernels]
        (note,) = launches.notes
        assert note == make_note("kernel_events_twice", events=4)


def test_an_export_joined_with_itself_counts_once(tmp_path: Path) -> None:
    kernels = [nsys_kernel(1000 * (i + 1), i) for i in range(5)]
    path = nsys_export(tmp_path / "x.sqlite", [*kernels, *kernels, *kernels], [nsys_call(500, 0)])
    launches = read_launches(path)
    assert len(launches) == 5
    assert make_note("kernel_events_twice", events=10) in launches.notes


def test_an_index_over_the_kernels_changes_nothing(tmp_path: Path) -> None:
    kernels = [nsys_kernel(1000 * (9 - i), 9 - i, gridX=i + 1) for i in range(9)]
    path = nsys_export(tmp_path / "x.sqlite", [*kernels, kernels[3]], [nsys_call(500, 1)])
    before = read_launches(path)
    with closing(sqlite3.connect(path)) as database:
        columns = 'start, "end", globalPid, correlationId, graphNodeId'
        database.execute(f"CREATE INDEX covering ON CUPTI_ACTIVITY_KIND_KERNEL ({columns})")
    after = read_launches(path)
    assert after.table.equals(before.table) and after.notes == before.notes
    assert after.table["grid_x"].to_pylist() == list(range(9, 0, -1))


def test_rows_that_differ_anywhere_are_launches_of_their_own(tmp_path: Path) -> None:
    # Two nodes of a graph, two streams, two contexts, two shapes, two kernels; and what is too short to tell.
    same = nsys_kernel(1000, 4, graphNodeId=1)
    changes: list[dict[str, Any]] = [
        {"graphNodeId": 2}, {"streamId": 8}, {"contextId": 2}, {"gridX": 5}, {"demangledName": 2},
        {"dynamicSharedMemory": None}, {"globalPid": PID + (1 << 24)},
    ]  # fmt: skip
    short = nsys_kernel(3000, 5, end=3000)
    path = nsys_export(
        tmp_path / "x.sqlite",
        [same, *(same | change for change in changes), short, short],
        [nsys_call(500, 4)],
    )
    launches = read_launches(path)
    assert len(launches) == 10
    assert "kernel_events_twice" not in [note.code for note in launches.notes]


def test_a_doubled_row_does_not_hide_a_lost_kernel(tmp_path: Path) -> None:
    names = {1: "k", 2: "cudaLaunchKernel"}
    kernels = [nsys_kernel(1000 * (i + 1), i) for i in range(9)]
    calls = [nsys_call(1000 * i + 500, i, nameId=2, returnValue=0) for i in range(9)]
    calls += [nsys_call(8990, 99, nameId=2, returnValue=0), nsys_call(4600, 98, nameId=2, returnValue=0)]
    told = []
    for number, doubled in enumerate([[], kernels[2:4]]):
        path = nsys_export(tmp_path / f"{number}.sqlite", [*doubled, *kernels], calls, strings=names)
        told.append([note for note in read_launches(path).notes if note.code != "kernel_events_twice"])
    assert told[0] == told[1] and {note.code for note in told[0]} >= {"kernels_lost"}
