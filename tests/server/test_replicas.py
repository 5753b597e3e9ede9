"""Several servers on one database and one folder of records: what one does, another must not undo."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay_core.files import durable
from assay_core.records.attempt import AttemptKey, AttemptLog
from assay_core.records.campaign import AttemptState, CampaignState, RunState, SetAsideReason
from assay_sampling.errors import StorageError
from assay_sampling.readers import open_recording
from assay_server.campaigns.scheduling.transitions import Effects
from assay_server.clock import SharedClock
from assay_server.identity.authority import new_authority
from assay_server.identity.shared_authority import require_same_authority
from assay_server.opening import recover
from assay_server.store.record_store import KnownFiles
from assay_server.store.records import LocalRecordStore
from assay_server.store.sqlite import SqliteStore
from assay_server.upkeep import LeaseKeeper, noted_after_ms
from tests.support.server.ingest_box import Box
from tests.support.server.made_segments import made_segments


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path, shared=True, most_held_bytes=0)
    yield made
    made.close()


@pytest.fixture
def other(box: Box) -> Iterator[Box]:
    made = box.beside()
    yield made
    made.ingest.close()


def published(box: Box) -> list[int]:
    """The launches of the only published slice."""
    with box.coordinator.snapshot() as store:
        [piece] = [each for each in store.published_slices() if each.file]
    path = box.state / "records" / piece.file
    assert path.stat().st_size == piece.file_bytes
    with open_recording(path) as recording:
        return [value for batch in recording.batches() for value in batch.records["launch"].to_pylist()]


def test_a_starting_server_keeps_the_file_that_another_is_about_to_commit(
    box: Box, other: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was swept between its rename and its commit: published, then gone."""
    box.send(made_segments((100,))[0])
    ended = box.publisher._commit

    @contextmanager
    def before(snapshot: Any) -> Iterator[Any]:
        """As the newcomer saw the database a moment earlier: nobody publishes."""
        with snapshot as store:
            monkeypatch.setattr(store, "attempts_in", lambda *_states: [])
            yield store

    def meanwhile(key: object, file: object) -> bool:
        patched = other.coordinator.snapshot
        monkeypatch.setattr(other.coordinator, "snapshot", lambda: before(patched()))
        recover(other.coordinator)
        return ended(key, file)  # type: ignore[arg-type]

    monkeypatch.setattr(box.publisher, "_commit", meanwhile)
    assert box.finish(1, 100)
    assert published(box) == list(range(100))
    assert box.coordinator.records.all_set_aside() == []


