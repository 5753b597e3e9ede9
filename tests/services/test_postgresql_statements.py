"""How many statements a server sends for one call, and how many times it waits for PostgreSQL."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from assay_server.campaigns.heartbeats import answering
from assay_server.campaigns.heartbeats.answering import Heartbeats
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.transitions import SchedulePolicy
from assay_server.clock import SteadyClock
from assay_server.store.postgresql import driver
from assay_server.store.postgresql.messages import Dumped, Messages
from assay_server.store.postgresql.place import place_of
from assay_server.store.postgresql.store import PostgresqlStore
from assay_server.store.records import LocalRecordStore
from tests.bench.leases import made_agent, submit
from tests.bench.scale.transactions import FINISH, HEARTBEAT, LEASE, PUBLISH, SEGMENT, Load

# By the kind of call: statements, six of which begin, hear, tell and commit, and the answers it waits for.
# One wait of each is for whether others have written; what an earlier call has read is not asked for again.
# Every eighth turn removes old ones by a statement more.
BOUNDS = {LEASE: (14, 3), HEARTBEAT: (8, 2), SEGMENT: (10, 2), FINISH: (8, 2), PUBLISH: (12, 3)}
AGENTS = 3


class Counted:
    """What is sent between two looks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.statements: list[str] = []
        self.waits = 0
        exchanged, execute_many = Messages.exchanged, psycopg.Cursor.executemany

        def counted(messages: Messages, commands: Sequence[Dumped]) -> Any:
            self.statements += [text for text, _ in commands]
            self.waits += 1
            return exchanged(messages, commands)

        def alone(_cursor: Any, query: Any, *_args: Any, **_kwargs: Any) -> Any:
            raise AssertionError(f"sent by SQLAlchemy, which costs more: {query}")

        def counted_many(cursor: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
            self.statements.append(str(query))
            self.waits += 1
            return execute_many(cursor, query, *args, **kwargs)

        monkeypatch.setattr(Messages, "exchanged", counted)
        monkeypatch.setattr(psycopg.Cursor, "executemany", counted_many)
        self.forbid_others = lambda: monkeypatch.setattr(psycopg.Cursor, "execute", alone)

    def take(self) -> tuple[list[str], int]:
        taken = self.statements, self.waits
        self.statements, self.waits = [], 0
        return taken


class CountedLoad(Load):
    """Agents whose calls are counted one by one."""

    def __init__(self, coordinator: Coordinator, heartbeats: Heartbeats, counted: Counted) -> None:
        left = iter(range(AGENTS))
        super().__init__(coordinator, heartbeats, range(AGENTS), lambda: next(left, None) is not None)
        self._counted = counted
        self.sent: dict[str, list[tuple[list[str], int]]] = {}

    @contextmanager
    def timed(self, kind: str) -> Iterator[None]:
        self._counted.take()
        yield
        self.sent.setdefault(kind, []).append(self._counted.take())


def test_each_call_sends_few_statements(fresh_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "TRUSTED_SECONDS", math.inf)  # on a loaded machine calls may be far apart
    monkeypatch.setattr(answering, "NOTED_SECONDS", math.inf)  # nothing else is counted
    counted, policy = Counted(monkeypatch), SchedulePolicy(lease_ms=600_000_000)
    with closing(PostgresqlStore(place_of(fresh_database))) as store, tempfile.TemporaryDirectory() as folder:
        coordinator = Coordinator(store, LocalRecordStore(Path(folder)), policy, SteadyClock())
        submit(coordinator, "made-1", 3 * AGENTS)  # the campaign does not end here
        for number in range(AGENTS):
            with coordinator.schedule() as schedule:
                schedule.register(made_agent(number), {})
        heartbeats = Heartbeats(coordinator)
        load = CountedLoad(coordinator, heartbeats, counted)
        load.work(1)  # the first lease also reads who stands in line
        load = CountedLoad(coordinator, heartbeats, counted)
        counted.forbid_others()
        load.work(1)
        heartbeats.close()
    for kind, (statements, waits) in BOUNDS.items():
        for sent, waited in load.sent[kind]:
            told = f"{kind}: {waited} waits\n" + "\n".join(each[:160] for each in sent)
            assert (len(sent) <= statements, waited <= waits) == (True, True), told


def rows_read(plan: dict[str, Any]) -> int:
    """The rows that a plan of EXPLAIN ANALYZE read, those that it left out with them."""
    own = plan["Actual Loops"] * (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0))
    joined = plan["Actual Loops"] * plan.get("Rows Removed by Join Filter", 0)
    return int(own + joined + sum(map(rows_read, plan.get("Plans", ()))))


@pytest.mark.parametrize("analysed", [False, True])
def test_no_call_reads_more_of_a_larger_campaign(
    fresh_database: str, monkeypatch: pytest.MonkeyPatch, analysed: bool
) -> None:
    monkeypatch.setattr(answering, "NOTED_SECONDS", math.inf)
    asked: dict[str, tuple[Messages, Dumped]] = {}
    exchanged = Messages.exchanged

    def noted(messages: Messages, commands: Sequence[Dumped]) -> Any:
        asked.update({each[0]: (messages, each) for each in commands if each[0].startswith("SELECT")})
        return exchanged(messages, commands)

    with closing(PostgresqlStore(place_of(fresh_database))) as store, tempfile.TemporaryDirectory() as folder:
        coordinator = Coordinator(store, LocalRecordStore(Path(folder)), SchedulePolicy(), SteadyClock())
        submit(coordinator, "made-1", 5_000)
        submit(coordinator, "absent-1", 5_000, "B200")
        for number in range(AGENTS):
            with coordinator.schedule() as schedule:
                schedule.register(made_agent(number), {})
        with psycopg.connect(fresh_database, autocommit=True) as connection:
            connection.execute("ANALYZE" if analysed else "SELECT 1")
        monkeypatch.setattr(Messages, "exchanged", noted)
        heartbeats = Heartbeats(coordinator)
        left = iter(range(3 * AGENTS))
        Load(coordinator, heartbeats, range(AGENTS), lambda: next(left, None) is not None).work(1)
        for text, (messages, (_, values)) in list(asked.items()):
            [answer], refused = exchanged(messages, [(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", values)])
            assert refused is None, refused
            [[[plan]]] = answer.fetchall()
            assert rows_read(plan["Plan"]) < 200, text
        heartbeats.close()
    assert len(asked) > 8
