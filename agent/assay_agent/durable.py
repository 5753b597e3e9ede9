"""Writing files so that a crash leaves the old state or the new one, and telling a full disk apart.

Every change that the spool makes to its disk goes through these functions.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from assay_sampling.errors import StorageError
from assay_sampling.private_folders import private_opener

TEMPORARY_SUFFIX = ".tmp"

_NO_SPACE = {
    errno.ENOSPC: "no space left on the disk",
    errno.EDQUOT: "no space left in the user's disk quota",
    errno.EFBIG: "no space left: a file may not grow past the file size limit",
}


class NoSpaceError(StorageError):
    """A write found no space: disk, quota, file size limit, or the spool's own limit."""


@contextmanager
def storage_errors(subject: str) -> Iterator[None]:
    """Turn operating-system errors of the block into StorageError (NoSpaceError where space ran out)."""
    try:
        yield
    except OSError as error:
        raise storage_error(subject, error) from error


def storage_error(subject: str, error: OSError) -> StorageError:
    """The typed error behind ``error``, naming what failed and the remedy."""
    name = errno.errorcode.get(error.errno or 0, "unknown error")
    if error.errno in _NO_SPACE:
        return NoSpaceError(
            subject,
            f"{_NO_SPACE[error.errno]} ({name})",
            "free disk space, raise the quota or limit, or start the agent with --state on a larger disk; "
            "nothing already stored is lost",
        )
    where = f" on {error.filename}" if error.filename else ""
    return StorageError(
        subject,
        f"the disk refused{where}: {error.strerror or error} ({name})",
        "check the disk, its mount options and the permissions of the state directory",
    )


def write_file(path: Path, parts: list[bytes | memoryview]) -> None:
    """Write a new file of mode 0600; on an error nothing of it is left.

    It is not durable before :func:`sync_file`.
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


def sync_file(path: Path) -> None:
    """Wait until the content of ``path`` is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Wait until the entries of the directory ``path`` are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(source: Path, target: Path) -> None:
    """Give ``source`` the name ``target`` in one step."""
    source.replace(target)


def write_atomically(path: Path, data: bytes) -> None:
    """Make ``path`` hold ``data``, durably: after a crash it holds the old content or all of the new."""
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    write_file(temporary, [data])
    try:
        sync_file(temporary)
        replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def append_line(path: Path, text: str) -> None:
    """Add lines to ``path``, durably; a crash may leave the last line without its end."""
    with open(path, "ab", buffering=0, opener=private_opener) as file:
        _write_all(file.write, memoryview(text.encode()))
        os.fdatasync(file.fileno())
