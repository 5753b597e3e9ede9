"""Loading a program's modules without looking for garbage."""

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
