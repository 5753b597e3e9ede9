"""Transactions of a database, on connections that are kept, and those that the database ended itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import sqlalchemy as sa

from assay_sampling.errors import StorageError
from assay_server.store.prepared import Driver, PreparedStatements

# Long enough for a database that is restarted, and shorter than what an agent waits for an answer.
PATIENCE_SECONDS = 5.0
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.05, 1.0

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


class NothingKeptError(StorageError):
    """The database ended a transaction, of which nothing was kept: it may be done again."""


class OutcomeUnknownError(StorageError):
    """The answer to a commit was lost, and the database did not come back to say whether it was kept."""


@dataclass(frozen=True)
class Database:
    """How a database is reached.

    Args:
        engine: its connections. It must not begin transactions: SQLAlchemy's own pool and transactions took
            longer than most statements.
        prepared: its prepared statements.
        failures: what its driver raises.
        refusal: one of these as a typed error.
    """

    engine: sa.Engine
    prepared: PreparedStatements
    failures: type[Exception]
    refusal: Callable[[Any], StorageError]

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn the database's errors into StorageError."""
        try:
            yield
        except (sa.exc.StatementError, self.failures) as error:
            reason = error.orig if isinstance(error, sa.exc.StatementError) else error
            if isinstance(reason, StorageError):  # a value that no database keeps
                raise reason from error
            if not isinstance(reason, self.failures):
                raise  # of the other database, while rows are copied from one to another
            raise self.refusal(reason) from error

    def close(self, connection: sa.Connection) -> None:
        """Close a connection, also one that is lost."""
        with suppress(sa.exc.DBAPIError, self.failures):
            connection.close()


class Transactions:
    """Transactions of one kind, at most ``most_kept`` of whose connections are kept. Thread-safe.

    Kept connections that cannot begin, because the database was restarted, are closed, and a new one is
    opened. ``begin``: the commands that begin a transaction, before anything is read: to read first and then
    want to write can fail. ``settings``: commands for each new connection.
    """

    def __init__(
        self, database: Database, begin: Sequence[str], *, most_kept: int = 1, settings: Sequence[str] = ()
    ) -> None:
        self.database, self._begin, self._settings, self._most_kept = database, begin, settings, most_kept
        self._lock = threading.Lock()
        self._free: list[tuple[sa.Connection, Driver]] | None = []

    @contextmanager
    def transaction(self) -> Iterator[tuple[sa.Connection, Driver]]:
        """A connection in a transaction, which is committed when the block ends, undone when it raises."""
        with self.database.errors():
            connection, driver = self._begun()
            try:
                yield connection, driver
            except BaseException:
                self._undo(connection, driver, keep=True)
                raise
            try:
                self.commit(driver)
            except BaseException as error:
                is_lost = driver.is_lost
                self._undo(connection, driver, keep=False)
                if not self.was_kept(error, is_lost=is_lost):
                    raise
            else:
                self.give_back(connection, driver, keep=True)

    def close(self) -> None:
        """Close the connections; those in use close when their transactions end."""
        with self._lock:
            free_connections, self._free = self._free or [], None
        for connection, driver in free_connections:
            try:
                if not driver.is_lost:
                    self.leave(driver)
            finally:
                self.database.close(connection)

    def commit(self, driver: Driver) -> None:
        """End a transaction that is kept."""
        driver.run("COMMIT")

    def was_kept(self, error: BaseException, *, is_lost: bool) -> bool:
        """Whether a commit was kept though it raised an error; ``is_lost``: so is its connection."""
        return False

    def leave(self, driver: Driver) -> None:
        """Called with each kept connection before it is closed."""

    def opened(self) -> tuple[sa.Connection, Driver]:
        """A new connection, outside of a transaction; :meth:`give_back` keeps or closes it."""
        connection = self.database.engine.connect()
        try:
            driver = Driver(connection, self.database.prepared)
            for command in self._settings:
                driver.run(command)
        except BaseException:
            self.database.close(connection)
            raise
        return connection, driver

    def _begun(self) -> tuple[sa.Connection, Driver]:
        while True:
            with self._lock:
                kept_pair = self._free.pop() if self._free else None
            connection, driver = kept_pair or self.opened()
            try:
                for command in self._begin:
                    driver.run(command)
            except BaseException as error:
                self.database.close(connection)
                if kept_pair and isinstance(error, self.database.failures) and driver.is_lost:
                    continue
                raise
            return connection, driver

    def _undo(self, connection: sa.Connection, driver: Driver, *, keep: bool) -> None:
        is_undone = False
        try:
            # Whoever failed is told why, and not that the database has undone everything itself, or is lost.
            with suppress(self.database.failures):
                driver.run("ROLLBACK")
                is_undone = True
        finally:
            self.give_back(connection, driver, keep=keep and is_undone)

    def give_back(self, connection: sa.Connection, driver: Driver, *, keep: bool) -> None:
        """Keep a connection for the next transactions, or close it."""
        with self._lock:
            if keep and self._free is not None and len(self._free) < self._most_kept:
                self._free.append((connection, driver))
                return
        self.database.close(connection)


def repeated(call: Callable[Given, Answer]) -> Callable[Given, Answer]:
    """A call that is done again for some seconds if the database ended its transaction.

    Others that were ended with it come back at moments of their own. Everything that the call changes must be
    in the database: a call that has answered somebody, or written a file under a new name, is none of these.
    """

    @wraps(call)
    def done(*args: Given.args, **kwargs: Given.kwargs) -> Answer:
        try:
            return call(*args, **kwargs)
        except NothingKeptError:
            return again(NothingKeptError, lambda: call(*args, **kwargs))

    return done


def again(error: type[StorageError], call: Callable[[], Answer]) -> Answer:
    """Call after each such error again for some seconds, later each time, by chance; raises the last one."""
    from tenacity import (  # noqa: PLC0415 - seldom needed, and never on SQLite
        Retrying,
        retry_if_exception_type,
        stop_after_delay,
        wait_random_exponential,
    )

    retrying = Retrying(
        retry=retry_if_exception_type(error),
        stop=stop_after_delay(PATIENCE_SECONDS),
        wait=wait_random_exponential(_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS),
        reraise=True,
    )
    return retrying(call)
