"""Transactions that PostgreSQL ends, and commits whose answer is lost: done once, or told as unknown."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from assay_core.records.machine import Inventory
from assay_sampling.errors import StorageError
from assay_server.database.opening import opened_alone
from assay_server.places import database_place
from assay_server.store import transactions
from assay_server.store.model import Agent
from assay_server.store.postgresql.store import NumberedTransactions, PostgresqlStore, new_engine
from assay_server.store.transactions import NothingKeptError, OutcomeUnknownError, repeated
from tests.services.postgresql import OwnPostgresql


@pytest.fixture
def store(fresh_database: str) -> Iterator[PostgresqlStore]:
    with closing(opened_alone(database_place(fresh_database))) as made:
        with made.transaction() as write:
            write.begin_epoch(1)
            for name in ("a", "b"):
                write.put_agent(agent(name))
        yield made


def agent(name: str, seen_at_ms: int = 0) -> Agent:
    return Agent(name, "session", name, Inventory(), (), seen_at_ms)


def seen(store: PostgresqlStore) -> dict[str, int]:
    with store.snapshot() as read:
        return {each.agent_id: each.seen_at_ms for each in read.agents()}


def next_token(store: PostgresqlStore) -> int:
    with store.transaction() as write:
        return write.next_token()


class LostCommit:
    """The connection breaks once, at a commit: before the server heard it, or before its answer came."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, heard: bool, after: Callable[[], None]) -> None:
        self.lost = 0
        execute = psycopg.Cursor.execute

        def broken(cursor: Any, command: str, *values: Any, **options: Any) -> Any:
            if command != "COMMIT" or self.lost:
                return execute(cursor, command, *values, **options)
            if heard:
                execute(cursor, command)
            self.lost += 1
            cursor.connection.close()
            after()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

        monkeypatch.setattr(psycopg.Cursor, "execute", broken)


def nothing() -> None:
    pass


