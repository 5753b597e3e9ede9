"""Detects, sample by sample, when the instructions per cycle of a launch have become stable.

Source: PKA (MICRO'21) 3.2 and its artifact. The paper says that the standard deviation of the IPC over the
last n cycles falls below s; the artifact divides it by the mean, takes percent, and looks at the IPC since
the start of the launch instead of that of the interval. Only the artifact's reading ever fires: the noise of
single intervals is far above 0.25 %, and an absolute deviation would depend on the size of the GPU.
"""

from __future__ import annotations

from collections import deque
from typing import Literal

import numpy as np

Signal = Literal["cumulative", "instantaneous"]
Spread = Literal["percent", "absolute"]
LEAST_WINDOW_SAMPLES = 2


class StabilityDetector:
    """A rolling window over the IPC of one launch; holds no more than the window.

    ``spread_now`` is the spread at the last sample (None: the window is not full, or nothing was executed in
    it), ``least_spread`` the least so far.

    Args:
        window_cycles: length of the window; at least two samples, else rounded to whole ones.
        threshold: stable is a spread strictly below this, in percent of the mean (or in IPC).
        signal: the IPC since the start of the launch, or that of each interval.
        spread: the sample standard deviation, in percent of the mean or in IPC.
        idle_cycles: cycles at the start in which nothing can execute, left out of every IPC; None: the
        samples without instructions at the start.
    """

    def __init__(
        self,
        window_cycles: float,
        threshold: float,
        *,
        signal: Signal = "cumulative",
        spread: Spread = "percent",
        idle_cycles: float | None = 0.0,
    ) -> None:
        self.threshold = threshold
        self.spread_now: float | None = None
        self.least_spread: float | None = None
        self.active_samples = 0
        self._window_cycles = window_cycles
        self._signal = signal
        self._spread = spread
        self._idle_is_known = idle_cycles is not None
        self._idle_cycles = idle_cycles or 0.0
        self._samples: int | None = None
        self._first_cycles: float | None = None
        self._ipc: deque[float] = deque()
        # Ends of the intervals in the window, with the one before it: cycles and instructions.
        self._points: deque[tuple[float, float]] = deque([(self._idle_cycles, 0.0)])

    def push(self, cycles: float, instructions: float) -> bool:
        """Take the next sample, counts since the start of the launch; returns whether the IPC is stable."""
        self._size_window(cycles)
        if cycles <= self._idle_cycles or (not self._idle_is_known and instructions == 0):
            self._idle_cycles = max(self._idle_cycles, cycles)
            self._points[0] = (self._idle_cycles, 0.0)
            return False
        self._idle_is_known = True
        self.active_samples += 1
        before_cycles, before_instructions = self._points[-1]
        if self._signal == "cumulative":
            ipc = instructions / (cycles - self._idle_cycles)
        else:
            ipc = (instructions - before_instructions) / (cycles - before_cycles)
        self._ipc.append(ipc)
        self._points.append((cycles, instructions))
        return self._is_stable()

    @property
    def window_ipc(self) -> float:
        """Instructions per cycle in the window; 0 before the first sample."""
        (from_cycles, before), (to_cycles, now) = self._points[0], self._points[-1]
        return (now - before) / (to_cycles - from_cycles) if to_cycles > from_cycles else 0.0

    @property
    def window_samples(self) -> int | None:
        """Samples in the window; None before the second sample."""
        return self._samples

    def _size_window(self, cycles: float) -> None:
        if self._samples is not None:
            return
        if self._first_cycles is None:
            self._first_cycles = cycles
            return
        interval = cycles - self._first_cycles
        self._samples = max(LEAST_WINDOW_SAMPLES, round(self._window_cycles / interval))

    def _is_stable(self) -> bool:
        self.spread_now = None
        if self._samples is None or len(self._ipc) < self._samples:
            return False
        while len(self._ipc) > self._samples:
            self._ipc.popleft()
        while len(self._points) > self._samples + 1:
            self._points.popleft()
        window = np.fromiter(self._ipc, np.float64, len(self._ipc))
        mean = float(window.mean())
        if not mean > 0:
            return False
        spread = float(window.std(ddof=1))
        if self._spread == "percent":
            spread *= 100.0 / mean
        self.spread_now = spread
        self.least_spread = spread if self.least_spread is None else min(self.least_spread, spread)
        return spread < self.threshold
