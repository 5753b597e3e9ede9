"""A campaign's analysis on an executor: its workloads in parallel, if memory allows, then the report."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any

from assay_server.analysis.runs.request import AnalysisRequest
from assay_server.analysis.unusable_part import UnusablePartError
from assay_server.campaigns.analysing.executors.interface import ExecutorApart
from assay_server.campaigns.analysing.job import Pages, analyse_campaign, analyse_one_workload, join_workloads
from assay_server.campaigns.analysing.kept_parts import Parts
from assay_server.campaigns.analysing.part_key import part_key, releases, request_for

# The most that an analysis holds per launch.
_BYTES_PER_LAUNCH = 400


def submit_analysis(
    executor: Executor,
    request: AnalysisRequest,
    kept: Parts | None = None,
    keeper: Executor | None = None,
) -> Future[Pages]:
    """The future report of a campaign; raises BrokenExecutor, WorkersAwayError.

    Workloads are analysed one after the other if all at once might exceed the memory limit of one machine.
    ``kept``: where finished workloads outlive this process; those that it has are not computed again.
    ``keeper``: one thread that keeps them, as the database may be away for long, and the thread that hears of
    an end hands out the next task; the report ends there, too, after what is kept. None: whoever hears.
    """
    workloads = tuple(dict.fromkeys(run.workload for run in request.runs))
    if len(workloads) < 2:
        return executor.submit(analyse_campaign, request)
    needed_bytes = _BYTES_PER_LAUNCH * sum(run.launches for run in request.runs)
    fits = isinstance(executor, ExecutorApart) or needed_bytes <= request.memory_limit_bytes
    parts = {name: request_for(request, name) for name in workloads}
    joined = _Joined(executor, request, parts, kept, None if kept is None else keeper)
    joined.begin(len(workloads) if fits else 1)
    return joined.report


def _keys(request: AnalysisRequest, parts: Mapping[str, AnalysisRequest]) -> dict[str, str]:
    computed_with = releases(request)
    return {name: part_key(part, computed_with) for name, part in parts.items()}


class _Joined:
    """Parts on an executor, joined into the report once the last has ended.

    The first part that fails ends the report with its error, and parts that have not begun are dropped.
    """

    def __init__(
        self,
        executor: Executor,
        request: AnalysisRequest,
        parts: Mapping[str, AnalysisRequest],
        kept: Parts | None,
        keeper: Executor | None,
    ) -> None:
        self.report: Future[Pages] = Future()
        self._executor, self._request, self._parts = executor, request, parts
        self._kept, self._keeper = kept, keeper
        self._keys = {} if kept is None else _keys(request, parts)
        self._contents = {} if kept is None else kept.known(self._keys)
        self._lock = threading.Lock()
        self._ended = False
        self._waiting = deque(name for name in parts if name not in self._contents)
        self._under_way: list[Future[bytes]] = []

    def begin(self, at_once: int) -> None:
        """Submit so many parts; each that ends lets the next one follow. Raises what submitting raises."""
        if not self._waiting:
            self._join()
        for name in self._next(at_once):
            self._submit(name)

    def _next(self, most: int) -> list[str]:
        with self._lock:
            return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

    def _submit(self, name: str) -> None:
        part = self._executor.submit(analyse_one_workload, self._parts[name], name)
        self._under_way.append(part)
        part.add_done_callback(partial(self._heard, name))

    def _join(self) -> None:
        contents = [self._contents[name] for name in self._parts]
        self._executor.submit(join_workloads, self._request, contents).add_done_callback(self._end_joined)

    def _heard(self, name: str, part: Future[bytes]) -> None:
        if part.cancelled() or part.exception() is not None:
            self._end(part)
            return
        try:
            content = part.result()
            if self._kept is not None:
                self._in_turn(self._keep, self._kept, name, content)
            with self._lock:
                self._contents[name] = content
                last = len(self._contents) == len(self._parts)
            if last:
                self._join()
            elif not self._ended:
                for following in self._next(1):
                    self._submit(following)
        except Exception as error:  # noqa: BLE001 - whoever waits for the report must hear of it
            self._fail(error)

    def _keep(self, kept: Parts, name: str, content: bytes) -> None:
        try:
            kept.keep(name, self._keys[name], content)
        except Exception as error:  # noqa: BLE001 - whoever waits for the report must hear of it
            self._fail(error)

    def _in_turn(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call it in the thread that keeps, after whatever it was given before."""
        if self._keeper is not None:
            try:
                self._keeper.submit(function, *arguments)
            except RuntimeError:  # the server ends, and that thread has ended
                pass
            else:
                return
        function(*arguments)

    def _end_joined(self, joined: Future[Pages]) -> None:
        """End the report; parts that cannot be read must not meet the next try."""
        error = None if joined.cancelled() else joined.exception()
        if isinstance(error, UnusablePartError) and self._kept is not None:
            self._in_turn(self._kept.forget)
        self._end(joined)

    def _end(self, future: Future[Any]) -> None:
        """End the report the way this future ended."""
        if future.cancelled():
            if self._is_first_end():
                self._in_turn(self.report.cancel)
        elif (error := future.exception()) is not None:
            self._fail(error)
        elif self._is_first_end():
            self._in_turn(self.report.set_result, future.result())

    def _fail(self, error: BaseException) -> None:
        if self._is_first_end():
            self._in_turn(self.report.set_exception, error)
        for part in list(self._under_way):
            part.cancel()

    def _is_first_end(self) -> bool:
        with self._lock:
            first, self._ended = not self._ended, True
        return first
