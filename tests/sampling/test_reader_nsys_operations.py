"""Which operation the launches of a Nsight Systems export belong to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from assay_sampling.launches.table import launch_schema
from assay_sampling.operations.identity import Operation
from assay_sampling.readers.base import ReadOptions
from assay_sampling.readers.opening import open_recording, read_launches
from tests.support.sampling.reader_files import (
    TID,
    nsys_call,
    nsys_export,
    nsys_kernel,
    nsys_range,
    operations,
    parquet_folder,
    sentences,
)


def launched(*times: int, **changed: Any) -> dict[str, Any]:
    """Kernels and calls at these times, each with a correlation ID of its own."""
    thread = changed.pop("globalTid", TID)
    kernels = [nsys_kernel(10_000 + at, at, **changed) for at in times]
    return {"kernels": kernels, "calls": [nsys_call(at, at, globalTid=thread) for at in times]}


def nvtx_name(operator: str, call: int, sizes: str = "", inputs: str = "") -> str:
    """The name that PyTorch's emit_nvtx gives a range."""
    text = f"{operator}, seq = {call}, op_id = {100 + call}"
    text += f", sizes = {sizes}" if sizes else ""
    return f"{text}, input_op_ids = {inputs}" if inputs else text


def test_names_of_emit_nvtx_give_operator_and_shapes(tmp_path: Path) -> None:
    sizes = "[[1, 3, 224, 224], [], [64, 3, 7, 7]]"
    nvtx = [
        nsys_range(0, 100, nvtx_name("aten::conv2d", 1, sizes)),
        nsys_range(5, 90, nvtx_name("aten::cudnn_convolution", 2, sizes)),
        nsys_range(200, 300, nvtx_name("aten::conv2d", 3, sizes, "[(12,0), (13,1)]")),
    ]
    launches = read_launches(nsys_export(tmp_path / "x", **launched(10, 30, 210), nvtx=nvtx))
    convolution = Operation("operator", "aten::conv2d", "[[1,3,224,224],[],[64,3,7,7]]", 0)
    assert operations(launches) == [(0, convolution), (0, convolution), (2, convolution)]
    assert not [note for note in launches.notes if note.code.startswith("operations_")]


def test_operators_of_other_libraries_are_told_by_their_serial_numbers(tmp_path: Path) -> None:
    nvtx = [
        nsys_range(0, 100, "FlashAttnFunc, seq = 12, op_id = 8"),
        nsys_range(5, 90, "flash_attn::_flash_attn_forward, op_id = 9"),
        nsys_range(200, 300, "mine::step"),
    ]
    launches = read_launches(nsys_export(tmp_path / "x", **launched(10, 210), nvtx=nvtx))
    assert [(one.kind, one.name) for _, one in operations(launches)] == [
        ("operator", "flash_attn::_flash_attn_forward"),
        ("range", "mine::step"),
    ]


def test_the_innermost_of_plain_ranges_counts(tmp_path: Path) -> None:
    nvtx = [nsys_range(0, 100, "step"), nsys_range(5, 50, "layer 1"), nsys_range(50, 95, "layer 2")]
    launches = read_launches(nsys_export(tmp_path / "x", **launched(10, 20, 60, 120), nvtx=nvtx))
    assert operations(launches) == [
        (0, Operation("range", "layer 1")),
        (0, Operation("range", "layer 1")),
        (2, Operation("range", "layer 2")),
        (3, Operation("kernel", "first")),
    ]


LIBRARY_ROW = {"eventClass": 48, "globalTid": TID}


def library_tables(*, end: int = 60) -> dict[str, list[dict[str, Any]]]:
    return {
        "CUBLAS_EVENTS": [
            {"start": 0, "end": end, "nameId": 8, **LIBRARY_ROW},
            {"start": 5, "end": end - 5, "nameId": 9, **LIBRARY_ROW},
        ],
        "CUDNN_EVENTS": [
            {"start": 1, "end": 1, "nameId": 7, **LIBRARY_ROW},
            {"start": 100, "end": 160, "nameId": 10, **LIBRARY_ROW},
        ],
    }


NAMES = {
    1: "void first<int>(int*)", 7: "cuDNN profiling started", 8: "cublasGemmEx", 9: "cublasLtMatmul",
    10: "cudnnConvolutionForward",
}  # fmt: skip


