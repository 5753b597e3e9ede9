"""Publishing: whole or not at all, once, and taken up again wherever it was interrupted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from assay_core.records.attempt import AttemptLog
from assay_core.records.campaign import AttemptState, RunState
from assay_core.records.failure import Failure
from assay_core.records.lease import FinishedAttempt
from assay_sampling.errors import StorageError
from assay_sampling.launches.parquet import LaunchWriter
from assay_sampling.readers.opening import open_recording
from assay_server.app import recover
from assay_server.campaigns.analysing.request_builder import analysis_request
from assay_server.store.model import Slice, SliceState
from assay_server.store.records import LocalRecordStore
from assay_server.store.sql import SqlTransaction
from tests.support.server.cancelling import cancel
from tests.support.server.ingest_box import Box
from tests.support.server.made_segments import made_segments


class PowerCut(BaseException):
    """The process dies here: nothing after it is run, nothing catches it."""


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def launches_of(path: Path) -> list[int]:
    with open_recording(path) as recording:
        return [value for batch in recording.batches() for value in batch.records["launch"].to_pylist()]


def files(state: Path, folder: str) -> list[str]:
    return sorted(str(p.relative_to(state)) for p in (state / folder).rglob("*") if p.is_file())


def cut_at(target: object, name: str, *, after: bool) -> Callable[[pytest.MonkeyPatch], None]:
    real = getattr(target, name)

    def cut(*arguments: object, **keywords: object) -> object:
        if after:
            real(*arguments, **keywords)
        raise PowerCut

    return lambda patch: patch.setattr(target, name, cut)


POINTS = {
    "before the attempt is marked finished": cut_at(SqlTransaction, "save_attempt", after=False),
    "before the file is written": cut_at(LocalRecordStore, "publish", after=False),
    "in the middle of the file": cut_at(LaunchWriter, "write", after=True),
    "after the file is renamed into place": cut_at(LocalRecordStore, "publish", after=True),
    "in the last commit": cut_at(SqlTransaction, "save_slice", after=True),
    "before staging is removed": cut_at(LocalRecordStore, "discard", after=False),
    "after staging is removed": cut_at(LocalRecordStore, "discard", after=True),
}


@pytest.mark.parametrize("point", POINTS)
def test_a_power_cut_anywhere_in_publishing_loses_nothing_and_doubles_nothing(
    point: str, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    for segment in made_segments((100, 50)):
        box.send(segment)
    POINTS[point](monkeypatch)
    with pytest.raises(PowerCut):
        box.finish(2, 150)
    monkeypatch.undo()
    box.restart()
    recover(box.coordinator)
    # Either the agent asks again, or the server goes on by itself: the end is the same.
    if list(POINTS).index(point) % 2:
        box.publisher.resume()
    assert box.finish(2, 150)
    assert box.finish(2, 150)
    assert box.state_of() is AttemptState.PUBLISHED
    assert files(box.state, "records") == ["records/made-1.0000/slice-00000.parquet"]
    assert files(box.state, "staging") == []
    with box.coordinator.snapshot() as store:
        [piece] = store.published_slices()
    with box.coordinator.records.reading(piece.file) as path:
        pass
    assert launches_of(path) == list(range(150))
    assert piece.file_bytes == path.stat().st_size
    box.close()


def test_what_is_finished_is_published_by_the_next_server_without_its_agent(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    [segment] = made_segments((100,))
    box.send(segment)
    POINTS["before the file is written"](monkeypatch)
    with pytest.raises(PowerCut):
        box.finish(1, 100)
    monkeypatch.undo()
    box.restart()
    recover(box.coordinator)
    box.publisher.resume()
    assert box.state_of() is AttemptState.PUBLISHED
    box.close()


def test_a_file_without_its_commit_is_replaced_by_the_attempt_that_wins(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.send(made_segments((100,))[0])
    POINTS["after the file is renamed into place"](monkeypatch)
    with pytest.raises(PowerCut):
        box.finish(1, 100)
    monkeypatch.undo()
    with box.coordinator.schedule() as schedule:
        cancel(schedule, "made-1")
    box.restart()
    recover(box.coordinator)
    assert files(box.state, "records") == []
    assert not box.finish(1, 100)
    box.close()


def test_a_full_disk_leaves_the_attempt_finished_and_asking_again_publishes_it(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.send(made_segments((100,))[0])

    def full(*_arguments: object) -> None:
        raise StorageError("disk", "No space left on device", "free some")

    monkeypatch.setattr(LocalRecordStore, "publish", full)
    with pytest.raises(StorageError):
        box.finish(1, 100)
    box.publisher.resume()  # logs, and goes on
    assert box.state_of() is AttemptState.PUBLISHING
    monkeypatch.undo()
    assert box.finish(1, 100)
    box.close()


def test_an_error_that_nobody_expected_with_one_attempt_does_not_keep_the_next_waiting(
    box: Box, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    publish, asked = LocalRecordStore.publish, 0

    def refused(*arguments: object) -> None:
        raise StorageError("disk", "No space left on device", "free some")

    def amiss_at_first(self: LocalRecordStore, *arguments: object) -> object:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise OverflowError("can't convert negative int to unsigned")
        return publish(self, *arguments)  # type: ignore[arg-type]

    other = box.lease("1")
    for key in (box.key, other):
        box.send(made_segments((100,))[0], key)
        with monkeypatch.context() as full, pytest.raises(StorageError):
            full.setattr(LocalRecordStore, "publish", refused)
            box.publisher.finish(FinishedAttempt(box.claim(key), 1, 100, (), AttemptLog()))
    monkeypatch.setattr(LocalRecordStore, "publish", amiss_at_first)
    box.publisher.resume()
    found = [box.state_of(key) for key in (box.key, other)]
    assert sorted(found) == [AttemptState.PUBLISHED, AttemptState.PUBLISHING]
    assert "OverflowError" in caplog.text
    box.close()


def test_acknowledged_data_that_the_disk_lost_make_another_attempt(tmp_path: Path) -> None:
    box = Box(tmp_path)
    for segment in made_segments((100, 50)):
        box.send(segment)
    [path] = (box.state / "staging").rglob("slice-*")
    path.write_bytes(path.read_bytes()[:-10])
    assert not box.finish(2, 150)
    assert box.state_of() is AttemptState.FAILED
    box.key = box.lease()
    assert box.key.attempt == 2
    for segment in made_segments((100, 50)):
        box.send(segment)
    assert box.finish(2, 150)
    box.close()


def test_a_campaign_cancelled_while_it_is_published_leaves_no_file(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.send(made_segments((100,))[0])
    publish = LocalRecordStore.publish

    def cancelled_meanwhile(self: LocalRecordStore, *arguments: object) -> object:
        published = publish(self, *arguments)  # type: ignore[arg-type]
        with box.coordinator.schedule() as schedule:
            cancel(schedule, "made-1")
        return published

    monkeypatch.setattr(LocalRecordStore, "publish", cancelled_meanwhile)
    assert not box.finish(1, 100)
    assert files(box.state, "records") == []
    box.close()


def test_wrong_counts_strangers_and_repetitions_concern_only_themselves(box: Box) -> None:
    second = box.lease("1")
    for key in (box.key, second):
        assert box.send(*made_segments((70,)), key).refusal is None
    mine, other = (FinishedAttempt(box.claim(key), 1, 70, (), AttemptLog()) for key in (box.key, second))
    stranger = replace(mine, claim=replace(mine.claim, session_id="another"))
    assert not box.publisher.finish(stranger)
    assert box.state_of() is AttemptState.LEASED
    asked = [stranger, mine, mine, replace(other, launches=71)]
    assert [box.publisher.finish(each) for each in asked] == [False, True, True, False]
    assert (box.state_of(), box.state_of(second)) == (AttemptState.PUBLISHED, AttemptState.FAILED)


def test_logs_and_flags_of_the_finish_are_kept(box: Box) -> None:
    box.send(made_segments((100,))[0])
    log = AttemptLog(("ncu", "--set", "full"), {"PATH": "/bin"}, "==PROF== done\n")
    assert box.publisher.finish(FinishedAttempt(box.claim(), 1, 100, (), log))
    with box.coordinator.snapshot() as store:
        [attempt] = store.attempts(box.key.run_id)
    assert attempt.log == log
    box.close()


def test_a_slice_is_written_by_one_at_a_time_whoever_asks(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    box.send(made_segments((100,))[0])
    publish = LocalRecordStore.publish
    writing, most, calls = 0, 0, 0
    begun, count = threading.Event(), threading.Lock()

    def watched(self: LocalRecordStore, *arguments: object) -> object:
        nonlocal writing, most, calls
        with count:
            writing, calls = writing + 1, calls + 1
            most = max(most, writing)
        begun.set()
        time.sleep(0.05)  # long enough for the others to come in, if anything let them
        try:
            return publish(self, *arguments)  # type: ignore[arg-type]
        finally:
            with count:
                writing -= 1

    monkeypatch.setattr(LocalRecordStore, "publish", watched)
    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(box.finish, 1, 100)
        begun.wait(60)
        others = [threads.submit(box.finish, 1, 100) for _ in range(2)]
        box.publisher.resume()
        assert all(asked.result(timeout=60) for asked in (first, *others))
    assert (most, calls) == (1, 1)
    box.close()


def test_a_slice_behind_the_end_of_its_workload_is_published_as_empty(box: Box) -> None:
    run_id = "long-1.0000"
    with box.coordinator.schedule() as schedule:
        campaign, run = schedule.store.campaign("made-1"), schedule.store.run("made-1.0000")
        assert campaign is not None and run is not None
        longer = replace(campaign, campaign_id="long-1", name="long")
        runs = [replace(run, campaign_id="long-1", run_id=run_id)]
        schedule.add_campaign(longer, runs, [Slice(run_id, 0), Slice(run_id, 1, launch_skip=100)])
    while box.key.run_id != run_id:
        with box.coordinator.schedule() as schedule:
            schedule.fail(box.key, Failure("application_failed", "x", "y", "z", False))
        box.key = box.lease()
    assert box.key.slice_index == 0
    box.send(made_segments((100,))[0])
    assert box.finish(1, 100)
    box.key = box.lease()
    assert (box.key.run_id, box.key.slice_index) == (run_id, 1)
    assert box.finish(0, 0)
    with box.coordinator.snapshot() as store:
        first, second = store.slices(run_id)
        ended = store.run(run_id)
        request = analysis_request(store, "long-1", box.coordinator.records)
    assert ended is not None and ended.state is RunState.DONE
    assert (second.state, second.file, second.launches) == (SliceState.DONE, "", 0)
    assert request.runs[0].files == (str(box.state / "records" / first.file),)
    assert request.runs[0].content_hash == first.content_hash
    recover(box.coordinator)
    assert files(box.state, "records") == [f"records/{run_id}/slice-00000.parquet"]
    box.close()


def test_the_first_slice_of_a_workload_is_never_empty(box: Box) -> None:
    assert not box.finish(0, 0)
    assert box.state_of() is AttemptState.FAILED
    box.close()
