"""The metadata store on PostgreSQL: one writer at a time by an advisory lock.

Writers take their turn by a lock that ends with its transaction, so that programs beside the server (such as
``assay-server token``) write safely too. A server writes only while it leads
(:mod:`assay_server.store.postgresql.lead`). Readers see one moment (REPEATABLE READ) and never wait.
"""

from __future__ import annotations

import psycopg

from assay_sampling.errors import StorageError
from assay_server.store.migrate import upgrade
from assay_server.store.postgresql.commits import NumberedCommits, NumberedTransactions
from assay_server.store.postgresql.engine import TAKE_WRITER_LOCK, new_engine
from assay_server.store.postgresql.fitness import require_fit, warn_of_risks
from assay_server.store.postgresql.lead import Lead
from assay_server.store.postgresql.place import DatabasePlace
from assay_server.store.postgresql.refusals import refusal
from assay_server.store.prepared import PreparedStatements
from assay_server.store.sql import SqlStore
from assay_server.store.transactions import Database, Transactions

_BEGIN = (
    # Not READ WRITE: a standby refuses that in words of its own, and a write with the code for "only read".
    "BEGIN ISOLATION LEVEL READ COMMITTED",
    TAKE_WRITER_LOCK,
)
_BEGIN_READING = ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",)
_MOST_READERS = 8  # that are kept


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
        self._commits = NumberedCommits() if lead is None else NumberedCommits(lead.is_held)
        engine = new_engine(place)
        prepared = PreparedStatements(engine.dialect, by_cursor=True)
        database = Database(engine, prepared, psycopg.Error, self._refusal)
        reading = Transactions(database, _BEGIN_READING, most_kept=_MOST_READERS)
        super().__init__(database, NumberedTransactions(database, _BEGIN, self._commits), reading)
        try:
            with database.errors(), engine.begin() as connection:
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

    def close(self) -> None:
        try:
            super().close()
        finally:
            if self.lead is not None:
                self.lead.release()

    def _refusal(self, error: psycopg.Error) -> StorageError:
        if self.lead is not None and self._commits.was_refused(error):
            return self.lead.lost()
        return refusal(self.subject, error)
