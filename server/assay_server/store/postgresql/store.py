"""The metadata store on PostgreSQL: one writer at a time by an advisory lock.

Writers take their turn by a lock that ends with its transaction, so that programs beside the server (such as
``assay-server token``) write safely too. A server writes only while it leads
(:mod:`assay_server.store.postgresql.lead`). Readers see one moment (REPEATABLE READ) and never wait.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress

import psycopg
import sqlalchemy as sa

from assay_sampling.errors import StorageError
from assay_server.places import DatabasePlace
from assay_server.store.migrate import upgrade
from assay_server.store.postgresql.connections import (
    TAKE_WRITER_LOCK,
    new_engine,
    require_fit,
    warn_of_risks,
)
from assay_server.store.postgresql.lead import Lead
from assay_server.store.postgresql.refusals import refusal
from assay_server.store.sql import SqlStore
from assay_server.store.transactions import (
    NothingKeptError,
    OutcomeUnknownError,
    Transactions,
    again,
)

_BEGIN = (
    # Not READ WRITE: a standby refuses that in words of its own, and a write with the code for "only read".
    "BEGIN ISOLATION LEVEL READ COMMITTED",
    TAKE_WRITER_LOCK,
)
_BEGIN_READING = ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",)
_COMMITS = "assay_commits"
_COMMITS_KEPT = 8  # rows of one store, and at most as many again
_MAKE_COMMITS = (
    f"CREATE TABLE IF NOT EXISTS {_COMMITS} (writer bigint NOT NULL, number bigint NOT NULL, "
    "kept boolean NOT NULL, at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (writer, number))"
)
_SWEEP_COMMITS = (
    f"DELETE FROM {_COMMITS} WHERE at < now() - interval '7 days'"  # of programs that were killed
)
# Whoever has written nothing has no number of the database's own, and needs no row: nothing can be lost.
# Without the lead the row would be null, which the column does not take: nothing is kept.
_ADD_COMMIT = (
    f"INSERT INTO {_COMMITS} (writer, number, kept) "
    "SELECT %s, %s, {may_write} WHERE pg_current_xact_id_if_assigned() IS NOT NULL"
)
_TIDY_COMMITS = f"DELETE FROM {_COMMITS} WHERE writer = %s AND number <= %s"
_UNKNOWN = "whether the change was kept is not known"
_LOOK_REMEDY = (
    "start the database, look whether the change is there, and ask again only if it is not; "
    "agents do so by themselves"
)
_TAKE_COMMIT = f"INSERT INTO {_COMMITS} (writer, number, kept) VALUES (%s, %s, false) ON CONFLICT DO NOTHING"


class NumberedTransactions(Transactions):
    """Transactions, one after another, whose commits are looked up if their answer was lost.

    The last thing that a transaction writes is a row with its number among those of its store. After a lost
    connection the row tells: it is there, or the transaction was undone. The status that PostgreSQL keeps by
    a transaction's own number would be wrong after a crash, which may give that number to another one.
    Whoever asks takes the number, so a transaction that is still under way fails at its row.

    Rows are added and removed, not changed: a snapshot that is open for an hour, such as a backup's, keeps
    every version of a changed row in the way of those who read it.

    ``may_write``: SQL that is true, or null if nothing may be written any more.
    """

    def __init__(
        self, engine: sa.Engine, refusal: Callable[[psycopg.Error], StorageError], may_write: str = "true"
    ) -> None:
        super().__init__(engine, _BEGIN, psycopg.Error, refusal)
        self._add = _ADD_COMMIT.format(may_write=may_write)
        self._writer = secrets.randbits(62)
        self._number, self._is_numbered = 0, False

    def commit(self, connection: sa.Connection) -> None:
        self._is_numbered = False
        with self.errors():
            self.add_number(connection)
            self._is_numbered = True
            super().commit(connection)

    def add_number(self, connection: sa.Connection) -> int:
        """Write the number of a transaction, right before its commit; returns it."""
        self._number += 1
        connection.exec_driver_sql(self._add, (self._writer, self._number))
        if self._number % _COMMITS_KEPT == 0:
            connection.exec_driver_sql(_TIDY_COMMITS, (self._writer, self._number - _COMMITS_KEPT))
        return self._number

    def has_number(self, connection: sa.Connection, number: int) -> bool:
        """Whether the transaction of a number was committed; if not, it never will be.

        Waits until it has ended, if it is under way. Call it outside of a transaction, before the next number
        is written.
        """
        connection.exec_driver_sql("BEGIN ISOLATION LEVEL READ COMMITTED")
        connection.exec_driver_sql(_TAKE_COMMIT, (self._writer, number))
        query = f"SELECT kept FROM {_COMMITS} WHERE writer = {self._writer} AND number = {number}"
        is_kept = bool(connection.exec_driver_sql(query).scalar())
        connection.exec_driver_sql("COMMIT")
        return is_kept

    def close(self) -> None:
        """Remove the rows of the store, and close the connections."""
        if self._number:
            with suppress(StorageError), self.errors(), self.engine.connect() as connection:
                connection.exec_driver_sql(_TIDY_COMMITS, (self._writer, self._number))
        super().close()

    def was_kept(self, error: BaseException, *, is_lost: bool) -> bool:
        """Whether a commit whose answer was lost was kept; raises NothingKeptError or OutcomeUnknownError."""
        if not isinstance(error, StorageError) or not (is_lost or isinstance(error, NothingKeptError)):
            return False
        try:
            is_committed = self._is_numbered and again(StorageError, self._looked_up)
        except StorageError:
            raise OutcomeUnknownError(error.subject, f"{error.cause}; {_UNKNOWN}", _LOOK_REMEDY) from error
        if not is_committed:
            raise NothingKeptError(error.subject, error.cause, error.remedy) from error
        return True

    def _looked_up(self) -> bool:
        with self.errors(), self.engine.connect() as connection:
            return self.has_number(connection, self._number)


class PostgresqlStore(SqlStore):
    """A ``MetadataStore`` in a PostgreSQL database.

    Args:
        place: the database.
        lead: that of its server, without which nothing is written, and which it leaves when it is closed;
            None: for another program, which may write beside the server.

    Opening looks whether the database can be used, and makes or migrates its tables. Raises StorageError.
    """

    def __init__(self, place: DatabasePlace, *, lead: Lead | None = None) -> None:
        self.subject = place.shown
        self.lead = lead
        engine = new_engine(place)
        reading = Transactions(engine, _BEGIN_READING, psycopg.Error, self._refusal)
        writing = NumberedTransactions(engine, self._refusal, "true" if lead is None else lead.is_held)
        super().__init__(writing, reading)
        try:
            with writing.errors(), engine.begin() as connection:
                require_fit(connection, self.subject)
                warn_of_risks(connection, self.subject)
                for command in _BEGIN:
                    connection.exec_driver_sql(command)
                upgrade(connection, self.subject, "--database")
                for command in (_MAKE_COMMITS, _SWEEP_COMMITS):
                    connection.exec_driver_sql(command)
        except BaseException:
            self.close()
            raise

    def require_sound(self) -> None:
        """PostgreSQL looks after its own pages; nothing is read here."""

    def close(self) -> None:
        try:
            super().close()
        finally:
            if self.lead is not None:
                self.lead.release()

    def _refusal(self, error: psycopg.Error) -> StorageError:
        is_number_refused = isinstance(error, psycopg.errors.NotNullViolation)
        if self.lead is not None and is_number_refused and error.diag.table_name == _COMMITS:
            return self.lead.lost()
        return refusal(self.subject, error)
