"""Small segments in the metadata store: as durable as those in files, and gone when nobody needs them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import AttemptState, RunState, SetAsideReason
from assay_core.records.failure import Failure
from assay_server.campaigns.ingest.group_commit import MOST_HELD_BYTES
from assay_server.campaigns.ingest.upload import Answer
from assay_server.opening import recover
from assay_server.store.sqlite import SqliteStore
from tests.support.server.ingest_box import Box
from tests.support.server.made_segments import made_segments

DURABLE, DUPLICATE = Answer(), Answer(duplicate=True)


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    box = Box(tmp_path / "state")
    yield box
    box.close()


def held(box: Box, key: AttemptKey | None = None) -> list[int]:
    """The indexes of the segments that are kept for an attempt."""
    with box.coordinator.snapshot() as store:
        return sorted(store.held_segments(key or box.key))


def all_held(box: Box) -> int:
    with closing(sqlite3.connect(box.state / "metadata.sqlite")) as database:
        return int(database.execute("SELECT COUNT(*) FROM held_segments").fetchone()[0])


def staged(box: Box) -> list[Path]:
    return [path for path in (box.state / "staging").rglob("*") if path.is_file()]


def flip_a_bit(box: Box) -> None:
    with closing(sqlite3.connect(box.state / "metadata.sqlite")) as database, database:
        [(launches,)] = database.execute('SELECT launches FROM held_segments WHERE "index" = 0').fetchall()
        changed = bytearray(launches)
        changed[-1] ^= 1
        database.execute('UPDATE held_segments SET launches = ? WHERE "index" = 0', (bytes(changed),))


def test_small_segments_take_no_file_and_large_ones_do(box: Box) -> None:
    """The file of the others begins where the small ones end."""
    segments = made_segments((100, 50, 60_000, 10))
    assert [box.send(segment) for segment in segments] == [DURABLE] * 4
    assert held(box) == [0, 1]
    [path] = staged(box)
    with box.coordinator.snapshot() as store:
        kept = store.segments(box.key)
    assert kept[1].end_bytes <= MOST_HELD_BYTES < kept[2].end_bytes
    assert path.stat().st_size == kept[-1].end_bytes
    box.restart()
    assert [box.send(segment) for segment in segments] == [DUPLICATE] * 4
    assert box.finish(4, 60_160)
    assert (all_held(box), staged(box)) == (0, [])


@pytest.mark.parametrize("restarted", [False, True])
def test_the_file_is_that_of_segments_from_files(tmp_path: Path, box: Box, restarted: bool) -> None:
    in_files = Box(tmp_path / "in files", most_held_bytes=0)
    for each in (box, in_files):
        assert [each.send(segment) for segment in made_segments((100, 50, 7))] == [DURABLE] * 3
        if restarted:
            each.restart()
        assert each.finish(3, 157)
    file = "records/made-1.0000/slice-00000.parquet"
    assert (box.state / file).read_bytes() == (in_files.state / file).read_bytes()
    in_files.close()


def test_a_restarted_server_goes_on_where_it_was(box: Box) -> None:
    first, second, third = made_segments((100, 50, 30))
    assert box.send(first) == DURABLE
    box.restart()
    recover(box.coordinator)
    assert held(box) == [0]
    assert box.send(first) == DUPLICATE
    assert box.send(second) == DURABLE
    box.restart()
    assert box.send(third) == DURABLE
    assert box.finish(3, 180)


def test_an_old_token_does_not_even_reach_the_store(box: Box) -> None:
    first, second = made_segments((10, 10))
    assert box.send(first) == DURABLE
    stale = replace(box.key, token=box.key.token - 1)
    assert box.refused(second, stale).startswith("lease_expired: ")
    assert held(box) == [0]


def test_a_held_segment_that_the_disk_changed_costs_no_try_and_is_set_aside(box: Box) -> None:
    first, second = made_segments((100, 50))
    damaged = "staging_damaged: segment 0 in it has changed since it was acknowledged"
    for attempt in range(1, 4):
        assert box.key.attempt == attempt
        box.send(first)
        box.restart()
        flip_a_bit(box)
        if attempt < 3:
            assert box.refused(second) == damaged
        else:
            assert not box.finish(1, 100)
        assert box.run_state() is not RunState.FAILED
        assert all_held(box) == 0
        box.key = box.lease()
    kept = box.coordinator.records.all_set_aside()
    assert [(each.reason, len(each.names)) for each in kept] == [(SetAsideReason.CHANGED, 1)] * 3
    assert [len((Path(kept[0].folder) / kept[0].names[0]).read_bytes())] == [first_bytes(first)]


def first_bytes(segment: object) -> int:
    return len(segment.names) + len(segment.data)  # type: ignore[attr-defined]


@pytest.mark.parametrize("end", ["fails", "is cancelled", "expires and is superseded"])
def test_nothing_is_kept_of_an_attempt_that_has_ended(box: Box, end: str) -> None:
    assert box.send(made_segments((100,))[0]) == DURABLE
    if end == "fails":
        with box.coordinator.schedule() as schedule:
            schedule.fail(box.key, Failure("application_failed", "x", "y", "z", True))
    elif end == "is cancelled":
        with box.coordinator.schedule() as schedule:
            schedule.cancel("made-1")
    else:
        box.clock.ms += 1_001
        with box.coordinator.schedule() as schedule:
            schedule.expire()
        assert box.state_of() is AttemptState.EXPIRED
        assert held(box) == [0]  # its agent may come back
        box.lease()
    assert all_held(box) == 0


def test_what_an_attempt_left_that_has_ended_goes_at_the_next_start(box: Box) -> None:
    assert box.send(made_segments((100,))[0]) == DURABLE
    other = box.lease("1")
    assert box.send(made_segments((70,))[0], other) == DURABLE
    with closing(sqlite3.connect(box.state / "metadata.sqlite")) as database, database:
        query = "UPDATE attempts SET state = 'failed' WHERE run_id = ?"
        database.execute(query, (other.run_id,))
    box.restart()
    recover(box.coordinator)
    assert (held(box), held(box, other)) == ([0], [])


def test_deleted_runs_leave_nothing(tmp_path: Path, box: Box) -> None:
    assert box.send(made_segments((100,))[0]) == DURABLE
    box.metadata.close()
    store = SqliteStore(box.state / "metadata.sqlite")
    with store.transaction() as transaction:
        transaction.delete_runs([box.key.run_id])
    store.close()
    assert all_held(box) == 0
