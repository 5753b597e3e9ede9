"""When a program looks for garbage: not while it loads its modules, and seldom while it serves."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """The block imports much of a program: no look for garbage until it ends, later none at what it loaded.

    Modules stay to the end of their process, but every look visits all that were loaded before: for the
    server that was a fifth of its start. For programs, not for libraries: what exists now is never
    collected.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


_NEW_OBJECTS = 20_000


def collect_garbage_seldom() -> None:
    """Leave what exists now out of each collection, and collect after more new objects than by default.

    Collections took 6 % of a busy server's time, and find little: few objects there are in cycles. For
    programs, not for libraries.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, 20, 20)
