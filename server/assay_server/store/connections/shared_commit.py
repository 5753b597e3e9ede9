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

import sqlalchemy as sa

from assay_sampling.errors import StorageError
from assay_server.store.connections.prepared import Driver, PreparedStatements
from assay_server.store.connections.words import Words

_MOST_TOGETHER = 32
LONGEST_SECONDS = 0.02  # nobody waits longer for those who come later, except for one that has begun


@dataclass
class _Group:
    """Transactions that will be committed together."""

    connection: sa.Connection
    driver: Driver
    began: float = field(default_factory=time.monotonic)
    members: int = 0
    commit_sent: bool = False
    committed: Future[None] = field(default_factory=Future)


class SharedCommit:
    """The writer of a database. ``errors`` turns the database's errors into StorageError.

    The engine must not begin transactions itself: SQLAlchemy's took longer than most statements.

    ``greet`` is given each new connection before its first transaction. A kept connection that cannot begin,
    because the database was restarted, is replaced by a new one, once.
    """

    def __init__(
        self,
        engine: sa.Engine,
        prepared: PreparedStatements,
        errors: Callable[[], AbstractContextManager[None]],
        words: Words,
        greet: Callable[[Driver], None] = lambda driver: None,
        make_driver: type[Driver] = Driver,
    ) -> None:
        self._engine = engine
        self._prepared = prepared
        self._errors = errors
        self._words = words
        self._greet = greet
        self._make_driver = make_driver
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
                with self._savepoint(group, alone=alone):
                    yield group.connection, group.driver
            finally:
                group.members += 1
                if alone or group.commit_sent or self._is_full(group):
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

    def close(self) -> None:
        """Close the connection; nobody writes any more."""
        with self._writing:
            self._commit()
            self._drop()

    def _opened(self) -> _Group:
        if self._group is None:
            with self._errors():
                self._group = self._begun_again() or self._newly_begun()
        return self._group

    def _begun_again(self) -> _Group | None:
        """A group on the kept connection; None if there is none, or it was lost."""
        if self._kept is None:
            return None
        driver = self._kept[1]
        try:
            # At once: to read first and then want to write can fail.
            driver.run(self._words.begin)
            return _Group(*self._kept)
        except BaseException as error:
            self._drop()
            if isinstance(error, self._words.failures) and driver.is_lost:
                return None
            raise

    def _newly_begun(self) -> _Group:
        connection = self._engine.connect()
        try:
            driver = self._make_driver(connection, self._prepared)
            self._greet(driver)
            driver.run(self._words.begin)
        except BaseException:
            connection.close()
            raise
        self._kept = connection, driver
        return _Group(connection, driver)

    def _drop(self) -> None:
        """Have the next group open a connection of its own."""
        kept, self._kept = self._kept, None
        if kept is not None:
            with suppress(sa.exc.DBAPIError, *self._words.failures):
                kept[0].close()

    @contextmanager
    def _savepoint(self, group: _Group, *, alone: bool) -> Iterator[None]:
        words = self._words
        with self._errors():
            if group.members or not words.begin_marks:
                group.driver.run(words.mark)
            try:
                yield
                if words.commit_with_last and (alone or self._is_full(group)):
                    group.commit_sent = True
                    group.driver.run("COMMIT")
                else:
                    group.driver.send()
            except BaseException as error:
                group.driver.forget()
                self._undo(group, error)
                raise
            if words.keep:
                group.driver.run(words.keep)

    def _undo(self, group: _Group, cause: BaseException) -> None:
        try:
            for command in self._words.undo:
                group.driver.run(command)
            group.commit_sent = False  # it was left out, because something before it failed
        except self._words.failures as error:  # a full disk makes SQLite roll back everything
            self._abandon(group, cause if isinstance(cause, self._words.failures) else error)

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
            if not group.commit_sent:
                with self._errors():
                    group.driver.run("COMMIT")
        except BaseException as error:  # noqa: BLE001 - every member hears of it
            self._roll_back(group)
            self._drop()
            group.committed.set_exception(error)
        else:
            group.committed.set_result(None)

    def _abandon(self, group: _Group, error: Exception) -> None:
        self._group = None
        self._roll_back(group)
        self._drop()
        try:
            with self._errors():
                raise error
        except StorageError as typed:
            group.committed.set_exception(typed)

    def _roll_back(self, group: _Group) -> None:
        with suppress(*self._words.failures):  # the database may have done so itself
            group.driver.run("ROLLBACK")
