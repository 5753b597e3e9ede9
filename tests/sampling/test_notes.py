"""The registry of notes, and that checks after the readers take flags from it, never from sentences."""

from __future__ import annotations

import re
from inspect import signature
from pathlib import Path

import pytest

from assay_sampling.notes.registry import (
    NOTES,
    SUBJECTS,
    Note,
    distinct_notes,
    flags_of,
    in_unit,
    make_note,
    note_table,
)
from assay_sampling.readers.inspection.recording import inspect_recording
from assay_sampling.readers.opening import read_launches
from assay_sampling.running.validity import FLAGS
from assay_sampling.scoring.selection import ProfileSummary
from tests.support.sampling.reader_files import nsys_call, nsys_export, nsys_kernel, raw_page, raw_row, write

_PAGE = Path(__file__).parents[2] / "docs" / "notes.md"


def test_the_page_has_the_table_of_the_registry() -> None:
    assert note_table() in _PAGE.read_text()


def test_every_flag_of_a_note_is_in_the_registry_of_flags() -> None:
    assert {kind.flag for kind in NOTES.values()} - {None} <= FLAGS.keys()


def test_a_note_is_its_code_its_sentence_and_its_flag() -> None:
    note = make_note("kernels_lost", calls=3)
    assert note.text == str(note) == "the profiler lost kernels: 3 launch calls have no kernel in the file"
    assert note.to_dict() == {
        "code": "kernels_lost", "text": note.text, "flag": "launches_dropped", "invalidates": True,
        "calls": 3,
    }  # fmt: skip
    assert make_note("units_assumed").to_dict() == {
        "code": "units_assumed", "text": "the file has no units row: base units are assumed",
        "flag": "units_assumed", "invalidates": False,
    }  # fmt: skip
    listed = make_note("devices_unknown", devices=(1, 4)).to_dict()
    assert (listed["devices"], listed["flag"]) == ([1, 4], None)


def test_parameters_that_the_code_does_not_have_are_refused() -> None:
    with pytest.raises(KeyError):
        make_note("no such code")
    with pytest.raises(TypeError):
        make_note("kernels_lost", launches=3)


def test_equal_notes_are_told_once_and_flags_come_with_all_their_sentences() -> None:
    one, other = make_note("kernels_lost", calls=1), make_note("kernels_lost", calls=2)
    assert distinct_notes([one, other, make_note("kernels_lost", calls=1)]) == (one, other)
    assert flags_of([one, make_note("short_names"), other]) == {
        "launches_dropped": f"{one.text}; {other.text}"
    }


def test_words_of_an_application_set_no_flag(tmp_path: Path) -> None:
    """A kernel, a range or a counter may be called anything: only the code of a note decides."""
    path = write(tmp_path / "x.csv", raw_page([raw_row(0)], preamble="==WARNING== dropped: 4 events lost\n"))
    assert [(n.code, n.flag) for n in read_launches(path).notes] == []
    said = raw_page([raw_row(0)]) + "==WARNING== 4 events were dropped\n"
    notes = read_launches(write(tmp_path / "y.csv", said)).notes
    assert [(n.code, n.flag) for n in notes] == [
        ("lines_skipped", None), ("profiler_lost_events", "launches_dropped"),
    ]  # fmt: skip
    late = make_note("metric_late", metric="lost_and_dropped.sum")
    assert (late.flag, "dropped" in late.text) == (None, True)


def test_inspection_gives_notes_as_values_and_so_does_a_selection(tmp_path: Path) -> None:
    names = {1: "k", 5: "cudaLaunchKernel_v7000"}
    calls = [nsys_call(i, i, nameId=5, returnValue=0) for i in (1, 2)]
    later = nsys_call(9, 9, nameId=5, returnValue=0)
    kernels = [nsys_kernel(1, 1), nsys_kernel(10, 9)]
    path = nsys_export(tmp_path / "x.sqlite", kernels, [*calls, later], strings=names)
    (note,) = inspect_recording(path)["notes"]
    assert note == {
        "code": "kernels_lost", "flag": "launches_dropped", "invalidates": True, "calls": 1,
        "text": "the profiler lost kernels: 1 launch call has no kernel in the file",
    }  # fmt: skip
    launches = read_launches(path)
    assert launches.notes == (Note("kernels_lost", (("calls", 1),)),)
    assert ProfileSummary.of(launches).document().to_dict()["notes"] == [note]


def test_notes_of_a_selection_by_operation_count_operations() -> None:
    note = make_note("interval_of_few_launches", launches=12, least=18)
    assert in_unit(note, "launch") is note
    found = in_unit(note, "operation")
    assert found.text.startswith("the sample has 12 operations, fewer than 18: all may miss operations that")
    assert (found.code, found.to_dict()["unit"]) == (note.code, "operation")
    doubtful = make_note(
        "representative_without_cost", quantity="duration_ns", representatives=1, of=3, process=0, launch=7
    )
    assert in_unit(doubtful, "operation").text == (
        "1 of 3 representatives costs 0 in duration_ns, first the operation that begins with launch 7 of "
        "process 0: the operations that it stands for are projected as 0"
    )
    beaten = make_note("beaten_elsewhere", method="stem", weights="light_time")
    assert beaten.text == (
        "stem by light time has no larger error there, of the total and by kernel and grid, at no less "
        "speedup"
    )
    assert "by stratum and size" in in_unit(beaten, "operation").text
    assert in_unit(make_note("groups_unknown"), "operation").text == (
        "it does not say which operations a group has, so nobody can score it by stratum and size"
    )
    together = in_unit(make_note("groups_put_together", groups=2, left=5), "operation")
    assert "2 groups of least time joined others of the same operator" in together.text
    assert "draw more operations" in in_unit(make_note("nothing_to_recommend"), "operation").text
    # Launches are launches, whatever was selected from.
    assert in_unit(make_note("kernels_lost", calls=1), "operation") == make_note("kernels_lost", calls=1)


@pytest.mark.parametrize("subject", ["Why there is no interval", "Why there is no interval on another GPU"])
def test_no_reason_for_a_missing_interval_counts_launches_of_a_selection_by_operation(subject: str) -> None:
    """But for the names of parameters, and for what has no launches at all."""
    for kind in SUBJECTS[subject]:
        parameters = {name: 2 for name in signature(kind.sentence).parameters if name != "unit"}
        text = in_unit(make_note(kind.code, **parameters), "operation").text
        words = re.sub(r"launches(_per_group)?=|two of each kernel|weights by launches", "", text)
        assert "launch" not in words, kind.code
