"""How far a long verb is, on standard error, for people at a terminal, once it has taken two seconds."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

_SHOWN_AFTER_SECONDS = 2.0
_SHOWN_EVERY_SECONDS = 0.2
_WIDTH = 30


@contextlib.contextmanager
def counted(what: str) -> Iterator[Callable[[int, int], None]]:
    """Draws one line, cleared at the end; yields what to tell how many are done, and of how many."""
    began, shown_at = time.monotonic(), 0.0

    def done(number: int, of: int) -> None:
        nonlocal shown_at
        now = time.monotonic()
        if now - began >= _SHOWN_AFTER_SECONDS and now - shown_at >= _SHOWN_EVERY_SECONDS:
            shown_at = now
            sys.stderr.write(f"\r{bar(number, of)} {number:,} of {of:,} {what}")
            sys.stderr.flush()

    try:
        yield done if sys.stderr.isatty() else lambda number, of: None
    finally:
        if shown_at:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def bar(number: int, of: int) -> str:
    """How much of a line is full."""
    full = _WIDTH * min(number, of) // max(of, 1)
    return f"[{'#' * full}{'.' * (_WIDTH - full)}]"
