"""What the policy judged, so that the same thing runs: resolved paths, compared again before and after a run.

A link that another user flips between the judgement and the start has no say: what is started is the path
that the link led to. That path is opened when it is judged; device, inode, size and time tell its file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

Identity = tuple[int, int, int, int]


@dataclass(frozen=True)
class Pinned:
    """A path that was judged.

    Args:
        path: what is started, read or entered.
        resolved: where it led when it was judged, all links followed.
        identity: device, inode, size in bytes and time of the last change (ns) of the program that was there;
            None for what is no program: a working directory, or an argument, which a run may write.
    """

    path: str
    resolved: str
    identity: Identity | None = None

    def fault(self) -> str:
        """Why it is not what was judged any more; "" where it is."""
        now = os.path.realpath(self.path)
        if now != self.resolved:
            return f"{self.path!r} leads to {now!r} now"
        if self.identity is not None and identity_at(self.path) != self.identity:
            return f"the file {self.path!r} is another one now, or was written to"
        return ""


def identity_at(path: str) -> Identity | None:
    """What tells the file there from others; None where there is none."""
    try:
        state = os.stat(path)  # noqa: PTH116 - a text as it was judged
    except OSError:
        return None
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns


def pin_program(path: str, resolved: str) -> Pinned | None:
    """The program that is started by ``path``, opened once; None where it is not what was judged any more.

    Raises OSError where it cannot be opened: it is not there, or out of this user's reach.
    """
    descriptor = os.open(resolved, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        state = os.fstat(descriptor)
        if stat.S_ISLNK(state.st_mode) or os.readlink(f"/proc/self/fd/{descriptor}") != resolved:  # noqa: PTH115
            return None
    finally:
        os.close(descriptor)
    identity = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns)
    return Pinned(path, resolved, identity)


@contextlib.contextmanager
def entered_folder(folder: Path) -> Iterator[Path]:
    """A folder, opened, by a path that leads to this very folder while the block runs, also in children.

    Raises OSError where it cannot be opened, or its name leads elsewhere by now.
    """
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        opened = Path(f"/proc/self/fd/{descriptor}")
        if opened.readlink() != folder:
            raise OSError(errno.ELOOP, "its name leads elsewhere now", str(folder))
        yield opened
    finally:
        os.close(descriptor)


def first_fault(pins: Iterable[Pinned]) -> str:
    """Why what was judged cannot be run any more; "" where all is as it was."""
    return next((fault for pin in pins if (fault := pin.fault())), "")
