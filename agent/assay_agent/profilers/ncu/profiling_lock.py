"""One profiled GPU of a box at a time, for releases of Nsight Compute that cannot do two.

Releases before 2025 take turns by their own lock file in the folder for temporary files. Our runs have
private temporary folders, because another user's lock file in a shared one cannot be opened, so that lock
excludes nobody. Instead the runs of all agents of this user take turns by this lock. Later releases lock one
GPU each, which the lock of the GPU already does; no architecture is known to need more.

The lock is always below /tmp, because two agents of the box may have different TMPDIRs.
Source: docs/nvidia-tools.md, "Lock file".
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from assay_agent.execution.environment import require_private
from assay_agent.execution.errors import ProfilerError
from assay_agent.execution.tool_version import ToolVersion
from assay_sampling.running.failures import FailureClass

_log = logging.getLogger(__name__)

BOX_FOLDER = Path("/tmp")
_NAME = "nsight-compute-turn"
_CONCURRENT_SINCE = (2025, 1)
_LOOK_SECONDS = 0.1


def takes_turns(tool: ToolVersion) -> bool:
    """Whether this release of Nsight Compute profiles on one GPU of a box at a time."""
    return not tool.at_least(*_CONCURRENT_SINCE)


@contextlib.contextmanager
def profiling_turn(cancelled: threading.Event, note: Callable[[str], None]) -> Iterator[tuple[int, ...]]:
    """Hold the lock: yields its descriptor, for the tool to hold too; None if ``cancelled`` came first.

    Waits as long as it takes, as its holder has a time limit. Raises ProfilerError (``lock_file``) if the
    lock cannot be made.
    """
    handle = _waited(cancelled, note)
    if handle is None:
        yield ()
        return
    try:
        yield (handle,)
    finally:
        os.close(handle)


def _waited(cancelled: threading.Event, note: Callable[[str], None]) -> int | None:
    """The descriptor of the lock; None if ``cancelled`` came first."""
    began = time.monotonic()
    waited = False
    while (handle := _try_lock()) is None:
        if not waited:
            _log.info("waits for a profile of another GPU of the box to end")
        waited = True
        if cancelled.wait(_LOOK_SECONDS):
            return None
    if waited:
        note(f"waited {time.monotonic() - began:.1f} s for a profile of another GPU of the box to end")
    return handle


def _try_lock() -> int | None:
    """The descriptor of the lock; None if somebody has it, or it was removed: programs tidy /tmp."""
    path = _folder() / _NAME
    with contextlib.ExitStack() as stack:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            stack.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(handle), path.stat()):
                return None
        except (BlockingIOError, FileNotFoundError):
            return None
        except OSError as error:
            raise _failed(path, error.strerror) from error
        stack.pop_all()
    return handle


def _folder() -> Path:
    folder = BOX_FOLDER / f"assay-{os.getuid()}"
    try:
        require_private(folder)
    except OSError as error:
        raise _failed(folder, error.strerror) from error
    except ProfilerError as error:  # its remedy, another TMPDIR, does not help here
        raise _failed(folder, error.cause, f"have root remove {folder}, whoever made it") from error
    return folder


def _failed(path: Path, why: str | None, remedy: str = "") -> ProfilerError:
    return ProfilerError(
        FailureClass.LOCK_FILE,
        str(path),
        f"the lock by which profiles of this box take turns cannot be made ({why})",
        remedy or f"let the agent's user write to {BOX_FOLDER}, on a disk that supports locks",
    )