@pytest.mark.parametrize("as_parquet", [False, True])
def test_tables_of_libraries_give_routines_without_shapes(tmp_path: Path, as_parquet: bool) -> None:
    path = nsys_export(tmp_path / "x", **launched(10, 20, 110), strings=NAMES, extra=library_tables())
    launches = read_launches(parquet_folder(path, tmp_path / "folder") if as_parquet else path)
    matrix = Operation("routine", "cublasGemmEx")
    assert operations(launches) == [
        (0, matrix),
        (0, matrix),
        (2, Operation("routine", "cudnnConvolutionForward")),
    ]
    assert launches.notes == ()


def test_a_routine_within_an_operator_is_part_of_it(tmp_path: Path) -> None:
    nvtx = [nsys_range(-10, 80, nvtx_name("aten::mm", 1, "[[2, 2], [2, 2]]"))]
    path = nsys_export(tmp_path / "x", **launched(10, 110), nvtx=nvtx, strings=NAMES, extra=library_tables())
    launches = read_launches(path)
    assert [one.name for _, one in operations(launches)] == ["aten::mm", "cudnnConvolutionForward"]


def test_an_export_without_ranges_and_calls_has_the_schema_of_always(tmp_path: Path) -> None:
    remark = {"CUDNN_EVENTS": library_tables()["CUDNN_EVENTS"][:1]}
    marker = [nsys_range(20, 30, "marker", eventType=34)]
    for number, more in enumerate(({}, {"extra": remark, "strings": NAMES}, {"nvtx": marker})):
        launches = read_launches(nsys_export(tmp_path / f"{number}", **launched(10), **more))
        assert launches.table.schema.names == launch_schema(launches.metadata).names


def test_a_window_that_ends_within_an_operator_says_so(tmp_path: Path) -> None:
    nvtx = [
        nsys_range(0, 40, nvtx_name("aten::relu", 1, "[[4]]")),
        nsys_range(50, None, nvtx_name("aten::linear", 2, "[[4]]")),
        nsys_range(60, 80, nvtx_name("aten::addmm", 3, "[[4]]")),
        nsys_range(55, None, "started, never ended", eventType=60),
    ]
    launches = read_launches(nsys_export(tmp_path / "x", **launched(10, 65, 90), nvtx=nvtx))
    relu, linear = (Operation("operator", name, "[[4]]") for name in ("aten::relu", "aten::linear"))
    assert operations(launches) == [(0, relu), (1, linear), (1, linear)]
    assert sentences(launches) == (
        "2 launches are in an operation that had not ended when the recording ended, first "
        "aten::linear [[4]]: its cost is not complete",
    )


def test_ranges_that_cross_are_noted(tmp_path: Path) -> None:
    us = 1000
    of_operators = [
        nsys_range(0, 40 * us, nvtx_name("aten::first", 1, "[[4]]")),
        nsys_range(10 * us, 60 * us, nvtx_name("aten::second", 2, "[[4]]")),
    ]
    of_plain = [
        nsys_range(0, 40 * us, "first", eventType=60),
        nsys_range(10 * us, 60 * us, "second", eventType=60),
    ]
    for nvtx, name, label in (
        (of_operators, "aten::first", "aten::first [[4]]"),
        (of_plain, "second", "second"),
    ):
        path = nsys_export(tmp_path / name, **launched(20 * us, 90 * us), nvtx=nvtx)
        launches = read_launches(path)
        assert [one.name for _, one in operations(launches)] == [name, "first"]
        crossing = [note.parameters for note in launches.notes if note.code == "operations_cross"]
        assert crossing == [(("launches", 1), ("operation", label))]


def test_nested_ranges_do_not_cross(tmp_path: Path) -> None:
    nvtx = [nsys_range(0, 90_000, "outer"), nsys_range(10_000, 40_000, "inner")]
    launches = read_launches(nsys_export(tmp_path / "x", **launched(20_000, 50_000), nvtx=nvtx))
    assert launches.notes == ()


def test_two_threads_with_one_stream_keep_their_operations(tmp_path: Path) -> None:
    other = TID + 5
    nvtx = [
        nsys_range(0, 100, nvtx_name("aten::mul", 1, "[[4]]")),
        nsys_range(5, 90, nvtx_name("aten::add", 2, "[[4]]"), globalTid=other),
    ]
    ours, theirs = launched(10, 30, 120), launched(20, 40, globalTid=other)
    launches = read_launches(
        nsys_export(
            tmp_path / "x", [*ours["kernels"], *theirs["kernels"]], [*ours["calls"], *theirs["calls"]], nvtx
        )
    )
    multiply = Operation("operator", "aten::mul", "[[4]]", 0)
    add = Operation("operator", "aten::add", "[[4]]", 1)
    kernel = Operation("kernel", "first")
    assert operations(launches) == [(0, multiply), (1, add), (0, multiply), (1, add), (4, kernel)]
    assert sentences(launches) == (
        "2 threads launch into one stream: each launch belongs to the operation of the thread that calls",
    )


