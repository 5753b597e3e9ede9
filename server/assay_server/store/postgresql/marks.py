"""Whether a commit whose answer was lost was kept.

Each transaction writes a number of its own into the row of its store. After a lost connection the row tells:
it has that number, or the transaction was undone. The status that PostgreSQL keeps by a transaction's own
number would be wrong after a crash, which may give that number to another one.

Whoever asks about a transaction that was not kept leaves its number there, negative: if its message still
arrives, because it waited on the way or for the writer's lock, it fails at its mark and keeps nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from assay_server.store.connections.prepared import Driver

_TABLE = "assay_commit_marks"
_GONE = 0  # the writer whose row counts the stores that were closed
_MAKE = (
    f"CREATE TABLE IF NOT EXISTS {_TABLE} (writer bigint PRIMARY KEY, number bigint NOT NULL, "
    "at timestamptz NOT NULL DEFAULT now()) WITH (fillfactor = 20)"
)
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
_WRITE = (
    f"INSERT INTO {_TABLE} VALUES (%s, %s, now()) ON CONFLICT (writer) "
    # A transaction that came too late divides by zero.
    f"DO UPDATE SET number = excluded.number / (excluded.number > abs({_TABLE}.number))::integer, "
    "at = excluded.at "
    # How often others have written: another number as soon as one of them has, or is gone.
    f"RETURNING (SELECT coalesce(sum(hashint8extended(other.writer, other.number)), 0)::text "
    f"FROM {_TABLE} AS other WHERE other.writer <> {_TABLE}.writer)"
)
# Of programs that were killed.
_SWEEP = f"DELETE FROM {_TABLE} WHERE writer <> {_GONE} AND at < now() - interval '7 days'"
# Whoever remembers what it read must notice that a program wrote, also after that program has ended.
_LEAVE = (
    f"INSERT INTO {_TABLE} VALUES ({_GONE}, 1) ON CONFLICT (writer) "
    f"DO UPDATE SET number = {_TABLE}.number + 1, at = excluded.at"
)


class CommitMarks:
    """The row of one store. Every transaction hears how often others have written, and were closed."""

    def __init__(self) -> None:
        self._writer = 1 + secrets.randbits(62)
        self._number = 0

    @staticmethod
    def make(connection: sa.Connection) -> None:
        """Make the table where it is missing, inside the connection's transaction."""
        for command in (_MAKE, _SWEEP):
            connection.exec_driver_sql(command)

    def next(self) -> tuple[int, tuple[str, Sequence[Any]]]:
        """A number, and the command that writes it, with its parameters."""
        self._number += 1
        return self._number, (_WRITE, (self._writer, self._number))

    def was_kept(self, driver: Driver, number: int) -> bool:
        """Whether the transaction of a number was committed; if not, it never will be.

        Waits until it has ended, if it is under way. Call it outside of a transaction, before the next number
        is written.
        """
        # The lock on the row waits for a transaction whose connection the server has not missed yet.
        driver.run(_BEGIN)
        driver.run(f"INSERT INTO {_TABLE} VALUES ({self._writer}, 0) ON CONFLICT (writer) DO NOTHING")
        found = driver.value_of(f"SELECT number FROM {_TABLE} WHERE writer = {self._writer} FOR UPDATE")
        if found != number:
            driver.run(f"UPDATE {_TABLE} SET number = {-number} WHERE writer = {self._writer}")
        driver.run("COMMIT")
        return bool(found == number)

    def forget(self, driver: Driver) -> None:
        """Remove the row of a store that is closed, and count that."""
        driver.run(_LEAVE)
        driver.run(f"DELETE FROM {_TABLE} WHERE writer = {self._writer}")
