"""Nsight Systems exports of a window: what the end of the capture cut off is told from what was lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay_sampling.notes.registry import Note
from assay_sampling.readers.inspection.recording import inspect_recording
from assay_sampling.readers.opening import read_launches
from assay_sampling.running.validity import FLAGS
from tests.support.sampling.reader_files import PID, TID, nsys_call, nsys_export, nsys_kernel, parquet_folder

_NAMES = {1: "void first<int>(int*)", 5: "cudaLaunchKernel_v7000", 7: "cudaGraphLaunch_v10000"}
_OTHER_THREAD, _OTHER_PROCESS = TID + 1, TID + (1 << 24)


def call(start: int, correlation: int, **changed: Any) -> dict[str, Any]:
    return nsys_call(start, correlation, nameId=5, returnValue=0, **changed)


def window(*, kernels: list[dict[str, Any]] | None = None, calls: list[dict[str, Any]] | None = None) -> Any:
    """A window of [0, 100,000] ns on two streams of one thread: calls at 0 and 1,000 with their kernels, and
    a kernel of another process's that ends with the window."""
    own = [nsys_kernel(20, 1), nsys_kernel(1020, 2)]
    last = nsys_kernel(99_900, 1, globalPid=PID + (5 << 24))
    return (
        [*own, last, *(kernels or [])],
        [call(0, 1), call(1000, 2), call(99_000, 1, globalTid=TID + (5 << 24)), *(calls or [])],
    )


def told(tmp_path: Path, **parts: Any) -> dict[str, int]:
    kernels, calls = window(**parts)
    path = nsys_export(tmp_path / "x.sqlite", kernels, calls, strings=_NAMES)
    notes = read_launches(path).notes
    return {note.code: int(dict(note.parameters)["calls"]) for note in notes}  # type: ignore[arg-type]


def test_calls_at_the_end_that_no_kernel_follows_are_cut(tmp_path: Path) -> None:
    calls = [call(99_100 + i, 10 + i) for i in range(3)]
    assert told(tmp_path, calls=calls) == {"capture_cut": 3}


def test_a_call_in_the_middle_is_lost(tmp_path: Path) -> None:
    assert told(tmp_path, calls=[call(50_000, 10)]) == {"kernels_lost": 1}


def test_the_last_hundredth_begins_at_99_percent(tmp_path: Path) -> None:
    assert told(tmp_path, calls=[call(98_999, 10), call(99_000, 11)]) == {
        "kernels_lost": 1, "capture_cut": 1,
    }  # fmt: skip


def test_a_call_that_one_with_a_kernel_follows_on_its_stream_is_lost(tmp_path: Path) -> None:
    kernels, calls = [nsys_kernel(99_600, 11)], [call(99_200, 10), call(99_500, 11), call(99_700, 12)]
    assert told(tmp_path, kernels=kernels, calls=calls) == {"kernels_lost": 1, "capture_cut": 1}


def test_a_window_of_a_long_workload_is_as_long_as_its_own_time(tmp_path: Path) -> None:
    """Times count from the start of the session: the last hundredth of a window late in it is short."""
    late = 10**10
    kernels = [nsys_kernel(late + 20, 1), nsys_kernel(late + 99_000, 2)]
    calls = [call(late, 1), call(late + 98_000, 2), call(late + 98_500, 10), call(late + 99_500, 11)]
    path = nsys_export(tmp_path / "x.sqlite", kernels, calls, strings=_NAMES)
    notes = read_launches(path).notes
    assert {note.code: dict(note.parameters)["calls"] for note in notes} == {
        "kernels_lost": 1, "capture_cut": 1,
    }  # fmt: skip


def test_a_call_at_the_same_moment_as_one_with_a_kernel_is_not_shown_to_be_the_last(tmp_path: Path) -> None:
    calls = [call(99_500, 10), call(99_500, 11, globalTid=_OTHER_THREAD)]
    assert told(tmp_path, kernels=[nsys_kernel(99_600, 11)], calls=calls) == {"kernels_lost": 1}


def test_another_thread_on_the_same_stream_proves_the_loss_too(tmp_path: Path) -> None:
    calls = [call(99_200, 10), call(99_500, 11, globalTid=_OTHER_THREAD)]
    assert told(tmp_path, kernels=[nsys_kernel(99_600, 11)], calls=calls) == {"kernels_lost": 1}


@pytest.mark.parametrize(
    "elsewhere", [{"streamId": 13}, {"deviceId": 1}, {"contextId": 2}], ids=["stream", "device", "context"]
)
def test_another_thread_on_another_stream_proves_nothing(tmp_path: Path, elsewhere: dict[str, int]) -> None:
    """Streams have numbers of their own on each device and in each context."""
    calls = [call(99_200, 10), call(99_500, 11, globalTid=_OTHER_THREAD)]
    kernels = [nsys_kernel(99_600, 11, **elsewhere)]
    assert told(tmp_path, kernels=kernels, calls=calls) == {"capture_cut": 1}


def test_another_process_on_a_stream_of_the_same_number_proves_nothing(tmp_path: Path) -> None:
    calls = [call(99_200, 10), call(99_500, 11, globalTid=_OTHER_PROCESS)]
    kernels = [nsys_kernel(99_600, 11, globalPid=PID + (1 << 24))]
    assert told(tmp_path, kernels=kernels, calls=calls) == {"capture_cut": 1}


def test_a_thread_of_several_streams_could_mean_any_of_them(tmp_path: Path) -> None:
    """An export names no stream for a call without a kernel: what cannot be shown stays lost."""
    kernels = [nsys_kernel(99_600, 11, streamId=13)]
    assert told(tmp_path, kernels=kernels, calls=[call(99_200, 10), call(99_500, 11)]) == {"kernels_lost": 1}
    assert told_anew(tmp_path, kernels, [call(99_500, 11), call(99_600, 12)]) == {"capture_cut": 1}


