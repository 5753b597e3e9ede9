"""Staged segments: one file an attempt, and gone when nobody needs it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from assay_core.records.campaign import AttemptState
from assay_core.records.failure import Failure
from assay_server.app import recover
from assay_server.campaigns.ingest.segments import Answer
from tests.support.server.cancelling import cancel
from tests.support.server.ingest_box import Box
from tests.support.server.made_segments import made_segments

DURABLE, DUPLICATE = Answer(), Answer(duplicate=True)


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    box = Box(tmp_path / "state")
    yield box
    box.close()


def staged(box: Box) -> list[Path]:
    return sorted(path for path in (box.state / "staging").rglob("*") if path.is_file())


def test_segments_of_any_size_are_in_one_file_until_they_are_published(box: Box) -> None:
    segments = made_segments((100, 50, 60_000, 10))
    assert [box.send(segment) for segment in segments] == [DURABLE] * 4
    [path] = staged(box)
    with box.coordinator.snapshot() as store:
        kept = store.segments(box.key)
    assert path.stat().st_size == kept[-1].end_bytes
    box.restart()
    assert [box.send(segment) for segment in segments] == [DUPLICATE] * 4
    assert box.finish(4, 60_160)
    assert staged(box) == []


def test_a_restarted_server_goes_on_where_it_was(box: Box) -> None:
    first, second, third = made_segments((100, 50, 30))
    assert box.send(first) == DURABLE
    box.restart()
    recover(box.coordinator)
    assert box.send(first) == DUPLICATE
    assert box.send(second) == DURABLE
    box.restart()
    assert box.send(third) == DURABLE
    assert box.finish(3, 180)


@pytest.mark.parametrize("end", ["fails", "is cancelled", "expires and is superseded"])
def test_nothing_is_kept_of_an_attempt_that_has_ended(box: Box, end: str) -> None:
    assert box.send(made_segments((100,))[0]) == DURABLE
    [path] = staged(box)
    if end == "fails":
        with box.coordinator.schedule() as schedule:
            schedule.fail(box.key, Failure("application_failed", "x", "y", "z", True))
    elif end == "is cancelled":
        with box.coordinator.schedule() as schedule:
            cancel(schedule, "made-1")
    else:
        box.clock.ms += 1_001
        with box.coordinator.schedule() as schedule:
            schedule.expire()
        assert box.state_of() is AttemptState.EXPIRED
        assert staged(box) == [path]  # its agent may come back
        box.lease()
    assert staged(box) == []


def test_what_an_attempt_left_that_has_ended_goes_at_the_next_start(box: Box) -> None:
    assert box.send(made_segments((100,))[0]) == DURABLE
    [mine] = staged(box)
    other = box.lease("1")
    assert box.send(made_segments((70,))[0], other) == DURABLE
    with closing(sqlite3.connect(box.state / "metadata.sqlite")) as database, database:
        query = "UPDATE attempts SET state = 'failed' WHERE run_id = ?"
        database.execute(query, (other.run_id,))
    box.restart()
    recover(box.coordinator)
    assert staged(box) == [mine]
