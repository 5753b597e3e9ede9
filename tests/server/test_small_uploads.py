"""Small uploads: the thread that commits checks all that wait, and each gets its own answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import AttemptState
from assay_core.records.upload import AnnouncedSegment, SegmentAnswer, SegmentHeader, upload_messages
from assay_sampling.errors import StorageError
from assay_server.campaigns.ingest.upload import MOST_SMALL_LAUNCHES, Answer, Upload
from assay_server.limits import DEFAULT_LIMITS
from assay_server.rpc.threads import Threads
from assay_server.rpc.uploads.servicer import IngestServicer
from tests.support.server.ingest_box import Box
from tests.support.server.made_segments import MadeSegment, made_segments

DURABLE = Answer()


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    box = Box(tmp_path / "state")
    yield box
    box.close()


class Looks:
    """Counts how often a box's store is looked at; the first look waits until :meth:`go_on`."""

    def __init__(self, box: Box, monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> None:
        self.number = 0
        self.begun, self._go_on = threading.Event(), threading.Event()
        self._snapshot, self._error = box.coordinator.snapshot, error
        monkeypatch.setattr(box.coordinator, "snapshot", self._look)

    def _look(self) -> AbstractContextManager[Any]:
        self.number += 1
        if self.number == 1:
            self.begun.set()
            assert self._go_on.wait(60), "nobody let the first look go on"
        elif self._error is not None:
            raise self._error
        return self._snapshot()

    def go_on(self) -> None:
        self._go_on.set()


def behind(box: Box, looks: Looks, first: Upload, uploads: list[Upload]) -> list[Answer | BaseException]:
    """The answers to uploads that all came while the one before them was looked up."""
    answers = [box.ingest.take_small(first)]
    assert looks.begun.wait(60)
    answers += [box.ingest.take_small(upload) for upload in uploads]
    looks.go_on()
    return [answer.exception(60) or answer.result(60) for answer in answers]


def test_all_that_wait_take_one_look_at_the_store(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    other = box.lease("1")
    mine, theirs = box.claim(), box.claim(other)
    looks = Looks(box, monkeypatch)
    first, *rest = made_segments((10, 20, 30))
    uploads = [
        *(each.upload(mine) for each in rest),
        *(each.upload(theirs) for each in made_segments((5, 6))),
    ]
    assert behind(box, looks, first.upload(mine), uploads) == [DURABLE] * 5
    assert looks.number == 2
    monkeypatch.undo()
    assert box.finish(3, 60)
    with box.coordinator.snapshot() as store:
        attempt = store.attempt(other.run_id, other.slice_index, other.attempt)
    assert attempt is not None and (attempt.segments, attempt.launches) == (2, 11)


def test_a_bad_one_fails_its_own_attempt_only(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    other, third = box.lease("1"), made_segments((7,))[0]
    mine, theirs = box.claim(), box.claim(other)
    looks = Looks(box, monkeypatch)
    first, second = made_segments((10, 20))
    bad = replace(second.upload(mine), data=b"changed")
    late = replace(second.upload(mine), follows=True)
    told = behind(box, looks, first.upload(mine), [bad, late, third.upload(theirs)])
    causes = [
        each.refusal.failure_class if isinstance(each, Answer) and each.refusal else each for each in told
    ]
    assert causes == [DURABLE, "server_refused", "lease_expired", DURABLE]
    monkeypatch.undo()
    assert (box.state_of(), box.state_of(other)) == (AttemptState.FAILED, AttemptState.LEASED)


def test_the_same_one_twice_is_stored_once(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (each.upload(box.claim()) for each in made_segments((10, 20)))
    looks = Looks(box, monkeypatch)
    assert behind(box, looks, first, [second, second]) == [DURABLE] * 3
    assert box.finish(2, 30)


def test_a_store_that_cannot_be_read_is_told_to_each_sender_and_harms_nothing(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (each.upload(box.claim()) for each in made_segments((10, 20, 30)))
    looks = Looks(box, monkeypatch, StorageError("metadata", "the disk failed", "mend it"))
    told = behind(box, looks, first, [second, third])
    assert [type(each) for each in told] == [Answer, StorageError, StorageError]
    monkeypatch.undo()
    assert [box.send(each) for each in (second, third)] == [DURABLE] * 2
    assert box.finish(3, 60)


async def streamed(box: Box, segments: list[MadeSegment]) -> list[SegmentAnswer]:
    """The answers on a stream on which all segments came at once."""

    async def messages() -> AsyncIterator[Any]:
        for each in segments:
            sizes = len(each.names), len(each.data)
            hashes = each.names_hash, each.launches_hash
            header = SegmentHeader(each.index, each.launches, *sizes, *hashes)
            for message in upload_messages(AnnouncedSegment(box.claim(), header), each.names, each.data):
                yield message

    threads = Threads.of(DEFAULT_LIMITS)
    try:
        servicer: Any = IngestServicer(box.ingest, threads)
        return [SegmentAnswer.from_proto(answer) async for answer in servicer.Upload(messages(), None)]
    finally:
        threads.close()


def test_on_a_stream_small_and_large_ones_stay_in_order(box: Box) -> None:
    sizes = (10, MOST_SMALL_LAUNCHES + 1, 20, 30, MOST_SMALL_LAUNCHES + 1)
    segments = made_segments(sizes)
    small = [each.upload(box.claim()).is_small for each in segments]
    assert small == [True, False, True, True, False]
    answers = asyncio.run(streamed(box, segments))
    assert [(each.index, each.refusal) for each in answers] == [(index, None) for index in range(5)]
    assert box.finish(5, sum(sizes))


def test_a_stranger_learns_nothing(box: Box) -> None:
    [segment] = made_segments((10,))
    forged = AttemptKey(box.key.run_id, box.key.slice_index, box.key.attempt, box.key.token + 1)
    assert box.refused(segment, forged).startswith("lease_expired: ")
    assert box.refused(
        replace(segment.upload(box.claim()), claim=replace(box.claim(), secret=b"x"))
    ).startswith("lease_expired: ")
    assert box.state_of() is AttemptState.LEASED
