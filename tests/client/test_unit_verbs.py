"""``--unit`` on the command line: one selection on recordings of two vendors' GPUs."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Assay = Callable[..., Any]
MODEL = "Falconsai_nsfw_image_detection__1016002.json.gz"


@pytest.fixture
def traces(shared_data: Path) -> tuple[Path, Path]:
    """Real traces of one model on an H100 and a MI300X."""
    return shared_data / "silicon" / f"h100__{MODEL}", shared_data / "silicon" / f"mi300__{MODEL}"


def document_of(ended: Any) -> Any:
    assert ended.stderr == ""
    assert ended.code == 0
    return json.loads(ended.stdout)


def selected(assay: Assay, recording: Path, to: Path, *options: str) -> Any:
    return document_of(assay("select", "stem", recording, "-o", to, "--json", *options))


def test_a_selection_by_operation_holds_on_another_vendors_gpu(
    assay: Assay, traces: tuple[Path, Path], tmp_path: Path
) -> None:
    saved = tmp_path / "s.json"
    made = selected(assay, traces[0], saved, "--unit", "operation")
    assert made["unit"] == "operation"
    assert made["operations"]["calls"] == 150
    assert made["operations"]["launches"] == 154
    scored = document_of(assay("evaluate", saved, traces[1], "--json"))
    assert scored["operations"]["calls_matched"] == 150
    assert scored["operations"]["selection_time_percent"] == 100
    assert scored["operations"]["recording_time_percent"] == 100
    assert scored["error_percent"] < 3
    shown = assay("evaluate", saved, traces[1]).stdout
    assert "operations matched" in shown


def test_a_selection_by_launch_is_refused_there_with_the_command_by_operation(
    assay: Assay, traces: tuple[Path, Path], tmp_path: Path
) -> None:
    saved = tmp_path / "s.json"
    assert "unit" not in selected(assay, traces[0], saved)
    ended = assay("evaluate", saved, traces[1])
    assert ended.code != 0
    assert "made on 154 launches, and this recording has 155" in ended.stderr
    assert "selected kernels have this name there" in ended.stderr
    assert "assay select stem FILE --unit operation" in ended.stderr


def test_another_recording_decides_the_unit(assay: Assay, traces: tuple[Path, Path], tmp_path: Path) -> None:
    saved = tmp_path / "s.json"
    assert selected(assay, traces[0], saved, "--on", str(traces[1]))["unit"] == "operation"
    assert "unit" not in selected(assay, traces[0], saved, "--on", str(traces[0]))


def test_another_unit_than_the_selections_is_refused(
    assay: Assay, traces: tuple[Path, Path], tmp_path: Path
) -> None:
    saved = tmp_path / "s.json"
    selected(assay, traces[0], saved, "--unit", "operation")
    ended = assay("evaluate", saved, traces[1], "--unit", "launch")
    assert ended.code != 0
    assert "the selection was made by operation" in ended.stderr
    assert "there is no unit 'call'" in assay("evaluate", saved, traces[1], "--unit", "call").stderr


def without(trace: Path, to: Path, drop: Callable[[dict[str, Any]], bool], key: str = "") -> Path:
    """A trace without some events, or without an argument of all events."""
    document = json.loads(gzip.decompress(trace.read_bytes()))
    events = [event for event in document["traceEvents"] if not drop(event)]
    for event in events:
        event.get("args", {}).pop(key, None)
    to.write_text(json.dumps({**document, "traceEvents": events}))
    return to


def test_a_recording_without_operators_is_refused_with_the_way_to_record_them(
    assay: Assay, traces: tuple[Path, Path], tmp_path: Path
) -> None:
    bare = without(
        traces[1], tmp_path / "bare.json", lambda event: event.get("cat") in ("cpu_op", "user_annotation")
    )
    saved = tmp_path / "s.json"
    selected(assay, traces[0], saved, "--unit", "operation")
    ended = assay("evaluate", saved, bare)
    assert "its operations are unknown" in ended.stderr
    assert "record_shapes=True" in ended.stderr
    assert "its operations are unknown" in assay("select", "stem", bare, "--unit", "operation").stderr
    # A selection by operation could not be scored there, so none is made for it.
    for pair in ((traces[0], bare), (bare, traces[0])):
        ended = assay("select", "stem", pair[0], "--on", pair[1], "-o", tmp_path / "never.json")
        assert "its operations are unknown" in ended.stderr
        assert not (tmp_path / "never.json").exists()
    selected(assay, traces[0], saved)
    ended = assay("evaluate", saved, bare)
    assert "has no operations to match instead" in ended.stderr


def test_one_trace_with_input_shapes_and_one_without_are_refused(
    assay: Assay, traces: tuple[Path, Path], tmp_path: Path
) -> None:
    shapeless = without(traces[1], tmp_path / "bare.json", lambda _: False, "Input Dims")
    saved = tmp_path / "s.json"
    selected(assay, traces[0], saved, "--unit", "operation")
    assert "the recording has no input shapes" in assay("evaluate", saved, shapeless).stderr


def test_without_input_shapes_on_both_sides_a_note_says_so(
    assay: Assay, traces: tuple[Path, Path], tmp_path: Path
) -> None:
    one, other = (
        without(trace, tmp_path / f"{place}.json", lambda _: False, "Input Dims")
        for place, trace in enumerate(traces)
    )
    saved = tmp_path / "s.json"
    selected(assay, one, saved, "--unit", "operation")
    scored = document_of(assay("evaluate", saved, other, "--json"))
    assert [note["code"] for note in scored["notes"]] == ["operations_without_shapes"]
