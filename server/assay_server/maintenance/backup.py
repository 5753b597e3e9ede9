"""A backup of a server's state, also while it serves: one moment of the database, and the files it names.

First the database is copied, then the files that the copy names: published files are never written to again,
so they are still as the database says. A file that is gone by then, or not as published, is a fault that the
backup names; everything else is in it. A backup is a new folder or one tar file: complete and durable, or
absent.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tarfile
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from assay_core.files.durable import make_folder, replacing, storage_errors, sync_directory, sync_file
from assay_core.files.private_folders import FILE_MODE, private_opener
from assay_core.program import distribution_version
from assay_sampling.errors import ParameterError
from assay_server.clock import wall_ms
from assay_server.content_hash import fresh_hash_of
from assay_server.database.opening import AskedDatabase
from assay_server.identity.authority import read_authority
from assay_server.maintenance.authority_key import CERTIFICATE, ENCRYPTED_KEY, encrypted_key
from assay_server.maintenance.manifest import MANIFEST, BackupFault, BackupManifest, HashedReader, KeptFile
from assay_server.maintenance.stored_files import METADATA, StoredFile, copy_database, files_named


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
            named = files_named(state, database)
            target.add(METADATA, database)
            faults = [fault for file in named.files if (fault := _keep(file, target)) is not None]
        if authority is not None and passphrase is not None:
            target.add_bytes(CERTIFICATE, authority.pem)
            target.add_bytes(ENCRYPTED_KEY, encrypted_key(authority, passphrase))
        manifest = BackupManifest(
            made_at_ms=wall_ms(),
            release=distribution_version(),
            schema_revision=named.revision,
            campaigns=named.campaigns,
            authority=authority is not None,
            files=tuple(target.kept_files),
            faults=tuple(faults),
        )
        target.add_bytes(MANIFEST, manifest.model_dump_json(indent=1).encode())
    return MadeBackup(manifest, target.linked)


def _keep(file: StoredFile, target: _Target) -> BackupFault | None:
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
                yield _TarTarget(tar)
            return
        partial = place.with_name(f"{place.name}.partial-{os.getpid()}")
        make_folder(partial)
        try:
            yield _FolderTarget(partial, link=link)
            for folder in {path.parent for path in partial.rglob("*")} | {partial}:
                sync_directory(folder)
            partial.rename(place)
            sync_directory(place.parent)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


class _Target(ABC):
    """Where a backup goes. ``kept_files``: what it has; ``linked``: how many of them are hard links."""

    def __init__(self) -> None:
        self.kept_files: list[KeptFile] = []
        self.linked = 0

    def add(self, name: str, source: Path, *, most_bytes: int | None = None, fixed: bool = False) -> KeptFile:
        """Keep a file, or its first bytes. ``fixed``: nobody writes to it in place, so a hard link does."""
        with source.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            return self._add(name, file, size if most_bytes is None else min(size, most_bytes))

    def add_bytes(self, name: str, data: bytes) -> KeptFile:
        """Keep a file with this content."""
        return self._add(name, io.BytesIO(data), len(data))

    def _add(self, name: str, file: IO[bytes], size: int) -> KeptFile:
        reader = HashedReader(file, size)
        self._store(name, reader, size)
        return self._kept(reader.kept_file(name))

    def _kept(self, kept_file: KeptFile) -> KeptFile:
        self.kept_files.append(kept_file)
        return kept_file

    @abstractmethod
    def _store(self, name: str, reader: HashedReader, size: int) -> None:
        """Store what the reader gives."""


class _FolderTarget(_Target):
    """A folder with the files under their names."""

    def __init__(self, folder: Path, *, link: bool) -> None:
        super().__init__()
        self._folder, self._link = folder, link

    def add(self, name: str, source: Path, *, most_bytes: int | None = None, fixed: bool = False) -> KeptFile:
        path = self._folder / name
        if fixed and self._link and _linked(source, path):
            self.linked += 1
            return self._kept(KeptFile(name=name, bytes=path.stat().st_size, hash=fresh_hash_of(path)))
        return super().add(name, source, most_bytes=most_bytes, fixed=fixed)

    def _store(self, name: str, reader: HashedReader, size: int) -> None:
        path = self._folder / name
        make_folder(path.parent)
        with open(path, "xb", opener=private_opener) as written:
            shutil.copyfileobj(reader, written)
        sync_file(path)


class _TarTarget(_Target):
    """A tar file (not compressed: what it holds is compressed already)."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        super().__init__()
        self._tar = tar

    def _store(self, name: str, reader: HashedReader, size: int) -> None:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = size, FILE_MODE
        self._tar.addfile(entry, reader)


def _linked(source: Path, path: Path) -> bool:
    make_folder(path.parent)
    try:
        os.link(source, path, follow_symlinks=False)
    except OSError:
        if not source.exists():
            raise
        return False  # another disk, or one without hard links
    return True
