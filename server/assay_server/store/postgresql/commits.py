"""Numbered commits: whether a commit whose answer was lost was kept.

The last thing that a transaction writes is a row with its number among those of its store. After a lost
connection the row tells: it is there, or the transaction was undone. The status that PostgreSQL keeps by a
transaction's own number would be wrong after a crash, which may give that number to another one. Whoever asks
takes the number, so a transaction that is still under way fails at its row.

Rows are added and removed, not changed: a snapshot that is open for an hour, such as a backup's, keeps every
version of a changed row in the way of those who read it.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import suppress

import psycopg
import sqlalchemy as sa

from assay_sampling.errors import StorageError
from assay_server.store.prepared import Driver
from assay_server.store.transactions import (
    Database,
    NothingKeptError,
    OutcomeUnknownError,
    Transactions,
    again,
)

_TABLE = "assay_commits"
_KEPT = 8  # rows of one store, and at most as many again
_MAKE = (
    f"CREATE TABLE IF NOT EXISTS {_TABLE} (writer bigint NOT NULL, number bigint NOT NULL, "
    "kept boolean NOT NULL, at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (writer, number))"
)
_SWEEP = f"DELETE FROM {_TABLE} WHERE at < now() - interval '7 days'"  # of programs that were killed
# Whoever has written nothing has no number of the database's own, and needs no row: nothing can be lost.
# Without the lead the row would be null, which the column does not take: nothing is kept.
_ADD = (
    f"INSERT INTO {_TABLE} (writer, number, kept) "
    "SELECT %s, %s, {may_write} WHERE pg_current_xact_id_if_assigned() IS NOT NULL"
)
_TIDY = f"DELETE FROM {_TABLE} WHERE writer = %s AND number <= %s"
_UNKNOWN = "whether the change was kept is not known"
_LOOK = (
    "start the database, look whether the change is there, and ask again only if it is not; "
    "agents do so by themselves"
)
_TAKE = f"INSERT INTO {_TABLE} (writer, number, kept) VALUES (%s, %s, false) ON CONFLICT DO NOTHING"


class NumberedCommits:
    """The commits of one store, one after another.

    ``may_write``: SQL that is true, or null if nothing may be written any more.
    """

    def __init__(self, may_write: str = "true") -> None:
        self._add = _ADD.format(may_write=may_write)
        self._writer = secrets.randbits(62)
        self._number = 0

    @staticmethod
    def make(connection: sa.Connection) -> None:
        """Make the table where it is missing, inside the connection's transaction with the writer's lock."""
        for command in (_MAKE, _SWEEP):
            connection.exec_driver_sql(command)

    def add(self, driver: Driver) -> int:
        """Write the number of a transaction, right before its commit; returns it."""
        self._number += 1
        driver.run(self._add, (self._writer, self._number))
        if self._number % _KEPT == 0:
            driver.run(_TIDY, (self._writer, self._number - _KEPT))
        return self._number

    @staticmethod
    def was_refused(error: BaseException | None) -> bool:
        """Whether the database refused a number, because the lead is lost."""
        return isinstance(error, psycopg.errors.NotNullViolation) and error.diag.table_name == _TABLE

    def was_kept(self, driver: Driver, number: int) -> bool:
        """Whether the transaction of a number was committed; if not, it never will be.

        Waits until it has ended, if it is under way. Call it outside of a transaction, before the next number
        is written.
        """
        driver.run("BEGIN ISOLATION LEVEL READ COMMITTED")
        driver.run(_TAKE, (self._writer, number))
        query = f"SELECT kept FROM {_TABLE} WHERE writer = {self._writer} AND number = {number}"
        is_kept = bool(driver.value_of(query))
        driver.run("COMMIT")
        return is_kept

    def leave(self, driver: Driver) -> None:
        """Remove the rows of a store that is closed. Call it outside of a transaction."""
        driver.run(_TIDY, (self._writer, self._number))


class NumberedTransactions(Transactions):
    """Transactions, one after another, whose commits are looked up if their answer was lost."""

    def __init__(self, database: Database, begin: Sequence[str], commits: NumberedCommits) -> None:
        super().__init__(database, begin)
        self._commits, self._number = commits, 0

    def commit(self, driver: Driver) -> None:
        self._number = 0
        with self.database.errors():
            self._number = self._commits.add(driver)
            super().commit(driver)

    def leave(self, driver: Driver) -> None:
        with suppress(psycopg.Error):
            self._commits.leave(driver)

    def was_kept(self, error: BaseException, *, is_lost: bool) -> bool:
        """Whether a commit whose answer was lost was kept; raises NothingKeptError or OutcomeUnknownError."""
        if not isinstance(error, StorageError) or not (is_lost or isinstance(error, NothingKeptError)):
            return False
        try:
            is_committed = self._number > 0 and again(StorageError, self._looked_up)
        except StorageError:
            raise OutcomeUnknownError(error.subject, f"{error.cause}; {_UNKNOWN}", _LOOK) from error
        if not is_committed:
            raise NothingKeptError(error.subject, error.cause, error.remedy) from error
        return True

    def _looked_up(self) -> bool:
        with self.database.errors():
            connection, driver = self.opened()
            try:
                is_kept = self._commits.was_kept(driver, self._number)
            except BaseException:
                self.database.close(connection)
                raise
            self.give_back(connection, driver, keep=True)
            return is_kept
