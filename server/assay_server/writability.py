"""Whether the server can write its state: tried regularly, and at once when a transaction was refused.

A server whose disk is full or read-only still answers, and its agents keep what they measure; but a probe,
a load balancer and an alert must see that it does no work.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from assay_core.files.durable import storage_errors, write_atomically
from assay_server.store.record_store import RecordStore
from assay_server.store.sql import MetadataStore
from assay_server.threads.repeating import repeated_in_thread

_log = logging.getLogger(__name__)

_PAUSE_SECONDS = 10.0
_BYTES = 4096
_FILE = "write-probe"


class WritabilityWatch:
    """A thread that tries to write while :meth:`watching` is entered.

    Args:
        state: the state folder.
        on_change: hears in that thread whether the state can be written, when that changes and at the start.
    """

    def __init__(
        self, state: Path, on_change: Callable[[bool], None], pause_seconds: float = _PAUSE_SECONDS
    ) -> None:
        self._state = state
        self._on_change = on_change
        self._pause_seconds = pause_seconds
        self._wake = threading.Event()
        self._was_writable: bool | None = None

    def refused(self) -> None:
        """A transaction was refused: look at once. Called from any thread."""
        self._wake.set()

    def watching(self, store: MetadataStore, records: RecordStore) -> contextlib.AbstractContextManager[None]:
        # A server that was killed while it tried left its file; nobody else writes in the folder now.
        with contextlib.suppress(OSError):
            for left in self._state.glob(f"{_FILE}*"):
                left.unlink()
        look = partial(self._look, store, records)
        return repeated_in_thread("assay-writability", look, self._pause_seconds, wake=self._wake)

    def _look(self, store: MetadataStore, records: RecordStore) -> None:
        why: Exception | None = None
        try:
            try_to_write(self._state, store)
            if records.place is not None:
                records.probe()
        except Exception as error:  # noqa: BLE001 - whatever it is, the state was not written
            why = error
        writable = why is None
        if writable is self._was_writable:
            return
        if why is not None:
            _log.error("the state cannot be written, so the server takes no work: %s", why)
        elif self._was_writable is not None:
            _log.warning("the state can be written again")
        self._was_writable = writable
        self._on_change(writable)


def try_to_write(state: Path, store: MetadataStore) -> None:
    """Write a small file durably, and take the writer's lock of the store; raises StorageError."""
    path = state / _FILE
    with storage_errors(path):
        write_atomically(path, bytes(_BYTES))
        path.unlink()
    with store.transaction():
        pass
