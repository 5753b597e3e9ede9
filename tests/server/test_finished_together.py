"""Attempts of few launches that are finished together: as if each were alone, with fewer syncs."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from assay_core.files import durable
from assay_core.records.attempt import AttemptKey, AttemptLog
from assay_core.records.campaign import AttemptState
from assay_core.records.lease import FinishedAttempt, LeaseAnswer, LeaseRequest
from assay_sampling.errors import ParameterError, StorageError
from assay_server.campaigns.heartbeats.answering import Heartbeats
from assay_server.opening import recover
from assay_server.rpc.agent_handler import AgentHandler
from assay_server.store.records import LocalRecordStore
from assay_server.store.sql import SqlTransaction
from tests.support.server.ingest_box import Box
from tests.support.server.made_segments import made_segments, part_hash


class PowerCut(BaseException):
    """The process dies here: nothing after it is run, nothing catches it."""


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    box = Box(tmp_path / "state")
    yield box
    box.close()


def both(box: Box) -> list[AttemptKey]:
    """Attempts of both runs, whose launches are durable: 150 in two segments, and 70 in one."""
    keys = [box.key, box.lease("1")]
    for key, launches in zip(keys, ((100, 50), (70,)), strict=True):
        for segment in made_segments(launches):
            assert box.send(segment, key).refusal is None
    return keys


def finished(box: Box, keys: list[AttemptKey]) -> list[FinishedAttempt]:
    counts = {"made-1.0000": (2, 150), "made-1.0001": (1, 70)}
    log = AttemptLog(("ncu",), {}, "done")
    return [FinishedAttempt(box.claim(key), *counts[key.run_id], (), log) for key in keys]


def published(box: Box) -> dict[str, bytes]:
    """The published files, each as large, and with the hash, that the store says."""
    with box.coordinator.snapshot() as store:
        pieces = store.published_slices()
    found = {piece.file: (box.state / "records" / piece.file).read_bytes() for piece in pieces}
    for piece in pieces:
        assert len(found[piece.file]) == piece.file_bytes
        assert part_hash(found[piece.file]).hex() == piece.content_hash
    return found


def staged(box: Box) -> list[Path]:
    return [path for path in (box.state / "staging").rglob("*") if path.is_file()]


@pytest.mark.parametrize("restarted", [False, True], ids=["from memory", "from the staged segments"])
def test_files_and_answers_are_those_of_attempts_that_are_finished_alone(
    tmp_path: Path, box: Box, restarted: bool
) -> None:
    alone = Box(tmp_path / "alone")
    for each in finished(alone, both(alone)):
        assert alone.publisher.finish_one(each)

    keys = both(box)
    if restarted:
        box.restart()
    assert box.publisher.finish_together(finished(box, keys)) == [True, True]

    assert published(box) == published(alone)
    assert len(published(box)) == 2
    assert staged(box) == staged(alone) == []
    with box.coordinator.snapshot() as ours, alone.coordinator.snapshot() as others:
        for store in (ours, others):
            assert [each.log.text for each in store.attempts(keys[0].run_id)] == ["done"]
        runs = [(run.state, run.flags) for run in ours.runs("made-1")]
        assert runs == [(run.state, run.flags) for run in others.runs("made-1")]
    alone.close()


def test_any_number_of_attempts_takes_two_commits(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = finished(box, both(box))
    commits = []
    real = box.coordinator.schedule
    monkeypatch.setattr(box.coordinator, "schedule", lambda **how: commits.append(1) or real(**how))
    assert box.publisher.finish_together(asked) == [True, True]
    assert len(commits) == 2


def cut_at(target: object, name: str, *, after: bool) -> Callable[[pytest.MonkeyPatch], None]:
    real = getattr(target, name)

    def cut(*arguments: object, **keywords: object) -> object:
        if after:
            real(*arguments, **keywords)
        raise PowerCut

    return lambda patch: patch.setattr(target, name, cut)


def cut_at_second_rename(patch: pytest.MonkeyPatch) -> None:
    real, renamed = durable.replace, []

    def cut(source: Path, target: Path) -> None:
        if renamed:
            raise PowerCut
        renamed.append(target)
        real(source, target)

    patch.setattr(durable, "replace", cut)


POINTS = {
    "before they are marked finished": cut_at(SqlTransaction, "save_attempt", after=False),
    "before the files are written": cut_at(LocalRecordStore, "publish_small", after=False),
    "between two files": cut_at_second_rename,
    "after the files are in place": cut_at(LocalRecordStore, "publish_small", after=True),
    "in the last commit": cut_at(SqlTransaction, "save_slice", after=True),
    "before staging is removed": cut_at(LocalRecordStore, "discard", after=False),
}


@pytest.mark.parametrize("by_itself", [False, True], ids=["asked again", "by itself"])
@pytest.mark.parametrize("point", POINTS)
def test_a_power_cut_anywhere_loses_nothing_and_doubles_nothing(
    point: str, by_itself: bool, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = finished(box, both(box))
    POINTS[point](monkeypatch)
    with pytest.raises(PowerCut):
        box.publisher.finish_together(asked)
    monkeypatch.undo()
    box.restart()
    recover(box.coordinator)
    if by_itself:
        box.publisher.resume()
    assert box.publisher.finish_together(asked) == [True, True]
    assert box.publisher.finish_together(asked) == [True, True]
    assert sorted(published(box)) == [f"made-1.000{n}/slice-00000.parquet" for n in range(2)]
    assert sorted(p.name for p in (box.state / "records").rglob("*.*")) == [
        "made-1.0000",
        "made-1.0001",
        "slice-00000.parquet",
        "slice-00000.parquet",
    ]
    assert staged(box) == []
    assert box.coordinator.records.all_set_aside() == []


def test_an_attempt_whose_segments_were_lost_fails_alone(box: Box) -> None:
    keys = both(box)
    asked = finished(box, keys)
    box.restart()
    next((box.state / "staging" / "made-1.0000").iterdir()).write_bytes(b"x")
    assert box.publisher.finish_together(asked) == [False, True]
    assert [box.state_of(key) for key in keys] == [AttemptState.FAILED, AttemptState.PUBLISHED]


def test_wrong_counts_strangers_and_repetitions_concern_only_themselves(box: Box) -> None:
    first, second = finished(box, both(box))
    stranger = replace(first, claim=replace(first.claim, session_id="another"))
    wrong = replace(second, launches=71)
    assert box.publisher.finish_together([stranger]) == [False]
    assert box.state_of(first.claim.key) is AttemptState.LEASED
    assert box.publisher.finish_together([stranger, first, first, wrong]) == [False, True, True, False]
    assert box.state_of(first.claim.key) is AttemptState.PUBLISHED
    assert box.state_of(second.claim.key) is AttemptState.FAILED


def test_a_full_disk_is_told_to_each_and_asking_again_publishes_all(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = finished(box, both(box))

    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(durable, "replace", full)
    told = box.publisher.finish_together(asked)
    assert [type(each) for each in told] == [StorageError, StorageError]
    assert [box.state_of(each.claim.key) for each in asked] == [AttemptState.PUBLISHING] * 2
    assert not list((box.state / "records").rglob("*.tmp*"))
    monkeypatch.undo()
    assert box.publisher.finish_together(asked) == [True, True]


@pytest.fixture
def handler(box: Box) -> Iterator[AgentHandler]:
    heartbeats = Heartbeats(box.coordinator)
    yield AgentHandler(box.coordinator, box.publisher, heartbeats, 5_000)
    heartbeats.close()


def test_each_slot_gets_a_run_of_its_own_and_strangers_get_none(box: Box, handler: AgentHandler) -> None:
    first, second = (handler.lease(LeaseRequest("a", "s", slot)) for slot in ("0", "1"))
    assert first.work is not None and second.work is not None
    assert [first.work.key.run_id, second.work.key.run_id] == ["made-1.0000", "made-1.0001"]
    with pytest.raises(ParameterError, match="slot '9'"):
        handler.lease(LeaseRequest("a", "s", "9"))
    assert handler.lease(LeaseRequest("b", "s", "0")) == LeaseAnswer(register_again=True)


def test_a_store_that_refuses_is_told_to_the_slot_that_asked(
    box: Box, handler: AgentHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_arguments: object) -> None:
        raise StorageError("metadata", "the disk refused", "free some")

    monkeypatch.setattr(SqlTransaction, "add_attempt", refused)
    assert handler.lease(LeaseRequest("a", "s", "0")).work is not None  # its lease is there already
    with pytest.raises(StorageError, match="the disk refused"):
        handler.lease(LeaseRequest("a", "s", "1"))
