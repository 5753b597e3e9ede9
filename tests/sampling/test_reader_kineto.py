from __future__ import annotations

import gzip
import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.errors import InputError, RefusedError
from assay_sampling.handover.comparing.shapes import require_shapes
from assay_sampling.launches.alignment import shape_totals
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.registry import select
from assay_sampling.notes.registry import make_note
from assay_sampling.readers.base import ReadOptions
from assay_sampling.readers.kineto import json_events
from assay_sampling.readers.opening import open_recording, read_launches
from assay_sampling.scoring.elsewhere import score_saved_by_weights
from assay_sampling.scoring.saved_selection import SavedSelection
from tests.support.sampling.reader_files import (
    kernel_names,
    sentences,
    texts,
    trace,
    trace_call,
    trace_kernel,
    trace_range,
    write,
    write_gzip,
)

# --- real traces, against a plain computation -----------------------------------------------------


class _PlainRanges:
    """Ranges of all threads; the innermost one around a moment is found by walking back from it."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        by_thread = defaultdict(list)
        for position, event in enumerate(events):
            key = (event["ts"], -(event["ts"] + event["dur"]), position)
            by_thread[event["pid"], event["tid"]].append((key, event))
        self._by_thread = {}
        for thread, found in by_thread.items():
            found.sort(key=lambda f: f[0])
            # The latest end so far tells where to stop walking back.
            latest = accumulate((event["ts"] + event["dur"] for _, event in found), max)
            self._by_thread[thread] = (found, list(latest))

    def around(self, thread: tuple[Any, Any], at: float) -> Iterator[dict[str, Any]]:
        """From the innermost out."""
        found, latest = self._by_thread.get(thread, ([], []))
        position = bisect_right(found, at, key=lambda f: f[0][0]) - 1
        while position >= 0 and latest[position] >= at:
            event = found[position][1]
            if event["ts"] + event["dur"] >= at:
                yield event
            position -= 1


def _plain(path: Path) -> list[dict[str, Any]]:
    """Launches of a trace with whole microseconds, by json.load and dictionaries."""
    with gzip.open(path) as file:
        document = json.load(file)
    by_category = defaultdict(list)
    for event in document["traceEvents"]:
        if event.get("ph") == "X":
            by_category[event.get("cat")].append(event)
    calls: dict[int, dict[str, Any]] = {}
    for call in by_category["cuda_runtime"]:
        known = calls.setdefault(call["args"]["correlation"], call)
        if call["ts"] < known["ts"]:
            calls[call["args"]["correlation"]] = call
    operators, annotations = _PlainRanges(by_category["cpu_op"]), _PlainRanges(by_category["user_annotation"])
    launches = []
    for kernel in by_category["kernel"]:
        correlation = kernel["args"]["correlation"]
        call = calls.get(correlation)
        at = kernel["ts"] if call is None else call["ts"]
        thread = (None, None) if call is None else (call["pid"], call["tid"])
        operator = next(operators.around(thread, at), None)
        path_names = [annotation["name"] for annotation in annotations.around(thread, at)][::-1]
        dims = None if operator is None else operator["args"].get("Input Dims")
        launches.append(
            {
                "key": (at, correlation, kernel["ts"]),
                "kernel": kernel["name"],
                "start_ns": kernel["ts"] * 1000,
                "duration_ns": kernel["dur"] * 1000,
                "grid": kernel["args"]["grid"],
                "block": kernel["args"]["block"],
                "stream": kernel["args"]["stream"],
                "device": kernel["args"]["device"],
                "registers_per_thread": kernel["args"]["registers per thread"],
                "shared_memory_bytes": kernel["args"]["shared memory"],
                "operator": None if operator is None else operator["name"],
                "shapes": None if dims is None else json.dumps(dims, separators=(",", ":")),
                "path": "/".join(path_names) or None,
            }
        )
    return sorted(launches, key=lambda launch: launch["key"])


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "launches", "with_operator", "with_shapes", "without_call"),
    [
        ("v100_training_19370_kernels", 19370, 19370, 0, 0),
        ("v100_input_dims_9876_kernels", 9876, 9282, 9222, 546),
        ("a100_input_dims_8568_kernels", 8568, 8520, 8460, 0),
        ("a100_alexnet_79_kernels", 79, 79, 0, 0),
    ],
)
def test_real_traces_are_what_a_plain_computation_finds(
    shared_data: Path, name: str, *, launches: int, with_operator: int, with_shapes: int, without_call: int
) -> None:
    path = shared_data / "kineto" / f"{name}.json.gz"
    expected = _plain(path)
    read = read_launches(path)
    assert len(read) == len(expected) == launches
    assert kernel_names(read) == [launch["kernel"] for launch in expected]
    for column in (
        "start_ns",
        "duration_ns",
        "stream",
        "device",
        "registers_per_thread",
        "shared_memory_bytes",
    ):
        assert read.table[column].to_pylist() == [launch[column] for launch in expected], column
    for what in ("grid", "block"):
        shape = np.stack([read.column(f"{what}_{axis}") for axis in "xyz"], axis=1)
        assert shape.tolist() == [launch[what] for launch in expected]
    operators = texts(read, "operator_id")
    shapes = texts(read, "input_shapes_id")
    assert operators == [launch["operator"] for launch in expected]
    assert shapes == [launch["shapes"] for launch in expected]
    assert texts(read, "nvtx_id") == [launch["path"] for launch in expected]
    assert sum(operator is not None for operator in operators) == with_operator
    assert sum(shape is not None for shape in shapes) == with_shapes
    joined = (
        f"operators are joined by runtime call and time: {with_operator:,} of {launches:,} launches have one"
    )
    assert sentences(read)[0] == joined
    unjoined = (make_note("no_api_call", launches=without_call),) if without_call else ()
    assert read.notes[1:] == unjoined
    assert read.column("launch").tolist() == list(range(launches))


@pytest.mark.shared_data
def test_devices_of_a_real_trace(shared_data: Path) -> None:
    read = read_launches(shared_data / "kineto/v100_training_19370_kernels.json.gz")
    assert len(read.metadata.devices) == 2
    device = read.metadata.devices[1]
    assert (device.name, device.compute_capability, device.sm_count) == ("Tesla V100-SXM2-32GB", "7.0", 80)
    assert read.device_labels() == ["Tesla V100-SXM2-32GB"]
    assert set(read.column("device").tolist()) == {1}
    assert read.metadata.level == "light"


# --- times ----------------------------------------------------------------------------------------


def _read(tmp_path: Path, text: str, options: ReadOptions | None = None) -> Launches:
    return read_launches(write(tmp_path / "trace.json", text), options or ReadOptions())


_CLOCK_2024 = """
{"schemaVersion": 1, "displayTimeUnit": "ns", "traceEvents": [
 {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 4458676983543.183, "dur": 1.5,
  "args": {"grid": [1, 1, 1], "block": [32, 1, 1], "correlation": 1, "est. achieved occupancy %": NaN}},
 {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 4458676983544, "dur": 2,
  "args": {"grid": [1, 1, 1], "block": [32, 1, 1], "correlation": 2}}],
 "traceName": "x", "baseTimeNanoseconds": 1711964646000000000}
