"""Which files of a state folder a copy of its database names."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from assay_core.files.durable import storage_errors, write_pieces
from assay_core.files.private_folders import private_opener
from assay_core.records.attempt import AttemptKey
from assay_sampling.errors import StorageError
from assay_server.database.copying import copy_rows
from assay_server.database.opening import AskedDatabase, open_database
from assay_server.database.state_notes import SQLITE_FILE, noted_database
from assay_server.records.opening import folder_of_records, look_at_records
from assay_server.store.record_store import BUNDLES, PACKED, REPORT_FORMS, RecordStore
from assay_server.store.sqlite import SqliteStore

METADATA = SQLITE_FILE
# Their segments are acknowledged, so the agents have deleted them.
_LIVE = ("leased", "publishing", "expired")
_STAGED = """
SELECT a.run_id, a.slice, a.attempt, SUM(s.names_bytes + s.launches_bytes)
FROM attempts a JOIN segments s ON (s.run_id, s.slice, s.attempt) = (a.run_id, a.slice, a.attempt)
WHERE a.state IN (?, ?, ?) GROUP BY a.run_id, a.slice, a.attempt
"""


@dataclass(frozen=True)
class StoredFile:
    """A file of the state folder; ``content_hash`` "": the database has none of it.

    ``reading``: where it is on this machine until a block ends, also if it is an object of a bucket.
    ``fixed``: it is never written to in place. ``most_bytes``: how much of it the database knows; None: all.
    """

    name: str
    reading: Callable[[], AbstractContextManager[Path]]
    content_hash: str = ""
    fixed: bool = True
    most_bytes: int | None = None


@dataclass(frozen=True)
class StoredFiles:
    """What a database names: its schema's revision, how many campaigns, and files."""

    revision: str
    campaigns: int
    files: tuple[StoredFile, ...]


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


def files_named(state: Path, database: Path) -> StoredFiles:
    """The files that a copy of a state's database names. Raises StorageError if it is not one of ours."""
    try:
        with closing(sqlite3.connect(database)) as connection:
            [revision] = connection.execute("SELECT version_num FROM alembic_version").fetchone()
            [campaigns] = connection.execute("SELECT COUNT(*) FROM campaigns").fetchone()
            return StoredFiles(str(revision), int(campaigns), tuple(_named(state, database, connection)))
    except (sqlite3.Error, TypeError) as error:
        raise StorageError(
            str(database), f"it is not the database of an assay-server ({error})", "name another state folder"
        ) from error


def _named(state: Path, database: Path, connection: sqlite3.Connection) -> Iterator[StoredFile]:
    records = look_at_records(state)
    for file, content_hash in connection.execute("SELECT file, content_hash FROM slices WHERE file != ''"):
        yield StoredFile(f"records/{file}", partial(records.reading, file), content_hash)
    for run_id, piece, attempt, size in connection.execute(_STAGED, _LIVE):
        name = f"staging/{run_id}/slice-{piece:05d}-attempt-{attempt:04d}"
        key, path = AttemptKey(run_id, piece, attempt, 0), folder_of_records(state) / name
        reading = partial(_staged, records, database, key, path)
        yield StoredFile(name, reading, fixed=False, most_bytes=size)
    for file in _bundles(connection):
        yield StoredFile(f"{BUNDLES}/{file}", partial(records.reading_bundle, file))
    for (campaign_id,) in connection.execute("SELECT campaign_id FROM campaigns WHERE has_report"):
        for form in sorted(REPORT_FORMS):
            path = records.report_path(campaign_id, form)
            if path.exists():
                # A copy of a bucket's report may have made way for others by then.
                name = f"reports/{campaign_id}/{path.name}"
                yield StoredFile(name, partial(_report, records, campaign_id, form))


def _report(records: RecordStore, campaign_id: str, form: str) -> AbstractContextManager[Path]:
    return nullcontext(records.report_path(campaign_id, form))


@contextmanager
def _staged(records: RecordStore, database: Path, key: AttemptKey, path: Path) -> Iterator[Path]:
    """The staged segments of an attempt in one file, which a folder has at ``path``; without any: none."""
    if records.place is None:
        yield path
        return
    with closing(SqliteStore(database)) as store, store.snapshot() as read:
        segments = read.segments(key)
    with tempfile.TemporaryDirectory(prefix="assay-staged-", dir=database.parent) as folder:
        path = Path(folder) / "staged"
        with storage_errors(path):
            for segment in segments:
                parts = records.staged(segment)
                write_pieces(path, [(segment.offset_bytes, parts.names + parts.launches)])
        yield path


def _bundles(connection: sqlite3.Connection) -> list[str]:
    """The files of all bundles that are there, and of those that campaigns name."""
    compiled = connection.execute("SELECT compiled FROM campaigns")
    names = {str(each["sha256"]) for (text,) in compiled for each in json.loads(text).get("bundles") or ()}
    rows = connection.execute("SELECT sha256, file FROM bundles ORDER BY sha256").fetchall()
    missing = sorted(names - {sha256 for sha256, _ in rows})
    return [*(file for _, file in rows), *(f"{sha256}{PACKED}" for sha256 in missing)]


def foreign_keys_broken(database: Path) -> list[str]:
    """Rows of a copied database that belong to a row that is not there, as "table, row"."""
    with closing(sqlite3.connect(database)) as connection:
        return [f"{row[0]}, row {row[1]}" for row in connection.execute("PRAGMA foreign_key_check")]


def last_token(database: Path) -> int:
    """The last fencing token that was given out; 0: none."""
    with closing(sqlite3.connect(database)) as connection:
        row = connection.execute("SELECT value FROM tokens WHERE name = 'lease'").fetchone()
    return int(row[0]) if row else 0
