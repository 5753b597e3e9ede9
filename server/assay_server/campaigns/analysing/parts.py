"""A campaign's analysis on an executor: its workloads in parallel, if memory allows, then the report."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from typing import Any

from assay_server.analysis.runs.request import AnalysisRequest
from assay_server.campaigns.analysing.executors.seam import ExecutorApart
from assay_server.campaigns.analysing.job import Pages, analyse_campaign, analyse_one_workload, join_workloads

# The most that an analysis holds per launch.
_BYTES_PER_LAUNCH = 400


def submit_analysis(executor: Executor, request: AnalysisRequest) -> Future[Pages]:
    """The future report of a campaign; raises BrokenExecutor, WorkersAwayError.

    Workloads are analysed one after the other if all at once might exceed the memory limit of one machine.
    """
    workloads = tuple(dict.fromkeys(run.workload for run in request.runs))
    needed_bytes = _BYTES_PER_LAUNCH * sum(run.launches for run in request.runs)
    fits = isinstance(executor, ExecutorApart) or needed_bytes <= request.memory_limit_bytes
    if len(workloads) < 2 or not fits:
        return executor.submit(analyse_campaign, request)
    return _Joined(executor, request, workloads).report


class _Joined:
    """Parts on an executor, joined into the report once the last has ended.

    The first part that fails ends the report with its error, and parts that have not begun are dropped.
    """

    def __init__(self, executor: Executor, request: AnalysisRequest, workloads: Sequence[str]) -> None:
        self.report: Future[Pages] = Future()
        self._executor, self._request = executor, request
        self._lock = threading.Lock()
        self._left, self._ended = len(workloads), False
        self._parts = [executor.submit(analyse_one_workload, request, name) for name in workloads]
        for part in self._parts:
            part.add_done_callback(self._heard)

    def _heard(self, part: Future[Any]) -> None:
        with self._lock:
            self._left -= 1
            last = not self._left
        if part.cancelled() or part.exception() is not None:
            self._end(part)
        elif last and not any(each.cancelled() or each.exception() for each in self._parts):
            try:
                joined = self._executor.submit(
                    join_workloads, self._request, [each.result() for each in self._parts]
                )
            except Exception as error:  # noqa: BLE001 - whoever waits for the report must hear of it
                self._fail(error)
            else:
                joined.add_done_callback(self._end)

    def _end(self, future: Future[Any]) -> None:
        """End the report the way this future ended."""
        if future.cancelled():
            if self._is_first_end():
                self.report.cancel()
        elif (error := future.exception()) is not None:
            self._fail(error)
        elif self._is_first_end():
            self.report.set_result(future.result())

    def _fail(self, error: BaseException) -> None:
        if self._is_first_end():
            self.report.set_exception(error)
        for part in self._parts:
            part.cancel()

    def _is_first_end(self) -> bool:
        with self._lock:
            first, self._ended = not self._ended, True
        return first
