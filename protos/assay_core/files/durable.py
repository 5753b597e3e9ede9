"""Durable file writes: after a crash either the old file or the new one is on the disk, complete.

Agent, server and client change their own files only through these functions. They raise OSError;
:func:`storage_errors` turns that into the typed error for people.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from assay_core.files.private_folders import make_private_folder, private_opener
from assay_sampling.errors import StorageError

# The suffix of a file while it is written; what follows is this process's own. Two containers may have equal
# process numbers and write into one folder, so there is a part by chance, too.
TEMPORARY = ".tmp-"
_BY_CHANCE = secrets.token_hex(6)

_NO_SPACE = {
    errno.ENOSPC: "no space left on the disk",
    errno.EDQUOT: "no space left in the user's disk quota",
    errno.EFBIG: "no space left: a file may not grow past the file size limit",
}
_STORAGE_FAILS = frozenset(
    {errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ESTALE, errno.ETIMEDOUT}
)
_FREE_SPACE = (
    "free disk space, raise the quota or limit, or name a folder on a larger disk with --state; nothing "
    "already stored is lost"
)
_CHECK_DISK = "check the disk, its mount options and the permissions of the folder"


@contextlib.contextmanager
def storage_errors(subject: str | Path, remedy: str = "") -> Iterator[None]:
    """Turn operating-system errors in the block into StorageError; ``remedy`` replaces the usual one."""
    try:
        yield
    except OSError as error:
        raise storage_error(subject, error, remedy) from error


def storage_fails(error: OSError) -> bool:
    """Whether an error says that storage fails, and not that a file is missing or not allowed."""
    return error.errno in _STORAGE_FAILS


def storage_error(subject: str | Path, error: OSError, remedy: str = "") -> StorageError:
    """The typed error behind ``error``, naming what failed and the remedy."""
    name = errno.errorcode.get(error.errno or 0, "unknown error")
    description = f"{error.strerror or error} ({name})"
    if error.errno in _NO_SPACE:
        return StorageError(str(subject), f"{_NO_SPACE[error.errno]}: {description}", remedy or _FREE_SPACE)
    elsewhere = error.filename and str(error.filename) != str(subject)
    where = f" on {error.filename}" if elsewhere else ""
    return StorageError(str(subject), f"the disk refused{where}: {description}", remedy or _CHECK_DISK)


def temporary_of(path: Path) -> Path:
    """The temporary file that this process writes before it replaces ``path``."""
    return path.with_name(f"{path.name}{TEMPORARY}{os.getpid()}-{_BY_CHANCE}")


@contextlib.contextmanager
def replacing(
    path: Path,
    *,
    private: bool = True,
    temporary: Path | None = None,
    named: Callable[[], Path] | None = None,
) -> Iterator[IO[bytes]]:
    """Write a new file for ``path``: readers and crashes see the old file or all of the new one.

    The file is renamed to ``path``, durably, when the block ends; on any error it is removed. ``private``:
    its mode is 0600, regardless of the umask. ``temporary``: where it is until then, if two such files for
    one path may be under way; None: :func:`temporary_of` the path. ``named``: asked at the end for another
    path in the same folder, for names that depend on the content.
    """
    temporary = temporary or temporary_of(path)
    try:
        with open(temporary, "wb", opener=private_opener if private else None) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        replace(temporary, path if named is None else named())
        sync_directory(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def write_atomically(
    path: Path, data: bytes | str | Iterable[str] | Iterable[bytes], *, private: bool = True
) -> None:
    """Make ``path`` hold ``data`` (text as UTF-8, whole or in pieces), as :func:`replacing` does."""
    with replacing(path, private=private) as file:
        for piece in [data] if isinstance(data, bytes | str) else data:
            file.write(piece if isinstance(piece, bytes) else piece.encode("utf-8", "surrogateescape"))


def write_file(path: Path, parts: list[bytes | memoryview]) -> None:
    """Write a new file of mode 0600, and remove it on an error.

    It is durable only after :func:`sync_file`.
    """
    try:
        with open(path, "wb", buffering=0, opener=private_opener) as file:
            for part in parts:
                _write_all(file.write, memoryview(part).cast("B"))
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _write_all(write: Callable[[memoryview], int | None], data: memoryview) -> None:
    # A raw write may be short just before a disk is full: the rest then raises the error.
    while data:
        data = data[write(data) or 0 :]


def write_pieces(path: Path, pieces: Iterable[tuple[int, bytes]]) -> None:
    """Write each piece at its offset in a file, then sync once; a missing file is created with mode 0600."""
    is_new = not path.exists()
    # Never truncated: an earlier server may have filled it after this one looked.
    descriptor = private_opener(str(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    with os.fdopen(descriptor, "r+b") as file:
        for offset, data in pieces:
            file.seek(offset)
            file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        sync_directory(path.parent)


def sync_file(path: Path) -> None:
    """Wait until the content of ``path`` is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Wait until the entries of the directory ``path`` are on the disk.

    Threads that wait for one directory share a sync that began after the last of them asked.
    """
    with _counting:
        shared = _syncs.setdefault(str(path), _SharedSync())
        shared.users += 1
        sync_number = shared.begun + 1
    try:
        with shared.running:
            if shared.done < sync_number:
                with _counting:
                    shared.begun = mine = shared.begun + 1
                _sync_directory(path)
                shared.done = mine
    finally:
        with _counting:
            shared.users -= 1
            if not shared.users:
                del _syncs[str(path)]


@dataclass(eq=False)
class _SharedSync:
    """Syncs of one directory that threads wait for now; they are numbered from 1."""

    running: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0
    begun: int = 0
    done: int = 0


_counting = threading.Lock()
_syncs: dict[str, _SharedSync] = {}


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(source: Path, target: Path) -> None:
    """Give ``source`` the name ``target`` in one step."""
    source.replace(target)


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, durably, closed to other users."""
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    make_private_folder(folder)
    for made in reversed(missing):
        sync_directory(made.parent)


def remove_empty_parents(folder: Path, top: Path) -> None:
    """Remove ``folder`` and its parents below ``top``, stopping at the first that is not empty."""
    while folder != top and folder.is_relative_to(top):
        try:
            folder.rmdir()
        except FileNotFoundError:
            pass
        except OSError:
            return
        folder = folder.parent
