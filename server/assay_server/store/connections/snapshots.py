"""Readers of a database: each sees one moment, and their connections are kept for the next ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

import sqlalchemy as sa

from assay_server.store.connections.dialect import Dialect
from assay_server.store.connections.prepared import Driver, PreparedStatements

_MOST_KEPT = 8  # each holds a few MB of pages


class Snapshots:
    """``errors`` turns the database's errors into StorageError; the engine must not begin transactions.

    SQLAlchemy's own pool and transactions took longer than most reads. Thread-safe. Kept connections that
    cannot begin, because the database was restarted, are closed, and a new one is opened.
    """

    def __init__(
        self,
        engine: sa.Engine,
        prepared: PreparedStatements,
        errors: Callable[[], AbstractContextManager[None]],
        dialect: Dialect,
        make_driver: type[Driver] = Driver,
    ) -> None:
        self._engine, self._prepared, self._errors, self._dialect = engine, prepared, errors, dialect
        self._make_driver = make_driver
        self._lock = threading.Lock()
        self._free: list[tuple[sa.Connection, Driver]] | None = []

    @contextmanager
    def snapshot(self) -> Iterator[tuple[sa.Connection, Driver]]:
        """A connection inside a transaction that only reads."""
        with self._errors():
            connection, driver = self._begun()
            sound = False
            try:
                try:
                    yield connection, driver
                except BaseException:
                    # Whoever fails here is told why, and not that its transaction could not be committed.
                    with suppress(*self._dialect.failures):
                        driver.run("ROLLBACK")
                        sound = True
                    raise
                driver.run("COMMIT")
                sound = True
            finally:
                self._give_back(connection, driver, sound=sound)

    def close(self) -> None:
        """Close the connections; those in use close when their snapshots end."""
        with self._lock:
            free_connections, self._free = self._free or [], None
        for connection, _ in free_connections:
            self._close(connection)

    def _begun(self) -> tuple[sa.Connection, Driver]:
        while (pair := self._take_free()) is not None:
            try:
                pair[1].run(self._dialect.begin_reading)
            except BaseException as error:
                self._close(pair[0])
                if not (isinstance(error, self._dialect.failures) and pair[1].is_lost):
                    raise
            else:
                return pair
        connection = self._engine.connect()
        try:
            driver = self._make_driver(connection, self._prepared)
            driver.run(self._dialect.begin_reading)
        except BaseException:
            self._close(connection)
            raise
        return connection, driver

    def _take_free(self) -> tuple[sa.Connection, Driver] | None:
        with self._lock:
            return self._free.pop() if self._free else None

    def _give_back(self, connection: sa.Connection, driver: Driver, *, sound: bool) -> None:
        with self._lock:
            if sound and self._free is not None and len(self._free) < _MOST_KEPT:
                self._free.append((connection, driver))
                return
        self._close(connection)

    def _close(self, connection: sa.Connection) -> None:
        with suppress(sa.exc.DBAPIError, *self._dialect.failures):
            connection.close()
