"""Capacity for records: a quota and a floor of free space. Beyond them no new work is taken, with the reason.

Nothing is deleted to make room: people archive or delete campaigns, or enlarge the disk.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from assay_core.files.free_space import free_space
from assay_core.records.campaign import Shortage
from assay_sampling.errors import StorageError
from assay_server.store.sql import SqlTransaction

_log = logging.getLogger(__name__)

_ARCHIVE = "archive or delete campaigns that have ended (assay lab campaigns archive ID -o FILE --yes)"


class Capacity:
    """Whether there is room for new work, as it was last looked at. Thread-safe.

    Args:
        state: the folder whose disk must keep ``minimum_free_bytes``.
        limit_bytes: published records at most; None: no limit.
    """

    def __init__(self, state: Path, limit_bytes: int | None = None, minimum_free_bytes: int = 0) -> None:
        self._state = state
        self._limit_bytes = limit_bytes
        self._minimum_free_bytes = minimum_free_bytes
        self._looking = threading.Lock()
        self.shortage: Shortage | None = None  # why no new work is taken

    def look(self, store: SqlTransaction) -> None:
        """Look again; call this regularly, and after what may have made room."""
        used = store.published_bytes() if self._limit_bytes is not None else 0
        free = free_space(self._state).free_bytes
        full = self._limit_bytes is not None and used >= self._limit_bytes
        short = full or free < self._minimum_free_bytes
        shortage = Shortage(used, self._limit_bytes or 0, free, self._minimum_free_bytes) if short else None
        with self._looking:
            before, self.shortage = self.shortage, shortage
        if shortage is not None and before is None:
            _log.warning("no new work is taken: %s", why_short(shortage))
        if shortage is None and before is not None:
            _log.warning("there is room again: work goes on")

    def require(self) -> None:
        """Raises StorageError, with the reason, unless there is room for new work."""
        if (shortage := self.shortage) is not None:
            raise StorageError("server", f"it takes no new work: {why_short(shortage)}", _ARCHIVE)

    def most_bytes(self, store: SqlTransaction) -> int:
        """How many more bytes there is room for."""
        free = max(0, free_space(self._state).free_bytes - self._minimum_free_bytes)
        if self._limit_bytes is None:
            return free
        return min(free, max(0, self._limit_bytes - store.published_bytes()))


def why_short(shortage: Shortage) -> str:
    """The reason, for people."""
    if shortage.limit_bytes and shortage.used_bytes >= shortage.limit_bytes:
        return (
            f"published records take {shortage.used_bytes:,} bytes, and --records-limit is "
            f"{shortage.limit_bytes:,}"
        )
    return (
        f"the disk of its state has {shortage.free_bytes:,} bytes left, and "
        f"{shortage.minimum_free_bytes:,} must stay free (--minimum-free)"
    )
