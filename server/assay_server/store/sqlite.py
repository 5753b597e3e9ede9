"""The metadata store on SQLite: write-ahead log, synchronous=FULL, one writer."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import NullPool, StaticPool

from assay_core.files.durable import storage_errors, write_atomically
from assay_core.files.private_folders import private_opener
from assay_sampling.errors import StorageError
from assay_server.store.column_values import document_text
from assay_server.store.connections.dialect import Dialect
from assay_server.store.connections.prepared import Driver, PreparedStatements
from assay_server.store.connections.snapshots import Snapshots
from assay_server.store.connections.writer import Writer
from assay_server.store.migrate import upgrade
from assay_server.store.sql import SqlTransaction

_BUSY_MS = 30_000
_STATEMENTS = 512  # that a connection keeps compiled
_CACHE_KIB = 16_384
# A server writes back in a thread (connections/write_back.py); this is for where that cannot keep up.
_CHECKPOINT_PAGES = 16_384
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_DAMAGED_REMEDY = (
    "look into the kernel's log (dmesg): if the disk failed, mend it or mount it again, and start the "
    "server; if it did not, restore the newest backup: assay-server restore BACKUP --state DIR --replace"
)
_DISK_REMEDY = (
    "look into the kernel's log (dmesg), mend the disk or mount it again, and start the server, which then "
    "looks whether the database is whole; only if it is not, restore a backup"
)
_PROBE = "disk-probe"
_FAILED_DISK = (errno.EIO, errno.ENXIO, errno.ENODEV, errno.ESTALE, errno.EUCLEAN, errno.EROFS)
_DIALECT = Dialect(("BEGIN IMMEDIATE",), "BEGIN", (sqlite3.Error,))
_FULL_REMEDY = "free space on its disk and check that it is writable; acknowledged data is safe"


class _ReadingDriver(Driver):
    """On a connection that refuses to write, as PostgreSQL's transactions that only read do."""

    def __init__(self, connection: sa.Connection, prepared: PreparedStatements) -> None:
        super().__init__(connection, prepared)
        self.run("PRAGMA query_only = ON")


