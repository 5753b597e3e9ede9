"""Several statements in one round trip: psycopg's pipeline mode.

Changes whose answers nobody needs wait for the next statement that somebody does wait for, at the latest for
the commit, and are sent together with it. A thread that waits for an answer must wait for Python's lock after
it, too, and meanwhile nobody else writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
import sqlalchemy as sa

from assay_server.store.connections.prepared import Driver, PreparedStatements


class PipelineDriver(Driver):
    """Keeps changes back until the next statement."""

    def __init__(self, connection: sa.Connection, prepared: PreparedStatements) -> None:
        super().__init__(connection, prepared)
        self._unread = self.connection.cursor()
        self._waiting: list[tuple[str, Sequence[Any]]] = []

    def run_later(self, command: str, values: Sequence[Any] = ()) -> None:
        self._waiting.append((command, values))

    def settle(self) -> None:
        if self._waiting:
            command, values = self._waiting.pop()
            self._answer(command, values)

    def rollback(self) -> None:
        self._waiting.clear()
        super().rollback()

    def _answer(self, command: str, values: Sequence[Any] = ()) -> Any:
        if not self._waiting:
            return super()._answer(command, values)
        waiting, self._waiting = self._waiting, []
        try:
            with self.connection.pipeline():
                for each in waiting:
                    self._unread.execute(*each)
                return super()._answer(command, values)
        except psycopg.errors.PipelineAborted as error:
            # Said of statements behind one that failed, which is what counts.
            raise error.__context__ or error from None
