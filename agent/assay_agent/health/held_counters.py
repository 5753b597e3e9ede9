"""Counters that another program holds for good, such as DCGM outside of this container.

Runs that need them get no further try on this box, and everything else is measured.

After two runs in a row that found the counters held, detailed runs end at once, before their program starts.
After an hour one may try again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from assay_core.records.failure import Failure, failure
from assay_core.records.work import Work
from assay_sampling.running.failures import FailureClass

_log = logging.getLogger(__name__)

MOST_IN_A_ROW = 2
AGAIN_SECONDS = 3600.0


class HeldCounters:
    """The counters of a box, which all its GPUs share. Thread-safe; only tests give ``clock``."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._in_a_row = 0
        self._again_at = 0.0

    def refusal(self, work: Work) -> Failure | None:
        """Why a run is not even begun; None: it is."""
        if not _needs_counters(work):
            return None
        with self._lock:
            counters_busy = self._in_a_row >= MOST_IN_A_ROW and self._clock() < self._again_at
        return _given_up(work, FailureClass.COUNTER_BUSY.meaning) if counters_busy else None

    def judged(self, work: Work, problem: Failure | None) -> Failure | None:
        """How a run failed (None: it did not): of counters that are held for good it is not tried again."""
        if not _needs_counters(work):
            return problem
        with self._lock:
            if problem is None:
                self._in_a_row = 0
            if problem is None or problem.failure_class != FailureClass.COUNTER_BUSY:
                return problem
            self._in_a_row += 1
            if self._in_a_row < MOST_IN_A_ROW:
                return problem
            self._again_at = self._clock() + AGAIN_SECONDS
        _log.warning("no detailed runs for an hour: %s", problem.cause)
        return _given_up(work, problem.cause)


def _needs_counters(work: Work) -> bool:
    return work.level == "detailed" and work.command is not None


def _given_up(work: Work, cause: str) -> Failure:
    consequence = (
        f"{MOST_IN_A_ROW} runs in a row found it so, and detailed runs on this box are given up for an hour"
    )
    return failure(FailureClass.COUNTER_BUSY, str(work.key), f"{cause}; {consequence}", retryable=False)
