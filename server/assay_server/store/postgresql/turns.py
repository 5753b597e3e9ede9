"""The turns of those who write: what each changed, and whether a commit whose answer was lost was kept.

Whoever has the writer's lock takes the next turn: it hears what the turns since its last one have changed,
and the last thing that it writes is a row with its own changes. Each store removes its rows when they are
some turns old; who was away for longer misses a number, and knows that it has missed something.

Each turn also has a number among those of its store. After a lost connection its row tells: it is there, or
the transaction was undone. The status that PostgreSQL keeps by a transaction's own number would be wrong
after a crash, which may give that number to another one. Whoever asks about a transaction that was not kept
takes its number: if its message still arrives, because it waited on the way or for the writer's lock, it
fails at its row and keeps nothing. So it does after any later turn.

Rows are added and removed, not changed: a snapshot that is open for an hour, such as a backup's, keeps every
version of a changed row in the way of those who read it.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from assay_server.store.connections.prepared import Driver
from assay_server.store.connections.remembered import Remembered, Told, Turn

_TABLE = "assay_turns"
_KEPT = 8  # rows of one store, and at most as many again
_NOBODY = 0  # the store whose only row is the last turn of those that are gone
_AFTER_ALL = 2**62
_MAKE = (
    f"CREATE TABLE IF NOT EXISTS {_TABLE} (turn bigint PRIMARY KEY, writer bigint NOT NULL, "
    "number bigint NOT NULL, changed text, at timestamptz NOT NULL DEFAULT now(), UNIQUE (writer, number))"
)
_LAST = f"(SELECT max(turn) FROM {_TABLE})"
# Of programs that were killed. The last turn stays, for the next one is counted from it; and so do those of
# whoever is at work, if somebody sets the clock.
_SWEEP = f"DELETE FROM {_TABLE} WHERE at < now() - interval '7 days' AND turn < {_LAST} - 1000"
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
# The last one in any case: the next is counted from it, also where the one that is known here is gone.
_HEAR = (
    f"SELECT turn, writer, number, CASE WHEN turn > %s THEN changed END FROM {_TABLE} "
    f"WHERE turn >= least(%s, {_LAST}) AND turn > 0 ORDER BY turn"
)
# A transaction that comes after a later turn, so long after its connection was lost, divides by zero.
_WRITE = (
    f"INSERT INTO {_TABLE} (turn, writer, number, changed) "
    f"SELECT asked.turn / (asked.turn > coalesce({_LAST}, 0))::integer, %s, %s, %s "
    "FROM (SELECT %s::bigint AS turn) AS asked"
)
_TIDY = f"DELETE FROM {_TABLE} WHERE writer = %s AND number > %s AND number <= %s"
# A turn of which nobody knows what it changed.
_ANYTHING = (
    f"INSERT INTO {_TABLE} (turn, writer, number) "
    f"SELECT next, {_NOBODY}, next FROM (SELECT greatest({_LAST}, 0) + 1 AS next) AS counted",
    f"DELETE FROM {_TABLE} WHERE writer = {_NOBODY} AND turn < {_LAST}",
)


class Turns:
    """The turns of one store, and what it remembers from one to the next.

    ``tells``: whether others may want to know what it changed; else they hear that it was anything.
    """

    def __init__(self, remembered: Remembered, *, tells: bool = True) -> None:
        self.remembered = remembered
        self._tells = tells
        self._writer = 1 + secrets.randbits(62)
        self._number = 0
        self._last: int | None = None  # of all turns, when this group began; None: it was not heard yet
        self._own: Turn | None = None

    @staticmethod
    def make(connection: sa.Connection) -> None:
        """Make the table where it is missing, inside the connection's transaction with the writer's lock.

        What that transaction changed, others do not know.
        """
        for command in (_MAKE, _SWEEP, *_ANYTHING):
            connection.exec_driver_sql(command)

    def hearing(self) -> tuple[str, Sequence[Any]]:
        """The command that asks for the turns since the last one that is known here."""
        last = self.remembered.last
        after = _AFTER_ALL if last is None else last.number
        return _HEAR, (after, after)

    def begin(self, driver: Driver) -> None:
        """A group has begun with :meth:`hearing`. Without anything to forget, nobody waits for the answer."""
        self._last = self._own = None
        self.remembered.rows.begin_notes()
        if self.remembered.rows:
            told = _told(driver)
            self.remembered.hear(told)
            self._last = _last_of(told)

    def next(self, driver: Driver) -> tuple[int, list[tuple[str, Sequence[Any]]]]:
        """The number of this group among those of this store, and the last commands before its commit."""
        last = _last_of(_told(driver)) if self._last is None else self._last
        self._number += 1
        self._own = Turn(last + 1, self._writer, self._number)
        changed = self.remembered.note() if self._tells else None
        commands: list[tuple[str, Sequence[Any]]] = [
            (_WRITE, (self._writer, self._number, changed, self._own.number))
        ]
        if self._number % _KEPT == 0:
            # Only so many numbers: a look at all before them would visit every row that was removed.
            commands.append((_TIDY, (self._writer, self._number - 2 * _KEPT, self._number - _KEPT)))
        return self._number, commands

    def end(self) -> None:
        """The group was committed."""
        if self._own is not None:
            self.remembered.end(self._own)

    def forget(self) -> None:
        """Some of what is remembered was undone, or may have been."""
        self.remembered.forget()

    def was_kept(self, driver: Driver, number: int) -> bool:
        """Whether the transaction of a number was committed; if not, it never will be.

        Waits until it has ended, if it is under way. Call it outside of a transaction, before the next number
        is written.
        """
        # This waits for a transaction with that number whose connection the server has not missed yet.
        driver.run(_BEGIN)
        driver.run(
            f"INSERT INTO {_TABLE} (turn, writer, number) VALUES "
            f"({-1 - secrets.randbits(62)}, {self._writer}, {number}) ON CONFLICT DO NOTHING"
        )
        row = f"writer = {self._writer} AND number = {number}"
        found = int(driver.value_of(f"SELECT turn FROM {_TABLE} WHERE {row}"))
        driver.run("COMMIT")
        return found > 0

    def leave(self, driver: Driver) -> None:
        """Remove the rows of a store that is closed, in a transaction with the writer's lock.

        Whoever remembers what it read must notice that somebody wrote, also after that program has ended.
        """
        for command in _ANYTHING:
            driver.run(command)
        driver.run(f"DELETE FROM {_TABLE} WHERE writer = {self._writer}")

    @property
    def has_written(self) -> bool:
        """Whether a row of this store may be there."""
        return self._number > 0


def _told(driver: Driver) -> list[Told]:
    return [Told(Turn(*row[:3]), row[3]) for row in driver.begun()]


def _last_of(told: Sequence[Told]) -> int:
    return told[-1].turn.number if told else 0
