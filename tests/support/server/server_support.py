"""What tests of the server share: a campaign file, a stand-in for the analysis, a clock, waiting."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

from assay_server.campaigns.analysing.job import analyse_one_workload

CAMPAIGN = """\
campaign: made
workloads:
  - name: training
    recordings:
      - device: V100
        light: light.sqlite
        detailed: detailed.csv
      - device: A100
        light: other.json
"""
REPORT = b'{"report": "made by a stand-in"}\n'
PAGE = b"<!doctype html><title>made by a stand-in</title>\n"
ROWS = b"rows made by a stand-in\n"


class StandInExecutor(Executor):
    """Runs nothing that it is given: every analysis ends in the same report. Keeps what it was asked."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.outcome: Callable[[], tuple[bytes, bytes, bytes]] = lambda: (REPORT, PAGE, ROWS)
        self._pool = ThreadPoolExecutor(1)

    def submit(self, function: Any, /, *arguments: Any, **_keywords: Any) -> Future[Any]:
        self.requests.append(arguments[0])
        if function is analyse_one_workload:
            return self._pool.submit(lambda: self.outcome()[0])
        return self._pool.submit(self.outcome)

    def close(self) -> None:
        self._pool.shutdown()


class HandClock:
    """A clock that goes when it is told to."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        return self.ms


def eventually(condition: Callable[[], bool], what: str, seconds: float = 200.0) -> None:
    """Poll until the condition holds; fails naming ``what`` when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds:g} s"
        time.sleep(0.01)
