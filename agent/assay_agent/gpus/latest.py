"""The newest sample of a GPU's sensors, for people and metrics: during a run, what its telemetry reads."""

from __future__ import annotations

import time
from collections.abc import Callable

from assay_agent.gpus.event_reasons import THERMAL, EventReason
from assay_agent.gpus.sensors import Reading

_THROTTLED = THERMAL | EventReason.HARDWARE_POWER_BRAKE | EventReason.HARDWARE_SLOWDOWN


class LatestReading:
    """One GPU's newest sample. Written by the thread that samples, read by any other."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._noted: tuple[float, Reading] | None = None

    def note(self, reading: Reading) -> None:
        """A new sample."""
        self._noted = (self._monotonic(), reading)

    def within(self, seconds: float) -> Reading | None:
        """The newest sample if it is at most that old."""
        newest = self.newest()
        return newest[1] if newest is not None and newest[0] <= seconds else None

    def newest(self) -> tuple[float, Reading] | None:
        """The newest sample and how old it is in seconds."""
        noted = self._noted
        return None if noted is None else (self._monotonic() - noted[0], noted[1])


def is_throttled(reading: Reading) -> bool:
    """Whether heat, a power brake or the hardware slowed the GPU in this sample (docs/validity.md)."""
    return bool((reading.event_reasons or 0) & _THROTTLED)
