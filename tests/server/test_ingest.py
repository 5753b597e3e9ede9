"""Segments into an attempt: order, hashes, names, marks; what is acknowledged is durable."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from assay_core.records.campaign import AttemptState, RunState, SetAsideReason
from assay_core.records.failure import failure
from assay_core.records.machine import Inventory, Slot
from assay_sampling.errors import StorageError
from assay_sampling.launches.table import Names
from assay_sampling.running.failures import FailureClass
from assay_server.campaigns.ingest.segments import Answer
from assay_server.store.model import Agent, Segment
from assay_server.store.records import LocalRecordStore
from tests.support.server.ingest_box import Box
from tests.support.server.made_segments import (
    MadeSegment,
    made_batch,
    made_schema,
    made_segments,
    packed,
    packed_names,
)


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    box = Box(tmp_path)
    yield box
    box.close()


DURABLE = Answer()
DUPLICATE = Answer(duplicate=True)


def test_what_is_acknowledged_survives_a_restart(box: Box) -> None:
    first, second, third = made_segments((100, 50, 30))
    assert box.send(first) == DURABLE
    assert box.send(second) == DURABLE
    box.restart()
    assert box.send(third) == DURABLE
    assert box.finish(3, 180)


def test_a_resend_is_acknowledged_again(box: Box) -> None:
    first, second = made_segments((100, 50))
    box.send(first)
    assert box.send(first) == DUPLICATE
    box.send(second)
    assert box.send(first) == DUPLICATE
    box.restart()
    assert box.send(second) == DUPLICATE
    assert box.finish(2, 150)


def test_resends_that_race_become_one_segment(box: Box) -> None:
    segments = made_segments((100, 50, 30))
    with ThreadPoolExecutor(4) as threads:
        for segment in segments:
            answers = list(threads.map(lambda _, s=segment: box.send(s), range(4)))
            assert all(answer.refusal is None for answer in answers)
    assert box.finish(3, 180)


def test_another_hash_under_the_same_number_is_refused(box: Box) -> None:
    box.send(made_segments((100,))[0])
    assert box.refused(made_segments((99,))[0]) == (
        "server_refused: its hash differs from that of the stored segment with this number"
    )
    assert box.state_of() is AttemptState.FAILED


def test_acknowledged_segments_that_an_older_backup_lacks_are_measured_again_at_no_cost(box: Box) -> None:
    """The agent has deleted what was acknowledged, and goes on with what follows."""
    for attempt in range(1, 6):  # a run has three tries
        assert box.key.attempt == attempt
        assert box.refused(made_segments((100, 50))[1]) == (
            "server_restored: the server was restored from an older backup: it lacks segment 0, which it "
            "acknowledged"
        )
        box.key = box.lease()
    assert [box.send(each) for each in made_segments((100, 50))] == [DURABLE] * 2
    assert box.finish(2, 150)


def test_an_attempt_whose_end_an_older_backup_lacks_is_measured_again(box: Box) -> None:
    box.send(made_segments((100, 50))[0])
    assert not box.finish(2, 150)
    with box.coordinator.snapshot() as store:
        [failed] = store.attempts(box.key.run_id)
    assert failed.failure == failure(
        FailureClass.SERVER_RESTORED,
        str(box.key),
        "the server was restored from an older backup: the agent reports 150 launches in 2 segments, the "
        "server has 100 in 1",
    )
    assert box.lease().attempt == 2


def test_an_old_token_does_not_even_reach_the_disk(box: Box) -> None:
    first, second = made_segments((10, 10))
    assert box.send(first) == DURABLE

    def staged() -> dict[Path, bytes]:
        return {p: p.read_bytes() for p in (box.state / "staging").rglob("*") if p.is_file()}

    before = staged()
    stale = replace(box.key, token=box.key.token - 1)
    assert box.refused(second, stale).startswith("lease_expired: ")
    assert before
    assert staged() == before


def test_a_wrong_or_old_token_is_refused_and_harms_nobody(box: Box) -> None:
    [segment] = made_segments((10,))
    for forged in (
        replace(box.key, token=box.key.token + 1),
        replace(box.key, attempt=2),
        replace(box.key, run_id="another-1.0000"),
    ):
        assert box.refused(segment, forged).startswith("lease_expired: the attempt is no longer wanted")
    assert box.send(segment) == DURABLE
    old = box.key
    box.clock.ms += 1001
    with box.coordinator.schedule() as schedule:
        schedule.expire()
    new = box.lease("1")
    assert (new.run_id, new.attempt) == (old.run_id, 2)
    assert box.refused(made_segments((10, 10))[1], old).startswith("lease_expired: ")
    assert box.send(segment, new) == DURABLE


def test_synthetic_and_measured_never_meet(box: Box, tmp_path: Path) -> None:
    assert box.refused(made_segments((10,), synthetic=True)[0]) == (
        "server_refused: its data is synthetic and the campaign's is measured"
    )
    with box.coordinator.snapshot() as store:
        run = store.run(box.key.run_id)
    assert run is not None and run.failure is not None
    assert run.failure.remedy == (
        "the two never mix: set 'synthetic:' in the campaign file to match the data"
    )
    other = Box(tmp_path / "other", synthetic=True)
    assert other.refused(made_segments((10,), synthetic=False)[0]) == (
        "server_refused: its data is measured and the campaign's is synthetic"
    )
    other.close()


def test_the_level_must_be_that_of_the_run(box: Box) -> None:
    assert box.refused(made_segments((10,), "detailed")[0]) == (
        "server_refused: it holds a detailed recording, but a light one is expected"
    )


def test_the_schema_stays_that_of_the_first_segment(box: Box) -> None:
    first, second = made_segments((10,))[0], made_segments((10, 10), counters=1)[1]
    assert box.refused_at_the_finish(first, second) == (
        "server_refused: its schema differs from that of the attempt's first segment"
    )


def test_an_origin_that_changes_on_the_way_is_refused(box: Box) -> None:
    """The first segment is measured, as the campaign is; equal schemas may have other metadata."""
    first, second = made_segments((10,))[0], made_segments((10, 10), synthetic=True)[1]
    assert box.refused_at_the_finish(first, second) == (
        "server_refused: its schema differs from that of the attempt's first segment"
    )


def test_every_name_must_have_come_before(box: Box) -> None:
    schema, names = made_schema(), Names()
    first = made_batch(schema, 0, 10, names, kernels=2)
    part = packed_names(names)
    second = packed(schema, [made_batch(schema, 10, 10, names, kernels=3)])
    assert box.refused_at_the_finish(
        MadeSegment(0, 10, part, packed(schema, [first])), MadeSegment(1, 10, b"", second)
    ).startswith("server_refused: it uses the id 0x")


def test_names_of_earlier_segments_serve_later_ones(box: Box) -> None:
    schema, names = made_schema(), Names()
    batches = [made_batch(schema, 10 * i, 10, names, kernels=2) for i in range(2)]
    box.send(MadeSegment(0, 10, packed_names(names), packed(schema, batches[:1])))
    box.restart()
    assert box.send(MadeSegment(1, 10, b"", packed(schema, batches[1:]))) == DURABLE
    assert box.finish(2, 20)


def test_content_that_is_no_launch_table_is_refused_once_and_for_all(box: Box) -> None:
    first, second = made_segments((10, 10))
    damaged = replace(second, data=bytes(pa.compress(b"garbage", codec="zstd", asbytes=True)))
    assert box.refused_at_the_finish(first, damaged).startswith("server_refused: it is damaged")
    with box.coordinator.snapshot() as store:
        run = store.run(box.key.run_id)
    assert run is not None and run.failure is not None
    assert (run.state, run.failure.subject) == (RunState.FAILED, f"{box.key}, segment 1")
    assert (run.failure.remedy or "").startswith("run the same release of Assay on agent and server")
    assert not [path for path in box.state.rglob("slice-*") if path.is_file()]


def test_a_header_that_counts_wrong_is_refused(box: Box) -> None:
    [segment] = made_segments((10,))
    assert box.refused_at_the_finish(replace(segment, launches=11)) == (
        "server_refused: it holds 10 launches, but its header says 11"
    )


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"data": b"changed"}, "its bytes do not match the hash in its header"),
        ({"names": b"changed"}, "its bytes do not match the hash in its header"),
        ({"names": b""}, "its bytes do not match the hash in its header"),
        ({"launches": 0}, "0 launches in "),
        ({"launches": 131_073}, "131,073 launches in "),
        ({"launches": -1}, "-1 launches in "),
    ],
)
def test_a_header_that_lies_is_refused(box: Box, change: dict[str, object], cause: str) -> None:
    upload = made_segments((10,))[0].upload(box.claim())
    if "launches" in change:
        change = {"header": replace(upload.header, **change)}  # type: ignore[arg-type]
    upload = replace(upload, **change)  # type: ignore[arg-type]
    assert box.refused(upload).startswith(f"server_refused: {cause}")
    assert box.state_of() is AttemptState.FAILED
    assert not [p for p in (box.state / "staging").rglob("*") if p.is_file()]


def test_bytes_that_changed_on_the_way_are_worth_another_attempt_and_bad_content_is_not(box: Box) -> None:
    upload = made_segments((10,))[0].upload(box.claim())
    assert box.send(replace(upload, data=b"changed")).refusal.retryable  # type: ignore[union-attr]
    second = box.lease()
    assert (second.run_id, second.attempt) == (box.key.run_id, 2)
    answer = box.send(made_segments((10,), synthetic=True)[0], second)
    assert answer.refusal is not None and not answer.refusal.retryable
    with box.coordinator.snapshot() as store:
        run = store.run(box.key.run_id)
    assert run is not None and run.failure is not None
    assert run.failure.failure_class == "server_refused"


def test_a_full_disk_refuses_now_and_takes_it_later(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = made_segments((100, 50))
    assert box.send(first) == DURABLE

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StorageError, match="No space left on device"):
        box.send(second)
    monkeypatch.undo()
    assert box.send(second) == DURABLE
    assert box.finish(2, 150)


def test_segments_behind_one_that_was_not_stored_are_not_stored_and_harm_nothing(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = made_segments((100, 50, 30))
    following = [replace(s.upload(box.claim()), follows=True) for s in (second, third)]
    staging, fail = threading.Event(), threading.Event()

    def full(_self: LocalRecordStore, _segments: object) -> None:
        staging.set()
        fail.wait(60)
        raise StorageError("disk", "No space left on device", "free some")

    monkeypatch.setattr(LocalRecordStore, "stage", full)
    one = box.ingest.take(first.upload(box.claim()))
    staging.wait(60)
    two = box.ingest.take(following[0])  # checked while the first was still on its way
    fail.set()
    for future in (one, two):
        assert isinstance(future.exception(timeout=60), StorageError)
    monkeypatch.undo()
    with pytest.raises(StorageError, match="an earlier segment was not stored"):
        box.ingest.take(following[1]).result(60)  # it came after the first had failed
    assert box.state_of() is AttemptState.LEASED
    assert [box.send(s) for s in (first, second, third)] == [DURABLE] * 3
    assert box.finish(3, 180)


def test_whoever_hears_of_a_full_disk_may_send_again_at_once(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another attempt's segment in the same group."""
    other = box.lease("1")
    staging, fail = threading.Event(), threading.Event()

    def full(_self: LocalRecordStore, _segments: object) -> None:
        staging.set()
        fail.wait(60)
        raise StorageError("disk", "No space left on device", "free some")

    monkeypatch.setattr(LocalRecordStore, "stage", full)
    first, second = made_segments((100, 50))
    taken = [box.ingest.take(first.upload(box.claim()))]
    assert staging.wait(60)
    uploads = [first.upload(box.claim(other)), replace(second.upload(box.claim()), follows=True)]
    taken += [box.ingest.take(each) for each in uploads]
    fail.set()
    assert all(isinstance(each.exception(60), StorageError) for each in taken)
    monkeypatch.undo()
    again = [first.upload(box.claim()), uploads[1], uploads[0]]
    assert [each.result(60) for each in [box.ingest.take(each) for each in again]] == [DURABLE] * 3
    assert box.finish(2, 150)


