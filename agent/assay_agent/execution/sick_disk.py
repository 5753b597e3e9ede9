"""Tells a disk of the box that failed under a tool or a workload from a fault of their own."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable
from pathlib import Path

from assay_agent.execution.errors import ProfilerError
from assay_core.files.private_folders import private_opener
from assay_sampling.running.failures import FailureClass

# "Read-only file system" is not among them: a workload meets it also where nobody meant it to write. Whether
# the disk has fallen to it, the agent's own folders tell.
_ERROR = re.compile(r"No space left on device|Input/output error|Disk quota exceeded", re.IGNORECASE)
_LAST_LINES = 50  # a workload that went on after such a line did not end for it
_REFUSED = (errno.EIO, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ESTALE)
_PROBE = "disk-probe"


def said_of_disk(output: str) -> str | None:
    """The last line at the end of a workload's output that says that a disk failed or is full."""
    return next((line for line in reversed(output.splitlines()[-_LAST_LINES:]) if _ERROR.search(line)), None)


def require_disk(subject: str, folders: Iterable[Path], ending: str) -> None:
    """Raise ProfilerError if a folder of the agent takes no file any more, after a tool ended so."""
    for folder in folders:
        try:
            _probe(folder / _PROBE)
        except OSError as error:
            if error.errno in _REFUSED:
                raise ProfilerError(
                    FailureClass.DISK_FULL,
                    subject,
                    f"it ended ({ending}), and now {folder} takes no file: {error.strerror}",
                ) from error


def _probe(path: Path) -> None:
    """A page that reaches the disk: without that, a disk that failed may still take it."""
    path.unlink(missing_ok=True)
    with open(path, "xb", buffering=0, opener=private_opener) as file:
        file.write(b"\0" * 4096)
        os.fsync(file.fileno())
    path.unlink()
