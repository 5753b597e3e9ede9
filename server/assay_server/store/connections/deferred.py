"""A driver of a database server that keeps writes back until something must be known.

Each statement that is sent and waited for costs two changes between processes. Writes whose results nobody
reads are sent together with the next query, or with the commit, and waited for once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from assay_server.store.connections.prepared import Driver, PreparedStatements


class DeferringDriver(Driver):
    """As its base, on psycopg. A write that failed raises where it is sent; all after it are left out."""

    def __init__(self, connection: sa.Connection, prepared: PreparedStatements) -> None:
        super().__init__(connection, prepared)
        self._kept: list[tuple[str, Sequence[Any]]] = []

    def write_later(self, statement: sa.Insert | sa.Update | sa.Delete, given: Mapping[str, Any]) -> None:
        prepared = self.prepared.of(statement, tuple(given))
        self._kept.append((prepared.sql, prepared.values(given)))

    def send(self) -> None:
        if self._kept:
            self._sent()

    def forget(self) -> None:
        self._kept.clear()

    def run(self, command: str) -> None:
        if self._kept:
            self._sent((command, ()))
        else:
            super().run(command)

    def _answer(self, command: str, values: Sequence[Any] = ()) -> Any:
        return self._sent((command, values)) if self._kept else super()._answer(command, values)

    def insert_copies(
        self,
        statement: sa.Insert,
        records: Sequence[Any],
        values_of: Callable[[Any], Mapping[str, Any]],
        varying: Sequence[str],
    ) -> None:
        self.send()
        super().insert_copies(statement, records, values_of, varying)

    def insert(self, statement: sa.Insert, names: Sequence[str], rows: Iterator[Mapping[str, Any]]) -> None:
        self.send()
        super().insert(statement, names, rows)

    def _sent(self, *last: tuple[str, Sequence[Any]]) -> Any:
        """Send what was kept and one more command, in one message; returns the cursor of the last."""
        kept, self._kept = [*self._kept, *last], []
        connection: Any = self.connection
        cursor: Any = None
        with connection.pipeline():
            for command, values in kept:
                cursor = connection.cursor()
                cursor.execute(command, values)
        return cursor
