"""The driver of PostgreSQL, which keeps writes back until something must be known.

Each statement that is sent and waited for costs two changes between processes. Writes whose results nobody
reads, savepoints and the beginning are sent together with the next query, or with the commit, and waited for
once. That query may be asked by the next member of a group that shares a commit.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

import psycopg
import sqlalchemy as sa

from assay_server.store.connections.prepared import Driver, PreparedStatements, Question
from assay_server.store.postgresql.messages import Answer, Command, Dumped, Messages

# A connection that was used a moment ago still works, in all likelihood.
TRUSTED_SECONDS = 0.05
_ENDS = ("COMMIT", "ROLLBACK")
_NOT_UNDONE = "a transaction that shares this one's commit was not undone"
_UNDONE_ALL = "the database undid the transaction at its commit"
_UNDONE = "a transaction that shares this one's commit was undone"


@dataclass(frozen=True)
class _Left:
    """What a member of a group left to be sent behind its end, and whom its error is told."""

    commands: list[Dumped]
    undo: str
    failed: Callable[[BaseException], None]


class DeferringDriver(Driver):
    """As its base. A write that failed raises where it is sent; all after it are left out."""

    asks_together = True

    def __init__(self, connection: sa.Connection, prepared: PreparedStatements) -> None:
        super().__init__(connection, prepared)
        self._messages = Messages(self.connection)
        self._begin: list[Command] = []  # what begins a transaction of which nothing was sent yet
        self._left: list[_Left] = []
        self._kept: list[Command] = []
        self._marked = True
        self._used = -math.inf

    def begin(self, commands: Sequence[Command]) -> None:
        self._kept.clear()
        self._left.clear()
        self._begin = list(commands)
        self.begun_with = ()
        if time.monotonic() - self._used > TRUSTED_SECONDS:
            self._sent()  # or a query would be the first to find that the connection was lost

    def begun(self) -> Sequence[tuple[Any, ...]]:
        if self._begin:
            self._sent()
        return self.begun_with

    @property
    def is_untouched(self) -> bool:
        return bool(self._begin) and not (self._kept or self._left)

    def mark(self, command: str) -> None:
        self._kept.append((command, ()))
        self._marked = False

    def run(self, command: str) -> None:
        if command == "ROLLBACK":
            self._left.clear()
        if command in _ENDS and self.is_untouched:
            self._begin.clear()  # nothing was sent
            return
        told = self._answer(command).told
        if command == "COMMIT" and told != command:  # so the database answers where it had failed before
            raise psycopg.errors.SerializationFailure(_UNDONE_ALL)

    def later(self, command: str, values: Sequence[Any]) -> None:
        self._kept.append((command, values))

    def write_later(self, statement: sa.Insert | sa.Update | sa.Delete, given: Mapping[str, Any]) -> None:
        prepared = self.prepared.of(statement, tuple(given))
        self._kept.append((prepared.sql, prepared.values(given)))

    def send(self) -> None:
        if self._kept or self._left or self._begin:
            self._sent()

    def leave(self, undo: str, failed: Callable[[BaseException], None]) -> None:
        kept = self._kept if self._marked else self._kept[1:]
        if kept:
            # A value that cannot be sent raises here, where it is its member's error.
            self._left.append(_Left(self._messages.dumped(self._kept), undo, failed))
        self._kept = []
        self._marked = True

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
        own = self._messages.dumped([*self._kept, *asked])  # if that raises, nothing was sent
        begin = self._messages.dumped(self._begin)
        left, self._left = self._left, []
        self._kept, self._begin = [], []
        self._marked = True
        self._used = time.monotonic()
        before = [*begin, *chain.from_iterable(each.commands for each in left)]
        answers, refused = self._messages.exchanged([*before, *own])
        if begin and (refused is None or refused.place >= len(begin)):
            self.begun_with = answers[len(begin) - 1].fetchall()
        if refused is not None and len(begin) <= refused.place < len(before):
            self._undo(left, refused.place - len(begin), refused.error)
            self._marked = False  # nothing of this member was executed
            raise _ended_with_another() from refused.error
        if refused is not None:
            raise refused.error
        return answers[len(answers) - len(asked) :]

    def _undo(self, left: list[_Left], place: int, error: BaseException) -> None:
        """Undo the member whose command failed, and tell it.

        Those behind it knew what it wrote, and nothing of theirs was executed: they hear that.
        """
        ends = list(accumulate(len(each.commands) for each in left))
        number = bisect_right(ends, place)
        try:
            self._messages.answers(self._messages.dumped([(left[number].undo, ())]))
        except psycopg.Error:  # its savepoint was refused, or this was: nobody's changes can be kept
            raise psycopg.OperationalError(_NOT_UNDONE) from error
        left[number].failed(error)
        for each in left[number + 1 :]:
            each.failed(_ended_with_another())


def _ended_with_another() -> psycopg.Error:
    return psycopg.errors.SerializationFailure(_UNDONE)
