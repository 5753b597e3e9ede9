"""Heartbeats that change nothing are answered from memory; the store has the last word within a second."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from assay_core.records.lease import AttemptProgress, Heartbeat, HeartbeatAnswer
from assay_core.records.machine import Inventory
from assay_sampling.errors import StorageError
from assay_server.campaigns.heartbeats.answering import Heartbeats
from assay_server.store.model import Agent, Attempt
from assay_server.store.sqlite import SqliteStore
from tests.support.server.ingest_box import Box

LEASE_MS = 1000
WELL = HeartbeatAnswer()


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path)
    yield made
    made.close()


@pytest.fixture
def heartbeats(box: Box, monkeypatch: pytest.MonkeyPatch) -> Iterator[Heartbeats]:
    """They are noted only when the test says so."""
    monkeypatch.setattr("assay_server.campaigns.heartbeats.answering.NOTED_SECONDS", 3600.0)
    monkeypatch.setattr("assay_server.campaigns.heartbeats.answering.NOTED_PART_OF_LEASE", 1e-9)
    made = Heartbeats(box.coordinator)
    yield made
    made.close()


def beat(box: Box, spooled: int = 0, secret: bytes | None = None, session: str = "s") -> Heartbeat:
    progress = AttemptProgress(box.key, spooled, box.claim(box.key).secret if secret is None else secret)
    return Heartbeat("a", session, (progress,))


def attempt(box: Box) -> Attempt:
    with box.coordinator.snapshot() as store:
        found = store.attempts_with([box.key])[box.key]
    return found


def test_nothing_is_known_before_the_store_was_asked(box, heartbeats):
    assert heartbeats.from_memory(beat(box)) is None
    assert heartbeats.take(beat(box)).result(20) == WELL
    assert heartbeats.from_memory(beat(box)) == WELL
    assert heartbeats.from_memory(Heartbeat("a", "s")) == WELL


def test_only_who_holds_the_lease_is_answered_from_memory(box, heartbeats):
    heartbeats.take(beat(box)).result(20)

    assert heartbeats.from_memory(beat(box, secret=b"x" * 32)) is None
    assert heartbeats.from_memory(beat(box, secret=b"")) is None
    assert heartbeats.from_memory(beat(box, session="another process")) is None
    assert heartbeats.from_memory(Heartbeat("b", "s", beat(box).attempts)) is None
    other = box.lease("1")
    assert heartbeats.from_memory(Heartbeat("a", "s", (AttemptProgress(other, 0, b"-"),))) is None


def test_a_lease_starts_again_and_progress_is_kept_when_the_heartbeat_is_noted(box, heartbeats):
    heartbeats.take(beat(box)).result(20)
    box.clock.ms += 700
    assert heartbeats.from_memory(beat(box, spooled=10)) == WELL
    assert heartbeats.from_memory(beat(box, spooled=20)) == WELL
    assert attempt(box).launches_spooled == 0

    heartbeats.note()

    assert attempt(box).lease_ends_at_ms == box.clock.ms + LEASE_MS
    assert attempt(box).launches_spooled == 20


def test_idle_agents_are_seen_together_and_not_with_each_heartbeat(box, heartbeats, monkeypatch):
    agents = [f"agent-{number}" for number in range(50)]
    with box.coordinator.schedule() as schedule:
        for name in agents:
            schedule.register(Agent(name, "s", name, Inventory(), (), 0), {})
    for future in [heartbeats.take(Heartbeat(name, "s")) for name in agents]:
        future.result(20)
    writes: list[int] = []
    transaction = SqliteStore.transaction
    monkeypatch.setattr(
        SqliteStore, "transaction", lambda self, **k: (writes.append(1), transaction(self, **k))[1]
    )

    assert {heartbeats.from_memory(Heartbeat(name, "s")) for name in agents} == {WELL}
    heartbeats.note()
    assert not writes
    box.clock.ms += 10_001
    assert {heartbeats.from_memory(Heartbeat(name, "s")) for name in agents} == {WELL}
    heartbeats.note()
    assert len(writes) == 1
    with box.coordinator.snapshot() as store:
        assert {each.seen_at_ms for each in store.sessions(agents).values()} == {box.clock.ms}
    heartbeats.from_memory(Heartbeat(agents[0], "s"))
    heartbeats.note()
    assert len(writes) == 1, "it was seen a moment ago, and memory knows it"


def test_a_cancelled_attempt_is_dropped_at_the_next_heartbeat(box, heartbeats):
    heartbeats.take(beat(box)).result(20)
    with box.coordinator.schedule() as schedule:
        schedule.cancel("made-1")

    assert heartbeats.from_memory(beat(box)) is None
    assert heartbeats.take(beat(box)).result(20) == HeartbeatAnswer((box.key,))
    assert heartbeats.from_memory(Heartbeat("a", "s")) is None, "the last answer was not that all is well"


def test_an_earlier_process_of_an_agent_is_forgotten_when_a_new_one_registers(box, heartbeats):
    heartbeats.take(Heartbeat("a", "s")).result(20)
    with box.coordinator.schedule() as schedule:
        schedule.register(Agent("a", "a later process", "a", Inventory(), (), 0), {})

    assert heartbeats.from_memory(Heartbeat("a", "s")) is None
    assert heartbeats.take(Heartbeat("a", "s")).result(20) == HeartbeatAnswer(register_again=True)


def test_what_memory_has_wrong_is_found_when_it_is_noted(box, heartbeats):
    """Here the attempt ends behind the server's back."""
    mine = beat(box)
    heartbeats.take(mine).result(20)
    with SqliteStore(box.state / "metadata.sqlite").transaction() as store:
        store.delete_runs([box.key.run_id])
    assert heartbeats.from_memory(mine) == WELL

    heartbeats.note()

    assert heartbeats.from_memory(mine) is None
    assert heartbeats.take(mine).result(20) == HeartbeatAnswer((box.key,))


def test_after_a_refusal_of_the_disk_agents_hear_of_it(box, heartbeats, monkeypatch):
    def refuse(self: SqliteStore, **_keywords: bool) -> None:
        raise StorageError("metadata", "the disk is full", "free space")

    heartbeats.take(beat(box)).result(20)
    with monkeypatch.context() as patch:
        patch.setattr(SqliteStore, "transaction", refuse)
        assert heartbeats.from_memory(beat(box)) == WELL
        heartbeats.note()
        assert heartbeats.from_memory(beat(box)) is None
        with pytest.raises(StorageError, match="disk is full"):
            heartbeats.take(beat(box)).result(20)
    assert heartbeats.take(beat(box)).result(20) == WELL


def test_closing_notes_what_was_answered(box):
    made = Heartbeats(box.coordinator)
    made.take(beat(box)).result(20)
    box.clock.ms += 500
    assert made.from_memory(beat(box, spooled=7)) == WELL
    made.close()
    assert attempt(box).launches_spooled == 7
