"""Which operation the launches of Nsight Compute's pages and reports belong to."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.table import has_operations
from assay_sampling.operations.identity import Operation
from assay_sampling.readers.base import ReadOptions
from assay_sampling.readers.opening import open_recording, read_launches
from tests.support.sampling.reader_files import (
    RAW_FIELDS,
    RAW_UNITS,
    operations,
    raw_page,
    raw_row,
    sentences,
    write,
)

COLUMN = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
LINEAR = "aten::linear, seq = 4, op_id = 17, sizes = [[4, 8], [8, 8]]"
ADDMM = "aten::addmm, seq = 4, op_id = 18, sizes = [[8], [4, 8], [8, 8]]"
AGAIN = "aten::linear, seq = 5, op_id = 27, sizes = [[4, 8], [8, 8]]"


def cell(*names: str, thread: str = "4242") -> str:
    parts = (f'"<default domain>:{name}:none:none:none:none:none:none"' for name in names)
    return f"{thread}  {' '.join(parts)} " if names else ""


def page(*stacks: str, **changed: str) -> str:
    rows = [raw_row(i, **changed) | {COLUMN: stack} for i, stack in enumerate(stacks)]
    return raw_page(rows, (*RAW_FIELDS, COLUMN), (*RAW_UNITS, ""))


def read(tmp_path: Path, *stacks: str, options: ReadOptions | None = None, **changed: str) -> Launches:
    path = write(tmp_path / "page.csv", page(*stacks, **changed))
    return read_launches(path, options or ReadOptions())


def test_calls_in_a_row_are_told_apart_by_their_serial_numbers(tmp_path: Path) -> None:
    launches = read(tmp_path, cell("step", LINEAR, ADDMM), cell("step", LINEAR), cell("step", AGAIN), "")
    linear = Operation("operator", "aten::linear", "[[4,8],[8,8]]")
    assert operations(launches) == [
        (0, linear), (0, linear), (2, linear), (3, Operation("kernel", "kernel_0"))
    ]  # fmt: skip
    assert not [note for note in launches.notes if note.code.startswith("operations_")]


def test_ranges_without_serial_numbers_are_one_call_as_long_as_nothing_lies_between(tmp_path: Path) -> None:
    launches = read(tmp_path, cell("decode"), cell("decode"), cell("decode", "inner"), "", cell("decode"), "")
    assert [(call, one.name) for call, one in operations(launches)] == [
        (0, "decode"), (0, "decode"), (2, "inner"), (3, "kernel_0"), (4, "decode"), (5, "kernel_2")
    ]  # fmt: skip
    assert sentences(launches) == (
        "4 launches are in ranges without serial numbers, first decode: calls of one range in a row count as "
        "one",
    )


def test_threads_have_calls_of_their_own(tmp_path: Path) -> None:
    ours, theirs = cell(LINEAR), cell("aten::mul, seq = 9, op_id = 40, sizes = [[2]]", thread="777")
    launches = read(tmp_path, ours, theirs, ours, theirs, cell(AGAIN))
    linear = Operation("operator", "aten::linear", "[[4,8],[8,8]]")
    multiply = Operation("operator", "aten::mul", "[[2]]", thread=1)
    assert operations(launches) == [(0, linear), (1, multiply), (0, linear), (1, multiply), (4, linear)]


def test_processes_have_calls_of_their_own(tmp_path: Path) -> None:
    rows = [
        raw_row(i, Process_ID=process) | {COLUMN: cell(LINEAR)}
        for i, process in enumerate(("5", "6", "5", "6"))
    ]
    text = raw_page(rows, (*RAW_FIELDS, COLUMN), (*RAW_UNITS, ""))
    launches = read_launches(write(tmp_path / "page.csv", text), ReadOptions(launch_offset=100))
    assert launches.column("launch").tolist() == [100, 101, 100, 101]
    assert [call for call, _ in operations(launches)] == [100] * 4


@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_calls_go_on_across_batches(tmp_path: Path, size: int) -> None:
    stacks = [cell("a"), cell("a"), "", cell("a"), cell(LINEAR), cell(LINEAR, ADDMM), cell(AGAIN), cell("a")]
    path = write(tmp_path / "page.csv", page(*stacks))
    with open_recording(path) as recording:
        batches = list(recording.batches(size))
    call = [number for batch in batches for number in batch.records.column("call").to_pylist()]
    assert call == [0, 0, 2, 3, 4, 4, 6, 7]


def test_a_page_whose_kernels_were_renamed_says_so(tmp_path: Path) -> None:
    launches = read(tmp_path, cell("step", "fill"), "", Kernel_Name="fill")
    assert sentences(launches)[0] == (
        "the kernels of 1 launch have the names of their NVTX ranges instead of their own: export the page "
        "again without --print-nvtx-rename"
    )


def test_a_page_without_ranges_has_no_operations(tmp_path: Path) -> None:
    launches = read_launches(write(tmp_path / "page.csv", raw_page([raw_row(0)])))
    assert not has_operations(launches.table.schema)


@pytest.mark.parametrize("size", [1, 2, 50])
def test_a_launch_outside_of_ranges_is_on_the_thread_of_the_launch_before_it(
    tmp_path: Path, size: int
) -> None:
    ours, theirs = cell(LINEAR), cell("aten::mul, seq = 9, op_id = 40, sizes = [[2]]", thread="777")
    path = write(tmp_path / "page.csv", page("", ours, "", theirs, "", "", ours, ""))
    with open_recording(path) as recording:
        found: list[tuple[str, int]] = []
        names: dict[int, str] = {}
        for batch in recording.batches(size):
            names |= batch.new_names
            identities = batch.records.column("operation_id").to_pylist()
            found += [(one.kind, one.thread) for one in map(Operation.from_text, map(names.get, identities))]
    kernel, operator = "kernel", "operator"
    assert found == [
        (kernel, 0), (operator, 0), (kernel, 0), (operator, 1),
        (kernel, 1), (kernel, 1), (operator, 0), (kernel, 0),
    ]  # fmt: skip
