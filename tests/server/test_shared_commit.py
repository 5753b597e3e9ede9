"""Transactions of several threads share a commit: durable before anybody hears so, each undone by itself."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from assay_core.records.machine import Inventory
from assay_sampling.errors import StorageError
from assay_server.store.connections import shared_commit
from assay_server.store.connections.dialect import UNDO
from assay_server.store.connections.prepared import Driver
from assay_server.store.model import Agent
from assay_server.store.sqlite import SqliteStore
from tests.support.server.server_support import eventually

THREADS = 8


class WatchedLock:
    """A lock that counts who has come for it and does not have it."""

    def __init__(self) -> None:
        self.coming = 0
        self._lock, self._counting = threading.Lock(), threading.Lock()

    def __enter__(self) -> None:
        self._count(1)
        self._lock.acquire()
        self._count(-1)

    def __exit__(self, *unused: object) -> None:
        self._lock.release()

    def _count(self, more: int) -> None:
        with self._counting:
            self.coming += more


@pytest.fixture
def locks(monkeypatch: pytest.MonkeyPatch) -> list[WatchedLock]:
    """The locks of the store's writer: the first is that of the writing itself."""
    made: list[WatchedLock] = []

    def lock() -> WatchedLock:
        made.append(WatchedLock())
        return made[-1]

    monkeypatch.setattr(shared_commit, "threading", SimpleNamespace(Lock=lock))
    return made


@pytest.fixture
def store(tmp_path: Path, locks: list[WatchedLock]) -> Iterator[SqliteStore]:
    made = SqliteStore(tmp_path / "metadata.sqlite")
    yield made
    made.close()


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every commit of the store."""
    seen: list[str] = []
    run = Driver.run

    def noted(self: Driver, command: str) -> None:
        if command == "COMMIT":
            seen.append("commit")
        run(self, command)

    monkeypatch.setattr(Driver, "run", noted)
    return seen


def agent(name: str) -> Agent:
    return Agent(name, "session", name, Inventory(), (), 0)


def put(store: SqliteStore, name: str) -> None:
    with store.transaction() as write:
        write.put_agent(agent(name))


def known(store: SqliteStore) -> set[str]:
    with store.snapshot() as read:
        return {each.agent_id for each in read.agents()}


class Held:
    """A transaction that holds the writer until it is let go, and others that wait for it."""

    def __init__(self, store: SqliteStore, pool: ThreadPoolExecutor, writing: WatchedLock) -> None:
        self._inside, self._go = threading.Event(), threading.Event()
        self._store, self._pool, self._writing = store, pool, writing
        self.first = pool.submit(self._hold)
        assert self._inside.wait(60)

    def _hold(self) -> None:
        with self._store.transaction() as write:
            write.put_agent(agent("first"))
            self._inside.set()
            assert self._go.wait(60)

    def add(self, work: Callable[[], None]) -> Future[None]:
        """Begin another, which waits for its turn."""
        before = self._writing.coming
        future = self._pool.submit(work)
        eventually(lambda: self._writing.coming > before, "its wait for the writer")
        return future

    def let_go(self) -> None:
        self._go.set()


@pytest.fixture
def held(store: SqliteStore, locks: list[WatchedLock], monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    monkeypatch.setattr("assay_server.store.connections.shared_commit.LONGEST_SECONDS", 60.0)
    with ThreadPoolExecutor(THREADS) as pool:
        yield Held(store, pool, locks[0])


def test_those_that_wait_for_the_writer_are_committed_together(store, held, commits):
    others = [held.add(lambda n=n: put(store, f"other-{n}")) for n in range(3)]
    held.let_go()

    for future in (held.first, *others):
        future.result(60)

    assert commits.count("commit") < 4
    assert known(store) == {"first", "other-0", "other-1", "other-2"}


def test_nobody_hears_of_an_end_before_it_is_durable(store, held):
    release = threading.Event()

    def slow() -> None:
        with store.transaction() as write:
            write.put_agent(agent("slow"))
            assert release.wait(60)

    other = held.add(slow)
    held.let_go()
    with pytest.raises(TimeoutError):
        held.first.result(0.2)
    assert known(store) == set()
    release.set()
    held.first.result(60)
    assert known(store) == {"first", "slow"}
    other.result(60)


def test_a_block_that_raises_undoes_only_itself(store, held):
    def fail() -> None:
        with store.transaction() as write:
            write.put_agent(agent("undone"))
            raise KeyError("mine")

    failed, good = held.add(fail), held.add(lambda: put(store, "good"))
    held.let_go()

    with pytest.raises(KeyError, match="mine"):
        failed.result(60)
    good.result(60)
    held.first.result(60)
    assert known(store) == {"first", "good"}


def test_a_commit_that_fails_fails_all_of_them_and_the_next_works(store, held, monkeypatch):
    run = Driver.run

    def refuse(self: Driver, command: str) -> None:
        if command == "COMMIT":
            raise sqlite3.OperationalError("disk is full")
        run(self, command)

    with monkeypatch.context() as patch:
        patch.setattr(Driver, "run", refuse)
        other = held.add(lambda: put(store, "other"))
        held.let_go()
        for future in (held.first, other):
            with pytest.raises(StorageError, match="disk is full"):
                future.result(60)
    assert known(store) == set()
    put(store, "later")
    assert known(store) == {"later"}


def test_an_error_that_undoes_the_whole_transaction_fails_all_of_them(store, held, monkeypatch):
    """A full disk makes SQLite roll back everything, not only the statement that failed."""

    run = Driver.run

    def lost(self: Driver, command: str) -> None:
        if command == UNDO:
            raise sqlite3.OperationalError("no such savepoint")
        run(self, command)

    def fail() -> None:
        with store.transaction():
            raise KeyError("mine")

    monkeypatch.setattr(Driver, "run", lost)
    broken = held.add(fail)
    held.let_go()
    with suppress(KeyError):
        broken.result(60)
    with pytest.raises(StorageError):
        held.first.result(60)
    assert known(store) == set()
    put(store, "later")
    assert known(store) == {"later"}


def test_what_takes_long_lets_nobody_wait_for_its_commit(store, held):
    release, inside = threading.Event(), threading.Event()

    def long() -> None:
        with store.transaction(alone=True) as write:
            inside.set()
            assert release.wait(60)
            write.put_agent(agent("long"))

    future = held.add(long)
    held.let_go()
    held.first.result(60)
    assert inside.wait(60)
    assert known(store) == {"first"}
    release.set()
    future.result(60)
    assert known(store) == {"first", "long"}


def test_many_threads_lose_nothing(store, commits):
    with ThreadPoolExecutor(THREADS) as pool:
        done = [pool.submit(put, store, f"agent-{n}") for n in range(100)]
        for future in done:
            future.result(60)

    assert known(store) == {f"agent-{n}" for n in range(100)}
    assert commits.count("commit") < 100
