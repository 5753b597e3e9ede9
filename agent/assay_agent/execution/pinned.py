"""Pins what the policy judged, so that exactly that runs: resolved paths, checked before and after a run.

If another user flips a link between the judgement and the start, it has no effect: what is started is the
path that the link led to. It is opened when it is judged; device, inode, size and time identify the file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from assay_core.records.work import CommandSource

Identity = tuple[int, int, int, int]


@dataclass(frozen=True)
class Pinned:
    """A path that was judged.

    Args:
        path: what is started, read or entered.
        resolved: where it led when it was judged, all links followed.
        identity: device, inode, size in bytes and time of the last change (ns) of the program that was there;
            None for a working directory, or an argument, which a run may write.
    """

    path: str
    resolved: str
    identity: Identity | None = None

    def fault(self) -> str:
        """Why it is no longer what was judged; "" if it still is."""
        now = os.path.realpath(self.path)
        if now != self.resolved:
            return f"{self.path!r} leads to {now!r} now"
        if self.identity is not None and identity_at(self.path) != self.identity:
            return f"the file {self.path!r} was replaced or written to"
        return ""


@dataclass(frozen=True)
class JudgedCommand(CommandSource):
    """A command with the paths that a policy judged; without a policy nothing is pinned."""

    pins: tuple[Pinned, ...] = ()

    @classmethod
    def of(
        cls, command: CommandSource, argv: Iterable[str], directory: str, pins: Iterable[Pinned]
    ) -> JudgedCommand:
        """The command with the arguments and the working directory that were judged."""
        fields = {item.name: getattr(command, item.name) for item in dataclasses.fields(CommandSource)}
        judged = {"argv": tuple(argv), "working_directory": directory, "pins": tuple(pins)}
        return cls(**{**fields, **judged})


def pins_of(command: CommandSource) -> tuple[Pinned, ...]:
    """The paths of a command that a policy judged; empty without a policy."""
    return command.pins if isinstance(command, JudgedCommand) else ()


def identity_at(path: str) -> Identity | None:
    """What identifies the file at a path; None if there is no file."""
    try:
        state = os.stat(path)  # noqa: PTH116 - a text as it was judged
    except OSError:
        return None
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns


def pin_program(path: str, resolved: str) -> Pinned | None:
    """The program at ``path``, opened once; None if it is no longer what was judged.

    Raises OSError if it cannot be opened: it is missing, or this user may not read it.
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

    Raises OSError if it cannot be opened, or its name now leads elsewhere.
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
    """Why what was judged can no longer be run; "" if nothing has changed."""
    return next((fault for pin in pins if (fault := pin.fault())), "")
