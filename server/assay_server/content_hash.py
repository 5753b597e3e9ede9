"""The content hash of published files: BLAKE2b-256, in hexadecimal.

Each process reads a file once, and again only after its size, times, inode or device changed. If the disk
flips bits after that, without a write to the file, only another process that hashes it finds out.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path


class _ChangedError(Exception):
    """A file was written to while it was read, so this hash must not be cached."""


def hash_of_file(path: Path) -> str:
    """The hash of a file's current bytes. Raises OSError."""
    try:
        return _hash_of_state(path, _state(path))
    except _ChangedError:
        return fresh_hash_of(path)


@functools.lru_cache(maxsize=65_536)
def _hash_of_state(path: Path, state: tuple[int, ...]) -> str:
    content_hash = fresh_hash_of(path)
    if _state(path) != state:
        raise _ChangedError
    return content_hash


def _state(path: Path) -> tuple[int, ...]:
    state = path.stat()
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


def fresh_hash_of(path: Path) -> str:
    """The hash, read from the file and not cached. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32)).hexdigest()
