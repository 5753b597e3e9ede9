"""The metadata store on SQLite: write-ahead log, synchronous=FULL, one writer."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.pool import QueuePool, StaticPool

from assay_core.files.durable import storage_errors, write_atomically
from assay_core.files.private_folders import private_opener
from assay_sampling.errors import StorageError
from assay_server.store.column_values import document_text
from assay_server.store.migrate import upgrade
from assay_server.store.sql import SqlStore
from assay_server.store.transactions import Transactions
from assay_server.threads.repeating import repeated_in_thread

_BUSY_MS = 30_000
_STATEMENTS = 512  # that a connection keeps compiled
_CACHE_KIB = 16_384
# A server writes back in a thread (written_back); this is for where that cannot keep up.
_CHECKPOINT_PAGES = 16_384
_WRITE_BACK_SECONDS = 2.0
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
# What durability needs.
_PRAGMAS = (
    f"busy_timeout = {_BUSY_MS}",
    "journal_mode = WAL",
    "synchronous = FULL",
    "foreign_keys = ON",
    f"cache_size = -{_CACHE_KIB}",
    # Pages that many transactions change, as those of indexes, are written back less often.
    f"wal_autocheckpoint = {_CHECKPOINT_PAGES}",
)
_BEGIN = "BEGIN IMMEDIATE"
# As PostgreSQL's transactions that only read, they refuse to write.
_READING = ("query_only = ON",)
_MOST_READERS = 8  # that are kept; each holds a few MB of pages
_FULL_REMEDY = "free space on its disk and check that it is writable; acknowledged data is safe"


class SqliteStore(SqlStore):
    """A ``MetadataStore`` in one SQLite file, or in memory if there is no path.

    Opening creates or migrates the file. Raises StorageError if it cannot be opened, is damaged, or a newer
    program wrote it.
    """

    def __init__(self, path: Path | None) -> None:
        self._subject = "metadata in memory" if path is None else str(path)
        self._folder = None if path is None else path.parent
        self._checkpoints: sa.Connection | None = None
        if path is not None:
            # Before SQLite does: it holds environments, and its journals inherit its mode.
            with storage_errors(path):
                os.close(private_opener(str(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC))
        writing = Transactions(_engine(path, 1), (_BEGIN,), sqlite3.Error, self._refusal)
        reading = None  # in memory there is only one connection
        if path is not None:
            readers = _engine(path, _MOST_READERS, _READING)
            reading = Transactions(readers, ("BEGIN",), sqlite3.Error, self._refusal)
        super().__init__(writing, reading)
        try:
            with writing.errors(), writing.engine.begin() as connection:
                connection.exec_driver_sql(_BEGIN)
                upgrade(connection, self._subject)
        except BaseException:
            self.close()
            raise

    def require_sound(self) -> None:
        """Raise StorageError if the structure of the database is damaged (``PRAGMA quick_check``).

        A torn or flipped page is named at the start, and not when it is first read in the middle of a week.
        """
        with self.writing.errors(), self.writing.engine.begin() as connection:
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

    def write_back(self) -> int:
        """Write what was committed back into the file, as far as nobody must wait; returns pages left to do.

        Raises StorageError. Call it in one thread.
        """
        if self._folder is None:
            return 0
        with self.writing.errors():
            if self._checkpoints is None:
                self._checkpoints = self.writing.engine.connect()
            _busy, logged, done = self._checkpoints.exec_driver_sql("PRAGMA wal_checkpoint(PASSIVE)").one()
        return int(logged) - int(done)

    def close(self) -> None:
        if self._checkpoints is not None:
            self._checkpoints.close()
        super().close()

    def _refusal(self, error: sqlite3.Error) -> StorageError:
        # Codes of SQLite: the lowest byte is the kind of error.
        if (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF in _DAMAGED:
            return self._damage(str(error))
        return StorageError(self._subject, f"the database refused ({error})", _FULL_REMEDY)


def written_back(
    write_back: Callable[[], object], every_seconds: float = _WRITE_BACK_SECONDS
) -> AbstractContextManager[None]:
    """Write what was committed back into the file now and then, in a thread, while the block runs.

    Whoever commits when the write-ahead log is long writes it back, and everybody who wants to write waits
    for that and for a sync of the file. So this does most of it before, outside of the turn to write: a
    PASSIVE checkpoint waits for nobody, and nobody waits for it (sqlite.org/wal.html, section 2.2;
    sqlite.org/pragma.html#pragma_wal_checkpoint).
    """

    def step() -> None:
        with suppress(StorageError):  # who writes next hears of a disk that fails
            write_back()

    return repeated_in_thread("assay-write-back", step, every_seconds, at_once=False)


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


def _engine(path: Path | None, most_kept: int, pragmas: tuple[str, ...] = ()) -> sa.Engine:
    """``most_kept``: connections between transactions; ``pragmas``: of each, besides those of all."""
    kept = {"poolclass": QueuePool, "pool_size": most_kept, "max_overflow": -1}
    engine = sa.create_engine(
        sa.URL.create("sqlite", database=None if path is None else str(path)),
        **({"poolclass": StaticPool} if path is None else kept),
        pool_reset_on_return=None,  # whoever gives one back has ended its transaction
        connect_args={"check_same_thread": False, "cached_statements": _STATEMENTS},
        # Errors must not quote the values of statements, which include the secrets of leases.
        hide_parameters=True,
        json_serializer=document_text,
    )

    def configure(connection: sqlite3.Connection, _record: object) -> None:
        # Turns off sqlite3's own transactions: we send BEGIN.
        connection.isolation_level = None
        for pragma in (*_PRAGMAS, *pragmas):
            connection.execute(f"PRAGMA {pragma}")

    sa.event.listen(engine, "connect", configure)
    return engine
