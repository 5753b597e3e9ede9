"""Which operation a Kineto trace's launches belong to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.table import has_operations
from assay_sampling.operations.identity import Operation
from assay_sampling.readers.base import ReadOptions
from assay_sampling.readers.nesting import MAX_DEPTH
from assay_sampling.readers.opening import open_recording, read_launches
from tests.support.sampling.reader_files import (
    operations,
    trace,
    trace_call,
    trace_kernel,
    trace_range,
    write,
)


def read(tmp_path: Path, *events: dict[str, Any], options: ReadOptions | None = None) -> Launches:
    path = write(tmp_path / "trace.json", trace(events))
    return read_launches(path, options or ReadOptions())


def operator(ts: int, dur: int, name: str, dims: Any = None, **changed: Any) -> dict[str, Any]:
    args = {} if dims is None else {"Input Dims": dims}
    return trace_range("cpu_op", name, ts, dur, args, **changed)


def launched(at: int, correlation: int, kernel: str = "k", **changed: Any) -> tuple[dict[str, Any], ...]:
    return (
        trace_call(at, correlation, **changed),
        trace_kernel(at + 1000, correlation, name=kernel),
    )


def test_the_outermost_operator_counts_and_its_launches_are_one_call(tmp_path: Path) -> None:
    launches = read(
        tmp_path,
        operator(0, 100, "aten::linear", [[4, 8], [8, 8]]),
        operator(10, 80, "aten::addmm", [[8], [4, 8], [8, 8]]),
        *launched(20, 1),
        *launched(30, 2),
        operator(200, 100, "aten::linear", [[4, 8], [8, 8]]),
        *launched(220, 3),
    )
    linear = Operation("operator", "aten::linear", "[[4,8],[8,8]]", 0)
    assert operations(launches) == [(0, linear), (0, linear), (2, linear)]


def test_the_engine_around_a_backward_operator_does_not_count(tmp_path: Path) -> None:
    launches = read(
        tmp_path,
        operator(0, 100, "autograd::engine::evaluate_function: AddmmBackward0"),
        operator(5, 90, "AddmmBackward0"),
        operator(10, 40, "aten::mm", [[2, 2], [2, 2]]),
        *launched(20, 1),
        operator(60, 30, "aten::sum", [[2, 2]]),
        *launched(70, 2),
    )
    assert [one.name for _, one in operations(launches)] == ["aten::mm", "aten::sum"]


def test_a_compiled_region_is_one_operation_without_its_hash(tmp_path: Path) -> None:
    code = "fxqz7hbxk2vmwn3nql5yq2m4m6o2f4ctcs3zl7kyq2ykbrd2l3hf"
    launches = read(
        tmp_path,
        operator(0, 100, f"## Call CompiledFxGraph {code} ##"),
        operator(10, 20, "triton_poi_fused_add_0"),
        *launched(15, 1),
        operator(40, 20, "aten::mm", [[2, 2], [2, 2]]),
        *launched(45, 2),
    )
    region = Operation("region", "Call CompiledFxGraph", "", 0)
    assert operations(launches) == [(0, region), (0, region)]


def test_launches_outside_of_operators_are_operations_by_their_function(tmp_path: Path) -> None:
    launches = read(
        tmp_path,
        operator(0, 10, "aten::relu"),
        *launched(5, 1),
        *launched(20, 2, "void mine::fill<float, 4>(float*, int)"),
        *launched(30, 3, "void mine::fill<float, 8>(float*, int)"),
    )
    fill = Operation("kernel", "fill", "", 0)
    assert operations(launches)[1:] == [(1, fill), (2, fill)]


def test_forward_and_backward_threads_are_apart_by_their_first_launch(tmp_path: Path) -> None:
    launches = read(
        tmp_path,
        operator(0, 10, "aten::mul", tid=9),
        *launched(5, 1, tid=9),
        operator(20, 10, "aten::mul", tid=3),
        *launched(25, 2, tid=3),
        operator(40, 10, "aten::mul", tid=9),
        *launched(45, 3, tid=9),
    )
    assert [one.thread for _, one in operations(launches)] == [0, 1, 0]


def test_a_graph_replay_is_one_operation_known_by_its_functions(tmp_path: Path) -> None:
    def replay(at: int, correlation: int, *kernels: str) -> list[dict[str, Any]]:
        call = trace_call(at, correlation) | {"name": "cudaGraphLaunch"}
        return [call, *(trace_kernel(at + 1000 + i, correlation, name=k) for i, k in enumerate(kernels))]

    launches = read(
        tmp_path,
        operator(0, 10, "aten::relu"),
        *launched(5, 1),
        *replay(100, 2, "f<1>(int)", "g"),
        *replay(200, 3, "f<2>(int)", "g"),
        *replay(300, 4, "g", "f<2>(int)"),
    )
    found = operations(launches)[1:]
    assert [call for call, _ in found] == [1, 1, 3, 3, 5, 5]
    assert {one.kind for _, one in found} == {"graph"}
    first, second, third = found[0][1], found[2][1], found[4][1]
    assert first == second != third
    assert first.name.endswith("of 2 kernels")


def test_the_profilers_own_steps_do_not_count(tmp_path: Path) -> None:
    step = trace_range("user_annotation", "ProfilerStep#6", 0, 1000)
    inner = trace_range("user_annotation", "decode", 100, 50)
    launches = read(tmp_path, step, inner, *launched(10, 1), *launched(120, 2))
    assert [(one.kind, one.name) for _, one in operations(launches)] == [("kernel", "k"), ("range", "decode")]


def test_crossing_operations_are_noted(tmp_path: Path) -> None:
    launches = read(
        tmp_path,
        operator(0, 100, "aten::first"),
        operator(50, 100, "aten::second"),
        *launched(60, 1),
    )
    assert [note.code for note in launches.notes if note.code.startswith("operations_c")] == [
        "operations_cross"
    ]
    assert operations(launches)[0][1].name == "aten::first"


@pytest.mark.parametrize("beyond_us", [0, 1])
def test_rounded_times_move_no_launch_out_of_its_operator(tmp_path: Path, beyond_us: int) -> None:
    # Without API calls launches are known by the operator that called them; both lengths may be rounded.
    def called_by(operator_id: int, at: int) -> dict[str, Any]:
        event = trace_kernel(at, operator_id)
        event["args"] = {**event["args"], "External id": operator_id}
        del event["args"]["correlation"]
        return event

    def identified(event: dict[str, Any], operator_id: int) -> dict[str, Any]:
        return {**event, "args": {**event["args"], "External id": operator_id}}

    launches = read(
        tmp_path,
        identified(operator(0, 100, "aten::linear"), 1),
        identified(operator(10, 90 + beyond_us, "aten::addmm"), 2),
        identified(operator(100, 20, "aten::relu"), 3),
        *(called_by(operator_id, 500 + 100 * operator_id) for operator_id in (1, 2, 3)),
    )
    assert [(call, one.name) for call, one in operations(launches)] == [
        (0, "aten::linear"), (0, "aten::linear"), (2, "aten::relu")
    ]  # fmt: skip


def test_calls_are_numbered_from_the_launch_offset(tmp_path: Path) -> None:
    events = (operator(0, 10, "aten::relu"), *launched(5, 1))
    launches = read(tmp_path, *events, options=ReadOptions(launch_offset=40))
    assert operations(launches)[0][0] == 40


def test_a_trace_without_operators_has_no_operations(tmp_path: Path) -> None:
    assert not has_operations(read(tmp_path, *launched(5, 1)).table.schema)


@pytest.mark.parametrize(
    ("model", "calls", "launches"),
    [
        ("Falconsai_nsfw_image_detection", 150, {"h100": 154, "mi300": 155}),
        ("facebook_timesformer-base-finetuned-k400", 369, {"h100": 446, "mi300": 447}),
    ],
)
def test_two_vendors_launch_the_same_operations(
    shared_data: Path, model: str, calls: int, launches: dict[str, int]
) -> None:
    by_gpu = {}
    for gpu, count in launches.items():
        read_from = read_launches(shared_data / "silicon" / f"{gpu}__{model}__1016002.json.gz")
        assert len(read_from) == count
        distinct = dict(operations(read_from))
        assert len(distinct) == calls
        by_gpu[gpu] = Counter((one.name, one.thread) for one in distinct.values())
    assert by_gpu["h100"] == by_gpu["mi300"]


def test_reading_a_trace_again_gives_the_same_calls(tmp_path: Path) -> None:
    events = [operator(0, 100, "aten::linear"), *launched(20, 1), *launched(30, 2)]
    path = write(tmp_path / "trace.json", trace(events))
    with open_recording(path, ReadOptions(launch_offset=7)) as recording:
        calls = [
            [batch.records.column("call").to_pylist() for batch in recording.batches(1)]
            for _again in range(2)
        ]
    assert calls == [[[7], [7]], [[7], [7]]]


def test_ranges_nested_deeper_than_the_bound_are_noted(tmp_path: Path) -> None:
    def nested(depth: int, at: int) -> list[dict[str, Any]]:
        return [operator(at + i, 1000 - 2 * i, f"aten::level_{i}") for i in range(depth)]

    launches = read(
        tmp_path,
        *nested(MAX_DEPTH, 0),
        *launched(500, 1),
        *nested(MAX_DEPTH + 20, 2000),
        *launched(2500, 2),
        *launched(2500, 3),
    )
    assert [one.name for _, one in operations(launches)] == ["aten::level_0", *["aten::level_20"] * 2]
    found = [note for note in launches.notes if note.code == "operations_nested_deep"]
    assert [dict(note.parameters) for note in found] == [{"launches": 2, "depth": MAX_DEPTH}]
    assert found[0].text == (
        "2 launches are in ranges nested more than 128 deep: their operations are known by the inner 128"
    )
