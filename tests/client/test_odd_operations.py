"""Ugly pairs of traces, by operation on the command line: each gets a note or a refusal that names the first
difference, and none is matched by luck."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import assay as assay_package
from assay_sampling.launches.profile import Profile
from assay_sampling.launches.table import Device, TableMetadata
from tests.support.sampling.made_operations import made_calls
from tests.support.sampling.reader_files import trace, trace_call, trace_kernel, trace_range, write

Assay = Callable[..., Any]
Event = dict[str, Any]
# Microseconds: a call every 100 us, of which 80 us are within the operator.
_STEP, _WITHIN = 100, 80
OPERATORS = ("aten::linear", "aten::gelu", "aten::layer_norm")


def operator(number: int, name: str, dims: Any, *, thread: int = 101) -> Event:
    args = {} if dims is None else {"Input Dims": dims}
    return trace_range("cpu_op", name, number * _STEP, _WITHIN, args, tid=thread)


def launched(number: int, kernel: str, us: int, *, thread: int = 101) -> list[Event]:
    at = number * _STEP + 10
    call = trace_call(at, number + 1, tid=thread)
    return [call, trace_kernel(at + 5, number + 1, name=kernel, dur=us)]


def calls(
    count: int, *, batch: int | None = 4, prefix: str = "nv", threads: Callable[[int], int] = lambda _: 101
) -> list[Event]:
    """Calls of the three operators in turn, each with one launch."""
    events: list[Event] = []
    for number in range(count):
        name, thread = OPERATORS[number % 3], threads(number)
        dims = None if batch is None else [[batch, 64 + number % 3]]
        events += [operator(number, name, dims, thread=thread)]
        events += launched(number, f"{prefix}_{name}", 20 + number % 5, thread=thread)
    return events


def written(path: Path, events: Sequence[Event], gpu: str) -> Path:
    properties = [{"id": 0, "name": gpu, "computeMajor": 9, "computeMinor": 0}]
    return write(path, trace(events, deviceProperties=properties))


def selected(assay: Assay, tmp_path: Path, events: Sequence[Event]) -> Path:
    saved = tmp_path / "s.json"
    here = written(tmp_path / "here.json", events, "H100")
    ended = assay("select", "stem", here, "--unit", "operation", "-o", saved)
    assert ended.code == 0, ended.stderr
    return saved


def evaluated(assay: Assay, tmp_path: Path, saved: Path, events: Sequence[Event]) -> Any:
    return assay("evaluate", saved, written(tmp_path / "there.json", events, "MI300X"), "--json")


def document_of(ended: Any) -> dict[str, Any]:
    assert ended.code == 0, ended.stderr
    return dict(json.loads(ended.stdout))


def refusal_of(ended: Any) -> str:
    assert ended.code != 0
    error = json.loads(ended.stderr)["error"]
    return " ".join([error["type"], error["cause"], *error.get("differences", ())])


def test_other_batch_sizes_with_shapes_are_refused_with_the_first_call(assay: Assay, tmp_path: Path) -> None:
    saved = selected(assay, tmp_path, calls(60))
    said = refusal_of(evaluated(assay, tmp_path, saved, calls(60, batch=8, prefix="amd")))
    assert "MisalignedError" in said
    assert "0 % of the selection's time" in said
    assert "only the selection's recording has, at launch 0, aten::linear [[4,64]]" in said
    assert "only the recording has, at launch 0, aten::linear [[8,64]]" in said


def test_other_batch_sizes_without_shapes_carry_the_note_that_nothing_tells_them_apart(
    assay: Assay, tmp_path: Path
) -> None:
    saved = selected(assay, tmp_path, calls(60, batch=None))
    found = document_of(evaluated(assay, tmp_path, saved, calls(60, batch=None, prefix="amd")))
    assert "operations_without_shapes" in [note["code"] for note in found["notes"]]


def test_shapes_on_one_side_only_are_refused_with_the_first_call(assay: Assay, tmp_path: Path) -> None:
    saved = selected(assay, tmp_path, calls(60))
    said = refusal_of(evaluated(assay, tmp_path, saved, calls(60, batch=None, prefix="amd")))
    assert "the recording has no input shapes" in said
    assert "the selection's recording has, at launch 0, aten::linear [[4,64]]" in said
    assert "the recording has, at launch 0, aten::linear" in said


def test_a_file_cut_within_an_operator_is_refused_as_cut(assay: Assay, tmp_path: Path) -> None:
    saved = selected(assay, tmp_path, calls(60))
    whole = written(tmp_path / "there.json", calls(60, prefix="amd"), "MI300X")
    text = whole.read_text()
    whole.write_text(text[: text.rindex('"cat": "cpu_op"')])
    ended = assay("evaluate", saved, whole)
    assert ended.code != 0
    assert str(whole) in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_window_that_ends_within_an_operator_matches_the_rest_and_names_what_differs(
    assay: Assay, tmp_path: Path
) -> None:
    # The profiler writes an operator when it ends: that of the last launches is missing, not they themselves.
    saved = selected(assay, tmp_path, calls(60))
    cut = [e for e in calls(60, prefix="amd") if not (e["cat"] == "cpu_op" and e["ts"] == 59 * _STEP)]
    found = document_of(evaluated(assay, tmp_path, saved, cut))
    assert found["operations"]["calls_matched"] == 59
    [unmatched] = [note for note in found["notes"] if note["code"] == "operations_unmatched"]
    assert (unmatched["selection_calls"], unmatched["recording_calls"]) == (1, 1)
    assert "only the selection's recording has, at launch 59, aten::layer_norm [[4,66]]" in unmatched["text"]
    assert 95 < found["operations"]["recording_time_percent"] < 100
    assert 95 < found["operations"]["selection_time_percent"] < 100
    half = [e for e in calls(60, prefix="amd") if e["ts"] < 30 * _STEP]
    said = refusal_of(evaluated(assay, tmp_path, saved, half))
    assert "95 % of both are needed" in said
    assert "only the selection's recording has, at launch 30, aten::linear" in said


def test_two_threads_with_one_stream_are_matched_thread_by_thread(assay: Assay, tmp_path: Path) -> None:
    saved = selected(assay, tmp_path, calls(60, threads=lambda n: 101 + n % 2))
    # Elsewhere the second thread gets to launch only after the first has ended.
    order = [*range(0, 60, 2), *range(1, 60, 2)]
    events: list[Event] = []
    for at, number in enumerate(order):
        name, thread = OPERATORS[number % 3], 201 + number % 2
        events += [operator(at, name, [[4, 64 + number % 3]], thread=thread)]
        events += launched(at, f"amd_{name}", 20 + number % 5, thread=thread)
    found = document_of(evaluated(assay, tmp_path, saved, events))
    assert found["operations"]["calls_matched"] == 60
    assert found["operations"]["recording_time_percent"] == 100
    # One call too many on one thread shifts nothing on the other.
    more = [*events, operator(99, "aten::gelu", [[4, 65]], thread=202),
            *launched(99, "amd_extra", 1, thread=202)]  # fmt: skip
    again = document_of(evaluated(assay, tmp_path, saved, more))
    assert again["operations"]["calls_matched"] == 60
    assert again["operations"]["recording_calls_percent"] < 100
    [unmatched] = [note for note in again["notes"] if note["code"] == "operations_unmatched"]
    assert unmatched["difference"] == "only the recording has, at launch 60, aten::gelu [[4,65]]"


def test_an_operator_whose_kernels_all_went_into_a_graph_is_unmatched_time(
    assay: Assay, tmp_path: Path
) -> None:
    saved = selected(assay, tmp_path, calls(60))
    events = [event for event in calls(60, prefix="amd") if event["cat"] == "cpu_op"]
    replay = trace_call(60 * _STEP, 999) | {"name": "hipGraphLaunch"}
    kernels = [
        trace_kernel(60 * _STEP + 30 * n, 999, name=f"amd_{OPERATORS[n % 3]}", dur=20 + n % 5)
        for n in range(60)
    ]
    said = refusal_of(evaluated(assay, tmp_path, saved, [*events, replay, *kernels]))
    assert "MisalignedError" in said
    assert "only the selection's recording has, at launch 0, aten::linear [[4,64]]" in said
    assert "of 60 kernels" in said


def test_one_operator_of_many_that_went_into_a_graph_is_named(assay: Assay, tmp_path: Path) -> None:
    saved = selected(assay, tmp_path, calls(60))
    gone = {10, 11}
    replayed = [e for e in calls(60, prefix="amd") if e["cat"] == "cpu_op" or e["ts"] // _STEP not in gone]
    replay = trace_call(60 * _STEP, 999) | {"name": "hipGraphLaunch"}
    kernels = [trace_kernel(60 * _STEP + 30 * n, 999, name="amd_fused", dur=20) for n in range(2)]
    found = document_of(evaluated(assay, tmp_path, saved, [*replayed, replay, *kernels]))
    [unmatched] = [note for note in found["notes"] if note["code"] == "operations_unmatched"]
    assert (unmatched["selection_calls"], unmatched["recording_calls"]) == (2, 1)
    assert unmatched["difference"] == "only the selection's recording has, at launch 10, aten::gelu [[4,65]]"
    text = assay("compare", tmp_path / "here.json", "--on", tmp_path / "there.json", "-m", "stem").stdout
    assert f"first difference: {unmatched['difference']}" in " ".join(text.split())


def test_an_operator_with_40_000_shapes_is_matched_call_by_call(assay: Assay, tmp_path: Path) -> None:
    def recording(name: str, gpu: str, first: int) -> Path:
        calls = [("aten::mm", f"[[{first + n},64]]", [1000 + n % 50]) for n in range(40_000)]
        metadata = TableMetadata("light", devices=(Device(0, gpu),))
        made = made_calls(calls, prefix=gpu, metadata=metadata, device=[0] * len(calls))
        (path,) = assay_package.Profile(Profile(light=made)).write(tmp_path / name)
        return path

    saved, here = tmp_path / "s.json", recording("here.parquet", "H100", 1)
    assert assay("select", "stratified", here, "--unit", "operation", "-o", saved).code == 0
    # Of a batch that is larger by one shape all calls but one have an equal, in another place.
    found = document_of(assay("evaluate", saved, recording("there.parquet", "MI300X", 2), "--json"))
    assert found["operations"]["calls_matched"] == 39_999
    assert found["speedup"] > 10
    [unmatched] = [note for note in found["notes"] if note["code"] == "operations_unmatched"]
    assert unmatched["difference"] == "only the selection's recording has, at launch 0, aten::mm [[1,64]]"
    other = recording("other.parquet", "MI300X", 50_000)
    said = refusal_of(assay("evaluate", saved, other, "--json"))
    assert "only the selection's recording has, at launch 0, aten::mm [[1,64]]" in said


def test_crossing_operators_are_noted_where_they_are_selected(assay: Assay, tmp_path: Path) -> None:
    crossing = [
        trace_range("cpu_op", "aten::first", 6000, 100, {"Input Dims": [[4]]}),
        trace_range("cpu_op", "aten::second", 6050, 100, {"Input Dims": [[4]]}),
        trace_call(6060, 500),
        trace_kernel(6065, 500),
    ]
    here = written(tmp_path / "here.json", [*calls(60), *crossing], "H100")
    found = document_of(assay("select", "stem", here, "--unit", "operation", "--json"))
    [crossed] = [note for note in found["profile"]["notes"] if note["code"] == "operations_cross"]
    assert crossed["operation"] == "aten::first [[4]]"


def test_crossing_operators_match_only_those_that_cross_alike(assay: Assay, tmp_path: Path) -> None:
    def crossing(second_begins: int) -> list[Event]:
        return [
            *calls(60),
            trace_range("cpu_op", "aten::first", 6000, 100, {"Input Dims": [[4]]}),
            trace_range("cpu_op", "aten::second", second_begins, 100, {"Input Dims": [[4]]}),
            trace_call(6060, 500),
            trace_kernel(6065, 500, dur=20),
        ]

    saved = selected(assay, tmp_path, crossing(6050))
    same = document_of(evaluated(assay, tmp_path, saved, crossing(6040)))
    assert same["operations"]["calls_matched"] == 61
    # Here the other one begins first, so the launch is its own.
    other = document_of(evaluated(assay, tmp_path, saved, crossing(5990)))
    assert other["operations"]["calls_matched"] == 60
    [unmatched] = [note for note in other["notes"] if note["code"] == "operations_unmatched"]
    assert unmatched["difference"].endswith("at launch 60, aten::first [[4]]")


def test_one_trace_with_operators_and_one_without_are_refused_in_every_verb(
    assay: Assay, tmp_path: Path
) -> None:
    saved = selected(assay, tmp_path, calls(60))
    bare = [event for event in calls(60, prefix="amd") if event["cat"] != "cpu_op"]
    assert "its operations are unknown" in refusal_of(evaluated(assay, tmp_path, saved, bare))
    here, there = tmp_path / "here.json", tmp_path / "there.json"
    for first, second in ((here, there), (there, here)):
        said = refusal_of(assay("select", "stem", first, "--on", second, "-o", tmp_path / "n.json", "--json"))
        assert "its operations are unknown" in said
        compared = assay("compare", first, "--on", second, "-m", "stem", "--json")
        (row,) = document_of(compared)["on"]
        assert row["status"] == "refused"
        assert "kernels have this name there" in row["reason"]