def test_a_graph_launched_outside_of_operators_is_one_operation(tmp_path: Path) -> None:
    nvtx = [nsys_range(0, 20, nvtx_name("aten::relu", 1, "[[4]]"))]
    replays = [nsys_kernel(500 + i, 50, graphNodeId=i + 1, demangledName=i + 1) for i in range(2)]
    replays += [nsys_kernel(700 + i, 70, graphNodeId=i + 1, demangledName=i + 1) for i in range(2)]
    kernels = [nsys_kernel(100, 10), *replays]
    calls = [nsys_call(10, 10), nsys_call(50, 50), nsys_call(70, 70)]
    found = operations(read_launches(nsys_export(tmp_path / "x", kernels, calls, nvtx)))
    assert [call for call, _ in found] == [0, 1, 1, 3, 3]
    assert [one.kind for _, one in found] == ["operator", *["graph"] * 4]
    assert found[1][1] == found[3][1]


def test_launches_without_a_call_are_operations_of_their_own(tmp_path: Path) -> None:
    nvtx = [nsys_range(0, 100, nvtx_name("aten::relu", 1, "[[4]]"))]
    kernels = [nsys_kernel(50, 10), nsys_kernel(60, 99)]
    launches = read_launches(nsys_export(tmp_path / "x", kernels, [nsys_call(10, 10)], nvtx))
    assert [one.kind for _, one in operations(launches)] == ["operator", "kernel"]


def test_calls_are_numbered_from_the_launch_offset(tmp_path: Path) -> None:
    nvtx = [nsys_range(0, 100, "step")]
    path = nsys_export(tmp_path / "x", **launched(10, 20), nvtx=nvtx)
    assert [call for call, _ in operations(read_launches(path, ReadOptions(launch_offset=40)))] == [40, 40]


def test_operations_are_the_same_in_batches_of_any_size(tmp_path: Path) -> None:
    nvtx = [nsys_range(at, at + 28, nvtx_name("aten::mul", at, f"[[{at % 4}]]")) for at in range(0, 300, 30)]
    path = nsys_export(tmp_path / "x", **launched(*range(2, 300, 10)), nvtx=nvtx)
    columns = ["call", "operation_id"]
    with open_recording(path) as recording:
        batches = [batch.records.select(columns) for batch in recording.batches(3)]
    whole = read_launches(path)
    assert pa.Table.from_batches(batches).equals(whole.table.select(columns))
    assert len(batches) == 10
    # The last launch call of each thirty outlasts its range.
    assert whole.column("call").tolist()[:7] == [0, 0, 2, 3, 3, 5, 6]


@pytest.mark.shared_data
def test_a_real_window_of_two_h100(shared_data: Path) -> None:
    launches = read_launches(shared_data / "nsys" / "h100_2gpu_window_4010_kernels.sqlite.gz")
    found = operations(launches)
    # The launches without a call in the window are outside of all ranges.
    assert Counter(one.kind for _, one in found) == {"operator": 3986, "kernel": 24}
    calls = Counter(zip(launches.column("process").tolist(), launches.column("call").tolist(), strict=True))
    assert Counter(calls.values()) == {1: 3946, 2: 32}
    names = Counter(one.name for _, one in found)
    assert names.most_common(3) == [("aten::to", 1623), ("aten::add", 505), ("aten::mul", 501)]
    # Operators around others' libraries: cuBLAS, flash attention, and NCCL behind c10d.
    assert {"aten::linear", "flash_attn::_flash_attn_forward", "c10d::alltoall_base_"} <= names.keys()
    assert not any("op_id" in name or "seq" in name for name in names)


@pytest.mark.shared_data
def test_a_real_recording_of_cublas_ranges(shared_data: Path) -> None:
    launches = read_launches(shared_data / "nsys" / "a100_nerf_1106_kernels.sqlite")
    found = operations(launches)
    assert Counter(one.kind for _, one in found) == {"kernel": 963, "routine": 143}
    routines = {call: one.name for call, one in found if one.kind == "routine"}
    assert Counter(routines.values()) == {"cublasSgemmEx": 107}
