"""What the sensors of GPUs said last, as agents' heartbeats told it: for people to see, decided on by nobody.

Kept in memory only: a restarted server hears it again with the next heartbeats.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from assay_core.records.machine import GpuSample

_FRESH_MS = 120_000
_FEW = 64


class GpuSamples:
    """The newest samples of each agent's GPUs. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: dict[str, tuple[int, tuple[GpuSample, ...]]] = {}
        self._look_beyond = _FEW

    def note(self, agent_id: str, samples: Sequence[GpuSample], now_ms: int) -> None:
        """An agent's heartbeat; without samples, the earlier ones stay until they are too old."""
        if not samples:
            return
        with self._lock:
            if len(self._samples) > self._look_beyond:
                self._samples = {
                    key: report for key, report in self._samples.items() if now_ms - report[0] <= _FRESH_MS
                }
                self._look_beyond = len(self._samples) * 2 + _FEW
            self._samples[agent_id] = (now_ms, tuple(samples))

    def of(self, agent_id: str, now_ms: int) -> dict[str, GpuSample]:
        """An agent's samples by slot, as old as they are now; those of the last two minutes."""
        with self._lock:
            heard_ms, samples = self._samples.get(agent_id, (now_ms, ()))
        waited = max(0, now_ms - heard_ms)
        return {
            each.slot_id: replace(each, age_ms=each.age_ms + waited)
            for each in samples
            if each.age_ms + waited <= _FRESH_MS
        }
