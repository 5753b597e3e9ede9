"""The server's clock: Unix milliseconds by which leases are measured."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

_log = logging.getLogger(__name__)

_TOLD_MS = 1_000  # steps of a database's clock that people are told of


class Clock(Protocol):
    """Tells the time, by which leases are measured."""

    def now_ms(self) -> int: ...


def wall_ms() -> int:
    """Unix milliseconds by the wall clock, which somebody may set back."""
    return time.time_ns() // 1_000_000


class SteadyClock:
    """Wall time at start plus monotonic time since, so that setting the box's clock costs no leases."""

    def __init__(self) -> None:
        self._offset_ms = time.time_ns() // 1_000_000 - time.monotonic_ns() // 1_000_000

    def now_ms(self) -> int:
        return self._offset_ms + time.monotonic_ns() // 1_000_000


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class SharedClock:
    """The time of a database, by which all of its servers measure leases, whatever their own clocks say.

    It is asked now and then, and runs on by monotonic time in between. It never goes back by less than a
    second; by more only if the database's own clock was set back, or another machine took it over.

    Args:
        read_ms: asks the database; raises StorageError.
        monotonic_ms: this machine's monotonic time.
    """

    def __init__(self, read_ms: Callable[[], int], monotonic_ms: Callable[[], int] = _monotonic_ms) -> None:
        self._read_ms, self._monotonic_ms = read_ms, monotonic_ms
        self._lock = threading.Lock()
        self._last_ms = 0
        self._offset_ms = self._asked()

    def _asked(self) -> int:
        """The database's time less monotonic time, as it was halfway between question and answer."""
        before_ms = self._monotonic_ms()
        there_ms = self._read_ms()
        return there_ms - (before_ms + self._monotonic_ms()) // 2

    def synchronise(self) -> int:
        """Ask the database again; by how many ms its clock was set since. Raises StorageError."""
        offset_ms = self._asked()
        step_ms = offset_ms - self._offset_ms
        if abs(step_ms) >= _TOLD_MS:
            _log.warning("the database's clock was set by %+.1f s", step_ms / 1000)
        self._offset_ms = offset_ms
        return step_ms

    def now_ms(self) -> int:
        now_ms = self._offset_ms + self._monotonic_ms()
        with self._lock:
            if self._last_ms - _TOLD_MS < now_ms < self._last_ms:
                return self._last_ms
            self._last_ms = now_ms
        return now_ms
