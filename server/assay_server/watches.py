"""Whether this server may write its state, and whether it can: watched by threads.

It ends once it has lost the lead of its database, or cannot reach it while another server may lead it. A
server whose disk is full or read-only still answers, and its agents keep what they measure; but a probe, a
load balancer and an alert must see that it does no work.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from assay_core.files.durable import storage_errors, write_atomically
from assay_sampling.errors import StorageError
from assay_server.store.record_store import RecordStore
from assay_server.store.sql import MetadataStore
from assay_server.store.sqlite import SqliteStore
from assay_server.threads.repeating import repeated_in_thread

if TYPE_CHECKING:
    from assay_server.store.postgresql.lead import Lead
    from assay_server.store.postgresql.store import PostgresqlStore

_log = logging.getLogger(__name__)

# A server that cannot renew its lead for so long ends, so that its agents find the standby.
_LONGEST_SILENCE_SECONDS, _LOOK_SECONDS = 15.0, 1.0
_PAUSE_SECONDS = 10.0
_BYTES = 4096
_FILE = "write-probe"


class LeadWatch:
    """``lost``: why the lead is lost; None while it is not. ``end`` asks for the end of the program, once."""

    def __init__(self, end: Callable[[], None]) -> None:
        self.lost: StorageError | None = None
        self._end = end

    def watching(
        self, database: SqliteStore | PostgresqlStore, *, has_standby: bool
    ) -> contextlib.AbstractContextManager[None]:
        """Watch the lead of a database while the block runs; on SQLite there is none.

        ``has_standby``: another server may take it over, so silence of the database is a loss, too.
        """
        if isinstance(database, SqliteStore) or database.lead is None:
            return contextlib.nullcontext()
        lead, subject = database.lead, database.subject
        lead.on_lost = self._lose
        if not has_standby:
            return contextlib.nullcontext()
        look = partial(self._look, lead, subject)
        return repeated_in_thread("assay-lead-watch", look, _LOOK_SECONDS, at_once=False)

    def _look(self, lead: Lead, subject: str) -> None:
        if lead.silent_seconds > _LONGEST_SILENCE_SECONDS:
            cause = f"no answer for {_LONGEST_SILENCE_SECONDS:g} s, and another server may lead it now"
            remedy = "start this one again: it stands by, or leads if no other does"
            self._lose(StorageError(subject, cause, remedy))

    def _lose(self, error: StorageError) -> None:
        if self.lost is None:
            self.lost = error
            _log.error("%s", error)
            self._end()


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
