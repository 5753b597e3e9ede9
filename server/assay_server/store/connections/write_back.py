"""Writes what was committed back into SQLite's file, outside of the turn to write.

Whoever commits when the write-ahead log is long writes it back, and everybody who wants to write waits for
that and for a sync of the file. So a thread does most of it before: a PASSIVE checkpoint waits for nobody,
and nobody waits for it (sqlite.org/wal.html, section 2.2; sqlite.org/pragma.html#pragma_wal_checkpoint).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from assay_sampling.errors import StorageError

_EVERY_SECONDS = 2.0


@contextmanager
def written_back(write_back: Callable[[], object], every_seconds: float = _EVERY_SECONDS) -> Iterator[None]:
    """Write back now and then, in a thread, while the block runs."""
    end = threading.Event()

    def run() -> None:
        while not end.wait(every_seconds):
            with suppress(StorageError):  # who writes next hears of a disk that fails
                write_back()

    thread = threading.Thread(target=run, name="assay-write-back", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
