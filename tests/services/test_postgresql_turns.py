"""Servers that share a PostgreSQL database: each remembers what it read, without what others changed.

Before every transaction here, all that is remembered is held against the database.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from assay_core.records.attempt import AttemptLog
from assay_core.records.campaign import AttemptState, RunState
from assay_core.records.failure import failure
from assay_core.records.lease import AttemptProgress, Heartbeat
from assay_core.records.work import CommandSource
from assay_sampling.errors import ParameterError
from assay_sampling.running.failures import FailureClass
from assay_server.campaigns.heartbeats.answering import Heartbeats
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.transitions import SchedulePolicy
from assay_server.peers.seam import Hub, PeersInProcess
from assay_server.store.connections.noted import NotedRows
from assay_server.store.connections.remembered import Remembered, Told, Turn
from assay_server.store.model import Attempt, LikelyLeases, Run, Segment, Slice, SliceState
from assay_server.store.postgresql.place import place_of
from assay_server.store.postgresql.store import PostgresqlStore
from assay_server.store.record_store import PublishedFile
from assay_server.store.records import LocalRecordStore
from assay_server.store.rows.expected import WaitingSlices
from tests.bench.leases import made_agent, submit
from tests.services.postgresql import OwnPostgresql
from tests.support.server import remembered_truth
from tests.support.server.server_support import HandClock
from tests.support.server.stored_values import attempt, campaign, run

SERVERS, AGENTS = 3, 4
CAMPAIGN = "made-1"


@pytest.fixture
def compared() -> Iterator[None]:
    """Hold what is remembered against the database, until the test's end."""
    remembered_truth.install()
    yield
    remembered_truth.uninstall()
    assert remembered_truth.take_differences() == []


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
            schedule.expect([(f"agent-{agent}", f"GPU-{agent}")])
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
            schedule.expect([(f"agent-{agent}", f"GPU-{agent}")])
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
                schedule.store.fetch_attempts([self.held[agent].key])
                schedule.begin_publish(self.held[agent].key, 1, 10, (), AttemptLog())

    def finish(self, server: int, agent: int) -> None:
        self.begin_end((server + 1) % SERVERS, agent)
        if agent in self.held:
            key = self.held.pop(agent).key
            with self.servers[server].schedule() as schedule:
                schedule.store.fetch_attempts([key], ending=True)
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
            schedule.expect([(f"agent-{agent}", f"GPU-{agent}")])
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
        """No slice is measured by two, and every server finds what it remembers in the database."""
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


WAITING_AGAIN = [
    *ROUND[:4],
    ("tick", 0, 0),
    ("fail", 0, 0),
    ("lease", 0, 0),
    ("expire", 1, 0),
    ("lease", 0, 1),
]