def flip_a_bit(box: Box, position: int = -1) -> None:
    [path] = (box.state / "staging").rglob("slice-*")
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def test_a_staged_segment_that_the_disk_changed_costs_no_try_but_a_broken_disk_ends_the_run(box: Box) -> None:
    segments = made_segments((100, 50))
    damaged = "staging_damaged: segment 0 in it has changed since it was acknowledged"
    for attempt in range(1, 11):
        assert box.key.attempt == attempt
        assert box.refused_at_the_finish(*segments, before=lambda: flip_a_bit(box, 0)) == damaged
        assert (box.run_state() is RunState.FAILED) == (attempt == 10)
        if attempt < 10:
            box.key = box.lease()
    with box.coordinator.snapshot() as store:
        run = store.run(box.key.run_id)
    assert run is not None and run.failure is not None
    assert (run.failure.failure_class, run.failure.remedy) == (
        "staging_damaged",
        "check the server's disk; the slice is measured again, and fails once this has happened ten times",
    )


def test_damage_that_is_found_at_the_finish_is_the_disks_too(
    box: Box, caplog: pytest.LogCaptureFixture
) -> None:
    box.send(made_segments((100,))[0])
    flip_a_bit(box)
    assert not box.finish(1, 100)
    with box.coordinator.snapshot() as store:
        [failed] = store.attempts(box.key.run_id)
    assert failed.failure is not None and failed.failure.failure_class == "staging_damaged"
    assert "staging_damaged" in caplog.text
    [kept] = box.coordinator.records.all_set_aside()
    assert (kept.reason, len(kept.names)) == (SetAsideReason.CHANGED, 1)
    assert kept.names[0].startswith(f"staging/{box.key.run_id}/")
    assert kept.folder in caplog.text
    assert box.lease().attempt == 2


