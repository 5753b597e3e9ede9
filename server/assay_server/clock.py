"""The server's clock: Unix milliseconds by which leases are measured."""

from __future__ import annotations

import time
from typing import Protocol


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
