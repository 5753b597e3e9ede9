"""Scratch folders: private, bounded in size, removed at the end; those of killed processes are swept later.

A folder belongs to the process that holds the lock on the file ``held`` in it. The kernel gives the lock
back when that process ends, however it ends, so whoever makes the next folder can remove the old one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
import weakref
from pathlib import Path

from assay_sampling.errors import RefusedError, StorageError

_PREFIX, _NEW = "assay-scratch-", "assay-scratch-new-"
_LOCK = "held"
# A folder that never came to its lock was made by a process that was killed in that moment.
_UNFINISHED_AFTER_S = 86_400
_SHARE_OF_FREE_SPACE = 0.8


class Scratch:
    """A private folder under ``parent`` (by default the folder for temporary files, TMPDIR).

    ``most_bytes`` bounds what is kept in it at one time; None takes four fifths of the free space.
    ``used_bytes`` is what is kept now, ``peak_bytes`` the most so far. The folder is removed by
    :meth:`close`, when nothing refers to it any more, or when the program ends. Raises StorageError if the
    folder cannot be made.
    """

    def __init__(self, parent: Path | None = None, most_bytes: int | None = None) -> None:
        parent = Path(tempfile.gettempdir()) if parent is None else parent
        try:
            sweep(parent)
            made = Path(tempfile.mkdtemp(prefix=_NEW, dir=parent))
            lock = os.open(made / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.folder = made.rename(made.with_name(_PREFIX + made.name.removeprefix(_NEW)))
            free = shutil.disk_usage(self.folder).free
        except OSError as error:
            raise _refused(parent, error) from error
        self.most_bytes = int(free * _SHARE_OF_FREE_SPACE) if most_bytes is None else most_bytes
        self.used_bytes = self.peak_bytes = 0
        self._end = weakref.finalize(self, _remove, self.folder, lock)

    def close(self) -> None:
        """Remove the folder and what is in it."""
        self._end()

    @property
    def free_bytes(self) -> int:
        """What may still be put here."""
        return max(0, self.most_bytes - self.used_bytes)

    def take(self, count: int) -> None:
        """Count bytes that are about to be written; raises RefusedError beyond the bound."""
        if count > self.free_bytes:
            raise RefusedError(
                "launches",
                f"their columns take more than the {self.most_bytes:,} bytes of scratch space in "
                f"{self.folder.parent}",
                "free space there, or name a larger disk with TMPDIR",
            )
        self.used_bytes += count
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)

    def give_back(self, count: int) -> None:
        """Uncount bytes that were freed."""
        self.used_bytes -= count


def sweep(parent: Path) -> None:
    """Remove this user's scratch folders under ``parent`` whose processes have ended."""
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            owner = folder.lstat()
            if owner.st_uid != os.getuid() or folder.is_symlink():
                continue
            if folder.name.startswith(_NEW):
                if time.time() - owner.st_mtime > _UNFINISHED_AFTER_S:
                    shutil.rmtree(folder, ignore_errors=True)
                continue
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:  # another process removes it at this moment
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
        else:
            _remove(folder, lock)


def _remove(folder: Path, lock: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)


def _refused(parent: Path, error: OSError) -> StorageError:
    return StorageError(f"scratch folder in {parent}", str(error), "make it writable, or set TMPDIR")
