"""Writes what was committed back into SQLite's file, outside of the turn to write.

Whoever commits when the write-ahead log is long writes it back, and everybody who wants to write waits for
that and for a sync of the file. So a thread does most of it before: a PASSIVE checkpoint waits for nobody,
and nobody waits for it (sqlite.org/wal.html, section 2.2; sqlite.org/pragma.html#pragma_wal_checkpoint).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

from assay_sampling.errors import StorageError
from assay_server.threads.repeating import repeated_in_thread

_EVERY_SECONDS = 2.0


def written_back(
    write_back: Callable[[], object], every_seconds: float = _EVERY_SECONDS
) -> AbstractContextManager[None]:
    """Write back now and then, in a thread, while the block runs."""

    def step() -> None:
        with suppress(StorageError):  # who writes next hears of a disk that fails
            write_back()

    return repeated_in_thread("assay-write-back", step, every_seconds, at_once=False)
