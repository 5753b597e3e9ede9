"""The metadata store on PostgreSQL: one writer at a time by an advisory lock.

Writers take their turn by a lock that ends with its transaction, so that programs beside the server (such as
``assay-server token``) write safely too. A server writes only while it leads
(:mod:`assay_server.store.postgresql.lead`). Readers see one moment (REPEATABLE READ) and never wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
import sqlalchemy as sa

from assay_sampling.errors import StorageError
from assay_server.store.connections.dialect import Dialect
from assay_server.store.connections.prepared import PreparedStatements
from assay_server.store.connections.snapshots import Snapshots
from assay_server.store.connections.writer import Writer
from assay_server.store.migrate import upgrade
from assay_server.store.postgresql.commits import NumberedCommits
from assay_server.store.postgresql.engine import TAKE_WRITER_LOCK, new_engine
from assay_server.store.postgresql.fitness import require_fit, warn_of_risks
from assay_server.store.postgresql.lead import Lead
from assay_server.store.postgresql.place import DatabasePlace
from assay_server.store.postgresql.refusals import refusal
from assay_server.store.sql import SqlTransaction

_BEGIN = (
    # Not READ WRITE: a standby refuses that in words of its own, and a write with the code for "only read".
    "BEGIN ISOLATION LEVEL READ COMMITTED",
    TAKE_WRITER_LOCK,
)
_BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_DIALECT = Dialect(
    _BEGIN,
    _BEGIN_READING,
    (psycopg.Error,),
)


class PostgresqlStore:
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
        self._engine = new_engine(place)
        prepared = PreparedStatements(self._engine.dialect, by_cursor=True)
        self._commits = NumberedCommits() if lead is None else NumberedCommits(lead.is_held)
        self._writer = Writer(
            self._engine,
            prepared,
            self._errors,
            _DIALECT,
            commits=self._commits,
        )
        self._snapshots = Snapshots(self._engine, prepared, self._errors, _DIALECT)
        try:
            with self._errors(), self._engine.begin() as connection:
                require_fit(connection, self.subject)
                warn_of_risks(connection, self.subject)
                for command in _BEGIN:
                    connection.exec_driver_sql(command)
                upgrade(connection, self.subject, "--database")
                self._commits.make(connection)
        except BaseException:
            self.close()
            raise

    def require_sound(self) -> None:
        """PostgreSQL looks after its own pages; nothing is read here."""

    @contextmanager
    def snapshot(self) -> Iterator[SqlTransaction]:
        with self._snapshots.snapshot() as (connection, driver):
            yield SqlTransaction(connection, driver)

    @contextmanager
    def transaction(self) -> Iterator[SqlTransaction]:
        with self._writer.transaction() as (connection, driver):
            yield SqlTransaction(connection, driver)

    def close(self) -> None:
        try:
            with suppress(StorageError, *_DIALECT.failures):
                self._writer.close(self._commits.leave)
            self._snapshots.close()
            self._engine.dispose()
        finally:
            if self.lead is not None:
                self.lead.release()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sa.exc.DBAPIError, psycopg.Error) as error:
            if not isinstance(error, psycopg.Error) and not isinstance(error.orig, psycopg.Error):
                raise  # of the other database, while rows are copied from one to another
            if self.lead is not None and self._commits.was_refused(error):
                raise self.lead.lost() from error
            raise refusal(self.subject, error) from error
        except sa.exc.StatementError as error:  # a value that no database keeps
            if isinstance(error.orig, StorageError):
                raise error.orig from error
            raise