def test_a_server_that_finds_the_segments_gone_keeps_what_another_has_published(
    box: Box, other: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both publish one attempt; the slower one took the winner's file for a stranger's and set it aside."""
    box.send(made_segments((100,))[0])
    publish = LocalRecordStore.publish

    def slower(self: LocalRecordStore, *arguments: object) -> object:
        monkeypatch.setattr(LocalRecordStore, "publish", publish)
        box.publisher.resume()  # the quicker one ends it, and removes the staged segments
        return publish(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(LocalRecordStore, "publish", slower)
    assert other.finish(1, 100)
    assert published(box) == list(range(100)) == published(other)
    assert box.state_of() is AttemptState.PUBLISHED
    assert box.coordinator.records.all_set_aside() == []


def test_an_unwanted_publication_takes_only_its_own_file_away(box: Box) -> None:
    records, segments = box.coordinator.records, made_segments((10,))
    box.send(segments[0])
    with box.coordinator.snapshot() as store:
        staged = store.segments(box.key)
    wanted = records.publish(box.key, staged)
    unwanted = records.publish(key_with(box, 99), staged)
    assert wanted.file != unwanted.file and wanted.content_hash == unwanted.content_hash
    records.withdraw(unwanted.file)
    assert (box.state / "records" / wanted.file).exists()
    assert not (box.state / "records" / unwanted.file).exists()


def key_with(box: Box, token: int) -> AttemptKey:
    """The key of the box's attempt under another token."""
    return replace(box.key, token=token)


@pytest.mark.parametrize("path_of_segments", [(0, 1, 0), (0, 1, 1, 0, 0), (1, 0, 1, 0)])
def test_a_stream_may_change_servers_and_come_back(
    box: Box, other: Box, path_of_segments: tuple[int, ...]
) -> None:
    """The first server refused it as restored from a backup: it knew nothing of what the other had taken."""
    servers, sizes = (box, other), tuple(range(30, 30 + len(path_of_segments)))
    for segment, place in zip(made_segments(sizes), path_of_segments, strict=True):
        assert servers[place].send(segment).refusal is None
    assert servers[path_of_segments[0]].finish(len(sizes), sum(sizes))
    assert published(box) == list(range(sum(sizes)))


def test_a_segment_that_both_servers_get_is_stored_once(box: Box, other: Box) -> None:
    first, second = made_segments((10, 20))
    assert not box.send(first).duplicate
    assert other.send(first).duplicate
    assert not other.send(second).duplicate
    with pytest.raises(StorageError, match="send both again"):
        box.send(second)  # it did not know; its agent asks again
    assert box.send(second).duplicate
    assert box.finish(2, 30)
    assert published(box) == list(range(30))


def test_two_ends_side_by_side_end_the_campaign(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each saw the run of the other one still open, nobody was the last, and the campaign ran for ever."""
    own = SqliteStore(box.state / "metadata.sqlite")
    other = box.beside(own)
    second = box.lease("1")
    box.send(made_segments((100,))[0])
    other.send(made_segments((70,))[0], second)
    commit, commit_second = box.publisher._commit, other.publisher._commit
    transaction, decided, tries = box.metadata.transaction, threading.Event(), threading.Event()

    @contextmanager
    def slowly(*, alone: bool = False) -> Iterator[Any]:
        with transaction(alone=alone) as write:
            yield write
            decided.set()
            assert tries.wait(20)
            time.sleep(0.3)  # proves nothing; it gives the other one time to read what it must not

    def first(*arguments: Any) -> bool:
        with monkeypatch.context() as patched:
            patched.setattr(box.metadata, "transaction", slowly)
            return commit(*arguments)

    def beside(*arguments: Any) -> bool:
        assert decided.wait(20)
        tries.set()
        return commit_second(*arguments)

    monkeypatch.setattr(box.publisher, "_commit", first)
    monkeypatch.setattr(other.publisher, "_commit", beside)
    with ThreadPoolExecutor(2) as threads:
        ends = [
            threads.submit(each.publisher.finish, box.claim(key), 1, launches, (), AttemptLog())
            for each, key, launches in ((box, box.key, 100), (other, second, 70))
        ]
        assert [end.result(60) for end in ends] == [True, True]
    with box.coordinator.snapshot() as store:
        campaign = store.campaign("made-1")
        assert {run.state for run in store.runs("made-1")} == {RunState.DONE}
    assert campaign is not None and campaign.state is CampaignState.ANALYSING
    other.ingest.close()
    own.close()


def test_servers_with_equal_process_numbers_have_temporary_files_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers often have one number: half of all publications failed."""
    path = tmp_path / "slice-00000.parquet"
    mine = durable.temporary_of(path)
    monkeypatch.setattr(durable, "_BY_CHANCE", "0123456789ab")  # another process, of the same number
    assert durable.temporary_of(path) != mine


def test_a_first_write_to_a_staged_file_never_empties_what_another_server_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "slice-00000-attempt-0001"
    monkeypatch.setattr(Path, "exists", lambda self: False)  # both looked before either made it
    durable.write_pieces(path, [(0, b"first")])
    durable.write_pieces(path, [(5, b"second")])
    assert path.read_bytes() == b"firstsecond"


def test_an_old_leftover_is_set_aside_and_a_young_one_is_not(box: Box) -> None:
    stray = box.state / "records" / "gone-1.0000" / "slice-00000-1-00ff.parquet"
    stray.parent.mkdir()
    stray.write_bytes(b"of a campaign that nobody knows")
    recover(box.coordinator)
    assert stray.exists()
    with box.coordinator.snapshot() as store:
        assert store.published_slices() == []
    moved = box.coordinator.records.sweep(KnownFiles([], [], [], {"made-1"}, lambda *_: False), 1e-9)
    assert moved is not None and moved.reason is SetAsideReason.UNKNOWN
    assert moved.names == ("records/gone-1.0000/slice-00000-1-00ff.parquet",)


def test_a_server_hears_what_another_did_to_an_attempt_and_to_the_queue(box: Box, other: Box) -> None:
    """Announced in one process only, slots of another server slept beside a campaign that waited for them."""
    heard: list[Effects] = []
    other.coordinator.listen(heard.append)
    with other.coordinator.schedule() as schedule:  # the queue of the other server is built
        assert schedule.lease("a", "0") is None or schedule.store
    heard.clear()
    key = box.lease("1")
    with box.coordinator.schedule() as schedule:
        schedule.cancel("made-1")
    assert "made-1" in heard[-1].campaigns
    assert {key, box.key} <= {freed for effects in heard for freed in effects.freed}
    assert other.coordinator.queue.standing is not None


def test_a_lease_that_another_server_may_have_heard_of_is_not_ended_at_once(box: Box, other: Box) -> None:
    """Heartbeats are answered from memory and noted within a second: only then do others know of them."""
    keeper = LeaseKeeper(other.coordinator, lambda: 0.0)
    box.clock.ms += 1001  # the lease of 1 s is over, by what the database says
    keeper.look()
    assert box.state_of() is AttemptState.LEASED
    box.clock.ms += noted_after_ms(other.coordinator)
    keeper.look()
    assert box.state_of() is AttemptState.EXPIRED


def test_the_clock_of_a_database_rules_and_leases_begin_again_when_it_is_set(box: Box) -> None:
    there, mono = [1_000_000], [0]
    clock = SharedClock(lambda: there[0], lambda: mono[0])
    assert clock.now_ms() == 1_000_000
    mono[0] += 10
    assert clock.now_ms() == 1_000_010
    there[0] -= 490  # it goes back by half a second: ours waits
    assert clock.synchronise() == -500 and clock.now_ms() == 1_000_010
    mono[0] += 600
    assert clock.now_ms() == 1_000_110
    there[0] += 3_600_600
    assert clock.synchronise() == 3_600_000
    seconds = [0.0]
    box.coordinator.clock = clock
    with box.coordinator.schedule() as schedule:
        schedule.extend_all()
    keeper = LeaseKeeper(box.coordinator, lambda: seconds[0])
    for _ in range(48):  # its clock is asked in between
        seconds[0] += 0.25
        mono[0] += 1
        there[0] += 1 if seconds[0] < 3 else 3_600_000
        keeper.look()
        assert box.state_of() is AttemptState.LEASED


@pytest.mark.parametrize("step_ms", [3_600_000, -3_600_000])
@pytest.mark.parametrize("who_hears", [0, 1])
def test_no_lease_ends_while_servers_learn_one_after_the_other_that_the_databases_clock_was_set(
    box: Box, other: Box, step_ms: int, who_hears: int
) -> None:
    there, mono, seconds = [10_000_000_000], [0], [0.0]
    servers = [box.coordinator, other.coordinator]
    for each in servers:
        each.clock = SharedClock(lambda: there[0], lambda: mono[0])
    keepers = [LeaseKeeper(box.coordinator, lambda: seconds[0])]

    def pass_quarter() -> None:
        seconds[0] += 0.25
        mono[0] += 250
        there[0] += 250
        for keeper in keepers:
            keeper.look()

    for quarter in range(240):
        if quarter == 20:  # it asks for the time five seconds later than the first one
            keepers.append(LeaseKeeper(other.coordinator, lambda: seconds[0]))
        there[0] += step_ms if quarter == 45 else 0
        with servers[who_hears].schedule() as schedule:
            assert schedule.extend(box.key)
        pass_quarter()
        assert box.state_of() is AttemptState.LEASED, f"ended after {quarter / 4} s"
    for _ in range(24):  # its agent falls silent
        pass_quarter()
    assert box.state_of() is AttemptState.EXPIRED


def test_a_server_with_another_authority_is_refused(tmp_path: Path) -> None:
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    ours, theirs = (new_authority(name, day, now) for name in ("ours", "theirs"))
    store = SqliteStore(tmp_path / "metadata.sqlite")
    require_same_authority(store, None)
    require_same_authority(store, ours)
    require_same_authority(store, ours)
    for wrong, said in ((theirs, "another one"), (None, "it has no certificate authority")):
        with pytest.raises(StorageError, match=said) as caught:
            require_same_authority(store, wrong)
        assert "cp -a" in (caught.value.remedy or "")
    store.close()
