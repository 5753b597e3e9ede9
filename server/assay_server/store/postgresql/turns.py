"""The turns of those who write: what each changed, and whether a commit whose answer was lost was kept.

Whoever has the writer's lock takes the next turn: it hears what the turns since its last one have changed,
and the last thing that it writes is a row with its own changes. Each store has a few rows, which it uses in
rotation; who was away for longer than they last misses a number, and knows that it has missed something.

Each turn also has a number among those of its store. After a lost connection its row tells: it has that
number, or the transaction was undone. The status that PostgreSQL keeps by a transaction's own number would be
wrong after a crash, which may give that number to another one. Whoever asks about a transaction that was not
kept leaves its number there, negative: if its message still arrives, because it waited on the way or for the
writer's lock, it fails at its row and keeps nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from assay_server.store.connections.prepared import Driver
from assay_server.store.connections.remembered import Remembered, Told, Turn

_TABLE = "assay_turns"
_BEFORE = "assay_commit_marks"  # of earlier releases
_PLACES = 8  # rows of one store
_NOBODY = 0  # the store whose only row is the last turn of those that are gone
_MAKE = (
    f"CREATE TABLE IF NOT EXISTS {_TABLE} (writer bigint, place smallint, number bigint NOT NULL, "
    "turn bigint NOT NULL, changed text, at timestamptz NOT NULL DEFAULT now(), "
    "PRIMARY KEY (writer, place)) WITH (fillfactor = 20)"
)
_NEXT = f"(SELECT coalesce(max(turn), 0) + 1 FROM {_TABLE})"
# Of programs that were killed. The last turn stays, for the next one is counted from it.
_SWEEP = f"DELETE FROM {_TABLE} WHERE at < now() - interval '7 days' AND turn < {_NEXT} - 1"
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
_HEAR = (
    f"SELECT turn, writer, number, CASE WHEN turn > %s THEN changed END FROM {_TABLE} "
    "WHERE turn >= %s ORDER BY turn"
)
_WRITE = (
    f"INSERT INTO {_TABLE} (writer, place, number, turn, changed) VALUES (%s, %s, %s, %s, %s) "
    # A transaction that came too late divides by zero.
    "ON CONFLICT (writer, place) DO UPDATE "
    f"SET number = excluded.number / (excluded.number > abs({_TABLE}.number))::integer, "
    "turn = excluded.turn, changed = excluded.changed, at = excluded.at"
)
# A turn of which nobody knows what it changed.
_ANYTHING = (
    f"INSERT INTO {_TABLE} (writer, place, number, turn) VALUES ({_NOBODY}, 0, 1, {_NEXT}) "
    "ON CONFLICT (writer, place) DO UPDATE "
    f"SET number = {_TABLE}.number + 1, turn = excluded.turn, changed = NULL, at = excluded.at"
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
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {_BEFORE}")
        for command in (_MAKE, _SWEEP, _ANYTHING):
            connection.exec_driver_sql(command)

    def hearing(self) -> tuple[str, Sequence[Any]]:
        """The command that asks for the turns since the last one that is known here."""
        last = self.remembered.last
        after = -1 if last is None else last.number
        return _HEAR, (after, after)

    def begin(self, driver: Driver) -> None:
        """A group has begun with :meth:`hearing`. Without anything to forget, nobody waits for the answer."""
        self._last = self._own = None
        self.remembered.rows.begin_notes()
        if self.remembered.rows:
            told = _told(driver)
            self.remembered.hear(told)
            self._last = _last_of(told)

    def next(self, driver: Driver) -> tuple[int, tuple[str, Sequence[Any]]]:
        """The number of this group among those of this store, and the last command before its commit."""
        last = _last_of(_told(driver)) if self._last is None else self._last
        self._number += 1
        self._own = Turn(last + 1, self._writer, self._number)
        changed = self.remembered.note() if self._tells else None
        place = self._number % _PLACES
        return self._number, (_WRITE, (self._writer, place, self._number, self._own.number, changed))

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
        place = number % _PLACES
        row = f"writer = {self._writer} AND place = {place}"
        # The lock on the row waits for a transaction whose connection the server has not missed yet.
        driver.run(_BEGIN)
        driver.run(
            f"INSERT INTO {_TABLE} (writer, place, number, turn) VALUES ({self._writer}, {place}, 0, 0) "
            "ON CONFLICT (writer, place) DO NOTHING"
        )
        found = driver.value_of(f"SELECT number FROM {_TABLE} WHERE {row} FOR UPDATE")
        if found != number:
            driver.run(f"UPDATE {_TABLE} SET number = {-number} WHERE {row}")
        driver.run("COMMIT")
        return bool(found == number)

    def leave(self, driver: Driver) -> None:
        """Remove the rows of a store that is closed, in a transaction with the writer's lock.

        Whoever remembers what it read must notice that somebody wrote, also after that program has ended.
        """
        driver.run(_ANYTHING)
        driver.run(f"DELETE FROM {_TABLE} WHERE writer = {self._writer}")

    @property
    def has_written(self) -> bool:
        """Whether a row of this store may be there."""
        return self._number > 0


def _told(driver: Driver) -> list[Told]:
    return [Told(Turn(*row[:3]), row[3]) for row in driver.begun()]


def _last_of(told: Sequence[Told]) -> int:
    return told[-1].turn.number if told else 0
