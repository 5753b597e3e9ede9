"""Locks of files, which end with the last process that holds them, on whichever machine it runs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from assay_core.files.durable import storage_errors
from assay_core.processes.tool_run import Cancellation

_LOOK_SECONDS = 0.1
_REMEDY = (
    "name a folder that you may write to, on storage that locks files (NFS 4 does, Lustre with -o flock)"
)


@contextlib.contextmanager
def file_locked(
    path: Path, patience_seconds: float, cancelled: Cancellation | None = None
) -> Iterator[int | None]:
    """Lock a file, which is made with its folder, and give its descriptor: a process that inherits it holds
    the lock, too. None if others hold it for so long, or if ``cancelled`` while waiting.

    Raises StorageError if it cannot be made or locked.
    """
    with storage_errors(path, _REMEDY):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        until = time.monotonic() + patience_seconds
        while not (locked := _locked(path, handle)):
            if time.monotonic() > until or (cancelled is not None and cancelled.is_set()):
                break
            time.sleep(_LOOK_SECONDS)
        yield handle if locked else None
    finally:
        os.close(handle)


def _locked(path: Path, handle: int) -> bool:
    with storage_errors(path, _REMEDY):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
