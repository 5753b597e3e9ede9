"""Segments that come close together on a stream: each gets its own answer, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import AttemptState
from assay_core.records.upload import AnnouncedSegment, SegmentAnswer, upload_messages
from assay_sampling.errors import StorageError
from assay_server.campaigns.ingest.segments import Answer
from assay_server.limits import DEFAULT_LIMITS
from assay_server.rpc.threads import Threads
from assay_server.rpc.uploads import uploads
from tests.support.server.ingest_box import Box
from tests.support.server.made_segments import MadeSegment, made_segments

DURABLE = Answer()


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    box = Box(tmp_path / "state")
    yield box
    box.close()


def test_a_bad_one_fails_its_own_attempt_only(box: Box) -> None:
    other = box.lease("1")
    first, second = (each.upload(box.claim()) for each in made_segments((10, 20)))
    [third] = made_segments((7,))
    bad, late = replace(second, data=b"changed"), replace(second, follows=True)
    assert box.send(first) == DURABLE
    taken = [box.ingest.take(each) for each in (bad, late, third.upload(box.claim(other)))]
    answers = [each.result(60) for each in taken]
    refused = [answer.refusal and answer.refusal.failure_class for answer in answers]
    assert refused == ["server_refused", "lease_expired", None]
    assert (box.state_of(), box.state_of(other)) == (AttemptState.FAILED, AttemptState.LEASED)


def test_a_store_that_cannot_be_read_is_told_to_each_sender_and_harms_nothing(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (each.upload(box.claim()) for each in made_segments((10, 20, 30)))
    assert box.send(first) == DURABLE

    def broken() -> None:
        raise StorageError("metadata", "the disk failed", "mend it")

    monkeypatch.setattr(box.coordinator, "snapshot", broken)
    taken = box.ingest.take(second)
    assert isinstance(taken.exception(60), StorageError)
    with pytest.raises(StorageError, match="the disk failed"):
        box.ingest.take(third).result(60)
    monkeypatch.undo()
    assert [box.send(each) for each in (second, third)] == [DURABLE] * 2
    assert box.finish(3, 60)


async def streamed(box: Box, segments: list[MadeSegment]) -> list[SegmentAnswer]:
    """The answers on a stream on which all segments came at once."""

    async def messages() -> AsyncIterator[Any]:
        for each in segments:
            announced = AnnouncedSegment(box.claim(), each.header)
            for message in upload_messages(announced, each.names, each.data):
                yield message

    threads = Threads.of(DEFAULT_LIMITS)
    try:
        call: Any = uploads(box.ingest, threads.ingest, DEFAULT_LIMITS)
        return [SegmentAnswer.from_proto(answer) async for answer in call.stream_stream(messages(), None)]
    finally:
        threads.close()


def test_on_a_stream_small_and_large_ones_stay_in_order(box: Box) -> None:
    sizes = (10, 5_000, 20, 30, 5_000)
    answers = asyncio.run(streamed(box, made_segments(sizes)))
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
