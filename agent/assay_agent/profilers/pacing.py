"""Plays launches back in recorded time: a launch is given no earlier than it happened."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

_INTERVAL_NS = 100_000_000
_NEVER = np.iinfo(np.int64).min


class Pace:
    """Holds launches back until their ``start_ns``, counted from the first launch that has one.

    Launches whose time is within one tenth of a second go together. A launch without a time, or one that
    began before its predecessor (another stream or process), goes with its predecessor.
    """

    def __init__(self, cancelled: threading.Event) -> None:
        self._cancelled = cancelled
        self._began = 0.0
        self._first_ns: int | None = None
        self._latest_ns = _NEVER

    def pieces(self, records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The batch in pieces, each given when its time has come; ends early when cancelled."""
        start_ns = records.column("start_ns").fill_null(_NEVER).to_numpy()
        latest_ns = np.maximum(np.maximum.accumulate(start_ns), self._latest_ns)
        times_ns = latest_ns[latest_ns != _NEVER]
        if self._first_ns is None and len(times_ns):
            self._first_ns = int(times_ns[0])
            self._began = time.monotonic()
        elapsed_ns = np.where(latest_ns == _NEVER, 0, latest_ns - (self._first_ns or 0))
        bounds = np.flatnonzero(np.diff(elapsed_ns // _INTERVAL_NS)) + 1
        for begin, end in zip([0, *bounds.tolist()], [*bounds.tolist(), len(start_ns)], strict=True):
            if self._wait_until(int(elapsed_ns[begin]) / 1e9):
                return
            yield records.slice(begin, end - begin)
        self._latest_ns = int(latest_ns[-1]) if len(latest_ns) else self._latest_ns

    def _wait_until(self, elapsed_seconds: float) -> bool:
        """Wait; True if the run was cancelled meanwhile."""
        rest = self._began + elapsed_seconds - time.monotonic()
        return self._cancelled.wait(rest) if rest > 0 else self._cancelled.is_set()
