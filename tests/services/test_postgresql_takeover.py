"""Servers that take the lead of a PostgreSQL database over: no slice is measured twice, whoever is asked."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from assay_core.records.attempt import AttemptLog
from assay_core.records.campaign import AttemptState
from assay_core.records.failure import failure
from assay_core.records.lease import AttemptProgress, Heartbeat
from assay_core.records.work import CommandSource
from assay_sampling.errors import ParameterError, StorageError
from assay_sampling.running.failures import FailureClass
from assay_server.app import recover
from assay_server.campaigns.heartbeats import Heartbeats
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.transitions import SchedulePolicy
from assay_server.database.opening import opened_alone
from assay_server.places import database_place
from assay_server.store.model import Attempt, PublishedFile, Run, Segment, Slice
from assay_server.store.postgresql.lead import LeadLostError
from assay_server.store.postgresql.store import PostgresqlStore
from assay_server.store.records import LocalRecordStore
from tests.bench.leases import made_agent, submit
from tests.services.postgresql import OwnPostgresql
from tests.support.server.coordinators import coordinator_over
from tests.support.server.server_support import HandClock
from tests.support.server.stored_values import campaign, run

AGENTS = 4
CAMPAIGN = "made-1"


def measured(number: int) -> Run:
    """A run that the made agents take."""
    given = {"device_key": "v100", "profiler": "nsight_systems", "command": CommandSource(("./a.out",))}
    return run(number, "made-2", recorded=None, **given)


class Site:
    """Two servers, of which one leads a database, and the few agents that ask them.

    The server that lost the lead does not know it. It is asked too, and must change nothing.
    """

    def __init__(self, url: str, folder: Path, stack: ExitStack) -> None:
        self._url, self._folder, self._stack, self.clock = url, folder, stack, HandClock()
        self.active, self.beats = self._started()
        self.deposed, self.beats_of_deposed = self.active, self.beats
        self.held: dict[int, Attempt] = {}
        submit(self.active, CAMPAIGN, 4)
        with self.active.schedule() as schedule:
            sliced = [measured(number) for number in range(3)]
            pieces = [Slice(each.run_id, index, 10 * index, 10) for each in sliced for index in range(3)]
            schedule.add_campaign(replace(campaign("made-2", 2), owner="", project=""), sliced, pieces)
        for agent in range(AGENTS):
            self.register(agent)

    def _started(self) -> tuple[Coordinator, Heartbeats]:
        store = self._stack.enter_context(closing(opened_alone(database_place(self._url))))
        server = coordinator_over(
            store, LocalRecordStore(self._folder, shared=True), SchedulePolicy(), self.clock
        )
        recover(server)
        return server, self._stack.enter_context(closing(Heartbeats(server)))

    def take_over(self, _agent: int) -> None:
        """Another server leads, while the one that led goes on."""
        with psycopg.connect(self._url, autocommit=True) as admin:
            before = self.active, self.beats
            while True:  # the one that leads may renew its lead in between
                admin.execute("UPDATE assay_leader SET expires_at = now() - interval '1 s'")
                with suppress(StorageError):
                    self.active, self.beats = self._started()
                    break
        self.deposed, self.beats_of_deposed = before

    def ask_deposed(self, agent: int) -> None:
        """The server that lost the lead gives out nothing, takes nothing, and ends nothing."""
        if self.deposed is self.active:
            return
        with self.active.snapshot() as store:
            before = store.attempts_in(tuple(AttemptState))
        calls = [
            lambda schedule: schedule.lease(f"agent-{agent}", f"GPU-{agent}"),
            lambda schedule: schedule.register(made_agent(agent), {}),
            lambda schedule: schedule.fail(
                before[0].key, failure(FailureClass.HANG, "w", "it hangs", "look", retryable=True)
            ),
        ]
        for call in calls[: 3 if before else 2]:
            with suppress(LeadLostError), self.deposed.schedule() as schedule:
                call(schedule)
        attempt = self.held.get(agent)
        told = () if attempt is None else (AttemptProgress(attempt.key, 3, attempt.write_secret),)
        with suppress(LeadLostError):
            self.beats_of_deposed.take(Heartbeat(f"agent-{agent}", "session", told)).result()
        with self.active.snapshot() as store:
            assert store.attempts_in(tuple(AttemptState)) == before

    def register(self, agent: int) -> None:
        with self.active.schedule() as schedule:
            schedule.register(made_agent(agent), {})

    def lease(self, agent: int) -> None:
        if agent in self.held:
            return
        with self.active.schedule() as schedule:
            assert schedule.is_registered(f"agent-{agent}", "session")
            leased = schedule.lease(f"agent-{agent}", f"GPU-{agent}")
        if leased is not None:
            tokens = [each.key.token for each in self.held.values()]
            assert leased.attempt.key.token > max(tokens, default=0)
            self.held[agent] = leased.attempt

    def lease_together(self, _agent: int) -> None:
        """At one moment: their tokens have no order here."""
        with ThreadPoolExecutor(AGENTS) as threads:
            free = [each for each in range(AGENTS) if each not in self.held]
            attempts = list(threads.map(self._leased, free))
        self.held |= {agent: each for agent, each in zip(free, attempts, strict=True) if each is not None}

    def _leased(self, agent: int) -> Attempt | None:
        with self.active.schedule() as schedule:
            leased = schedule.lease(f"agent-{agent}", f"GPU-{agent}")
        return None if leased is None else leased.attempt

    def beat(self, agent: int) -> None:
        attempt = self.held.get(agent)
        told = () if attempt is None else (AttemptProgress(attempt.key, 3, attempt.write_secret),)
        self.beats.take(Heartbeat(f"agent-{agent}", "session", told)).result()

    def segment(self, agent: int) -> None:
        if agent in self.held:
            key = self.held[agent].key
            with self.active.schedule() as schedule:
                part = Segment(key.run_id, key.slice_index, key.attempt, 0, 0, 10, 0, 1, b"", b"h")
                schedule.add_segments([part], key)

    def begin_end(self, agent: int) -> None:
        self.segment(agent)
        if agent in self.held:
            with self.active.schedule() as schedule:
                schedule.begin_publish(self.held[agent].key, 1, 10, (), AttemptLog())

    def finish(self, agent: int) -> None:
        self.begin_end(agent)
        if agent in self.held:
            key = self.held.pop(agent).key
            with self.active.schedule() as schedule:
                schedule.end_publish(key, PublishedFile(f"{key}", 5, 10, "hash"))

    def fail(self, agent: int) -> None:
        if agent in self.held:
            with self.active.schedule() as schedule:
                why = failure(FailureClass.HANG, "w", "it hangs", "look", retryable=True)
                schedule.fail(self.held.pop(agent).key, why)

    def tick(self, agent: int) -> None:
        """Leases run out, or slices that rest fall due, or a moment goes by."""
        self.clock.ms += (60_000, 7_000, 300, 1)[agent % 4]

    def expire(self, _agent: int) -> None:
        with self.active.schedule() as schedule:
            schedule.expire()

    def pause(self, agent: int) -> None:
        with self.active.schedule() as schedule:
            paused = schedule.store.campaign(CAMPAIGN)
            assert paused is not None
            schedule.store.save_campaign(replace(paused, paused=agent % 2 == 0))

    def hold(self, agent: int) -> None:
        with self.active.schedule() as schedule:
            some = [each.run_id for each in schedule.store.runs("made-2")][: 1 + agent % 2]
            schedule.store.pause_runs(some, agent > 1)

    def retry(self, _agent: int) -> None:
        with self.active.schedule() as schedule:
            schedule.store.retry_runs([each.run_id for each in schedule.store.runs(CAMPAIGN)][:2])

    def undo(self, agent: int) -> None:
        """Somebody writes what a lease does, and then fails."""
        with suppress(ParameterError), self.active.schedule() as schedule:
            schedule.lease(f"agent-{agent}", f"GPU-{agent}")
            raise ParameterError("test", "it changed its mind", "nothing")

    def visit(self, _agent: int) -> None:
        """Another program comes, writes and goes."""
        with closing(PostgresqlStore(database_place(self._url))) as store, store.transaction() as write:
            for each in write.attempts_in((AttemptState.LEASED,))[:1]:
                write.save_attempt(replace(each, launches_spooled=each.launches_spooled + 1))

    def check(self) -> None:
        """No slice is measured by two."""
        with self.active.snapshot() as store:
            now = store.attempts_in((AttemptState.LEASED, AttemptState.PUBLISHING))
        places = [(each.key.run_id, each.key.slice_index) for each in now]
        assert len(places) == len(set(places))


MOSTLY = ["lease", "beat", "finish", "begin_end", "fail", "lease_together", "ask_deposed"]
SELDOM = ["segment", "tick", "expire", "pause", "hold", "retry", "undo", "visit", "register", "take_over"]
STEPS = st.lists(
    st.tuples(
        st.one_of(st.sampled_from(MOSTLY), st.sampled_from(MOSTLY + SELDOM)), st.integers(0, AGENTS - 1)
    ),
    min_size=10,
    max_size=60,
)
ROUND = [(step, agent) for step in ("lease", "beat", "finish") for agent in range(AGENTS)]


@pytest.fixture(scope="module")
def template(own_postgresql: OwnPostgresql) -> str:
    """A database with empty tables, which takes long to make and little to copy."""
    own_postgresql.administrate("CREATE DATABASE made", database="postgres")
    PostgresqlStore(database_place(own_postgresql.url("made"))).close()
    return "made"


@settings(
    max_examples=20,
    suppress_health_check=list(HealthCheck),
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # to shrink takes minutes
)
@given(steps=STEPS)
@example(steps=ROUND * 4)
@example(steps=[("lease_together", 0), ("take_over", 0), ("ask_deposed", 0), *ROUND, *ROUND])
@example(steps=[*ROUND[:4], ("tick", 0), ("fail", 0), ("lease", 0), ("take_over", 0), ("lease", 1)])
@example(steps=[*ROUND[:8], ("begin_end", 0), ("take_over", 0), ("ask_deposed", 0), ("finish", 0), *ROUND])
def test_no_slice_is_measured_by_two(
    own_postgresql: OwnPostgresql, template: str, tmp_path: Path, steps: Sequence[tuple[str, int]]
) -> None:
    own_postgresql.administrate(
        "DROP DATABASE IF EXISTS fresh WITH (FORCE)",
        f"CREATE DATABASE fresh TEMPLATE {template}",
        database="postgres",
    )
    with ExitStack() as stack:
        site = Site(own_postgresql.url("fresh"), tmp_path, stack)
        for step, agent in steps:
            getattr(site, step)(agent)
        site.check()
