"""Numbers that no GPU can have counted end in an error, doubtful ones in a typed note."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay_sampling.errors import InputError, RefusedError
from assay_sampling.launches.joining import join
from assay_sampling.launches.overlap import overlap_of
from assay_sampling.launches.profile import Profile
from assay_sampling.launches.table import Device, TableMetadata
from assay_sampling.methods.registry import select
from assay_sampling.readers.inspection.recording import inspect_recording
from assay_sampling.readers.opening import open_recording, read_launches
from tests.support.sampling.made_launches import made_launches
from tests.support.sampling.reader_files import RAW_FIELDS, RAW_UNITS, raw_page, raw_row, write

THREADS = "smsp__thread_inst_executed_per_inst_executed.ratio"
HIT_RATE = "l1tex__t_sector_hit_rate.pct"
SIZE = "dram__bytes.sum"


def page(path: Path, rows: list[dict[str, str]], **units: str) -> Path:
    fields, texts = (*RAW_FIELDS, *units), (*RAW_UNITS, *units.values())
    return write(path, raw_page(rows, fields, texts))


def kernel(correlation: int, **changed: Any) -> dict[str, Any]:
    args = {"correlation": correlation, "device": 0, "stream": 7, "grid": [1, 1, 1], "block": [32, 1, 1]}
    event = {"ph": "X", "cat": "kernel", "name": "k", "ts": 10 * correlation, "dur": 5, "tid": 7, "pid": 0}
    return (
        event
        | {key: v for key, v in changed.items() if key in event}
        | {"args": args | {key: v for key, v in changed.items() if key not in event}}
    )


def trace(path: Path, *events: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": list(events)}))
    return path


def codes(path: Path) -> list[str]:
    return [note.code for note in read_launches(path).notes]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"smsp__inst_executed.sum": "-5"}, "field 'instructions': -5 is negative for launch 1 of process 0"),
        ({"gpc__cycles_elapsed.avg": "-0.5"}, "field 'cycles_gpc_avg': -0.5 is negative"),
        ({"smsp__inst_executed.sum": "3e19"}, "field 'instructions': 3e+19 does not fit a 64-bit counter"),
        ({THREADS: "32.02"}, "field 'threads_per_instruction': 32.02 threads an instruction"),
        ({HIT_RATE: "-1"}, "field 'l1_hit_percent': -1 is negative"),
    ],
)
def test_what_no_gpu_can_count_is_an_error(tmp_path: Path, changed: dict[str, str], said: str) -> None:
    good = {THREADS: "32", HIT_RATE: "50"}
    rows = [raw_row(0) | good, raw_row(1) | good | changed, raw_row(2) | good]
    path = page(tmp_path / "x.csv", rows, **{THREADS: "", HIT_RATE: "%"})
    for read in (read_launches, inspect_recording):
        with pytest.raises(InputError) as raised:
            read(path)
        assert said in str(raised.value)
        assert raised.value.line == 4  # header, units, launches 0 and 1


def test_a_share_over_all_is_noted_and_rounding_is_not(tmp_path: Path) -> None:
    rates = ["99", "100.004", "103.5", "130", "100"]
    rows = [raw_row(i) | {HIT_RATE: rate, THREADS: "32.00001"} for i, rate in enumerate(rates)]
    path = page(tmp_path / "x.csv", rows, **{HIT_RATE: "%", THREADS: ""})
    (note,) = read_launches(path).notes
    assert note.to_dict() == {
        "code": "percent_over_100", "flag": None, "invalidates": False, "counter": "l1_hit_percent",
        "launches": 2, "greatest": 130.0, "process": 0, "launch": 2,
        "text": "l1_hit_percent is over 100 % for 2 launches, up to 130 %, first for launch 2 of process 0: "
        "counters of several passes do not fit together",
    }  # fmt: skip


def test_a_gap_in_the_ids_is_noted_and_invalidates(tmp_path: Path) -> None:
    path = page(tmp_path / "gap.csv", [raw_row(i) for i in (3, 4, 7, 8, 10)])
    (note,) = read_launches(path).notes
    assert (note.code, note.flag, note.invalidates) == ("ids_missing", "launches_missing", True)
    assert note.text == "3 launch IDs between 3 and 10 are not in the file"
    assert codes(page(tmp_path / "whole.csv", [raw_row(i) for i in (3, 4, 5)])) == []
    two = [raw_row(0), raw_row(1), raw_row(2, Process_ID="9"), raw_row(3)]
    assert codes(page(tmp_path / "two.csv", two)) == []
    restarted = [raw_row(0), raw_row(1), raw_row(0, Process_ID="9"), raw_row(2, Process_ID="9")]
    assert codes(page(tmp_path / "each.csv", restarted)) == ["ids_missing"]
    # As many launches as a whole report with these IDs has, and yet 2 of the first process are not there.
    made_up = [*(raw_row(i) for i in (0, 1, 4)), *(raw_row(i, Process_ID="9") for i in (0, 1))]
    assert codes(page(tmp_path / "made_up.csv", made_up)) == ["ids_missing"]
    # A report that somebody sorted by process.
    by_process = [*(raw_row(i) for i in (0, 2, 4)), *(raw_row(i, Process_ID="9") for i in (1, 3))]
    assert codes(page(tmp_path / "sorted.csv", by_process)) == []


def test_a_launch_of_no_duration_is_noted(tmp_path: Path) -> None:
    path = trace(tmp_path / "x.json", kernel(1), kernel(2, dur=0), kernel(3, dur=0))
    (note,) = [n for n in read_launches(path).notes if n.code == "zero_cost"]
    assert note.text == "duration_ns is 0 for 2 launches, first for launch 1 of process 0"
    rows = [raw_row(0), raw_row(1, **{"gpc__cycles_elapsed.avg": "0"})]
    (note,) = read_launches(page(tmp_path / "x.csv", rows)).notes
    assert note.text == "cycles_gpc_avg is 0 for 1 launch, first for launch 1 of process 0"


def test_a_kernel_event_given_twice_counts_once(tmp_path: Path) -> None:
    twice = trace(tmp_path / "twice.json", kernel(1), kernel(2), kernel(2), kernel(2), kernel(3))
    launches = read_launches(twice)
    assert len(launches) == 3
    (note,) = [n for n in launches.notes if n.code == "kernel_events_twice"]
    assert note.text == "2 kernel events are in the file twice, and count once"
    # Two nodes of a graph, two streams, and what is too short to tell the order of.
    apart = [kernel(4), kernel(4, stream=8), kernel(4, ts=45), kernel(5, dur=0), kernel(5, dur=0)]
    assert len(read_launches(trace(tmp_path / "apart.json", *apart))) == 5


def test_totals_that_overflow_are_errors(tmp_path: Path) -> None:
    long = 4 * 10**15
    path = trace(tmp_path / "sum.json", *(kernel(i, dur=long) for i in (1, 2, 3)))
    with pytest.raises(InputError, match="durations add up to more than 64 bits hold"):
        read_launches(path)
    path = trace(tmp_path / "blocks.json", kernel(1, grid=[2**31 - 1] * 3))
    with pytest.raises(InputError, match="launch 0 of process 0 has more threads than 64 bits hold"):
        read_launches(path)
    document = {"baseTimeNanoseconds": 2**62 - 2, "traceEvents": [kernel(1, ts=long, dur=long)]}
    (tmp_path / "end.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match="ends after the last moment that 64 bits hold"):
        read_launches(tmp_path / "end.json")


def test_the_total_of_joined_files_does_not_wrap() -> None:
    half = 6 * 10**18
    parts = [made_launches(["k"], start_ns=[i], duration_ns=[half], source=str(i)) for i in (0, 1)]
    with pytest.raises(RefusedError, match="64 bits"):
        overlap_of(join(parts, ranks=True))


def test_numbers_are_added_up_over_the_batches_of_a_file(tmp_path: Path) -> None:
    rows = [raw_row(i, **{"gpc__cycles_elapsed.avg": "0"}) for i in (0, 1, 2, 4)]
    with open_recording(page(tmp_path / "x.csv", rows)) as recording:
        assert [batch.records.num_rows for batch in recording.batches(1)] == [1] * 4
        said = {note.code: note.text for note in recording.notes}
    assert said["ids_missing"] == "1 launch ID between 0 and 4 is not in the file"
    assert said["zero_cost"] == "cycles_gpc_avg is 0 for 4 launches, first for launch 0 of process 0"
    path = trace(tmp_path / "sum.json", *(kernel(i, dur=4 * 10**15) for i in (1, 2, 3)))
    with (
        open_recording(path) as recording,
        pytest.raises(InputError, match="durations add up to more than 64 bits hold"),
    ):
        list(recording.batches(1))


def test_a_representative_that_costs_nothing_is_noted() -> None:
    launches = made_launches(["a", "b", "b"], start_ns=[0, 10, 20], duration_ns=[0, 5, 7])
    chosen = select("systematic", Profile(light=launches), {"launches": 2})
    (note,) = chosen.notes
    assert note.code == "representative_without_cost"
    assert note.text == (
        "1 of 2 representatives costs 0 in duration_ns, first launch 0 of process 0: the launches that it "
        "stands for are projected as 0"
    )
    assert chosen.document().to_dict()["score_notes"] == [note.to_dict()]
    whole = select("systematic", Profile(light=made_launches(["a"], duration_ns=[5])), {})
    assert whole.document().to_dict()["score_notes"] == []


def test_joined_files_say_what_cannot_be_told() -> None:
    def part(kernel_name: str, launch: int, *devices: Device) -> Any:
        metadata = TableMetadata("light", devices=devices)
        index = devices[0].index if devices else None
        return made_launches(
            [kernel_name],
            metadata=metadata,
            source=kernel_name,
            launch=[launch],
            start_ns=[launch],
            device=[index],
        )

    known, bare = Device(0, "V100", "", "7.0", 80), Device(0)
    assert join([part("k", 0, known), part("k", 1, known)]).notes == ()
    (note,) = join([part("k", 0, known), part("z", 1, bare)], ranks=False).notes
    assert (note.code, note.text) == (
        "gpu_unknown", "z does not name the GPU: assumed to be that of the other files"
    )  # fmt: skip
    (note,) = join([part("k", 0, known), part("z", 1, known)], ranks=True).notes
    assert (note.code, note.text) == (
        "ranks_share_no_kernel", "k, z have no kernel in common with the other ranks: are they of one job?"
    )  # fmt: skip
