"""One commit, and so one sync of the disk, for all transactions that wait for the writer at one moment.

Transactions run one after another, each in a savepoint, in one transaction of the database. The one behind
which none waits commits, and only then do all of them return: what is reported as done is durable. A block
that raises undoes its own changes only. If the commit fails, or an error makes the database roll back
everything, all of them raise StorageError and nothing is kept.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

import sqlalchemy as sa

from assay_sampling.errors import StorageError
from assay_server.store.connections.dialect import KEEP, MARK, UNDO, Dialect
from assay_server.store.connections.prepared import Driver, PreparedStatements
from assay_server.store.connections.retry import NothingKeptError, OutcomeUnknownError, again

_MOST_TOGETHER = 32
_UNKNOWN = "whether the change was kept is not known"
_LOOK = (
    "start the database, look whether the change is there, and ask again only if it is not; "
    "agents do so by themselves"
)
LONGEST_SECONDS = 0.02  # upper bound on delaying a commit for latecomers


class Commits(Protocol):
    """The numbers of a store's commits, by which one whose answer was lost can be looked up."""

    def add(self, driver: Driver) -> int:
        """Write the number of a transaction, right before its commit; returns it."""

    def was_kept(self, driver: Driver, number: int) -> bool:
        """Whether the transaction of a number was committed; asked on a new connection."""


@dataclass
class _Group:
    """Transactions that will be committed together.

    ``number``: of the commit, 0 before it was written.
    """

    connection: sa.Connection
    driver: Driver
    began: float = field(default_factory=time.monotonic)
    members: int = 0
    number: int = 0
    committed: Future[None] = field(default_factory=Future)


