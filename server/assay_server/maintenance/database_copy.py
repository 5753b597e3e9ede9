"""Copies of a state's database, as SQLite files."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from assay_core.files.durable import storage_errors
from assay_core.files.private_folders import private_opener
from assay_sampling.errors import StorageError
from assay_server.database.copying import copy_rows
from assay_server.database.opening import AskedDatabase, open_database
from assay_server.database.state_notes import SQLITE_FILE, noted_database
from assay_server.store.sqlite import SqliteStore

METADATA = SQLITE_FILE


def has_metadata(state: Path) -> bool:
    """Whether a folder is a server's state, whichever database has its metadata."""
    return (state / METADATA).is_file() or noted_database(state) is not None


def copy_database(state: Path, target: Path, settings: AskedDatabase | None = None) -> None:
    """A copy of one moment of the database as a SQLite file, also while a server writes to it.

    One read transaction, which blocks no writer: in SQLite's write-ahead log (sqlite.org/wal.html) and in
    PostgreSQL leases go on meanwhile. ``settings``: where the database is, if the state folder does not say
    it. Raises StorageError.
    """
    if noted_database(state) is not None:
        _copy_postgresql(state, target, settings or AskedDatabase())
    else:
        _copy_sqlite(state / METADATA, target)


def _copy_postgresql(state: Path, target: Path, settings: AskedDatabase) -> None:
    with (
        closing(open_database(state, settings)) as source,
        closing(SqliteStore(target)) as copy,
        source.snapshot() as read,
        copy.transaction() as write,
    ):
        copy_rows(read.connection, write.connection)
    with closing(sqlite3.connect(target)) as written:
        written.execute("PRAGMA journal_mode = DELETE")


def _copy_sqlite(source: Path, target: Path) -> None:
    if not source.exists():
        raise StorageError(str(source), "there is no database", "name the state folder of an assay-server")
    with storage_errors(target):
        open(target, "xb", opener=private_opener).close()
    try:
        with (
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as read,
            closing(sqlite3.connect(target)) as written,
        ):
            read.backup(written)
            written.execute("PRAGMA journal_mode = DELETE")
            findings = [str(row[0]) for row in written.execute("PRAGMA integrity_check(3)")]
    except sqlite3.Error as error:
        raise StorageError(str(source), f"it cannot be read ({error})", "check the disk") from error
    if findings != ["ok"]:
        raise StorageError(
            str(source), f"the database is damaged: {'; '.join(findings)}", "restore the newest backup"
        )
