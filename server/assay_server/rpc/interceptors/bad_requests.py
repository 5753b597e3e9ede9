"""A bounded log of requests that cannot be decoded; gRPC itself would log a traceback for each."""

from __future__ import annotations

import logging
import time

from assay_server.limits import BAD_REQUESTS_LOGGED_PER_MINUTE

_log = logging.getLogger(__name__)


class BadRequestLog:
    """Logs a few lines a minute, and counts what it leaves out."""

    def __init__(self) -> None:
        self._minute = 0.0
        self._logged = self._unlogged = 0

    def note(self, method: str) -> None:
        """A request of this call could not be decoded."""
        now = time.monotonic()
        if now - self._minute >= 60:
            self._minute, self._logged = now, 0
        if self._logged >= BAD_REQUESTS_LOGGED_PER_MINUTE:
            self._unlogged += 1
            return
        self._logged += 1
        more = f" ({self._unlogged:,} more since the last line)" if self._unlogged else ""
        self._unlogged = 0
        _log.warning("%s: a request cannot be decoded%s", method, more)
