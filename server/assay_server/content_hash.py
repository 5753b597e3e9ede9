"""The content hash of published files: BLAKE2b-256, in hexadecimal.

Each process reads a file once, and again only after its size, times, inode or device changed. If the disk
flips bits after that, without a write to the file, only another process that hashes it finds out.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from pathlib import Path

_MOST_REMEMBERED = 65_536
_lock = threading.Lock()
_hashes: OrderedDict[tuple[str, tuple[int, ...]], str] = OrderedDict()


def hash_of_file(path: Path) -> str:
    """The hash of a file's current bytes. Raises OSError."""
    key = (str(path), _state(path))
    with _lock:
        known = _hashes.get(key)
    if known is not None:
        return known
    content_hash = fresh_hash_of(path)
    if _state(path) == key[1]:  # no write while it was read
        with _lock:
            _hashes[key] = content_hash
            while len(_hashes) > _MOST_REMEMBERED:
                _hashes.popitem(last=False)
    return content_hash


def _state(path: Path) -> tuple[int, ...]:
    state = path.stat()
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


def fresh_hash_of(path: Path) -> str:
    """The hash, read from the file and not cached. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32)).hexdigest()
