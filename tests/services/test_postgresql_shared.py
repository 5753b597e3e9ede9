"""Servers that share a PostgreSQL database: no slice is measured twice, whoever hears of what."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from assay_core.records.attempt import AttemptLog
from assay_core.records.campaign import AttemptState
from assay_core.records.failure import failure
from assay_core.records.lease import AttemptProgress, Heartbeat
from assay_core.records.work import CommandSource
from assay_sampling.errors import ParameterError
from assay_sampling.running.failures import FailureClass
from assay_server.campaigns.heartbeats.answering import Heartbeats
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.transitions import SchedulePolicy
from assay_server.peers.interface import Hub, PeersInProcess
from assay_server.store.model import Attempt, Run, Segment, Slice
from assay_server.store.postgresql.place import place_of
from assay_server.store.postgresql.store import PostgresqlStore
from assay_server.store.record_store import PublishedFile
from assay_server.store.records import LocalRecordStore
from tests.bench.leases import made_agent, submit
from tests.services.postgresql import OwnPostgresql
from tests.support.server.server_support import HandClock
from tests.support.server.stored_values import campaign, run

SERVERS, AGENTS = 3, 4
CAMPAIGN = "made-1"


def measured(number: int) -> Run:
    """A run that the made agents take."""
    given = {"device_key": "v100", "profiler": "nsight_systems", "command": CommandSource(("./a.out",))}
    return run(number, "made-2", recorded=None, **given)


class Site:
    """Servers on one database that play the same few agents; any of them may hear of any attempt."""

    def __init__(self, url: str, folder: Path, stack: ExitStack) -> None:
        self._url, self.clock, hub = url, HandClock(), Hub()
        self.stores, self.servers, self.beats = [], [], []
        for _ in range(SERVERS):
            store = stack.enter_context(closing(PostgresqlStore(place_of(url), shared=True)))
            server = Coordinator(store, LocalRecordStore(folder), SchedulePolicy(), self.clock)
            server.peers = PeersInProcess(hub)
            stack.enter_context(server.peers.listening(server.hear))
            self.stores.append(store)
            self.servers.append(server)
            self.beats.append(stack.enter_context(closing(Heartbeats(server))))
        self.held: dict[int, Attempt] = {}
        submit(self.servers[0], CAMPAIGN, 4)
        with self.servers[1].schedule() as schedule:
            sliced = [measured(number) for number in range(3)]
            pieces = [Slice(each.run_id, index, 10 * index, 10) for each in sliced for index in range(3)]
            schedule.add_campaign(replace(campaign("made-2", 2), owner="", project=""), sliced, pieces)
        for agent in range(AGENTS):
            self.register(agent % SERVERS, agent)

    def register(self, server: int, agent: int) -> None:
        with self.servers[server].schedule() as schedule:
            schedule.register(made_agent(agent), {})

    def lease(self, server: int, agent: int) -> None:
        if agent in self.held:
            return
        with self.servers[server].schedule() as schedule:
            assert schedule.is_registered(f"agent-{agent}", "session")
            found = schedule.lease(f"agent-{agent}", f"GPU-{agent}")
        if found is not None:
            tokens = [each.key.token for each in self.held.values()]
            assert found.attempt.key.token > max(tokens, default=0)
            self.held[agent] = found.attempt

    def lease_together(self, server: int, _agent: int) -> None:
        """Several share a commit, with some luck; their tokens have no order here."""
        with ThreadPoolExecutor(AGENTS) as threads:
            free = [each for each in range(AGENTS) if each not in self.held]
            told = list(threads.map(lambda each: self._leased(server, each), free))
        self.held |= {agent: each for agent, each in zip(free, told, strict=True) if each is not None}

    def _leased(self, server: int, agent: int) -> Attempt | None:
        with self.servers[server].schedule() as schedule:
            found = schedule.lease(f"agent-{agent}", f"GPU-{agent}")
        return None if found is None else found.attempt

    def beat(self, server: int, agent: int) -> None:
        attempt = self.held.get(agent)
        told = () if attempt is None else (AttemptProgress(attempt.key, 3, attempt.write_secret),)
        self.beats[server].take(Heartbeat(f"agent-{agent}", "session", told)).result()

    def segment(self, server: int, agent: int) -> None:
        if agent in self.held:
            key = self.held[agent].key
            with self.servers[server].schedule() as schedule:
                part = Segment(key.run_id, key.slice_index, key.attempt, 0, 0, 10, 0, 1, b"", b"h")
                schedule.add_segments([part], key)

    def begin_end(self, server: int, agent: int) -> None:
        self.segment(server, agent)
        if agent in self.held:
            with self.servers[server].schedule() as schedule:
                schedule.begin_publish(self.held[agent].key, 1, 10, (), AttemptLog())

    def finish(self, server: int, agent: int) -> None:
        self.begin_end((server + 1) % SERVERS, agent)
        if agent in self.held:
            key = self.held.pop(agent).key
            with self.servers[server].schedule() as schedule:
                schedule.end_publish(key, PublishedFile(f"{key}", 5, 10, "hash"))

    def fail(self, server: int, agent: int) -> None:
        if agent in self.held:
            with self.servers[server].schedule() as schedule:
                why = failure(FailureClass.HANG, "w", "it hangs", "look", retryable=True)
                schedule.fail(self.held.pop(agent).key, why)

    def tick(self, _server: int, agent: int) -> None:
        """Leases run out, or slices that rest fall due, or a moment goes by."""
        self.clock.ms += (60_000, 7_000, 300, 1)[agent % 4]

    def expire(self, server: int, _agent: int) -> None:
        with self.servers[server].schedule() as schedule:
            schedule.expire()

    def pause(self, server: int, agent: int) -> None:
        with self.servers[server].schedule() as schedule:
            found = schedule.store.campaign(CAMPAIGN)
            assert found is not None
            schedule.store.save_campaign(replace(found, paused=agent % 2 == 0))

    def hold(self, server: int, agent: int) -> None:
        with self.servers[server].schedule() as schedule:
            some = [each.run_id for each in schedule.store.runs("made-2")][: 1 + agent % 2]
            schedule.store.pause_runs(some, agent > 1)

    def retry(self, server: int, _agent: int) -> None:
        with self.servers[server].schedule() as schedule:
            schedule.store.retry_runs([each.run_id for each in schedule.store.runs(CAMPAIGN)][:2])

    def undo(self, server: int, agent: int) -> None:
        """Somebody writes what a lease does, and then fails."""
        with suppress(ParameterError), self.servers[server].schedule() as schedule:
            schedule.lease(f"agent-{agent}", f"GPU-{agent}")
            raise ParameterError("test", "it changed its mind", "nothing")

    def look(self, server: int, _agent: int) -> None:
        with self.servers[server].schedule():
            pass

    def visit(self, _server: int, _agent: int) -> None:
        """Another program comes, writes and goes."""
        with closing(PostgresqlStore(place_of(self._url))) as store, store.transaction() as write:
            for each in write.attempts_in((AttemptState.LEASED,))[:1]:
                write.save_attempt(replace(each, launches_spooled=each.launches_spooled + 1))

    def check(self) -> None:
        """No slice is measured by two."""
        for server in range(SERVERS):
            self.look(server, 0)
        with self.servers[0].snapshot() as store:
            now = store.attempts_in((AttemptState.LEASED, AttemptState.PUBLISHING))
        places = [(each.key.run_id, each.key.slice_index) for each in now]
        assert len(places) == len(set(places))


MOSTLY = ["lease", "beat", "finish", "begin_end", "fail", "lease_together"]
SELDOM = ["segment", "tick", "expire", "pause", "hold", "retry", "undo", "look", "visit", "register"]
STEPS = st.lists(
    st.tuples(
        st.one_of(st.sampled_from(MOSTLY), st.sampled_from(MOSTLY + SELDOM)),
        st.integers(0, SERVERS - 1),
        st.integers(0, AGENTS - 1),
    ),
    min_size=10,
    max_size=60,
)
ROUND = [(step, agent % SERVERS, agent) for step in ("lease", "beat", "finish") for agent in range(AGENTS)]


@pytest.fixture(scope="module")
def template(own_postgresql: OwnPostgresql) -> str:
    """A database with empty tables, which takes long to make and little to copy."""
    own_postgresql.administrate("CREATE DATABASE made", database="postgres")
    PostgresqlStore(place_of(own_postgresql.url("made"))).close()
    return "made"


@settings(
    max_examples=25,
    suppress_health_check=list(HealthCheck),
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # to shrink takes minutes
)
@given(steps=STEPS)
@example(steps=ROUND * 4)
@example(steps=[("lease_together", 0, 0), *ROUND, ("lease_together", 1, 0), *ROUND])
@example(
    steps=[*ROUND[:4], ("tick", 0, 0), ("fail", 0, 0), ("lease", 0, 0), ("expire", 1, 0), ("lease", 0, 1)]
)
def test_no_slice_is_measured_by_two(
    own_postgresql: OwnPostgresql, template: str, tmp_path: Path, steps: Sequence[tuple[str, int, int]]
) -> None:
    own_postgresql.administrate(
        "DROP DATABASE IF EXISTS fresh WITH (FORCE)",
        f"CREATE DATABASE fresh TEMPLATE {template}",
        database="postgres",
    )
    with ExitStack() as stack:
        site = Site(own_postgresql.url("fresh"), tmp_path, stack)
        for step, server, agent in steps:
            getattr(site, step)(server, agent)
        site.check()