def test_segments_after_the_finish_are_not_wanted(box: Box) -> None:
    first, second = made_segments((100, 50))
    box.send(first)
    assert box.finish(1, 100)
    assert box.refused(second).startswith("lease_expired: the attempt is no longer wanted")
    assert not list((box.state / "staging").iterdir())
    assert box.send(first) == DUPLICATE


def test_a_process_that_another_has_replaced_stores_nothing_and_disturbs_nobody(box: Box) -> None:
    """The agent's next process takes the attempt over, while the earlier one still sends."""
    first, second, third = made_segments((100, 50, 30))
    old = box.claim()
    assert box.send(first.upload(old)) == DURABLE
    slots = (Slot("0", ("recorded",)), Slot("1", ("recorded",)))
    with box.coordinator.schedule() as schedule:
        schedule.register(Agent("a", "t", "a", Inventory(), slots, 0), {box.key: old.secret})
    new = replace(old, session_id="t")

    def staged() -> list[bytes]:
        return [p.read_bytes() for p in (box.state / "staging").rglob("*") if p.is_file()]

    before = staged()
    for late in (second, made_segments((100, 49))[1], first):
        assert box.refused(late.upload(old)).startswith("lease_expired: ")
    assert box.refused(replace(second.upload(old), data=b"changed")).startswith("lease_expired: ")
    assert staged() == before
    assert box.state_of() is AttemptState.LEASED
    assert box.send(second.upload(new)) == DURABLE
    assert box.send(third.upload(new)) == DURABLE
    assert box.send(first.upload(new)) == DUPLICATE


