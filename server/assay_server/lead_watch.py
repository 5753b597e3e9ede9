"""Ends a server that lost the lead of its database, or cannot reach it while another server may lead it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from assay_sampling.errors import StorageError
from assay_server.store.sqlite import SqliteStore
from assay_server.threads.repeating import repeated_in_thread

if TYPE_CHECKING:
    from assay_server.store.postgresql.lead import Lead
    from assay_server.store.postgresql.store import PostgresqlStore

_log = logging.getLogger(__name__)

# A server that cannot renew its lead for so long ends, so that its agents find the standby.
_LONGEST_SILENCE_SECONDS, _LOOK_SECONDS = 15.0, 1.0


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
