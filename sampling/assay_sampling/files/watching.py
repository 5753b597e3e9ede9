"""How far a long read has come, for whoever watches it from another thread.

Readers note where they are; a program that wants to show it opens a watch around the work::

    with watched_reads() as progress:
        read_launches(path)        # meanwhile another thread looks at progress.now

Without a watch a note costs one look at a context variable for each block.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class ReadState:
    """Where the reading of one file stands.

    ``read_bytes`` of ``total_bytes`` are those on disk, so a compressed file counts compressed; both are 0
    for formats whose libraries do not say. ``began_s`` is a moment of :func:`time.monotonic`.
    """

    path: Path
    began_s: float
    read_bytes: int = 0
    total_bytes: int = 0
    launches: int = 0
    total_launches: int = 0

    def remaining_s(self, now_s: float) -> float | None:
        """Seconds until the end at the mean rate so far, of launches if their number is known, else of bytes.

        None while neither can tell.
        """
        if self.total_launches:
            count, total = self.launches, self.total_launches
        else:
            count, total = self.read_bytes, self.total_bytes
        return (now_s - self.began_s) * (total - count) / count if 0 < count <= total else None


class ReadProgress:
    """The file that is being read now. One thread notes, any thread may look."""

    def __init__(self) -> None:
        self.now: ReadState | None = None

    def bytes_read(self, path: Path, position: int, total_bytes: int) -> None:
        """Note a position in a file. Behind the last one means that a reader began again."""
        state = self._state(path)
        if position < state.read_bytes:
            state = ReadState(path, time.monotonic())
        self.now = replace(state, read_bytes=position, total_bytes=total_bytes)

    def launches_read(self, path: Path, launches: int) -> None:
        """Note ``launches`` more launches of a file."""
        state = self._state(path)
        self.now = replace(state, launches=state.launches + launches)

    def launches_expected(self, path: Path, launches: int) -> None:
        """Note how many launches a file holds in all, once its reader knows; reading them begins now."""
        self.now = ReadState(path, time.monotonic(), total_launches=launches)

    def _state(self, path: Path) -> ReadState:
        return self.now if self.now and self.now.path == path else ReadState(path, time.monotonic())


_watch: ContextVar[ReadProgress | None] = ContextVar("assay_read_progress", default=None)


@contextmanager
def watched_reads() -> Iterator[ReadProgress]:
    """Watch what this thread reads inside the block."""
    progress = ReadProgress()
    token = _watch.set(progress)
    try:
        yield progress
    finally:
        _watch.reset(token)


def note_bytes(path: Path, position: int, total_bytes: int) -> None:
    """Tell the watch, if there is one, how far a file was read."""
    if (progress := _watch.get()) is not None:
        progress.bytes_read(path, position, total_bytes)


def note_launches(path: Path, launches: int) -> None:
    """Tell the watch, if there is one, of launches that were read."""
    if (progress := _watch.get()) is not None:
        progress.launches_read(path, launches)


def note_total_launches(path: Path, launches: int) -> None:
    """Tell the watch, if there is one, how many launches a file holds."""
    if (progress := _watch.get()) is not None:
        progress.launches_expected(path, launches)