def told_anew(tmp_path: Path, kernels: list[dict[str, Any]], calls: list[dict[str, Any]]) -> dict[str, int]:
    folder = tmp_path / "again"
    folder.mkdir()
    return told(folder, kernels=kernels, calls=calls)


def test_a_thread_without_any_kernel_could_mean_any_stream_of_its_process(tmp_path: Path) -> None:
    silent = call(99_200, 10, globalTid=_OTHER_THREAD)
    assert told(tmp_path, kernels=[nsys_kernel(99_600, 11)], calls=[silent, call(99_500, 11)]) == {
        "kernels_lost": 1
    }
    assert told_anew(tmp_path, [], [silent]) == {"capture_cut": 1}


def test_a_process_without_any_kernel_is_cut_at_the_end_alone(tmp_path: Path) -> None:
    calls = [call(99_200, 10, globalTid=_OTHER_PROCESS), call(40_000, 11, globalTid=_OTHER_PROCESS)]
    assert told(tmp_path, calls=calls) == {"kernels_lost": 1, "capture_cut": 1}


def test_without_stream_numbers_a_process_is_one_stream(tmp_path: Path) -> None:
    kernels, calls = window(
        kernels=[nsys_kernel(99_600, 11)], calls=[call(99_200, 10), call(99_500, 11, globalTid=_OTHER_THREAD)]
    )
    for kernel in kernels:
        del kernel["streamId"]
    path = nsys_export(tmp_path / "x.sqlite", kernels, calls, strings=_NAMES)
    assert [note.code for note in read_launches(path).notes] == ["kernels_lost"]


def test_a_process_with_graphs_proves_nothing_at_the_end_either(tmp_path: Path) -> None:
    calls = [call(99_200, 10), call(99_100, 12) | {"nameId": 7}]
    assert told(tmp_path, calls=calls) == {}


def test_the_same_in_a_parquet_export(tmp_path: Path) -> None:
    kernels, calls = window(
        kernels=[nsys_kernel(99_600, 11, contextId=2)],
        calls=[call(99_200, 10), call(99_500, 11, globalTid=_OTHER_THREAD)],
    )
    source = nsys_export(tmp_path / "x.sqlite", kernels, calls, strings=_NAMES)
    folder = parquet_folder(source, tmp_path / "parquet")
    assert read_launches(folder).notes == (Note("capture_cut", (("calls", 1),)),)


def test_a_cut_capture_is_no_reason_to_refuse() -> None:
    assert (FLAGS["capture_cut"].invalidates, FLAGS["launches_dropped"].invalidates) == (False, True)


@pytest.mark.shared_data
def test_a_real_window_of_two_gpus_is_cut_and_lost_nothing(shared_data: Path) -> None:
    document = inspect_recording(shared_data / "nsys" / "h100_2gpu_window_4010_kernels.sqlite.gz")
    assert (document["launches"], len(document["devices"])) == (4010, 2)
    notes = {note["code"]: note for note in document["notes"]}
    assert notes.keys() == {"no_api_call", "capture_cut"}
    cut = notes["capture_cut"]
    assert (cut["calls"], cut["flag"], cut["invalidates"]) == (20, "capture_cut", False)


# --- what the tool itself says --------------------------------------------------------------------


@pytest.mark.shared_data
def test_a_real_warning_of_the_tool_is_a_note(shared_data: Path) -> None:
    document = inspect_recording(shared_data / "nsys" / "rtx3060_graphs_as_a_whole.sqlite.gz")
    messages = [note["message"] for note in document["notes"] if note["code"] == "profiler_message"]
    assert messages[0] == (
        "Installed CUDA driver version (13.2) is not supported by this build of Nsight Systems. CUDA trace "
        "will be collected using libraries for driver version 13.1"
    )
    assert not any("Profiling has started" in message for message in messages)
    (graphs,) = (note for note in document["notes"] if note["code"] == "graphs_as_a_whole")
    assert (graphs["graph_launches"], graphs["flag"]) == (2, "launches_missing")


def test_warnings_and_errors_are_told_and_what_is_lost_comes_first(tmp_path: Path) -> None:
    said = [{"severity": 2, "text": f"Warning number {i} of the tool."} for i in range(30)]
    said += [{"severity": 3, "text": "CUPTI failed\tto start."}, {"severity": 1, "text": "All is well."}]
    said += [{"severity": 1, "text": "12 CUDA events were dropped."}, {"severity": 3, "text": None}]
    path = nsys_export(
        tmp_path / "x", [nsys_kernel(1, 1)], [nsys_call(0, 1)], extra={"DIAGNOSTIC_EVENT": said}
    )
    notes = read_launches(path).notes
    assert [note.code for note in notes] == [
        "profiler_lost_events", *["profiler_message"] * 20, "messages_left_out",
    ]  # fmt: skip
    # Errors before warnings, each once.
    assert dict(notes[1].parameters) == {"message": "CUPTI failed to start."}
    assert dict(notes[-1].parameters) == {"messages": 11}


def test_diagnostics_without_severities_tell_of_losses_only(tmp_path: Path) -> None:
    said = [{"text": "12 CUDA events were dropped."}, {"text": "Something else."}]
    path = nsys_export(
        tmp_path / "x", [nsys_kernel(1, 1)], [nsys_call(0, 1)], extra={"DIAGNOSTIC_EVENT": said}
    )
    assert [note.code for note in read_launches(path).notes] == ["profiler_lost_events"]