def test_segments_that_wait_together_become_durable_together(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One write, one look at the database and one transaction for all of them."""
    segments = made_segments((100, 50, 30, 20))
    began, go_on, together = threading.Event(), threading.Event(), []
    stage = LocalRecordStore.stage

    def slow(self: LocalRecordStore, staged: list[tuple[Segment, bytes, bytes]]) -> None:
        together.append([segment.index for segment, _, _ in staged])
        began.set()
        go_on.wait(20)
        stage(self, staged)

    monkeypatch.setattr(LocalRecordStore, "stage", slow)
    answers = [box.ingest.take(segments[0].upload(box.claim()))]
    began.wait(20)
    answers += [box.ingest.take(segment.upload(box.claim())) for segment in segments[1:]]
    go_on.set()
    assert [answer.result(20) for answer in answers] == [DURABLE] * 4
    assert together == [[0], [1, 2, 3]]
    assert box.finish(4, 200)


def test_a_stranger_in_the_same_group_is_refused_and_disturbs_nobody(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = made_segments((100, 50))
    [other] = made_segments((40,))
    began, go_on = threading.Event(), threading.Event()
    stage = LocalRecordStore.stage

    def slow(self: LocalRecordStore, staged: list[tuple[Segment, bytes, bytes]]) -> None:
        began.set()
        go_on.wait(20)
        stage(self, staged)

    monkeypatch.setattr(LocalRecordStore, "stage", slow)
    stranger = replace(box.claim(), secret=b"guessed")
    taken = [box.ingest.take(first.upload(box.claim()))]
    assert began.wait(20)
    taken += [box.ingest.take(each) for each in (other.upload(stranger), second.upload(box.claim()))]
    go_on.set()
    answers = [each.result(20) for each in taken]
    assert [answer.refusal and answer.refusal.failure_class for answer in answers] == [
        None,
        "lease_expired",
        None,
    ]
    assert box.finish(2, 150)


def test_two_attempts_are_taken_side_by_side(box: Box) -> None:
    other = box.lease("1")
    mine, theirs = made_segments([10] * 30), made_segments([20] * 30)
    with ThreadPoolExecutor(2) as threads:
        for answers in threads.map(
            lambda pair: [box.send(s, pair[0]) for s in pair[1]], ((box.key, mine), (other, theirs))
        ):
            assert answers == [DURABLE] * 30
    with box.coordinator.snapshot() as store:
        counts = [store.attempt(k.run_id, 0, 1) for k in (box.key, other)]
    assert [(a.segments, a.launches) for a in counts if a] == [(30, 300), (30, 600)]
