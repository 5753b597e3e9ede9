"""How many statements a server sends to PostgreSQL for one call."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from assay_server.campaigns.heartbeats import Heartbeats
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.transitions import SchedulePolicy
from assay_server.clock import SteadyClock
from assay_server.places import database_place
from assay_server.store.postgresql.store import PostgresqlStore
from assay_server.store.records import LocalRecordStore
from tests.bench.leases import made_agent, submit
from tests.bench.scale.transactions import FINISH, HEARTBEAT, LEASE, PUBLISH, SEGMENT, Load
from tests.support.server.coordinators import coordinator_over

# By the kind of call: statements, four of which begin, lock, number and commit.
# Every eighth commit removes old numbers by a statement more.
BOUNDS = {LEASE: 13, HEARTBEAT: 8, SEGMENT: 9, FINISH: 8, PUBLISH: 14}
AGENTS = 3


class Counted:
    """What is sent between two looks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.statements: list[str] = []
        for name in ("execute", "executemany"):
            monkeypatch.setattr(psycopg.Cursor, name, self._counting(getattr(psycopg.Cursor, name)))

    def _counting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def counted(cursor: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
            self.statements.append(str(query))
            return method(cursor, query, *args, **kwargs)

        return counted

    def take(self) -> list[str]:
        taken, self.statements = self.statements, []
        return taken


class CountedLoad(Load):
    """Agents whose calls are counted one by one."""

    def __init__(self, coordinator: Coordinator, heartbeats: Heartbeats, counted: Counted) -> None:
        left = iter(range(AGENTS))
        super().__init__(coordinator, heartbeats, range(AGENTS), lambda: next(left, None) is not None)
        self._counted = counted
        self.sent: dict[str, list[list[str]]] = {}

    @contextmanager
    def timed(self, kind: str) -> Iterator[None]:
        self._counted.take()
        yield
        self.sent.setdefault(kind, []).append(self._counted.take())


def test_each_call_sends_few_statements(fresh_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counted, policy = Counted(monkeypatch), SchedulePolicy(lease_ms=600_000_000)
    with (
        closing(PostgresqlStore(database_place(fresh_database))) as store,
        tempfile.TemporaryDirectory() as folder,
    ):
        coordinator = coordinator_over(store, LocalRecordStore(Path(folder)), policy, SteadyClock())
        submit(coordinator, "made-1", 3 * AGENTS)  # the campaign does not end here
        for number in range(AGENTS):
            with coordinator.schedule() as schedule:
                schedule.register(made_agent(number), {})
        heartbeats = Heartbeats(coordinator)
        load = CountedLoad(coordinator, heartbeats, counted)
        load.work(1)  # the first lease also reads who stands in line
        load = CountedLoad(coordinator, heartbeats, counted)
        load.work(1)
        heartbeats.close()
    for kind, statements in BOUNDS.items():
        for sent in load.sent[kind]:
            assert len(sent) <= statements, f"{kind}:\n" + "\n".join(each[:160] for each in sent)


def rows_read(plan: dict[str, Any]) -> int:
    """The rows that a plan of EXPLAIN ANALYZE read, those that it left out with them."""
    own = plan["Actual Loops"] * (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0))
    joined = plan["Actual Loops"] * plan.get("Rows Removed by Join Filter", 0)
    return int(own + joined + sum(map(rows_read, plan.get("Plans", ()))))


@pytest.mark.parametrize("analysed", [False, True])
def test_no_call_reads_more_of_a_larger_campaign(
    fresh_database: str, monkeypatch: pytest.MonkeyPatch, analysed: bool
) -> None:
    asked: dict[str, Sequence[Any]] = {}
    execute, counts = psycopg.Cursor.execute, list[bool]()

    def noted(cursor: Any, query: Any, values: Sequence[Any] = (), **kwargs: Any) -> Any:
        if counts and str(query).startswith("SELECT"):
            asked[str(query)] = values
        return execute(cursor, query, values, **kwargs)

    monkeypatch.setattr(psycopg.Cursor, "execute", noted)  # a connection keeps the method that it finds
    with (
        closing(PostgresqlStore(database_place(fresh_database))) as store,
        tempfile.TemporaryDirectory() as folder,
    ):
        coordinator = coordinator_over(store, LocalRecordStore(Path(folder)), SchedulePolicy(), SteadyClock())
        submit(coordinator, "made-1", 5_000)
        submit(coordinator, "absent-1", 5_000, "B200")
        for number in range(AGENTS):
            with coordinator.schedule() as schedule:
                schedule.register(made_agent(number), {})
        with psycopg.connect(fresh_database, autocommit=True) as connection:
            connection.execute("ANALYZE" if analysed else "SELECT 1")
        heartbeats = Heartbeats(coordinator)
        left = iter(range(3 * AGENTS))
        counts.append(True)
        Load(coordinator, heartbeats, range(AGENTS), lambda: next(left, None) is not None).work(1)
        counts.clear()
        with psycopg.connect(fresh_database) as connection:
            for text, values in asked.items():
                [(plan,)] = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", values).fetchall()[0]
                assert rows_read(plan["Plan"]) < 200, text
        heartbeats.close()
    assert len(asked) > 8
