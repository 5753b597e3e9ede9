"""Kineto events taken together, and those left out undecoded: the same as events read one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.errors import InputError
from assay_sampling.readers.base import ReadOptions
from assay_sampling.readers.kineto import json_events
from assay_sampling.readers.kineto import trace as kineto_trace
from assay_sampling.readers.kineto.at_once import CALLS, KERNELS, NotPlainError
from assay_sampling.readers.kineto.skipping import Objects, wanted_events
from assay_sampling.readers.kineto.trace import KinetoTrace
from assay_sampling.readers.opening import read_launches
from tests.support.sampling.reader_files import trace, trace_call, trace_kernel, trace_range, write

_OF_OPERATORS = {"operator_id", "input_shapes_id", "call", "operation_id"}


def _refused(*_: Any, **__: Any) -> Any:
    raise NotPlainError


def _not_json(*_: Any, **__: Any) -> Any:
    raise ValueError


def _state(path: Path, *, operators: bool = True) -> list[Any]:
    """All that is read of a trace; or the error."""
    try:
        read = KinetoTrace(path, operators=operators)
    except InputError as error:
        return [str(error)]
    # Names, threads and shapes are numbered in the order in which they were met, which may differ.
    meanings = {
        "name": read.texts.to_list(),
        "thread": list(read.thread_keys),
        "shapes": read.shapes.to_list(),
    }
    tables = [
        {name: [meanings[name][n] if n >= 0 else None for n in numbers] if name in meanings else numbers}
        for table in (read.kernels, read.calls, read.operators, read.annotations)
        for name in table._position
        for numbers in [table[name].tolist()]
    ]
    return [*tables, read.devices, read.base_ns, read.doubles]


def _states(path: Path, *, operators: bool = True) -> list[list[Any]]:
    """What is read of a trace together, with every event decoded by pydantic, and by the exact scanner."""
    together = _state(path, operators=operators)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kineto_trace, "rows_at_once", _refused)
        decoded = _state(path, operators=operators)
        patch.setattr(json_events, "from_json", _not_json)
        return [together, decoded, _state(path, operators=operators)]


def _light(path: Path) -> dict[str, Any]:
    """The launches without what belongs to operators, where only launches are asked for."""
    return _columns(path, ReadOptions(operations=False))


def _columns(path: Path, options: ReadOptions) -> dict[str, Any]:
    table = read_launches(path, options).table
    return {name: table[name].to_pylist() for name in table.column_names if name not in _OF_OPERATORS}


_REAL = (
    "kineto/a100_alexnet_79_kernels.json.gz",
    "silicon/h100__Falconsai_nsfw_image_detection__1016002.json.gz",
    "silicon/inference__sglang_decode__sglang_Qwen3-8B_decode.json.gz",
    "silicon/mi300__Falconsai_nsfw_image_detection__1016002.json.gz",
)


@pytest.mark.shared_data
@pytest.mark.parametrize("name", _REAL)
def test_real_traces_are_read_alike_in_all_ways(shared_data: Path, name: str) -> None:
    path = shared_data / name
    together, decoded, scanned = _states(path)
    assert together == decoded == scanned and len(together) > 1
    assert _light(path) == _columns(path, ReadOptions())


def test_the_plain_events_of_a_real_trace_are_taken_together(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone: list[Any] = []
    take = KinetoTrace._take
    monkeypatch.setattr(KinetoTrace, "_take", lambda self, event: alone.append(event) or take(self, event))
    for name in _REAL:
        KinetoTrace(shared_data / name)
    assert len(alone) <= 3 * len(_REAL)  # the last one of each block


_ODD = (
    None, True, False, 0, -1, 7, 1.5, -2.25, 1e300, 2**63, -(2**63), 10**30, "", "7", "aten::mm", "stream 7",
    [], [1], [1, 2, 3], [1, 0, 3], [1, 2, 2**31], [True, 1, 1], [[2, 3], []], [[1.5]], {}, {"a": [{"b": 1}]},
    "é{", '"}]', "a\\b", "a}, {b", '}, {"cat": "kernel"}, {', "\ud800", 2**53 + 0.5, [[2, -3]], [[0.5, 2]],
)  # fmt: skip
_FIELDS = (
    "ph", "cat", "name", "ts", "dur", "pid", "tid", "args", "stream", "correlation", "External id",
    "external id", "grid", "block", "device", "registers per thread", "Input Dims", "Input dims",
)  # fmt: skip


@st.composite
def _events(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A few good events, of which at most two are odd in one field or in the order of their keys."""
    events: list[dict[str, Any]] = [
        trace_kernel(50, 11, name="k{lambda()#1}"), trace_kernel(60.125, 12, args_External_id=3),
        trace_call(10, 11), trace_call(20, 12, tid="worker"), {"ph": "s", "cat": "ac2g", "id": 1, "ts": 3},
        trace_range("cpu_op", "aten::mm", 0, 40, {"External id": 3, "Input Dims": [[2, 3], [3, 4]]}),
        trace_range("user_annotation", "step", 0, 90, {}),
        trace_range("python_function", "f", 0, 90, {"cat": "kernel"}),
        trace_range("overhead", "f", 0, 90, {"list": [{"ph": "X", "cat": "kernel"}, {"cat": "kernel"}]}),
        trace_range("cpu_instant_event", "}", 0, 1, {"list": [{"a": 1}, {"cat": "ac2g", "b": "]"}]}),
    ]  # fmt: skip
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(events) - 1))
        event = json.loads(json.dumps(events[place]))
        args, field = event.get("args"), draw(st.sampled_from(_FIELDS))
        where = args if type(args) is dict and draw(st.booleans()) else event
        if draw(st.booleans()):
            where.pop(field, None)
        else:
            where[field] = draw(st.sampled_from(_ODD))
        keys = draw(st.permutations(list(event))) if draw(st.booleans()) else list(event)
        events[place] = {key: event[key] for key in keys}
    return draw(st.permutations(events)) * draw(st.sampled_from([1, 20]))