class SqliteStore:
    """A ``MetadataStore`` in one SQLite file, or in memory if there is no path.

    Opening creates or migrates the file. Raises StorageError if it cannot be opened, is damaged, or a newer
    program wrote it.
    """

    def __init__(self, path: Path | None) -> None:
        self._subject = "metadata in memory" if path is None else str(path)
        self._folder = None if path is None else path.parent
        # In memory there is only one connection, so readers take their turn with writers.
        self._in_memory = path is None
        self._checkpoints: sa.Connection | None = None
        if path is not None:
            _make_private(path)
        with self._errors():
            self._engine = _engine(path)
            prepared = PreparedStatements(self._engine.dialect)
            self._writer = Writer(self._engine, prepared, self._errors, _DIALECT)
            self._snapshots = Snapshots(self._engine, prepared, self._errors, _DIALECT, _ReadingDriver)
            try:
                with self._engine.begin() as connection:
                    for command in _DIALECT.begin:
                        connection.exec_driver_sql(command)
                    upgrade(connection, self._subject)
            except BaseException:
                self.close()
                raise

    def require_sound(self) -> None:
        """Raise StorageError if the structure of the database is damaged (``PRAGMA quick_check``).

        A torn or flipped page is named at the start, and not when it is first read in the middle of a week.
        """
        with self._errors(), self._engine.begin() as connection:
            findings = list(connection.exec_driver_sql("PRAGMA quick_check(3)").scalars())
        if findings != ["ok"]:
            finding = "; ".join(map(str, findings))
            raise self._damage(finding)

    def _damage(self, finding: str) -> StorageError:
        """SQLite calls a file damaged that it cannot read for EIO, too: say which of the two is known."""
        if self._folder is not None and (refused := _disk_failure(self._folder)):
            cause = (
                f"its disk fails: it refuses a small write: {refused}; SQLite calls the database damaged "
                f"({finding}), as it does where a disk does not answer, so whether it is damaged is not known"
            )
            return StorageError(self._subject, cause, _DISK_REMEDY)
        cause = f"the database is damaged, or its disk does not give all of it: {finding}"
        return StorageError(self._subject, cause, _DAMAGED_REMEDY)

    @contextmanager
    def snapshot(self) -> Iterator[SqlTransaction]:
        if self._in_memory:
            with self.transaction() as transaction:
                yield transaction
            return
        with self._snapshots.snapshot() as (connection, driver):
            yield SqlTransaction(connection, driver)

    @contextmanager
    def transaction(self) -> Iterator[SqlTransaction]:
        with self._writer.transaction() as (connection, driver):
            yield SqlTransaction(connection, driver)

    def write_back(self) -> int:
        """Write what was committed back into the file, as far as nobody must wait; returns pages left to do.

        Raises StorageError. Call it in one thread.
        """
        if self._in_memory:
            return 0
        with self._errors():
            if self._checkpoints is None:
                self._checkpoints = self._engine.connect()
            _busy, logged, done = self._checkpoints.exec_driver_sql("PRAGMA wal_checkpoint(PASSIVE)").one()
        return int(logged) - int(done)

    def close(self) -> None:
        if self._checkpoints is not None:
            self._checkpoints.close()
        self._writer.close()
        self._snapshots.close()
        self._engine.dispose()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sa.exc.DBAPIError, sqlite3.Error) as error:
            reason = error.orig if isinstance(error, sa.exc.DBAPIError) else error
            if not isinstance(reason, sqlite3.Error):
                raise  # of the other database, while rows are copied from one to another
            # Codes of SQLite: the lowest byte is the kind of error.
            if (getattr(reason, "sqlite_errorcode", 0) or 0) & 0xFF in _DAMAGED:
                raise self._damage(str(reason)) from error
            raise StorageError(self._subject, f"the database refused ({reason})", _FULL_REMEDY) from error
        except sa.exc.StatementError as error:  # a value that no database keeps
            if isinstance(error.orig, StorageError):
                raise error.orig from error
            raise


def _disk_failure(folder: Path) -> str:
    """How the disk fails a small write; "" if it takes it, or is only full.

    Not asked of the database itself: closing a second descriptor of it would drop SQLite's locks.
    """
    probe = folder / _PROBE
    try:
        write_atomically(probe, b"?")
        probe.unlink()
    except OSError as error:
        if error.errno in _FAILED_DISK:
            return f"{error.strerror} ({errno.errorcode[error.errno]})"
    return ""


def _make_private(path: Path) -> None:
    """Create the file before SQLite does: it holds environments, and its journals inherit its mode."""
    with storage_errors(path):
        os.close(private_opener(str(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC))


def _engine(path: Path | None) -> sa.Engine:
    # Errors must not quote the values of statements, which include the secrets of leases.
    if path is None:
        engine = sa.create_engine(
            "sqlite://",
            poolclass=StaticPool,
            connect_args={"check_same_thread": False},
            hide_parameters=True,
            json_serializer=document_text,
        )
    else:
        engine = sa.create_engine(
            sa.URL.create("sqlite", database=str(path)),
            poolclass=NullPool,  # whoever uses the engine keeps its connections
            connect_args={"check_same_thread": False, "cached_statements": _STATEMENTS},
            hide_parameters=True,
            json_serializer=document_text,
        )
    sa.event.listen(engine, "connect", _configure)
    return engine


def _configure(connection: sqlite3.Connection, _record: Any) -> None:
    """Turn off sqlite3's own transactions (we send BEGIN), and turn on what durability needs."""
    connection.isolation_level = None
    for pragma in (
        f"busy_timeout = {_BUSY_MS}",
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
        f"cache_size = -{_CACHE_KIB}",
        # Pages that many transactions change, as those of indexes, are written back less often.
        f"wal_autocheckpoint = {_CHECKPOINT_PAGES}",
    ):
        connection.execute(f"PRAGMA {pragma}")
