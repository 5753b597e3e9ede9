"""A campaign's analysis on an executor: its workloads in parallel, if memory allows, then the report."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Executor, Future
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from assay_server.analysis.runs.request import AnalysisRequest
from assay_server.campaigns.analysing.executors.interface import ExecutorApart
from assay_server.campaigns.analysing.job import Pages, analyse_campaign, analyse_one_workload, join_workloads

if TYPE_CHECKING:
    from assay_server.analysis.workload import WorkloadAnalysis

# The most that an analysis holds per launch.
_BYTES_PER_LAUNCH = 400


def submit_analysis(executor: Executor, request: AnalysisRequest) -> Future[Pages]:
    """The future report of a campaign; raises BrokenExecutor, WorkersAwayError.

    Workloads are analysed one after the other if all at once might exceed the memory limit of one machine.
    """
    workloads = tuple(dict.fromkeys(run.workload for run in request.runs))
    if len(workloads) < 2:
        return executor.submit(analyse_campaign, request)
    needed_bytes = _BYTES_PER_LAUNCH * sum(run.launches for run in request.runs)
    fits = isinstance(executor, ExecutorApart) or needed_bytes <= request.memory_limit_bytes
    joined = _Joined(executor, request, {name: request_for(request, name) for name in workloads})
    joined.begin(len(workloads) if fits else 1)
    return joined.report


def request_for(request: AnalysisRequest, workload: str) -> AnalysisRequest:
    """The request without the runs of other workloads."""
    return replace(
        request,
        runs=tuple(run for run in request.runs if run.workload == workload),
        failed_runs=tuple(run for run in request.failed_runs if run.workload == workload),
        ranks={name: ranks for name, ranks in request.ranks.items() if name == workload},
    )


class _Joined:
    """Parts on an executor, joined into the report once the last has ended.

    The first part that fails ends the report with its error, and parts that have not begun are dropped.
    """

    def __init__(
        self, executor: Executor, request: AnalysisRequest, requests: Mapping[str, AnalysisRequest]
    ) -> None:
        self.report: Future[Pages] = Future()
        self._executor, self._request, self._requests = executor, request, requests
        self._parts: dict[str, WorkloadAnalysis] = {}
        self._lock = threading.Lock()
        self._ended = False
        self._waiting = deque(requests)
        self._under_way: list[Future[WorkloadAnalysis]] = []

    def begin(self, at_once: int) -> None:
        """Submit so many parts; each that ends lets the next one follow. Raises what submitting raises."""
        for _ in range(at_once):
            self._submit_next()

    def _submit_next(self) -> None:
        with self._lock:
            if self._ended or not self._waiting:
                return
            name = self._waiting.popleft()
        part = self._executor.submit(analyse_one_workload, self._requests[name], name)
        self._under_way.append(part)
        part.add_done_callback(partial(self._heard, name))

    def _heard(self, name: str, part: Future[WorkloadAnalysis]) -> None:
        if part.cancelled() or part.exception() is not None:
            self._end(part)
            return
        try:
            with self._lock:
                self._parts[name] = part.result()
                last = len(self._parts) == len(self._requests)
            if last:
                parts = [self._parts[each] for each in self._requests]
                self._executor.submit(join_workloads, self._request, parts).add_done_callback(self._end)
            else:
                self._submit_next()
        except Exception as error:  # noqa: BLE001 - whoever waits for the report must hear of it
            self._fail(error)

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
        for part in list(self._under_way):
            part.cancel()

    def _is_first_end(self) -> bool:
        with self._lock:
            first, self._ended = not self._ended, True
        return first