def test_a_commit_that_was_kept_is_no_error_though_its_answer_was_lost(
    store: PostgresqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = next_token(store)
    lost = LostCommit(monkeypatch, heard=True, after=nothing)
    assert next_token(store) == first + 1
    assert lost.lost == 1
    assert next_token(store) == first + 2


def test_a_commit_that_never_arrived_is_done_again(
    store: PostgresqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = next_token(store)
    lost = LostCommit(monkeypatch, heard=False, after=nothing)
    with pytest.raises(NothingKeptError):
        next_token(store)
    lost.lost = 0
    assert repeated(next_token)(store) == first + 1
    assert lost.lost == 1


@pytest.mark.parametrize("heard", [True, False])
def test_a_commit_of_which_nobody_can_tell_is_an_error_of_its_own(
    store: PostgresqlStore, own_postgresql: OwnPostgresql, monkeypatch: pytest.MonkeyPatch, *, heard: bool
) -> None:
    first = next_token(store)
    monkeypatch.setattr(transactions, "PATIENCE_SECONDS", 0.2)
    LostCommit(monkeypatch, heard=heard, after=own_postgresql.kill)
    calls: list[int] = []

    @repeated
    def once() -> int:
        calls.append(1)
        return next_token(store)

    try:
        with pytest.raises(OutcomeUnknownError, match="whether the change was kept is not known") as caught:
            once()
    finally:
        own_postgresql.start()
    assert caught.value.remedy and len(calls) == 1
    monkeypatch.setattr(transactions, "PATIENCE_SECONDS", 30.0)
    assert repeated(next_token)(store) == first + 1 + heard


def test_whoever_waits_behind_a_lost_commit_is_done_too(
    store: PostgresqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = next_token(store)
    LostCommit(monkeypatch, heard=False, after=nothing)
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(repeated(next_token)(store))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [first + 1 + number for number in range(8)]


def test_the_victim_of_a_deadlock_is_done_again(store: PostgresqlStore, fresh_database: str) -> None:
    calls: list[int] = []
    with psycopg.connect(fresh_database) as other:
        other.execute("SET deadlock_timeout = '60s'")
        touch = "UPDATE agents SET name = 'other' WHERE agent_id = "
        other.execute(touch + "'b'")

        def cross() -> None:
            other.execute(touch + "'a'")
            other.commit()

        crossing = threading.Thread(target=cross)

        @repeated
        def both() -> None:
            with store.transaction() as write:
                calls.append(1)
                write.saw_agents(["a"], 5)
                if len(calls) == 1:
                    crossing.start()
                write.saw_agents(["b"], 5)

        both()
        crossing.join()
    assert len(calls) == 2
    assert seen(store) == {"a": 5, "b": 5}


@pytest.mark.parametrize("code", ["40001", "40P01"])
def test_a_transaction_that_was_in_the_way_is_done_again_and_at_last_told(
    store: PostgresqlStore, fresh_database: str, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    """A trigger refuses the first tries: what a sequence has counted is not undone."""
    with psycopg.connect(fresh_database, autocommit=True) as admin:
        admin.execute("CREATE SEQUENCE tries")
        admin.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"IF nextval('tries') < 3 THEN RAISE EXCEPTION 'no' USING ERRCODE = '{code}'; END IF; "
            "RETURN NEW; END $$"
        )
        admin.execute("CREATE TRIGGER refuse BEFORE UPDATE ON agents FOR EACH ROW EXECUTE FUNCTION refuse()")

    @repeated
    def see() -> None:
        with store.transaction() as write:
            write.next_token()
            write.saw_agents(["a"], 7)

    first = next_token(store)
    see()
    assert seen(store)["a"] == 7
    assert next_token(store) == first + 2
    with psycopg.connect(fresh_database, autocommit=True) as admin:
        admin.execute("ALTER SEQUENCE tries RESTART MINVALUE -100000 START -100000")
        admin.execute("ALTER SEQUENCE tries RESTART")
    monkeypatch.setattr(transactions, "PATIENCE_SECONDS", 0.1)
    with pytest.raises(StorageError) as caught:
        see()
    assert "ask again; nothing was changed" in caught.value.remedy


def test_a_restart_in_the_middle_of_a_transaction_is_not_noticed(
    store: PostgresqlStore, own_postgresql: OwnPostgresql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "PATIENCE_SECONDS", 60.0)
    calls: list[int] = []

    @repeated
    def see() -> None:
        with store.transaction() as write:
            calls.append(1)
            write.saw_agents(["a"], len(calls))
            if len(calls) == 1:
                own_postgresql.kill()
                own_postgresql.start()
            write.saw_agents(["b"], len(calls))

    see()
    assert seen(store) == {"a": len(calls), "b": len(calls)} and len(calls) > 1


class Writer:
    """Commits beside a store: one connection writes, another asks what became of that."""

    def __init__(self, url: str, stack: ExitStack) -> None:
        engine = new_engine(database_place(url))
        stack.callback(engine.dispose)
        self.slow, self.looking = (stack.enter_context(engine.connect()) for _ in range(2))
        refusal = partial(StorageError, "the database")
        self.commits = NumberedTransactions(engine, refusal)

    def write(self) -> int:
        """Change every agent's row; returns the number of the commit, which has still to be sent."""
        self.slow.exec_driver_sql("BEGIN")
        self.slow.exec_driver_sql("UPDATE agents SET seen_at_ms = seen_at_ms + 1")
        return self.commits.add_number(self.slow)

    def was_kept(self, number: int) -> bool:
        return self.commits.has_number(self.looking, number)


@pytest.fixture
def writer(store: PostgresqlStore, fresh_database: str) -> Iterator[Writer]:
    with ExitStack() as stack:
        yield Writer(fresh_database, stack)


def test_a_transaction_that_was_told_as_lost_keeps_nothing(store: PostgresqlStore, writer: Writer) -> None:
    """Its last message may be on the way while its connection is lost."""
    for round_of in range(20):  # old rows are removed meanwhile
        lost = writer.commits._number + 1
        assert not writer.was_kept(lost)
        with pytest.raises(sa.exc.IntegrityError):
            writer.write()
        writer.slow.exec_driver_sql("ROLLBACK")
        assert not writer.was_kept(lost)
        kept = writer.write()
        writer.slow.exec_driver_sql("COMMIT")
        assert writer.was_kept(kept) and writer.was_kept(kept)
        assert seen(store) == {"a": round_of + 1, "b": round_of + 1}


def test_whoever_asks_waits_for_a_commit_that_is_under_way(store: PostgresqlStore, writer: Writer) -> None:
    number = writer.write()
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(writer.was_kept, number)
        with pytest.raises(TimeoutError):
            asked.result(0.2)
        writer.slow.exec_driver_sql("COMMIT")
        assert asked.result(20)
    assert seen(store) == {"a": 1, "b": 1}


def test_whoever_wrote_nothing_leaves_no_row(store: PostgresqlStore, fresh_database: str) -> None:
    def rows() -> int:
        with psycopg.connect(fresh_database) as admin:
            [(number,)] = admin.execute("SELECT count(*) FROM assay_commits").fetchall()
            return int(number)

    before = rows()
    with store.transaction() as write:
        write.sessions(["a"])
    assert rows() == before
    next_token(store)
    assert rows() == before + 1
    store.close()
    assert rows() == 0


def test_rows_that_somebody_changes_by_hand_are_seen_at_once(
    store: PostgresqlStore, fresh_database: str
) -> None:
    assert seen(store)["a"] == 0
    with psycopg.connect(fresh_database, autocommit=True) as admin:
        admin.execute("UPDATE agents SET seen_at_ms = 99 WHERE agent_id = 'a'")
    with store.transaction() as write:
        assert write.sessions(["a"])["a"].seen_at_ms == 99


@pytest.mark.parametrize("asks_first", [True, False])
def test_a_value_that_cannot_be_sent_fails_only_the_transaction_that_brought_it(
    store: PostgresqlStore, *, asks_first: bool
) -> None:
    def put(number: int) -> None:
        with store.transaction() as write:
            if asks_first:
                write.sessions(["a"])
            write.saw_agents(["a"], 7)
            write.saw_agents(["b"], 8)
            name = "\ud800" if number % 3 == 2 else "good"
            write.connection.exec_driver_sql("UPDATE agents SET name = %s", (name,))
            write.connection.exec_driver_sql("INSERT INTO numbers VALUES (%s)", (number,))

    with store.transaction() as write:
        write.connection.exec_driver_sql("CREATE TABLE numbers (number bigint)")
        [(first,)] = write.connection.exec_driver_sql("SELECT pg_backend_pid()").all()
    with ThreadPoolExecutor(8) as pool:
        done = [pool.submit(put, number) for number in range(48)]
    told = [future.exception() for future in done]
    assert [type(error) for error in told] == [type(None), type(None), UnicodeEncodeError] * 16
    with store.transaction() as write:
        found = {number for (number,) in write.connection.exec_driver_sql("SELECT number FROM numbers")}
        [(last,)] = write.connection.exec_driver_sql("SELECT pg_backend_pid()").all()
    assert found == {number for number in range(48) if number % 3 != 2}
    assert first == last, "the connection went on"
