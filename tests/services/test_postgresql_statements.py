"""How many statements a server sends for one call, and how many times it waits for PostgreSQL."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from assay_server.campaigns.heartbeats.answering import Heartbeats
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.transitions import SchedulePolicy
from assay_server.clock import SteadyClock
from assay_server.store.postgresql.place import place_of
from assay_server.store.postgresql.store import PostgresqlStore
from assay_server.store.records import LocalRecordStore
from tests.bench.leases import made_agent, submit
from tests.bench.scale.transactions import FINISH, HEARTBEAT, LEASE, PUBLISH, SEGMENT, Load

# By the kind of call: statements with BEGIN and COMMIT, and how many times their answers are waited for.
BOUNDS = {LEASE: (11, 8), HEARTBEAT: (5, 5), SEGMENT: (7, 4), FINISH: (4, 3), PUBLISH: (11, 7)}
AGENTS = 3


class Counted:
    """What is sent between two looks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.statements: list[str] = []
        self.waits = 0
        self._together = 0
        execute, execute_many = psycopg.Cursor.execute, psycopg.Cursor.executemany
        pipeline = psycopg.Connection.pipeline

        def counted(cursor: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
            self.statements.append(str(query))
            self.waits += not self._together
            return execute(cursor, query, *args, **kwargs)

        def counted_many(cursor: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
            self.statements.append(str(query))
            self.waits += 1
            return execute_many(cursor, query, *args, **kwargs)

        @contextmanager
        def together(connection: Any) -> Iterator[Any]:
            self._together += 1
            try:
                with pipeline(connection) as found:
                    yield found
            finally:
                self._together -= 1
            self.waits += 1

        monkeypatch.setattr(psycopg.Cursor, "execute", counted)
        monkeypatch.setattr(psycopg.Cursor, "executemany", counted_many)
        monkeypatch.setattr(psycopg.Connection, "pipeline", together)

    def take(self) -> tuple[list[str], int]:
        taken = self.statements, self.waits
        self.statements, self.waits = [], 0
        return taken


class CountedLoad(Load):
    """Agents whose calls are counted one by one."""

    def __init__(self, coordinator: Coordinator, heartbeats: Heartbeats, counted: Counted) -> None:
        super().__init__(coordinator, heartbeats, range(AGENTS), AGENTS)
        self._counted = counted
        self.sent: dict[str, list[tuple[list[str], int]]] = {}

    @contextmanager
    def timed(self, kind: str) -> Iterator[None]:
        self._counted.take()
        yield
        self.sent.setdefault(kind, []).append(self._counted.take())


def test_each_call_sends_few_statements(fresh_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)  # before the store keeps its connection's methods
    with closing(PostgresqlStore(place_of(fresh_database))) as store, tempfile.TemporaryDirectory() as folder:
        coordinator = Coordinator(store, LocalRecordStore(Path(folder)), SchedulePolicy(), SteadyClock())
        submit(coordinator, "made-1", 2 * AGENTS)
        for number in range(AGENTS):
            with coordinator.schedule() as schedule:
                schedule.register(made_agent(number), {})
        heartbeats = Heartbeats(coordinator)
        load = CountedLoad(coordinator, heartbeats, counted)
        load.work(1)
        heartbeats.close()
    for kind, (statements, waits) in BOUNDS.items():
        for sent, waited in load.sent[kind][1:]:  # the first one also reads who stands in line
            told = f"{kind}: {waited} waits\n" + "\n".join(each[:160] for each in sent)
            assert (len(sent) <= statements, waited <= waits) == (True, True), told