class SharedCommit:
    """The writer of a database. ``errors`` turns the database's errors into StorageError.

    The engine must not begin transactions itself: SQLAlchemy's took longer than most statements.

    ``before_commit`` is given each transaction of the database, and raises if it may not be kept. A kept
    connection that cannot begin, because the database was restarted, is replaced by a new one, once.
    """

    def __init__(
        self,
        engine: sa.Engine,
        prepared: PreparedStatements,
        errors: Callable[[], AbstractContextManager[None]],
        dialect: Dialect,
        *,
        before_commit: Callable[[Driver], None] = lambda driver: None,
        commits: Commits | None = None,
    ) -> None:
        self._engine = engine
        self._prepared = prepared
        self._errors = errors
        self._dialect = dialect
        self._before_commit = before_commit
        self._commits = commits
        self._kept: tuple[sa.Connection, Driver] | None = None
        self._writing = threading.Lock()
        self._counting = threading.Lock()
        self._waiting = 0
        self._group: _Group | None = None

    @contextmanager
    def transaction(self, *, alone: bool) -> Iterator[tuple[sa.Connection, Driver]]:
        """Write: durable when the block ends, undone when it raises.

        ``alone``: for what takes long; it neither waits for others nor lets others wait for it.
        """
        with self._turn(alone=alone):
            group = self._opened()
            try:
                with self._savepoint(group):
                    yield group.connection, group.driver
            finally:
                group.members += 1
                if alone or self._is_full(group):
                    self._commit()
        group.committed.result()

    @contextmanager
    def _turn(self, *, alone: bool) -> Iterator[None]:
        with self._counting:
            self._waiting += not alone
        with self._writing:
            with self._counting:
                self._waiting -= not alone
            if alone:
                self._commit()
            yield

    def close(self, leave: Callable[[Driver], None] = lambda driver: None) -> None:
        """Close the connection, which ``leave`` is given before; nobody writes any more."""
        with self._writing:
            self._commit()
            try:
                if self._kept is not None and not self._kept[1].is_lost:
                    leave(self._kept[1])
            finally:
                self._drop()

    def _opened(self) -> _Group:
        if self._group is None:
            with self._errors():
                self._group = self._begun_again() or self._newly_begun()
        return self._group

    def _begun_again(self) -> _Group | None:
        """A group on the kept connection; None if no connection is kept, or it was lost."""
        if self._kept is None:
            return None
        driver = self._kept[1]
        try:
            return self._begun(*self._kept)
        except BaseException as error:
            self._drop()
            if isinstance(error, self._dialect.failures) and driver.is_lost:
                return None
            raise

    def _newly_begun(self) -> _Group:
        connection, driver = self._connected()
        try:
            return self._begun(connection, driver)
        except BaseException:
            self._drop()
            raise

    def _connected(self) -> tuple[sa.Connection, Driver]:
        """A new connection, which is kept."""
        connection = self._engine.connect()
        self._kept = connection, Driver(connection, self._prepared)
        return self._kept

    def _begun(self, connection: sa.Connection, driver: Driver) -> _Group:
        # Before anything is read: to read first and then want to write can fail.
        for command in self._dialect.begin:
            driver.run(command)
        return _Group(connection, driver)

    def _drop(self) -> None:
        """Have the next group open a connection of its own."""
        kept, self._kept = self._kept, None
        if kept is not None:
            with suppress(sa.exc.DBAPIError, *self._dialect.failures):
                kept[0].close()

    @contextmanager
    def _savepoint(self, group: _Group) -> Iterator[None]:
        with self._errors():
            try:
                group.driver.run(MARK)
                yield
                group.driver.run(KEEP)
            except BaseException as error:
                self._undo(group, error)
                raise

    def _undo(self, group: _Group, cause: BaseException) -> None:
        try:
            group.driver.run(UNDO)
            group.driver.run(KEEP)
        except self._dialect.failures as error:  # a full disk makes SQLite roll back everything
            self._abandon(group, cause if isinstance(cause, self._dialect.failures) else error)

    def _is_full(self, group: _Group) -> bool:
        return (
            not self._waiting
            or group.members >= _MOST_TOGETHER
            or time.monotonic() - group.began > LONGEST_SECONDS
        )

    def _commit(self) -> None:
        """Commit the open group, if there is one; whoever belongs to it hears how that ended."""
        group, self._group = self._group, None
        if group is None:
            return
        try:
            with self._errors():
                self._before_commit(group.driver)
                if self._commits is not None:
                    group.number = self._commits.add(group.driver)
                group.driver.run("COMMIT")
        except BaseException as error:  # noqa: BLE001 - every member hears of it
            lost = group.driver.is_lost or isinstance(error, NothingKeptError)
            self._roll_back(group)
            self._drop()
            settled = self._settled(group, error) if lost else error
            if settled is not None:
                group.committed.set_exception(settled)
                return
        group.committed.set_result(None)

    def _settled(self, group: _Group, error: BaseException) -> BaseException | None:
        """What became of a commit whose answer was lost: None if it was kept, else the error."""
        if self._commits is None or not isinstance(error, StorageError):
            return error
        try:
            kept = group.number > 0 and again(StorageError, lambda: self._was_kept(group.number))
        except StorageError:
            return OutcomeUnknownError(error.subject, f"{error.cause}; {_UNKNOWN}", _LOOK)
        if kept:
            return None
        return NothingKeptError(error.subject, error.cause, error.remedy)

    def _was_kept(self, number: int) -> bool:
        assert self._commits is not None
        try:
            with self._errors():
                return self._commits.was_kept(self._connected()[1], number)
        except BaseException:
            self._drop()
            raise

    def _abandon(self, group: _Group, error: Exception) -> None:
        self._group = None
        self._roll_back(group)
        self._drop()
        try:
            with self._errors():
                raise error
        except StorageError as typed:
            # On a file the cause concerns all. A database server's is that of one, and the others go again.
            others = NothingKeptError(typed.subject, typed.cause, typed.remedy)
            group.committed.set_exception(typed if self._commits is None else others)

    def _roll_back(self, group: _Group) -> None:
        with suppress(*self._dialect.failures):  # the database may have done so itself
            group.driver.run("ROLLBACK")
