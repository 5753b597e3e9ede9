"""The metadata store on PostgreSQL: one writer at a time by an advisory lock, and shared commits.

Writers take their turn by a lock that ends with its transaction, so that programs beside the server (such as
``assay-server token``) write safely too. A server also holds a lock as long as its writing connection lives:
a second server on the same database is refused, unless both share it. Readers see one moment (REPEATABLE
READ) and never wait.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from assay_sampling.errors import StorageError
from assay_server.store.connections.dialect import Dialect
from assay_server.store.connections.prepared import Driver, PreparedStatements
from assay_server.store.connections.retry import NothingKeptError
from assay_server.store.connections.shared_commit import SharedCommit
from assay_server.store.connections.snapshots import Snapshots
from assay_server.store.migrate import upgrade
from assay_server.store.plain_values import document_text
from assay_server.store.postgresql.commits import NumberedCommits
from assay_server.store.postgresql.fitness import require_fit
from assay_server.store.postgresql.place import DatabasePlace
from assay_server.store.postgresql.refusals import refusal
from assay_server.store.sql import SqlTransaction

# Advisory locks of ours, in each schema: "ASSA" and "ASSB" in ASCII.
_WRITER, _SERVER = 0x41535341, 0x41535342
_LOCK_SECONDS = 30
_BEGIN = (
    # Not READ WRITE: a standby refuses that in words of its own, and a write with the code for "only read".
    "BEGIN ISOLATION LEVEL READ COMMITTED",
    f"SELECT pg_advisory_xact_lock({_WRITER}, hashtext(current_schema()))",
)
_BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_DIALECT = Dialect(
    _BEGIN,
    _BEGIN_READING,
    (psycopg.Error,),
)
_HAVE_SERVER = f"SELECT pg_try_advisory_lock({_SERVER}, hashtext(current_schema()))"
_BESIDE_SERVERS = f"SELECT pg_try_advisory_lock_shared({_SERVER}, hashtext(current_schema()))"
_CONNECTION = {
    "connect_timeout": 10,
    "application_name": "assay-server",
    # A database host that vanished is noticed within a minute.
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 45_000,
    # A database in SQL_ASCII gives bytes otherwise, and nothing could say that it is not fit.
    "client_encoding": "utf8",
}
_SETTINGS = {
    "lock_timeout": f"{_LOCK_SECONDS}s",
    "statement_timeout": "0",
    "transaction_timeout": "0",  # since PostgreSQL 17
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",  # or a server would lose the lock that it holds by its connection
    "timezone": "UTC",
    "standard_conforming_strings": "on",
}


_CONFIGURE = (
    "SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS asked (name, value) "
    "WHERE current_setting(name, true) IS NOT NULL"
)


class PostgresqlStore:
    """A ``MetadataStore`` in a PostgreSQL database.

    Args:
        place: the database.
        alone: as the only server; other programs may still write beside it.
        shared: as one of several servers, none of which is alone.

    Opening looks whether the database can be used, and makes or migrates its tables. Raises StorageError.
    """

    def __init__(self, place: DatabasePlace, *, alone: bool = False, shared: bool = False) -> None:
        self.subject = place.shown
        self._lock = _HAVE_SERVER if alone else _BESIDE_SERVERS if shared else ""
        self._had_lock = False
        self._engine = new_engine(place)
        prepared = PreparedStatements(self._engine.dialect, by_cursor=True)
        self._commits = NumberedCommits()
        self._shared = SharedCommit(
            self._engine, prepared, self._errors, _DIALECT, greet=self._greet, commits=self._commits
        )
        self._snapshots = Snapshots(self._engine, prepared, self._errors, _DIALECT)
        try:
            with self._errors(), self._engine.begin() as connection:
                require_fit(connection, self.subject)
                for command in _BEGIN:
                    connection.exec_driver_sql(command)
                upgrade(connection, self.subject, "--database")
                self._commits.make(connection)
            if self._lock:
                with self.transaction():
                    pass
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
    def transaction(self, *, alone: bool = False) -> Iterator[SqlTransaction]:
        with self._shared.transaction(alone=alone) as (connection, driver):
            yield SqlTransaction(connection, driver)

    def close(self) -> None:
        with suppress(StorageError, *_DIALECT.failures):
            self._shared.close(self._commits.leave)
        self._snapshots.close()
        self._engine.dispose()

    def _greet(self, driver: Driver) -> None:
        """Take the server's lock, which the connection holds as long as it lives."""
        if not self._lock:
            return
        if driver.value_of(self._lock):
            self._had_lock = True
        else:
            # The database may not have missed this server's own connection yet, which was lost.
            kind = NothingKeptError if self._had_lock else StorageError
            raise kind(
                self.subject,
                "another assay-server uses this database",
                "stop that server, or give this one a database of its own; several servers share one if all "
                "are started with --records FOLDER",
            )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sa.exc.DBAPIError, psycopg.Error) as error:
            if not isinstance(error, psycopg.Error) and not isinstance(error.orig, psycopg.Error):
                raise  # of the other database, while rows are copied from one to another
            raise refusal(self.subject, error) from error
        except sa.exc.StatementError as error:  # a value that no database keeps
            if isinstance(error.orig, StorageError):
                raise error.orig from error
            raise


def new_engine(place: DatabasePlace) -> sa.Engine:
    """Connections to a database, each with our settings, which nobody keeps but their user."""
    logging.getLogger("psycopg").setLevel(logging.ERROR)  # it warns of lost connections, as our errors do
    engine = sa.create_engine(
        place.url,
        poolclass=NullPool,  # whoever uses the engine keeps its connections
        pool_reset_on_return=None,  # one that is given back is closed; a lost one cannot be reset
        isolation_level="AUTOCOMMIT",  # transactions begin and end by our own commands
        connect_args=_CONNECTION,
        paramstyle="format",
        # Errors must not quote the values of statements, which include the secrets of leases.
        hide_parameters=True,
        json_serializer=document_text,
    )
    sa.event.listen(engine, "connect", _configure)
    return engine


def _configure(connection: Any, _record: Any) -> None:
    autocommit, connection.autocommit = connection.autocommit, True
    connection.execute(_CONFIGURE, (list(_SETTINGS), list(_SETTINGS.values())))
    # Whoever turned this off for the whole database did not know of our promise that commits are durable.
    off = "current_setting('synchronous_commit') = 'off'"
    connection.execute(f"SELECT set_config('synchronous_commit', 'on', false) WHERE {off}")
    connection.autocommit = autocommit