"""


def test_times_are_microseconds_converted_exactly_and_relative_to_the_base(tmp_path: Path) -> None:
    read = _read(tmp_path, _CLOCK_2024)
    assert read.column("start_ns").tolist() == [
        1711964646000000000 + 4458676983543183,
        1711964646000000000 + 4458676983544000,
    ]
    assert read.column("duration_ns").tolist() == [1500, 2000]


@settings(deadline=None)
@given(st.integers(0, 2 * 10**18), st.integers(0, 10**12))
def test_every_nanosecond_survives(
    tmp_path_factory: pytest.TempPathFactory, start_ns: int, duration_ns: int
) -> None:
    marks = {
        '"TS"': f"{start_ns // 1000}.{start_ns % 1000:03}",
        '"DUR"': f"{duration_ns // 1000}.{duration_ns % 1000:03}",
    }
    text = trace([trace_kernel("TS", number, dur="DUR") for number in (1, 2)])
    for mark, digits in marks.items():
        text = text.replace(mark, digits)
    read = read_launches(write(tmp_path_factory.mktemp("ns") / "t", text))
    assert read.table["start_ns"].to_pylist() == [start_ns] * 2
    assert read.table["duration_ns"].to_pylist() == [duration_ns] * 2


# --- joins ----------------------------------------------------------------------------------------


def test_traces_since_2024_are_joined_by_external_id(tmp_path: Path) -> None:
    events = [
        trace_kernel(50, 11, args_External_id=3), trace_kernel(40, 12, args_External_id=4),
        trace_kernel(60, 13, args_External_id=0),
        trace_call(10, 11), trace_call(20, 12), trace_call(30, 13),
        # By time the first operator would contain everything.
        trace_range("cpu_op", "aten::all", 0, 100, {"External id": 2}),
        trace_range("cpu_op", "aten::mm", 0, 1, {"External id": 3, "Input Dims": [[2, 3], [3, 4]]}),
        trace_range("cpu_op", "aten::add", 0, 1, {"External id": 4, "Input Dims": [[], [5]]}, tid=9),
    ]  # fmt: skip
    events[0]["args"]["External id"], events[1]["args"]["External id"], events[2]["args"]["External id"] = (
        3,
        4,
        2,
    )
    read = _read(tmp_path, trace(events))
    assert texts(read, "operator_id") == ["aten::mm", "aten::add", "aten::all"]
    assert texts(read, "input_shapes_id") == ["[[2,3],[3,4]]", "[[],[5]]", None]
    assert sentences(read) == ("operators are joined by External id: 3 of 3 launches have one",)


def test_external_ids_that_repeat_the_correlation_prove_nothing(tmp_path: Path) -> None:
    events = [
        trace_kernel(50, 3), trace_kernel(60, 4), trace_call(10, 3), trace_call(20, 4),
        trace_range("cpu_op", "right", 5, 30, {"External id": 900}),
        trace_range("cpu_op", "wrong", 70, 5, {"External id": 3}),
        trace_range("cpu_op", "wrong", 70, 5, {"External id": 4}),
    ]  # fmt: skip
    assert texts(_read(tmp_path, trace(events)), "operator_id") == ["right", "right"]


def test_the_innermost_operator_of_the_calling_thread_counts(tmp_path: Path) -> None:
    events = [
        trace_range("cpu_op", "outer", 0, 100),
        trace_range("cpu_op", "inner", 10, 20),
        trace_range("cpu_op", "other thread", 11, 2, tid=999),
        trace_range("cpu_op", "other process", 11, 2, pid=1),
        trace_kernel(500, 1),
        trace_kernel(501, 2),
        trace_kernel(502, 3),
        trace_call(12, 1),
        trace_call(40, 2),
        trace_call(200, 3),
    ]
    assert texts(_read(tmp_path, trace(events)), "operator_id") == ["inner", "outer", None]


def test_annotations_make_the_path(tmp_path: Path) -> None:
    events = [
        trace_kernel(500, 1),
        trace_kernel(501, 2),
        trace_call(12, 1),
        trace_call(60, 2),
        trace_range("user_annotation", "ProfilerStep#1", 0, 100),
        trace_range("user_annotation", "forward", 10, 20),
    ]
    assert texts(_read(tmp_path, trace(events)), "nvtx_id") == ["ProfilerStep#1/forward", "ProfilerStep#1"]


def test_launches_stand_in_the_order_of_their_calls(tmp_path: Path) -> None:
    events = [
        trace_kernel(100, 3, name="c"),
        trace_kernel(90, 1, name="b"),
        trace_kernel(15, 9, name="without"),
        trace_kernel(80, 2, name="a"),
        trace_call(10, 2),
        trace_call(20, 1),
        trace_call(20, 3),
        trace_call(19, 3),
    ]
    read = _read(tmp_path, trace(events), ReadOptions(launch_offset=5))
    assert kernel_names(read) == ["a", "without", "c", "b"]
    assert read.column("launch").tolist() == [5, 6, 7, 8]
    assert "1 launch has no API call in the file: ordered by the start on the GPU" in sentences(read)


def test_processes_are_those_of_the_calls(tmp_path: Path) -> None:
    events = [
        trace_kernel(100, 1), trace_kernel(101, 2), trace_kernel(102, 3),
        trace_call(30, 1, pid=5), trace_call(10, 2, pid=8), trace_call(20, 3, pid=5),
    ]  # fmt: skip
    read = _read(tmp_path, trace(events))
    assert read.column("process").tolist() == [0, 1, 1]
    assert read.column("launch").tolist() == [0, 0, 1]
    assert read.column("start_ns").tolist() == [101_000, 102_000, 100_000]


def test_kernels_of_a_graph_launch_get_ordinals(tmp_path: Path) -> None:
    events = [
        trace_call(10, 1), trace_kernel(50, 1),
        trace_call(20, 2, name="cudaGraphLaunch"), trace_kernel(70, 2), trace_kernel(60, 2),
        trace_call(30, 3, name="cudaGraphLaunch"), trace_kernel(90, 3, args_graph_node_id=12),
        trace_kernel(80, 3, args_graph_node_id=15),
    ]  # fmt: skip
    read = _read(tmp_path, trace(events))
    assert read.column("start_ns").tolist() == [50_000, 60_000, 70_000, 80_000, 90_000]
    assert read.table["graph_launch"].to_pylist() == [None, 0, 0, 1, 1]
    assert read.table["graph_node"].to_pylist() == [None, 0, 1, 1, 0]


# --- forms ----------------------------------------------------------------------------------------


def test_only_complete_kernel_events_are_launches(tmp_path: Path) -> None:
    events = [
        trace_kernel(1, 1),
        trace_kernel(2, 2, cat="Kernel"),
        trace_kernel(3, 3, ph="B"),
        trace_kernel(4, 4, cat="gpu_memcpy"),
        trace_kernel(5, 5, cat="gpu_user_annotation"),
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "x"}},
        {"ph": "X"},
        {"cat": ["kernel"], "ph": "X"},
    ]
    assert _read(tmp_path, trace(events)).column("start_ns").tolist() == [1000, 2000]


def test_a_list_of_events_is_a_trace_too(tmp_path: Path) -> None:
    read = _read(tmp_path, json.dumps([trace_kernel(1, 1)], indent=1))
    assert len(read) == 1 and read.metadata.devices == ()


def test_a_byte_order_mark_is_not_text(tmp_path: Path) -> None:
    text = trace([trace_call(0, 1), trace_kernel(1, 1)])
    assert _read(tmp_path, "\ufeff" + text).table == _read(tmp_path, text).table


def test_members_may_stand_after_the_events(tmp_path: Path) -> None:
    properties = [
        {"id": 0, "name": "H100", "computeMajor": 9, "computeMinor": 0, "numSms": 132},
        {"id": "?"},
        7,
    ]
    read = _read(tmp_path, trace([trace_kernel(1, 1)], deviceProperties=properties, baseTimeNanoseconds=5))
    assert read.device_labels() == ["H100"] and read.table["start_ns"].to_pylist() == [1005]


def test_what_a_kernel_does_not_say_is_null(tmp_path: Path) -> None:
    kernel = trace_kernel(1, 1)
    kernel["args"] = {"grid": [1, 1, 1], "block": [1, 1, 1]}
    kernel["tid"] = "stream 7"
    read = _read(tmp_path, trace([kernel]))
    for name in ("device", "stream", "registers_per_thread", "shared_memory_bytes", "operator_id"):
        assert read.table[name].null_count == 1, name
    assert "the trace has no operators" in sentences(read)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.dictionaries(
            st.text(max_size=5),
            st.one_of(
                st.integers(),
                st.text(),
                st.none(),
                st.lists(st.floats(allow_nan=False)),
                st.just([{"a": 1}, {"b": "}, {"}, {}]),
            ),
        ),
        max_size=12,
    ),
    st.sampled_from([1, 7, 40, 200, 2000]),
    st.sampled_from([None, 1]),
    st.booleans(),
)
def test_events_are_decoded_whatever_the_blocks(
    tmp_path_factory: pytest.TempPathFactory,
    events: list[dict[str, Any]],
    block_bytes: int,
    indent: int | None,
    exact: bool,
) -> None:
    text = json.dumps(
        {"before": [1, {"a": "]}"}], "traceEvents": events, "after": 12}, indent=indent, ensure_ascii=False
    )
    path = write(tmp_path_factory.mktemp("events") / "t", text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_events, "_BLOCK_BYTES", block_bytes)
        reader = json_events.JsonEvents(path, take_text=None if exact else lambda _: None)
        read = [event for some in reader for event in some]
        assert json.loads(json.dumps(read, default=float)) == json.loads(json.dumps(events))
    assert reader.members == {"before": [1, {"a": "]}"}], "after": 12}
    assert reader.count == len(events)


def test_batches_bring_new_names_and_can_be_read_again(tmp_path: Path) -> None:
    path = write(tmp_path / "t", trace([trace_kernel(i, i, name=f"k{i % 2}") for i in range(5)]))
    with open_recording(path) as recording:
        for _ in range(2):
            new = [sorted(batch.new_names.values()) for batch in recording.batches(max_launches=1)]
            assert new == [["k0"], ["k1"], [], [], []]


# --- bad input ------------------------------------------------------------------------------------


def _error(tmp_path: Path, text: str | bytes) -> InputError:
    path = write(tmp_path / "trace.json", text)
    with pytest.raises(InputError) as caught:
        open_recording(path)
    assert str(path) in str(caught.value)
    return caught.value


def test_kernels_of_a_replayed_graph_have_no_grid(tmp_path: Path) -> None:
    bare = trace_kernel(2, 5)
    bare["args"] = {name: value for name, value in bare["args"].items() if name not in ("grid", "block")}
    path = tmp_path / "trace.json"
    path.write_text(trace([trace_kernel(1, 1), bare, trace_call(1, 1), trace_call(4, 2)]))
    read = read_launches(path)
    assert read.table["grid_x"].to_pylist() == [3, None]
    assert read.table["block_z"].to_pylist() == [1, None]
    assert "grid or block of 1 launch are not in the file: they are not known" in sentences(read)


@pytest.mark.shared_data
def test_every_trace_of_real_gpus_is_read(shared_data: Path) -> None:
    found = {path.name: read_launches(path) for path in sorted((shared_data / "silicon").glob("*.json.gz"))}
    assert [len(launches) for launches in found.values()] == [154, 446, 555, 155, 447]
    replayed = found["inference__sglang_decode__sglang_Qwen3-8B_decode.json.gz"]
    assert [(shape_totals(replayed, what) == 0).sum() for what in ("grid", "block")] == [544, 544]
    profile = Profile(detailed=None, light=replayed)
    selection = select("stem", profile, {})
    saved = SavedSelection.read(selection.document(labels=True).to_dict(), "selection")
    assert score_saved_by_weights(saved, replayed)["launches"].error_percent == pytest.approx(
        selection.evaluation.error_percent
    )
    with pytest.raises(RefusedError, match=r"the block of launch .* is not known"):
        require_shapes("traces", saved, "name_block")


def test_a_trace_without_kernels(tmp_path: Path) -> None:
    for events in ([], [trace_call(1, 1)]):
        error = _error(tmp_path, trace(events))
        assert "holds no kernels" in error.cause and "ProfilerActivity.CUDA" in error.remedy


_GOOD = json.dumps(trace_kernel(1, 1))


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('"ts": 1', '"ts": NaN', "ts"),
        ('"ts": 1', '"ts": Infinity', "ts"),
        ('"ts": 1', '"ts": "soon"', "ts"),
        ('"ts": 1', '"ts": 1e300', "ts"),
        ('"dur": 2', '"dur": -2', "dur"),
        ('"dur": 2', '"dur": null', "dur"),
        ('"dur": 2', '"x": 2', "dur"),
        ('"grid": [3, 2, 1]', '"grid": 1', "grid"),
        ("[3, 2, 1]", "[3, 2]", "grid"),
        ("[3, 2, 1]", "[3, NaN, 1]", "grid"),
        ("[3, 2, 1]", "[0, 2, 1]", "grid"),
        ("[128, 1, 1]", "[true, 1, 1]", "block"),
        ('"name": "void k<int>(int)"', '"name": ""', "name"),
        ('"name": "void k<int>(int)"', '"name": 4', "name"),
    ],
)
def test_a_kernel_that_cannot_be_used_is_named_by_number(
    tmp_path: Path, old: str, new: str, field: str
) -> None:
    assert old in _GOOD
    bad = _GOOD.replace(old, new)
    error = _error(
        tmp_path, '{"traceEvents": [' + ", ".join([_GOOD, json.dumps(trace_call(1, 1)), bad]) + "]}"
    )
    assert error.field == field and "event 2 of traceEvents" in error.cause


@pytest.mark.parametrize(
    "text",
    [
        '{"traceEvents": [' + _GOOD,
        '{"traceEvents": [' + _GOOD + "]",
        '{"traceEvents": [' + _GOOD + "]}}",
        '{"traceEvents": [' + _GOOD + ",]}",
        '{"traceEvents": [' + _GOOD + " " + _GOOD + "]}",
        '{"traceEvents": {"a": 1}}',
        '{"traceEvents": [' + _GOOD + ', "text"]}',
        '{"traceEvents": [' + _GOOD + '] "more": 1}',
        '{"traceEvents" [' + _GOOD + "]}",
        '{7: 1, "traceEvents": []}',
        '{"traceEvents": [' + _GOOD + '], "baseTimeNanoseconds": -1}',
        '{"traceEvents": [' + _GOOD.replace('"ts": 1', '"ts": ' + "9" * 5000) + "]}",
        '{"traceEvents": [' + "[" * 200_000,
        '{"traceEvents": [{"name": "\n"}]}',
    ],
)
def test_text_that_is_no_whole_trace_is_an_input_error(tmp_path: Path, text: str) -> None:
    _error(tmp_path, text)


def test_a_cut_trace_says_how_far_it_was_read(tmp_path: Path) -> None:
    text = trace([trace_kernel(i, i) for i in range(100)])
    error = _error(tmp_path, text[: len(text) // 2])
    assert "49 events" in error.cause or "50 events" in error.cause
    packed = write_gzip(tmp_path / "trace.json.gz", text).read_bytes()
    path = write(tmp_path / "cut.json.gz", packed[: len(packed) * 2 // 3])
    with pytest.raises(InputError, match=r"cut off.*events in .* bytes were read"):
        open_recording(path)


@pytest.mark.shared_data
def test_a_real_trace_cut_off(shared_data: Path, tmp_path: Path) -> None:
    whole = (shared_data / "kineto/a100_alexnet_79_kernels.json.gz").read_bytes()
    for share in (0.1, 0.5, 0.95, 0.9999):
        path = write(tmp_path / "cut.json.gz", whole[: int(len(whole) * share)])
        with pytest.raises(InputError, match="cut off"):
            open_recording(path)


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    bad = trace([trace_kernel(1, 1, name="void k")]).encode().replace(b"void k", b"void \xff")
    assert "UTF-8" in _error(tmp_path, bad).cause
