"""Readers of a SQLite database: each sees one moment, and their connections are kept for the next ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import sqlalchemy as sa

from assay_server.store.connections.prepared import Driver, PreparedStatements

_MOST_KEPT = 8  # each holds a few MB of pages


class Snapshots:
    """``errors`` turns the database's errors into StorageError; the engine must not begin transactions.

    SQLAlchemy's own pool and transactions took longer than most reads. Thread-safe.
    """

    def __init__(
        self,
        engine: sa.Engine,
        prepared: PreparedStatements,
        errors: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._engine, self._prepared, self._errors = engine, prepared, errors
        self._lock = threading.Lock()
        self._free: list[tuple[sa.Connection, Driver]] | None = []

    @contextmanager
    def snapshot(self) -> Iterator[tuple[sa.Connection, Driver]]:
        """A connection inside a transaction that only reads."""
        with self._errors():
            connection, driver = self._taken()
            sound = False
            try:
                driver.run("BEGIN")
                try:
                    yield connection, driver
                finally:
                    driver.run("COMMIT")
                    sound = True
            finally:
                self._give_back(connection, driver, sound=sound)

    def close(self) -> None:
        """Close the connections; those in use close when their snapshots end."""
        with self._lock:
            kept, self._free = self._free or [], None
        for connection, _ in kept:
            connection.close()

    def _taken(self) -> tuple[sa.Connection, Driver]:
        with self._lock:
            if self._free:
                return self._free.pop()
        connection = self._engine.connect()
        return connection, Driver(connection, self._prepared)

    def _give_back(self, connection: sa.Connection, driver: Driver, *, sound: bool) -> None:
        with self._lock:
            if sound and self._free is not None and len(self._free) < _MOST_KEPT:
                self._free.append((connection, driver))
                return
        connection.close()