def _written(events: list[dict[str, Any]], layout: int) -> str:
    """As Python's json writes a list: in one line, a line for each event, or lines for each value."""
    if layout == 0:
        return json.dumps(events)[1:-1]
    if layout == 1:
        return ",\n".join(map(json.dumps, events))
    text = json.dumps(events, indent=2, ensure_ascii=False)[1:-1].strip()
    return text.replace("\ud800", r"\ud800")


@settings(deadline=None, max_examples=40)
@given(_events(), st.integers(0, 2))
def test_odd_events_are_read_alike_in_all_ways(
    tmp_path_factory: pytest.TempPathFactory, events: list[dict[str, Any]], layout: int
) -> None:
    path = write(
        tmp_path_factory.mktemp("odd") / "t", '{"traceEvents": [\n' + _written(events, layout) + "\n]}"
    )
    for operators in (True, False):
        together, decoded, scanned = _states(path, operators=operators)
        assert together == decoded == scanned


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"stream": 7, ', ""),
        ('"ts": 50', '"ts": 4000000000000001'),
        ('"ts": 50', '"ts": -9223372036854775.808'),
        ('"ts": 50', '"ts": 18446744073709551.666'),
        ('"External id": 3', '"external id": 3'),
        ('"grid": [3, 2, 1]', '"grid": [0, 1, 1]'),
        ('"grid": [3, 2, 1]', '"grid": [2147483648, 1, 1]'),
        ('"registers per thread": 32', '"registers per thread": -9223372036854775808'),
        ('"correlation": 21', '"correlation": -1'),
        ('"correlation": 21', '"context": 1'),
        ('"name": "aten::mm"', '"cat": "kernel", "name": "aten::mm"'),
    ],
)
def test_an_odd_event_among_plain_ones_is_read_alike_in_all_ways(tmp_path: Path, old: str, new: str) -> None:
    """All but the last event of a trace may be taken together."""
    events = [
        trace_kernel(50, 11), trace_kernel(60, 12, args_External_id=4), trace_call(10, 11),
        trace_call(20, 21), trace_range("cpu_op", "aten::mm", 0, 40, {"External id": 3}),
        trace_kernel(70, 13),
    ]  # fmt: skip
    text = trace(events)
    assert old in text
    path = write(tmp_path / "t", text.replace(old, new, 1))
    for operators in (True, False):
        together, decoded, scanned = _states(path, operators=operators)
        assert together == decoded == scanned