@settings(
    max_examples=25,
    suppress_health_check=list(HealthCheck),
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # to shrink takes minutes
)
@given(steps=STEPS)
@example(steps=ROUND * 4)
@example(steps=[("lease_together", 0, 0), *ROUND, ("lease_together", 1, 0), *ROUND])
# What the first server expects to be asked for waits again, because the second one saw its leases run out.
@example(
    steps=[*ROUND[:4], ("tick", 0, 0), ("fail", 0, 0), ("lease", 0, 0), ("expire", 1, 0), ("lease", 0, 1)]
)
@pytest.mark.usefixtures("compared")
def test_servers_know_only_what_is_so(
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


@pytest.fixture
def pair(fresh_database: str) -> Iterator[tuple[PostgresqlStore, PostgresqlStore]]:
    """Two stores that remember two attempts of different runs."""
    place = place_of(fresh_database)
    with (
        closing(PostgresqlStore(place, shared=True)) as one,
        closing(PostgresqlStore(place, shared=True)) as two,
    ):
        with one.transaction() as write:
            runs = [run(0), run(1)]
            write.add_campaign(campaign(), runs, [Slice(each.run_id, 0) for each in runs])
            for each in range(2):
                write.add_attempt(attempt(1 + each, ordinal=each, slot_id=f"slot-{each}"))
        for store in (one, two, one, two):
            touch(store, 0)
            touch(store, 1)
        yield one, two


def touch(store: PostgresqlStore, ordinal: int, launches: int | None = None) -> int:
    """Read an attempt, and change it or not; its launches before."""
    with store.transaction() as write:
        found = write.attempt(run(ordinal).run_id, 0, 1)
        assert found is not None
        if launches is not None:
            write.save_attempt(replace(found, launches=launches))
        return found.launches


def knows(store: PostgresqlStore, ordinal: int) -> bool:
    """Whether an attempt need not be read, once the store has heard of the others' turns."""
    with store.transaction() as write:
        return ("attempts", run(ordinal).run_id, 0, 1) in write.known


@pytest.mark.usefixtures("compared")
def test_what_another_did_not_change_stays_known(pair: tuple[PostgresqlStore, PostgresqlStore]) -> None:
    one, two = pair
    for launches in range(1, 6):
        touch(one, 0, launches)
        assert knows(two, 1) and not knows(two, 0)
        assert touch(two, 0) == launches
        assert knows(one, 0) and knows(one, 1)


@pytest.mark.usefixtures("compared")
def test_what_waits_follows_what_others_do(pair: tuple[PostgresqlStore, PostgresqlStore]) -> None:
    one, two = pair
    first, second = (Slice(run(number).run_id, 0) for number in range(2))

    def waits() -> Slice | None:
        with two.transaction() as write:
            lanes = tuple(lane.lane_id for entrant in write.entrants() for lane in entrant.lanes)
            write.fetch_slots([("agent-1", "GPU-1")], lambda: [LikelyLeases("made-1", lanes, 2)], 10)
            found = write.first_waiting(lanes, 10)
            return None if found is None else found[1]

    def save(piece: Slice, **changed: SliceState) -> None:
        with one.transaction() as write:
            assert write.slice(piece.run_id, 0) is not None
            write.save_slice(replace(piece, **changed))

    assert waits() == first
    save(first, state=SliceState.LEASED)
    assert waits() == second
    save(second, state=SliceState.LEASED)
    assert waits() is None
    save(first)
    assert waits() == first


@pytest.mark.usefixtures("compared")
def test_what_is_open_follows_what_others_do(pair: tuple[PostgresqlStore, PostgresqlStore]) -> None:
    one, two = pair
    for number in range(2):
        with two.transaction() as write:
            write.fetch_attempts([attempt(1).key], ending=True)
            assert write.open_ends("made-1").open_runs
        with one.transaction() as write:
            found = write.run(run(number).run_id)
            assert found is not None
            write.save_run(replace(found, state=RunState.DONE))
    with two.transaction() as write:
        assert not write.open_ends("made-1").open_runs


def test_who_was_away_for_long_knows_nothing(pair: tuple[PostgresqlStore, PostgresqlStore]) -> None:
    one, two = pair
    for launches in range(1, 9):
        touch(one, 0, launches)
    assert knows(two, 1)
    for launches in range(1, 18):
        touch(one, 0, launches)
    assert not knows(two, 1)
    assert touch(two, 0) == 17


def test_an_older_database_is_read_anew(
    pair: tuple[PostgresqlStore, PostgresqlStore], own_postgresql: OwnPostgresql
) -> None:
    """A standby that took over may lack what was committed last, behind a proxy that hides it."""
    one, two = pair
    touch(one, 0, 5)
    touch(two, 0)
    touch(one, 0, 6)
    own_postgresql.administrate(
        "UPDATE attempts SET launches = 3",
        "DELETE FROM assay_turns WHERE turn = (SELECT max(turn) FROM assay_turns)",
        database="fresh",
    )
    assert touch(one, 0, 7) == 3
    assert touch(two, 0) == 7
    own_postgresql.administrate("DELETE FROM assay_turns", database="fresh")
    assert touch(one, 0, 8) == 7
    assert touch(two, 0) == 8


@pytest.mark.usefixtures("compared")
def test_what_waits_again_is_told_once(pair: tuple[PostgresqlStore, PostgresqlStore]) -> None:
    one, two = pair
    expected = ("waiting slices", 77)
    for store in pair:
        with store.transaction() as write:
            found = write.slice(run(0).run_id, 0)
            assert found is not None
            if store is one:
                write.save_slice(replace(found, not_before_ms=5))
    for store in (one, two, one, two):
        with store.transaction() as write:
            write.known.expect(expected, WaitingSlices(0, (), False))
    for store in (one, two, one, two):
        with store.transaction() as write:
            assert expected in write.known


def test_what_cannot_be_told_is_anything(pair: tuple[PostgresqlStore, PostgresqlStore]) -> None:
    one, two = pair
    with one.transaction() as write:
        write.pause_runs([run(0).run_id], True)
    assert not knows(two, 1)
    touch(two, 1)
    with one.transaction() as write:
        write.saw_agents([f"agent-{number}" for number in range(500)], 7)  # too many to tell
    assert not knows(two, 1)
    touch(two, 1)
    with one.transaction() as write:
        write.saw_agents(["agent-1"], 8)
    assert knows(two, 1)


def told(number: int, changed: str | None = "[]", writer: int = 7) -> Told:
    return Told(Turn(number, writer, number), changed)


@pytest.mark.parametrize(
    ("heard", "left"),
    [
        ([told(3)], {"a", "b"}),
        ([told(3), told(4, '[["b"]]')], {"a"}),
        ([told(3), told(4, '[["b"]]'), told(5, '[["a"], ["c"]]', 8)], set()),
        ([told(3), told(5)], set()),  # one is missing
        ([told(4), told(5)], set()),  # the last one known is gone
        ([told(3, writer=8)], set()),  # somebody else's, with its number
        ([told(3), told(4, None)], set()),
        ([told(3), told(4, '[["b"')], set()),  # damaged
        ([told(3), told(4, '[["b", ["c"]]]')], set()),  # of another release
        ([told(3), told(4, "7")], set()),
        ([told(3), told(4, '{"keys": [["b"]]}')], set()),
        ([told(3), told(4, '["b"]')], set()),
        ([], set()),
    ],
)
def test_what_is_left_of_what_was_known(heard: list[Told], left: set[str]) -> None:
    def leave_out(rows: NotedRows, changed: object) -> None:
        for key in changed:  # type: ignore[attr-defined]
            rows.pop(key, None)

    remembered = Remembered(leave_out)
    remembered.rows.update({("a",): 1, ("b",): 2})
    remembered.end(told(3).turn)
    remembered.hear(heard)
    assert {key[0] for key in remembered.rows} == left
    assert remembered.last == (heard[-1].turn if heard else None)
    assert (remembered.ahead > 0) is bool(left or (heard and len(heard) == 3 and heard[2].turn.number == 5))
