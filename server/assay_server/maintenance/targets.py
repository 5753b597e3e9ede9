"""Where a backup goes: a new folder, or one tar file. Complete and durable, or absent."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from assay_core.files.durable import make_folder, replacing, storage_errors, sync_directory, sync_file
from assay_core.files.private_folders import FILE_MODE, private_opener
from assay_sampling.errors import ParameterError, StorageError
from assay_server.content_hash import fresh_hash_of
from assay_server.maintenance.manifest import KeptFile

_PIECE_BYTES = 1 << 20


@contextlib.contextmanager
def new_target(place: Path, *, link: bool) -> Iterator[Target]:
    """The target at ``place``: a file if its name ends in ``.tar``, else a folder.

    ``link``: hard links are taken where a file is fixed and on the same disk. Raises ParameterError if there
    is something already, StorageError if the disk refuses.
    """
    if os.path.lexists(place):
        raise ParameterError(str(place), "it exists already", "name a new folder or file: none is replaced")
    with storage_errors(place):
        make_folder(place.parent)
    if place.suffix == ".tar":
        with storage_errors(place), replacing(place) as file, tarfile.open(fileobj=file, mode="w|") as tar:
            yield TarTarget(tar)
        return
    partial = place.with_name(f"{place.name}.partial-{os.getpid()}")
    with storage_errors(place):
        make_folder(partial)
        try:
            target = FolderTarget(partial, link=link)
            yield target
            target.sync()
            partial.rename(place)
            sync_directory(place.parent)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


class FolderTarget:
    """A folder with the files under their names."""

    def __init__(self, folder: Path, *, link: bool) -> None:
        self._folder = folder
        self._link = link
        self.linked = 0

    def add(self, name: str, source: Path, *, most_bytes: int | None = None, fixed: bool = False) -> KeptFile:
        """Keep a file, or its first bytes. ``fixed``: nobody writes to it in place, so a hard link does."""
        path = self._folder / name
        if fixed and self._link and self._linked(source, path):
            return KeptFile(name=name, bytes=path.stat().st_size, hash=fresh_hash_of(path))
        with source.open("rb") as read:
            return self._put(name, read, most_bytes)

    def _linked(self, source: Path, path: Path) -> bool:
        make_folder(path.parent)
        try:
            os.link(source, path, follow_symlinks=False)
        except OSError:
            if not source.exists():
                raise
            return False  # another disk, or one without hard links
        self.linked += 1
        return True

    def add_bytes(self, name: str, data: bytes) -> KeptFile:
        """Keep a file with this content."""
        return self._put(name, io.BytesIO(data), None)

    def _put(self, name: str, read: IO[bytes], most_bytes: int | None) -> KeptFile:
        path = self._folder / name
        make_folder(path.parent)
        with open(path, "xb", opener=private_opener) as written:
            kept_file = _copied(name, read, written, most_bytes)
        sync_file(path)
        return kept_file

    def sync(self) -> None:
        """Make the names of all files durable."""
        for folder in {path.parent for path in self._folder.rglob("*")} | {self._folder}:
            sync_directory(folder)


class TarTarget:
    """A tar file (not compressed: what it holds is compressed already)."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar

    def add(self, name: str, source: Path, *, most_bytes: int | None = None, fixed: bool = False) -> KeptFile:
        with source.open("rb") as read:
            size = os.fstat(read.fileno()).st_size
            return self._put(name, read, size if most_bytes is None else min(size, most_bytes))

    def add_bytes(self, name: str, data: bytes) -> KeptFile:
        return self._put(name, io.BytesIO(data), len(data))

    def _put(self, name: str, read: IO[bytes], size: int) -> KeptFile:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = size, FILE_MODE
        hashing = _Hashing(read)
        self._tar.addfile(entry, hashing)
        return KeptFile(name=name, bytes=size, hash=hashing.hash.hexdigest())


Target = FolderTarget | TarTarget


class _Hashing:
    """Reads a file and hashes what was read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.hash = hashlib.blake2b(digest_size=32)

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.hash.update(data)
        return data


def _copied(name: str, read: IO[bytes], written: IO[bytes], most_bytes: int | None) -> KeptFile:
    hashing, rest, size = _Hashing(read), most_bytes, 0
    while data := hashing.read(_PIECE_BYTES if rest is None else min(rest, _PIECE_BYTES)):
        written.write(data)
        size += len(data)
        rest = None if rest is None else rest - len(data)
    return KeptFile(name=name, bytes=size, hash=hashing.hash.hexdigest())


def copy_checked(kept_file: KeptFile, source: Path, target: Path) -> None:
    """Copy a file of a backup; raises StorageError if it is not as it was kept."""
    make_folder(target.parent)
    try:
        with source.open("rb") as read, open(target, "xb", opener=private_opener) as written:
            copy = _copied(kept_file.name, read, written, None)
    except FileNotFoundError as error:
        raise StorageError(str(source), "it is missing from the backup", "use another backup") from error
    sync_file(target)
    if copy != kept_file:
        raise StorageError(str(source), "it has changed since the backup was made", "use another backup")
