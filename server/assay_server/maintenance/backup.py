"""A backup of a server's state, also while it serves: one moment of the database, and the files it names.

First the database is copied, then the files that the copy names: published files are never written to again,
so they are still as the database says. A file that is gone by then, or not as published, is a fault that the
backup names; everything else is in it. A backup is a new folder or one tar file: complete and durable, or
absent.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sqlite3
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from assay_core.files.durable import (
    make_folder,
    replacing,
    storage_errors,
    sync_directory,
    sync_file,
    write_pieces,
)
from assay_core.files.private_folders import FILE_MODE, private_opener
from assay_core.program import distribution_version
from assay_core.records.attempt import AttemptKey
from assay_sampling.errors import ParameterError, StorageError
from assay_server.clock import wall_ms
from assay_server.database.opening import AskedDatabase
from assay_server.identity.authority import read_authority
from assay_server.maintenance.authority_key import CERTIFICATE, ENCRYPTED_KEY, encrypted_key
from assay_server.maintenance.database_copy import METADATA, copy_database
from assay_server.maintenance.manifest import (
    MANIFEST,
    BackupFault,
    BackupManifest,
    HashedReader,
    KeptFile,
    kept_file_of,
)
from assay_server.records.opening import folder_of_records, look_at_records
from assay_server.store.record_store import BUNDLES, PACKED, REPORT_FORMS, RecordStore
from assay_server.store.sqlite import SqliteStore

# Their segments are acknowledged, so the agents have deleted them.
_LIVE = ("leased", "publishing", "expired")
_STAGED = """
SELECT a.run_id, a.slice, a.attempt, SUM(s.names_bytes + s.launches_bytes)
FROM attempts a JOIN segments s ON (s.run_id, s.slice, s.attempt) = (a.run_id, a.slice, a.attempt)
WHERE a.state IN (?, ?, ?) GROUP BY a.run_id, a.slice, a.attempt
"""


@dataclass(frozen=True)
class MadeBackup:
    """A backup that was made; ``linked``: how many of its files are hard links to those of the server."""

    manifest: BackupManifest
    linked: int


def make_backup(
    state: Path,
    place: Path,
    *,
    passphrase: bytes | None = None,
    without_authority: bool = False,
    link: bool = True,
    asked: AskedDatabase | None = None,
) -> MadeBackup:
    """Back up the state folder to ``place``, a new folder or a new ``.tar`` file.

    ``passphrase`` encrypts the certificate authority's key. ``asked``: where the database is, if the folder
    does not say it; a backup always holds a SQLite file. Raises ParameterError if it is needed and not
    given or if ``place`` exists, StorageError if the database is damaged or a disk refuses.
    """
    authority = None if without_authority else read_authority(state)
    if authority is not None and passphrase is None:
        raise ParameterError(
            "--passphrase-file",
            "this server has a certificate authority, whose key is never backed up unencrypted",
            "give a file with a passphrase, and keep it elsewhere; or give --without-authority",
        )
    with _new_target(place, link=link) as target, storage_errors(place):
        with tempfile.TemporaryDirectory(prefix=".assay-backup-", dir=place.parent) as folder:
            database = Path(folder) / METADATA
            copy_database(state, database, asked)
            revision, campaigns, files = _contents(state, database)
            target.add(METADATA, database)
            faults = [fault for file in files if (fault := _keep(file, target)) is not None]
        if authority is not None and passphrase is not None:
            target.add_bytes(CERTIFICATE, authority.pem)
            target.add_bytes(ENCRYPTED_KEY, encrypted_key(authority, passphrase))
        manifest = BackupManifest(
            made_at_ms=wall_ms(),
            release=distribution_version(),
            schema_revision=revision,
            campaigns=campaigns,
            authority=authority is not None,
            files=tuple(target.kept_files),
            faults=tuple(faults),
        )
        target.add_bytes(MANIFEST, manifest.model_dump_json(indent=1).encode())
    return MadeBackup(manifest, target.linked)


@dataclass(frozen=True)
class _StoredFile:
    """A file of the state folder; ``content_hash`` "": the database has none of it.

    ``reading``: where it is on this machine until a block ends, also if it is an object of a bucket.
    ``fixed``: it is never written to in place. ``most_bytes``: how much of it the database knows; None: all.
    """

    name: str
    reading: Callable[[], contextlib.AbstractContextManager[Path]]
    content_hash: str = ""
    fixed: bool = True
    most_bytes: int | None = None


def _contents(state: Path, database: Path) -> tuple[str, int, list[_StoredFile]]:
    """The revision of a copied database's schema, how many campaigns it has, and the files that it names.

    Raises StorageError if it is not one of ours.
    """
    try:
        with contextlib.closing(sqlite3.connect(database)) as connection:
            [revision] = connection.execute("SELECT version_num FROM alembic_version").fetchone()
            [campaigns] = connection.execute("SELECT COUNT(*) FROM campaigns").fetchone()
            return str(revision), int(campaigns), list(_named(state, database, connection))
    except (sqlite3.Error, TypeError) as error:
        raise StorageError(
            str(database), f"it is not the database of an assay-server ({error})", "name another state folder"
        ) from error


def _named(state: Path, database: Path, connection: sqlite3.Connection) -> Iterator[_StoredFile]:
    records, folder = look_at_records(state), folder_of_records(state)
    for file, content_hash in connection.execute("SELECT file, content_hash FROM slices WHERE file != ''"):
        yield _StoredFile(f"records/{file}", partial(records.reading, file), content_hash)
    for run_id, piece, attempt, size in connection.execute(_STAGED, _LIVE):
        name = f"staging/{run_id}/slice-{piece:05d}-attempt-{attempt:04d}"
        key = AttemptKey(run_id, piece, attempt, 0)
        reading = partial(_staged, records, database, key, folder / name)
        yield _StoredFile(name, reading, fixed=False, most_bytes=size)
    for file in _bundles(connection):
        yield _StoredFile(f"{BUNDLES}/{file}", partial(records.reading_bundle, file))
    for (campaign_id,) in connection.execute("SELECT campaign_id FROM campaigns WHERE has_report"):
        for form in sorted(REPORT_FORMS):
            path = records.report_path(campaign_id, form)
            if path.exists():
                # A copy of a bucket's report may have made way for others by then.
                name = f"reports/{campaign_id}/{path.name}"
                yield _StoredFile(name, partial(_report, records, campaign_id, form))


def _report(records: RecordStore, campaign_id: str, form: str) -> contextlib.AbstractContextManager[Path]:
    return contextlib.nullcontext(records.report_path(campaign_id, form))


@contextlib.contextmanager
def _staged(records: RecordStore, database: Path, key: AttemptKey, path: Path) -> Iterator[Path]:
    """The staged segments of an attempt in one file, which a folder has at ``path``; without any: none."""
    if records.place is None:
        yield path
        return
    with contextlib.closing(SqliteStore(database)) as store, store.snapshot() as read:
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


def _keep(file: _StoredFile, target: _Target) -> BackupFault | None:
    try:
        with file.reading() as path:
            kept_file = target.add(file.name, path, most_bytes=file.most_bytes, fixed=file.fixed)
    except FileNotFoundError:
        # Staged segments go when their attempt is published.
        return BackupFault(name=file.name, cause="it is missing") if file.fixed else None
    if file.content_hash and kept_file.hash != file.content_hash:
        return BackupFault(name=file.name, cause="it has changed since it was published")
    return None


@contextlib.contextmanager
def _new_target(place: Path, *, link: bool) -> Iterator[_Target]:
    """The target at ``place``: a file if its name ends in ``.tar``, else a folder.

    ``link``: hard links are taken where a file is fixed and on the same disk. Raises ParameterError if there
    is something already, StorageError if the disk refuses.
    """
    if os.path.lexists(place):
        raise ParameterError(str(place), "it exists already", "name a new folder or file: none is replaced")
    with storage_errors(place):
        make_folder(place.parent)
        if place.suffix == ".tar":
            with replacing(place) as file, tarfile.open(fileobj=file, mode="w|") as tar:
                yield _Target(tar)
            return
        partial = place.with_name(f"{place.name}.partial-{os.getpid()}")
        make_folder(partial)
        try:
            yield _Target(partial, link=link)
            for folder in {path.parent for path in partial.rglob("*")} | {partial}:
                sync_directory(folder)
            partial.rename(place)
            sync_directory(place.parent)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


class _Target:
    """Where a backup goes: a folder, or a tar file (not compressed: what it holds is compressed already).

    ``link``: a folder takes hard links. ``kept_files``: what it has; ``linked``: how many of them are links.
    """

    def __init__(self, place: Path | tarfile.TarFile, *, link: bool = False) -> None:
        self._place, self._link = place, link
        self.kept_files: list[KeptFile] = []
        self.linked = 0

    def add(self, name: str, source: Path, *, most_bytes: int | None = None, fixed: bool = False) -> KeptFile:
        """Keep a file, or its first bytes. ``fixed``: nobody writes to it in place, so a hard link does."""
        if fixed and self._link and isinstance(self._place, Path) and _linked(source, self._place / name):
            self.linked += 1
            kept_file = kept_file_of(name, self._place / name)
            self.kept_files.append(kept_file)
            return kept_file
        with source.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            return self._add(name, file, size if most_bytes is None else min(size, most_bytes))

    def add_bytes(self, name: str, data: bytes) -> KeptFile:
        """Keep a file with this content."""
        return self._add(name, io.BytesIO(data), len(data))

    def _add(self, name: str, file: IO[bytes], size: int) -> KeptFile:
        reader = HashedReader(file, size)
        if isinstance(self._place, Path):
            path = self._place / name
            make_folder(path.parent)
            with open(path, "xb", opener=private_opener) as written:
                shutil.copyfileobj(reader, written)
            sync_file(path)
        else:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = size, FILE_MODE
            self._place.addfile(entry, reader)
        self.kept_files.append(reader.kept_file(name))
        return self.kept_files[-1]


def _linked(source: Path, path: Path) -> bool:
    make_folder(path.parent)
    try:
        os.link(source, path, follow_symlinks=False)
    except OSError:
        if not source.exists():
            raise
        return False  # another disk, or one without hard links
    return True
