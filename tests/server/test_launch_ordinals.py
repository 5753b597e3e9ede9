"""The numbers of launches within an attempt: none twice, and of what was measured none left out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_core.records.machine import InstalledDevice, Slot
from assay_core.records.upload import SegmentAnswer
from assay_sampling.errors import LaunchTableError
from assay_sampling.launches.table import Level, Names, make_batch
from assay_server.app import Server
from assay_server.campaigns.ingest.content import LaunchOrdinals
from tests.support.server.made_segments import MadeSegment, made_batch, made_schema, packed, packed_names
from tests.support.server.playing_agent import PlayingAgent

ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12)), min_size=1, max_size=12)
INT64_MAX = 2**63 - 1


def batch(rows: list[tuple[int, int]]) -> pa.RecordBatch:
    names = Names()
    columns = {
        "process": np.array([p for p, _ in rows], np.int32),
        "launch": np.array([n for _, n in rows], np.int64),
        **{f"{shape}_x": np.ones(len(rows), np.int32) for shape in ("grid", "block")},
        "kernel_id": np.full(len(rows), names.intern("kernel"), np.uint64),
    }
    return make_batch(made_schema(), columns)


def refusal(segments: list[list[tuple[int, int]]], *, may_skip: bool) -> str:
    """Why the segments are refused; "" where they are not."""
    ordinals = LaunchOrdinals(may_skip=may_skip)
    try:
        for rows in segments:
            ordinals.add([batch(rows)], "it")
    except LaunchTableError as error:
        return error.cause
    return ""


@settings(deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=5), st.booleans())
def test_exactly_repeats_and_gaps_are_refused(segments: list[list[tuple[int, int]]], may_skip: bool) -> None:
    seen: set[tuple[int, int]] = set()
    expected = False
    for rows in segments:
        expected |= len(set(rows)) < len(rows) or bool(seen & set(rows))
        seen |= set(rows)
        if not may_skip:  # after each segment, what each process has is one piece
            for process in {p for p, _ in seen}:
                numbers = [n for p, n in seen if p == process]
                expected |= max(numbers) - min(numbers) + 1 != len(numbers)
        if expected:
            break
    assert bool(refusal(segments, may_skip=may_skip)) == expected


def test_what_measuring_gives_is_taken() -> None:
    slice_of_the_middle = [[(0, 300), (0, 301)], [(0, 302)]]
    side_by_side = [[(0, 0), (1, 0), (0, 1)], [(1, 1), (2, 0), (0, 2)]]
    for segments in (slice_of_the_middle, side_by_side, [[(0, INT64_MAX - 1), (0, INT64_MAX)]]):
        assert refusal(segments, may_skip=False) == ""


def test_a_recording_of_chosen_launches_is_taken_in_any_order() -> None:
    assert refusal([[(0, 9), (0, 2)], [(0, 5), (1, 2), (0, 4)], [(0, 0)]], may_skip=True) == ""


def test_the_message_names_launch_and_process() -> None:
    twice = refusal([[(0, 0), (0, 1)], [(1, 0), (0, 1)]], may_skip=True)
    assert twice == "launch 1 of process 0 appears twice in its attempt"
    gap = refusal([[(3, 7), (3, 8)], [(3, 11)]], may_skip=False)
    assert (
        gap
        == "2 launches of process 3 from 9 on are missing, and launches that an agent measures have no gaps"
    )


def test_a_refused_segment_leaves_no_trace() -> None:
    ordinals = LaunchOrdinals(may_skip=False)
    ordinals.add([batch([(0, 0), (1, 0)])], "it")
    with pytest.raises(LaunchTableError):
        ordinals.add([batch([(0, 1), (1, 0)])], "it")
    ordinals.add([batch([(0, 1), (1, 1)])], "it")


LIVE = """\
campaign: live
synthetic: true
gpus: [V100]
workloads: [{name: training, command: [training.toml]}]
"""
RECORDED = """\
campaign: recorded
workloads: [{name: training, recordings: [{device: V100, light: light.sqlite}]}]
"""
VIRTUAL = Slot(
    slot_id="GPU-0",
    device=InstalledDevice(name="virtual V100", uuid="GPU-0", sm_count=80),
    profilers=("nsight_compute", "nsight_systems"),
    synthetic=True,
)


def segments_of(*pieces: range, level: Level = "light", synthetic: bool = False) -> list[MadeSegment]:
    """Segments whose launches are numbered so."""
    schema, names = made_schema(level, synthetic=synthetic), Names()
    made = []
    for index, piece in enumerate(pieces):
        launches = made_batch(schema, 0, len(piece), names)
        at = schema.get_field_index("launch")
        launches = launches.set_column(at, schema.field(at), pa.array(piece, pa.int64()))
        made.append(
            MadeSegment(
                index, len(piece), packed_names(names) if not index else b"", packed(schema, [launches])
            )
        )
    return made


def refused(answers: list[SegmentAnswer]) -> list[str]:
    failures = [a.refusal for a in answers if a.refusal is not None]
    return [f"{failure.failure_class}: {failure.cause}" for failure in failures]


def test_a_launch_that_comes_twice_is_refused_at_the_finish(server: Server) -> None:
    segments = segments_of(range(100), range(99, 150))
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        agent.submit(RECORDED)
        key = agent.lease().work.key
        assert refused(agent.upload(key, segments)) == []
        assert not agent.finish(key, 2, 151).published
        run = agent.run("recorded-1.0000").run
        assert (run.state, run.failure.failure_class) == ("failed", "server_refused")
        assert run.failure.cause == "launch 99 of process 0 appears twice in its attempt"
        assert run.failure.subject == f"{key}, segment 1"
        assert "give each recording once" in run.failure.remedy


def test_a_recording_may_leave_launches_out_and_a_measurement_may_not(server: Server) -> None:
    pieces = (range(10, 20), range(20, 40, 2))
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register([VIRTUAL, "recorded-0"])
        agent.submit(RECORDED)
        recorded = agent.lease("recorded-0", wait_ms=5000).work
        assert refused(agent.upload(recorded.key, segments_of(*pieces))) == []
        assert agent.finish(recorded.key, 2, 20).published
        agent.submit(LIVE)
        live = agent.lease("GPU-0", wait_ms=5000).work
        level: Level = "detailed" if live.level == "detailed" else "light"
        segments = segments_of(*pieces, level=level, synthetic=True)
        assert refused(agent.upload(live.key, segments)) == []
        assert not agent.finish(live.key, 2, 20).published
        assert agent.run(live.key.run_id).run.failure.cause == (
            "1 launches of process 0 from 21 on are missing, and launches that an agent measures have no gaps"
        )


def test_a_gap_anywhere_in_a_long_run_is_not_missed() -> None:
    for missing in (None, 0, 3_000, 4_999):
        rows = [(7, n) for n in range(5_000, 10_000) if n != (None if missing is None else 5_000 + missing)]
        ordinals = LaunchOrdinals(may_skip=False)
        if missing == 3_000:
            with pytest.raises(LaunchTableError, match="1 launches of process 7 from 8000"):
                ordinals.add([batch(rows)], "it")
        else:
            ordinals.add([batch(rows)], "it")
            with pytest.raises(LaunchTableError, match="appears twice"):
                ordinals.add([batch([(7, rows[-1][1])])], "it")
