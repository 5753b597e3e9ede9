"""The writer of a database: one transaction after another, on one connection that is kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Protocol

import sqlalchemy as sa

from assay_sampling.errors import StorageError
from assay_server.store.connections.dialect import Dialect
from assay_server.store.connections.prepared import Driver, PreparedStatements
from assay_server.store.connections.retry import NothingKeptError, OutcomeUnknownError, again

_UNKNOWN = "whether the change was kept is not known"
_LOOK = (
    "start the database, look whether the change is there, and ask again only if it is not; "
    "agents do so by themselves"
)


class Commits(Protocol):
    """The numbers of a store's commits, by which one whose answer was lost can be looked up."""

    def add(self, driver: Driver) -> int:
        """Write the number of a transaction, right before its commit; returns it.

        The database refuses it if the transaction must not be kept.
        """

    def was_kept(self, driver: Driver, number: int) -> bool:
        """Whether the transaction of a number was committed; asked on a new connection."""


class Writer:
    """Writes to a database. ``errors`` turns the database's errors into StorageError.

    The engine must not begin transactions itself: SQLAlchemy's took longer than most statements.

    A kept connection that cannot begin, because the database was restarted, is replaced by a new one, once.
    """

    def __init__(
        self,
        engine: sa.Engine,
        prepared: PreparedStatements,
        errors: Callable[[], AbstractContextManager[None]],
        dialect: Dialect,
        *,
        commits: Commits | None = None,
    ) -> None:
        self._engine = engine
        self._prepared = prepared
        self._errors = errors
        self._dialect = dialect
        self._commits = commits
        self._connection_pair: tuple[sa.Connection, Driver] | None = None
        self._turn = threading.Lock()

    @contextmanager
    def transaction(self) -> Iterator[tuple[sa.Connection, Driver]]:
        """Write: durable when the block ends, undone when it raises."""
        with self._turn, self._errors():
            connection, driver = self._begun_again() or self._newly_begun()
            try:
                yield connection, driver
            except BaseException:
                self._undo(driver)
                raise
            self._commit(driver)

    def close(self, leave: Callable[[Driver], None] = lambda driver: None) -> None:
        """Close the connection, which ``leave`` is given before; nobody writes any more."""
        with self._turn:
            try:
                if self._connection_pair is not None and not self._connection_pair[1].is_lost:
                    leave(self._connection_pair[1])
            finally:
                self._drop()

    def _begun_again(self) -> tuple[sa.Connection, Driver] | None:
        """The kept connection, in a transaction; None if none is kept, or it was lost."""
        if self._connection_pair is None:
            return None
        driver = self._connection_pair[1]
        try:
            self._begin(driver)
        except BaseException as error:
            self._drop()
            if isinstance(error, self._dialect.failures) and driver.is_lost:
                return None
            raise
        return self._connection_pair

    def _newly_begun(self) -> tuple[sa.Connection, Driver]:
        connection, driver = self._connected()
        try:
            self._begin(driver)
        except BaseException:
            self._drop()
            raise
        return connection, driver

    def _connected(self) -> tuple[sa.Connection, Driver]:
        """A new connection, which is kept."""
        connection = self._engine.connect()
        self._connection_pair = connection, Driver(connection, self._prepared)
        return self._connection_pair

    def _begin(self, driver: Driver) -> None:
        # Before anything is read: to read first and then want to write can fail.
        for command in self._dialect.begin:
            driver.run(command)

    def _undo(self, driver: Driver) -> None:
        try:
            driver.run("ROLLBACK")
        except self._dialect.failures:  # it is lost, or the database has undone everything itself
            self._drop()

    def _drop(self) -> None:
        """Have the next transaction open a connection of its own."""
        pair, self._connection_pair = self._connection_pair, None
        if pair is not None:
            with suppress(sa.exc.DBAPIError, *self._dialect.failures):
                pair[0].close()

    def _commit(self, driver: Driver) -> None:
        number = 0
        try:
            with self._errors():
                if self._commits is not None:
                    number = self._commits.add(driver)
                driver.run("COMMIT")
        except BaseException as error:
            lost = driver.is_lost or isinstance(error, NothingKeptError)
            self._undo(driver)
            self._drop()
            if not lost or not isinstance(error, StorageError) or not self._was_kept(number, error):
                raise

    def _was_kept(self, number: int, error: StorageError) -> bool:
        """Whether a commit whose answer was lost was kept; raises NothingKeptError or OutcomeUnknownError."""
        if self._commits is None:
            return False
        try:
            is_committed = number > 0 and again(StorageError, lambda: self._looked_up(number))
        except StorageError:
            raise OutcomeUnknownError(error.subject, f"{error.cause}; {_UNKNOWN}", _LOOK) from error
        if not is_committed:
            raise NothingKeptError(error.subject, error.cause, error.remedy) from error
        return True

    def _looked_up(self, number: int) -> bool:
        assert self._commits is not None
        try:
            with self._errors():
                return self._commits.was_kept(self._connected()[1], number)
        except BaseException:
            self._drop()
            raise
