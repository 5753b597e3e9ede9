"""One run at a time for a file that a workload writes under a fixed name.

The lock is in the folder where the workload runs, so that boxes that share it exclude each other too; if
nothing can be written or locked there, this user has one on this box. The system releases it when the agent
dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from assay_agent.execution.errors import ProfilerError
from assay_sampling.running.failures import FailureClass

_LOOK_SECONDS = 0.1


@contextlib.contextmanager
def exclusive_file(
    path: Path, folders: Sequence[Path], cancelled: threading.Event, seconds: float
) -> Iterator[bool]:
    """Hold the lock of ``path``; yields whether it is held: not if ``cancelled`` came first.

    Args:
        path: the file; it need not exist.
        folders: candidates for the lock; the first in which it can be made is taken.
        cancelled: ends the waiting.
        seconds: how long to wait for another run.

    Raises ProfilerError (``lock_file``) if another run holds it all that time.
    """
    until = time.monotonic() + seconds
    while True:
        lock, handle, is_ours = _opened(path, folders)
        try:
            if is_ours and _is_named(lock, handle):
                try:
                    yield True
                finally:
                    # Whoever waits for it sees that it is gone, and makes another.
                    lock.unlink(missing_ok=True)
                return
        finally:
            os.close(handle)
        if cancelled.wait(_LOOK_SECONDS):
            yield False
            return
        if time.monotonic() >= until:
            raise ProfilerError(
                FailureClass.LOCK_FILE,
                str(path),
                f"another run has been writing it for {seconds:g} s (it holds {lock})",
                "give each workload that runs at the same time its own file",
            )


def _opened(path: Path, folders: Sequence[Path]) -> tuple[Path, int, bool]:
    """The lock, its descriptor, and whether it is ours now; ProfilerError if no folder can have one."""
    digest = hashlib.blake2b(str(path).encode(), digest_size=12).hexdigest()
    why = ""
    for folder in folders:
        lock = folder / f".{digest}.assay-lock"
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            why = f"no lock can be made in {folder} ({error.strerror})"
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return lock, handle, False
        except OSError as error:  # some network disks have no locks: waiting would never end
            os.close(handle)
            lock.unlink(missing_ok=True)
            why = f"the disk of {folder} has no locks ({error.strerror})"
            continue
        return lock, handle, True
    raise ProfilerError(FailureClass.DISK_FULL, str(path), why)


def _is_named(lock: Path, handle: int) -> bool:
    """Whether the locked file is still the one of that name."""
    try:
        return os.path.samestat(lock.stat(), os.fstat(handle))
    except OSError:
        return False
