"""The writer of a store: each transaction is durable before anybody hears so, and undone by itself."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from assay_core.records.machine import Inventory
from assay_sampling.errors import StorageError
from assay_server.store.model import Agent
from assay_server.store.sqlite import SqliteStore

THREADS = 8


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(tmp_path / "metadata.sqlite")
    yield made
    made.close()


def agent(name: str) -> Agent:
    return Agent(name, "session", name, Inventory(), (), 0)


def put(store: SqliteStore, name: str) -> None:
    with store.transaction() as write:
        write.put_agent(agent(name))


def known(store: SqliteStore) -> set[str]:
    with store.snapshot() as read:
        return {each.agent_id for each in read.agents()}


def fail(store: SqliteStore) -> None:
    with store.transaction() as write:
        write.put_agent(agent("undone"))
        raise KeyError("mine")


def test_nothing_is_seen_before_the_block_ends_and_the_next_waits_for_it(store: SqliteStore) -> None:
    with ThreadPoolExecutor(1) as pool:
        with store.transaction() as write:
            write.put_agent(agent("first"))
            other = pool.submit(put, store, "second")
            with pytest.raises(TimeoutError):
                other.result(0.2)
            assert known(store) == set()
        other.result(60)
    assert known(store) == {"first", "second"}


def test_a_block_that_raises_undoes_only_itself(store: SqliteStore) -> None:
    put(store, "before")
    with pytest.raises(KeyError, match="mine"):
        fail(store)
    put(store, "after")
    assert known(store) == {"before", "after"}


def test_a_commit_that_fails_is_told_and_the_next_works(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute = sa.Connection.exec_driver_sql

    def refuse(self: sa.Connection, command: str) -> object:
        if command == "COMMIT":
            raise sqlite3.OperationalError("disk is full")
        return execute(self, command)

    with monkeypatch.context() as patch:
        patch.setattr(sa.Connection, "exec_driver_sql", refuse)
        with pytest.raises(StorageError, match="disk is full"):
            put(store, "first")
    assert known(store) == set()
    put(store, "later")
    assert known(store) == {"later"}


def test_after_an_error_that_undid_everything_the_next_works(store: SqliteStore) -> None:
    """A full disk makes SQLite roll back everything, not only the statement that failed."""
    with pytest.raises(KeyError, match="mine"), store.transaction() as write:
        write.put_agent(agent("undone"))
        write.connection.exec_driver_sql("ROLLBACK")
        raise KeyError("mine")
    put(store, "later")
    assert known(store) == {"later"}


def test_many_threads_lose_nothing(store: SqliteStore) -> None:
    barrier = threading.Barrier(THREADS)

    def several(number: int) -> None:
        barrier.wait(60)
        for each in range(12):
            put(store, f"agent-{number}-{each}")

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(several, range(THREADS)))
    assert known(store) == {f"agent-{n}-{each}" for n in range(THREADS) for each in range(12)}


def test_a_reader_that_outlives_its_store_leaves_no_file_open(tmp_path: Path, store: SqliteStore) -> None:
    put(store, "a")
    with store.snapshot() as reader:
        store.close()
        assert [each.name for each in reader.agents()] == ["a"]
    with store.snapshot() as late:
        assert len(late.agents()) == 1
    links = [Path(each.path) for each in os.scandir("/proc/self/fd")]
    targets = [str(link.readlink()) for link in links if link.is_symlink()]
    assert [each for each in targets if each.startswith(str(tmp_path))] == []
