"""Log lines that would repeat: of each text one a minute, however often it is said."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

SELDOM_SECONDS = 60.0
_MOST_KEPT = 1000


class SeldomLog:
    """Passes a text on to a log unless it was passed on less than a minute ago. Thread-safe.

    Args:
        log: where the lines go.
        clock: seconds that only grow.
    """

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        self._times: dict[str, float] = {}

    def say(self, level: int, text: str) -> None:
        """Log a text at a level of ``logging``, now or not at all."""
        now = self._clock()
        with self._lock:
            before = self._times.get(text)
            if before is not None and now - before < SELDOM_SECONDS:
                return
            if len(self._times) >= _MOST_KEPT:
                self._times.clear()
            self._times[text] = now
        self._log.log(level, "%s", text)
