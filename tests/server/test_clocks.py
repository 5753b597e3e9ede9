"""Clocks that jump and servers that stand still cost nobody a lease, and nobody a day."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import AttemptState, Submission
from assay_core.records.failure import Failure
from assay_core.records.machine import Inventory, Slot
from assay_server.app import Server
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.transitions import SchedulePolicy
from assay_server.campaigns.submit import submit
from assay_server.store.model import Agent
from assay_server.store.records import LocalRecordStore
from assay_server.store.sqlite import SqliteStore
from assay_server.upkeep import LeaseKeeper
from tests.support.server.coordinators import coordinator_over
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import CAMPAIGN, HandClock

DAY_MS = 24 * 3600 * 1000
HANG = Failure("hang", "the workload", "no progress", "raise the limit", True)


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    made = coordinator_over(
        SqliteStore(None), LocalRecordStore(tmp_path), SchedulePolicy(60_000), HandClock()
    )
    submit(made, Submission(CAMPAIGN, "c.yaml", "/data"))
    with made.schedule() as schedule:
        schedule.register(
            Agent("a", "s", "a", Inventory(), (Slot("0", ("recorded",)), Slot("1", ("recorded",))), 0), {}
        )
    yield made


def leased(coordinator: Coordinator, slot: str) -> AttemptKey:
    with coordinator.schedule() as schedule:
        lease = schedule.lease("a", slot)
    assert lease is not None
    return lease.attempt.key


def live(coordinator: Coordinator) -> int:
    with coordinator.snapshot() as store:
        return len(store.attempts_in((AttemptState.LEASED,)))


def test_a_server_that_was_stopped_ends_no_lease_for_it(
    coordinator: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    clock, seconds = coordinator.clock, [0.0]
    assert isinstance(clock, HandClock)
    keeper = LeaseKeeper(coordinator, lambda: seconds[0])

    def passes(by: float) -> None:
        seconds[0] += by
        clock.ms += int(by * 1000)
        keeper.look()

    leased(coordinator, "0"), leased(coordinator, "1")
    passes(1)
    passes(3600)  # SIGSTOP
    assert live(coordinator) == 2
    assert "was stopped for 3600 s: all leases start again" in caplog.text
    for _ in range(59):
        passes(1)
    assert live(coordinator) == 2
    passes(2)
    assert live(coordinator) == 0, "agents that are silent while the server listens lose theirs"


def test_a_short_gap_ends_what_ran_out(coordinator: Coordinator) -> None:
    clock, seconds = coordinator.clock, [0.0]
    assert isinstance(clock, HandClock)
    keeper = LeaseKeeper(coordinator, lambda: seconds[0])
    leased(coordinator, "0")
    clock.ms += 60_001
    seconds[0] += 15
    keeper.look()
    assert live(coordinator) == 0


@pytest.mark.parametrize(
    ("jump_ms", "rests_ms"), [(-DAY_MS, 4_000), (-1_000, 4_000), (DAY_MS, 0), (500, 3_500)]
)
def test_a_clock_that_was_set_makes_no_retry_wait_longer_than_its_pause(
    make_server: Callable[..., Server], jump_ms: int, rests_ms: int
) -> None:
    clock = HandClock(10 * DAY_MS)
    server = make_server(clock, retry_delay_ms=4_000)
    with PlayingAgent(server.addresses[0]) as agent:
        agent.submit(CAMPAIGN)
        agent.register()
        agent.fail(agent.lease().work.key)
    server.stop()
    # The next process finds the box's clock set.
    clock = HandClock(10 * DAY_MS + jump_ms)
    server = make_server(clock, retry_delay_ms=4_000)
    assert max(0, _not_before(server) - clock.ms) == rests_ms


def _not_before(server: Server) -> int:
    store = SqliteStore(server.settings.state_dir / "metadata.sqlite")
    try:
        with store.snapshot() as read:
            return max(piece.not_before_ms for piece in read.slices("made-1.0000"))
    finally:
        store.close()


def test_an_agent_that_was_seen_tomorrow_is_seen_now(make_server: Callable[..., Server]) -> None:
    server = make_server(HandClock(10 * DAY_MS))
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register()
    server.stop()
    server = make_server(HandClock(9 * DAY_MS))
    store = SqliteStore(server.settings.state_dir / "metadata.sqlite")
    with store.snapshot() as read:
        assert [found.seen_at_ms for found in read.agents()] == [9 * DAY_MS]
    store.close()
