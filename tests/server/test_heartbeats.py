"""Heartbeats are answered together, each as if it had come alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import AttemptState
from assay_core.records.lease import AttemptProgress, Heartbeat, HeartbeatAnswer
from assay_core.records.machine import Inventory
from assay_sampling.errors import StorageError
from assay_server.campaigns.heartbeats import Heartbeats
from assay_server.store.model import Agent, Attempt, Slice
from assay_server.store.sqlite import SqliteStore
from tests.support.server.cancelling import cancel
from tests.support.server.ingest_box import Box
from tests.support.server.stored_values import attempt as stored_attempt
from tests.support.server.stored_values import campaign, run

LEASE_MS = 1000


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path)
    yield made
    made.close()


@pytest.fixture
def heartbeats(box: Box) -> Iterator[Heartbeats]:
    made = Heartbeats(box.coordinator)
    yield made
    made.close()


def attempt(box: Box, key: AttemptKey) -> Attempt:
    with box.coordinator.snapshot() as store:
        found = store.attempts_with([key])[key]
    return found


def beat(box: Box, *keys: AttemptKey, spooled: int = 0, secret: bytes | None = None) -> Heartbeat:
    secrets = [box.claim(key).secret if secret is None else secret for key in keys]
    progress = [AttemptProgress(key, spooled, s) for key, s in zip(keys, secrets, strict=True)]
    return Heartbeat("a", "s", tuple(progress))


def counted_writes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """An entry for each writing transaction from now on."""
    writes: list[int] = []
    transaction = SqliteStore.transaction

    def counted(self: SqliteStore, **keywords: bool):
        writes.append(1)
        return transaction(self, **keywords)

    monkeypatch.setattr(SqliteStore, "transaction", counted)
    return writes


def test_a_heartbeat_makes_the_lease_start_again_and_confirms_the_attempt(box, heartbeats):
    box.clock.ms += 700
    assert not attempt(box, box.key).confirmed

    assert heartbeats.take(beat(box, box.key, spooled=20)).result(20) == HeartbeatAnswer()

    found = attempt(box, box.key)
    assert found.lease_ends_at_ms == box.clock.ms + LEASE_MS
    assert (found.confirmed, found.launches_spooled) == (True, 20)
    heartbeats.take(beat(box, box.key, spooled=5)).result(20)
    assert attempt(box, box.key).launches_spooled == 20


def test_each_of_many_together_gets_its_own_answer(box, heartbeats):
    """Only the lease of the heartbeat with the right secret starts again."""
    other = box.lease("1")
    box.clock.ms += 500
    unknown = AttemptKey("made-1.0009", 0, 1, 99)
    later = AttemptKey(box.key.run_id, 0, 1, box.key.token + 7)  # another token: another lease

    futures = [
        heartbeats.take(each)
        for each in (
            beat(box, box.key),
            beat(box, other, secret=b"x" * 32),
            Heartbeat("a", "an earlier process"),
            Heartbeat("nobody", "s"),
            beat(box, unknown, later, secret=b"x" * 32),
            beat(box),
        )
    ]

    again = HeartbeatAnswer(register_again=True)
    dropped = HeartbeatAnswer((unknown, later))
    assert [future.result(20) for future in futures] == [
        HeartbeatAnswer(), HeartbeatAnswer((other,)), again, again, dropped, HeartbeatAnswer(),
    ]  # fmt: skip
    assert attempt(box, box.key).lease_ends_at_ms == box.clock.ms + LEASE_MS
    assert attempt(box, other).lease_ends_at_ms == box.clock.ms - 500 + LEASE_MS


def test_an_expired_attempt_comes_back_and_a_superseded_one_is_dropped(box, heartbeats):
    with box.coordinator.schedule() as schedule:
        schedule.now_ms += LEASE_MS + 1
        schedule.expire()
    assert attempt(box, box.key).state is AttemptState.EXPIRED

    assert heartbeats.take(beat(box, box.key)).result(20) == HeartbeatAnswer()
    assert attempt(box, box.key).state is AttemptState.LEASED
    with box.coordinator.schedule() as schedule:
        cancel(schedule, "made-1")
    assert heartbeats.take(beat(box, box.key)).result(20) == HeartbeatAnswer((box.key,))


def test_an_agent_without_runs_that_was_seen_a_moment_ago_writes_nothing(box, heartbeats, monkeypatch):
    writes = counted_writes(monkeypatch)
    for _ in range(3):
        heartbeats.take(Heartbeat("a", "s")).result(20)
    assert not writes

    box.clock.ms += 10_001
    heartbeats.take(Heartbeat("a", "s")).result(20)
    assert len(writes) == 1
    with box.coordinator.snapshot() as store:
        assert store.sessions(["a", "b"])["a"].seen_at_ms == box.clock.ms


def test_many_heartbeats_take_few_transactions(box, heartbeats, monkeypatch):
    with box.coordinator.schedule() as schedule:
        for number in range(200):
            schedule.register(Agent(f"agent-{number}", "s", "a", Inventory(), (), 0), {})
    box.clock.ms += 10_001  # each must be noted
    writes = []
    transaction = SqliteStore.transaction
    monkeypatch.setattr(
        SqliteStore, "transaction", lambda self, **k: (writes.append(1), transaction(self, **k))[1]
    )

    futures = [heartbeats.take(Heartbeat(f"agent-{number}", "s")) for number in range(200)]
    assert {future.result(20) for future in futures} == {HeartbeatAnswer()}
    assert len(writes) < 20
    with box.coordinator.snapshot() as store:
        assert {agent.seen_at_ms for agent in store.agents() if agent.agent_id != "a"} == {box.clock.ms}


def test_every_agent_hears_of_a_disk_that_refuses_and_the_next_heartbeat_counts(box, heartbeats, monkeypatch):
    def refuse(self: SqliteStore, **_keywords: bool) -> None:
        raise StorageError("metadata", "the disk is full", "free space")

    with monkeypatch.context() as patch:
        patch.setattr(SqliteStore, "transaction", refuse)
        futures = [heartbeats.take(beat(box, box.key)) for _ in range(2)]
        for future in futures:
            with pytest.raises(StorageError, match="disk is full"):
                future.result(20)
    assert heartbeats.take(beat(box, box.key)).result(20) == HeartbeatAnswer()


def test_closing_answers_what_was_taken(box):
    made = Heartbeats(box.coordinator)
    futures = [made.take(beat(box, box.key)) for _ in range(5)]
    made.close()
    assert {future.result(0) for future in futures} == {HeartbeatAnswer()}
    assert "assay-heartbeats" not in {thread.name for thread in threading.enumerate()}


def test_who_asks_for_twice_as_many_attempts_hashes_twice_as_many_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "metadata.sqlite")
    attempts = [stored_attempt(number, number, state=AttemptState.FAILED) for number in range(1, 41)]
    keys = [each.key for each in attempts]
    hashed: list[int] = []
    of_key = AttemptKey.__hash__

    def counted(key: AttemptKey) -> int:
        hashed.append(1)
        return of_key(key)

    with store.transaction() as write:
        write.begin_epoch(1)
        write.add_campaign(campaign(), [run()], [Slice(run().run_id, 0)])
        for each in attempts:
            write.add_attempt(each)
    monkeypatch.setattr(AttemptKey, "__hash__", counted)
    counts = []
    for many in (keys[:20], keys):
        hashed.clear()
        with store.snapshot() as read:
            assert len(read.attempts_with(many)) == len(many)
        counts.append(len(hashed))
    store.close()
    assert counts[1] == 2 * counts[0]