def test_half_nanoseconds_are_rounded_as_decimals_are(tmp_path: Path) -> None:
    """2.0005 microseconds are 2000.5000000000002 ns to a float; the truth, 2000.5, rounds to even."""
    path = write(
        tmp_path / "t", trace([trace_kernel(2.0005, 1)] + [trace_kernel(n, n) for n in range(3, 60)])
    )
    together, decoded, scanned = _states(path)
    assert together == decoded == scanned
    assert together[0]["ts"][0] == 2000


@settings(deadline=None, max_examples=150)
@given(_events(), st.integers(0, 2))
def test_no_wanted_event_is_left_out(events: list[dict[str, Any]], layout: int) -> None:
    wanted = wanted_events(_written(events, layout).encode(), KERNELS | CALLS)
    read = _objects(wanted.text.decode())
    if read is None:  # it is refused, and read in another way
        return
    assert len(read) == wanted.count == len(events) - wanted.left_out
    kinds = [repr(kind) for kind in KERNELS | CALLS]
    assert [e for e in read if repr(e.get("cat")) in kinds] == [
        e for e in events if repr(e.get("cat")) in kinds
    ]


def _objects(text: str) -> list[dict[str, Any]] | None:
    """Objects that stand one after the other; None where that is not JSON."""
    objects, position = [], 0
    try:
        while position < len(text):
            value, position = json.JSONDecoder().raw_decode(text, position)
            objects.append(value)
            position += len(text[position:]) - len(text[position:].lstrip())
    except json.JSONDecodeError:
        return None
    return objects


def test_most_events_of_other_categories_are_left_out() -> None:
    events = [trace_kernel(1, 1)] * 3 + [trace_range("cpu_op", "aten::mm", 0, 4, {"External id": 3})] * 97
    for layout in (0, 1, 2):
        assert wanted_events(_written(events, layout).encode(), KERNELS).left_out >= 96


@pytest.mark.parametrize(
    "event",
    [
        '{"cat": "python_function", "name": "f", "cat": "kernel"}',
        '{"cat": "python_function", "name": "f", "\\u0063at": "kernel"}',
        '{"args": {"cat": "python_function"}, "cat" : "kernel"}',
        '{"cat": "python_function", "name": "}", "list": [{"a": 1},\n{"a": {}}]}',
        '{"cat": "python_function"}],\n"other": [{"a": 1}',
    ],
)
def test_an_event_that_may_mean_something_else_is_kept(event: str) -> None:
    other = '{"cat": "python_function", "name": "f"}'
    text = ",\n".join([other, event, other, other])
    assert event.replace("},", "}\n") in wanted_events(text.encode(), KERNELS).text.decode().replace(
        "},", "}\n"
    )


def test_events_without_a_category_are_left_out() -> None:
    named = '{"name": "process_name", "ph": "M", "pid": "Spans", "args": {"name": "python"}}'
    kernel = json.dumps(trace_kernel(1, 1))
    assert wanted_events(f"{named}, {kernel}, {named}, {named}".encode(), KERNELS) == Objects(
        kernel.encode(), 1, 3
    )
    assert wanted_events(f"{named}, {named}".encode(), KERNELS) == Objects(b"", 0, 2)


def test_a_missing_comma_is_seen_where_events_are_taken_together(tmp_path: Path) -> None:
    text = ",\n".join(json.dumps(trace_kernel(n, n)) for n in range(1, 40))
    path = write(tmp_path / "t", '{"traceEvents": [\n' + text.replace("},\n", "}\n", 1) + "\n]}")
    with pytest.raises(InputError, match=r"a comma is missing\); 1 events"):
        read_launches(path)


def test_a_cut_trace_is_refused_where_only_launches_are_asked_for(tmp_path: Path) -> None:
    events = [trace_kernel(1, 1)] + [trace_range("cpu_op", "aten::mm", 0, 4, {"External id": 3})] * 3000
    text = trace(events)
    path = write(tmp_path / "t", text[: len(text) // 2])
    with pytest.raises(InputError, match=r"cut off or not JSON; 1[45]\d\d events"):
        read_launches(path, ReadOptions(operations=False))
