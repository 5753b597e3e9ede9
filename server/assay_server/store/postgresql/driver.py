"""The driver of PostgreSQL, which keeps writes back until something must be known.

Each statement that is sent and waited for costs two changes between processes. Writes whose results nobody
reads, savepoints and the beginning are sent together with the next query, or with the commit, and waited for
once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from assay_server.store.connections.prepared import Driver, PreparedStatements, Question
from assay_server.store.postgresql.messages import Answer, Command, Messages

# A connection that was used a moment ago still works, in all likelihood.
TRUSTED_SECONDS = 0.05
_ENDS = ("COMMIT", "ROLLBACK")


class DeferringDriver(Driver):
    """As its base. A write that failed raises where it is sent; all after it are left out."""

    def __init__(self, connection: sa.Connection, prepared: PreparedStatements) -> None:
        super().__init__(connection, prepared)
        self._messages = Messages(self.connection)
        self._begin: list[Command] = []  # what begins a transaction of which nothing was sent yet
        self._kept: list[Command] = []
        self._marked = True
        self._used = -math.inf

    def begin(self, commands: Sequence[Command]) -> None:
        self._kept.clear()
        self._begin = list(commands)
        if time.monotonic() - self._used > TRUSTED_SECONDS:
            self._sent()  # or a query would be the first to find that the connection was lost

    def mark(self, command: str) -> None:
        self._kept.append((command, ()))
        self._marked = False

    def run(self, command: str) -> None:
        if command in _ENDS and self._begin and not self._kept:
            self._begin.clear()  # nothing was sent
        else:
            self._answer(command)

    def later(self, command: str, values: Sequence[Any]) -> None:
        self._kept.append((command, values))

    def write_later(self, statement: sa.Insert | sa.Update | sa.Delete, given: Mapping[str, Any]) -> None:
        prepared = self.prepared.of(statement, tuple(given))
        self._kept.append((prepared.sql, prepared.values(given)))

    def send(self) -> None:
        if self._kept or self._begin:
            self._sent()

    def forget(self) -> bool:
        self._kept.clear()
        return self._marked

    def rows_of(self, asked: Sequence[Question]) -> list[list[dict[str, Any]]]:
        prepared = [(self.prepared.of(statement), given) for statement, given in asked]
        answers = self._sent(*((each.sql, each.values(given)) for each, given in prepared))
        return [
            [each.record(row) for row in answer.fetchall()]
            for (each, _), answer in zip(prepared, answers, strict=True)
        ]

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

    def _answer(self, command: str, values: Sequence[Any] = ()) -> Answer:
        return self._sent((command, values))[0]

    def _sent(self, *asked: Command) -> list[Answer]:
        """Send what was kept and these, in one message; returns the answers to these."""
        kept = [*self._begin, *self._kept]
        dumped = self._messages.dumped([*kept, *asked])  # if that raises, nothing was sent
        self._kept, self._begin = [], []
        self._marked = True
        self._used = time.monotonic()
        return self._messages.answers(dumped)[len(kept) :]
