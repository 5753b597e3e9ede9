"""The analysis of a campaign on an executor: its workloads in parallel, if memory allows, then the report.

The functions here are the tasks: the analysis of a campaign, or of one of its workloads, and its page. The
files of an analysis are read on the machine that makes it: those of a bucket are brought there and held.
"""

from __future__ import annotations

import contextlib
import json
import resource
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future, InvalidStateError
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from assay_core.files.durable import storage_error, storage_fails
from assay_server.analysis.runs.intact import require_intact
from assay_server.analysis.runs.request import AnalysisRequest, RunData
from assay_server.campaigns.analysing.executors import ExecutorApart
from assay_server.places import RecordsPlace
from assay_server.store.objects.bucket import opened_bucket
from assay_server.store.objects.cache import RecordCache

if TYPE_CHECKING:
    from assay_report.model.report import Report
    from assay_server.analysis.workload import WorkloadAnalysis

Pages = tuple[bytes, bytes, bytes]
"""A report in the forms of :data:`assay_server.store.record_store.REPORT_FORMS`, in that order."""
_SUBJECT = "records of an analysis"
_SPARE_FILES = 256


def analyse_campaign(request: AnalysisRequest) -> Pages:
    """The report of a campaign as JSON and as an HTML page, UTF-8, and its rows as Parquet.

    Raises RecordsChangedError if a file changed since it was published, StorageError if a disk does not give
    it now, AssayError.
    """
    from assay_server.analysis.pipeline import analyse  # noqa: PLC0415 - only workers load the analysis

    with with_local_files(request) as here, _reading(here.runs):
        report = analyse(here)
    return _pages(report)


def analyse_one_workload(request: AnalysisRequest, workload: str) -> WorkloadAnalysis:
    """The part of the report about one workload; raises AssayError."""
    from assay_server.analysis.pipeline import analyse_part  # noqa: PLC0415

    with with_local_files(request, lambda run: run.workload == workload) as here:
        runs = [run for run in here.runs if run.workload == workload]
        with _reading(runs):
            return analyse_part(here, workload)


def join_workloads(request: AnalysisRequest, parts: Sequence[WorkloadAnalysis]) -> Pages:
    """The report from the parts of all workloads, in order; raises AssayError."""
    from assay_server.analysis.pipeline import joined_report  # noqa: PLC0415

    with with_local_files(request, _facts_in_file) as here:
        require_intact(filter(_facts_in_file, here.runs))
        return _pages(joined_report(here, parts))


@contextlib.contextmanager
def _reading(runs: Sequence[RunData]) -> Iterator[None]:
    """The block reads the runs' files; raises RecordsChangedError if one changes before it ends, and
    StorageError if storage fails. Any other error of the operating system is the analysis's own."""
    require_intact(runs)
    try:
        yield
    except OSError as error:
        require_intact(runs)
        if storage_fails(error):
            raise storage_error(_SUBJECT, error) from error
        raise
    require_intact(runs)


def _facts_in_file(run: RunData) -> bool:
    """Whether a run's facts come from its file."""
    return not run.facts.known


def _pages(report: Report) -> Pages:
    from assay_report.data import report_parquet  # noqa: PLC0415
    from assay_report.html import render_html  # noqa: PLC0415

    text = json.dumps(report.to_document(), ensure_ascii=False, allow_nan=False, indent=1)
    return text.encode() + b"\n", render_html(report).encode(), report_parquet(report)


@contextlib.contextmanager
def with_local_files(
    request: AnalysisRequest, is_read: Callable[[RunData], bool] = lambda run: True
) -> Iterator[AnalysisRequest]:
    """The request with paths of this machine, whose files stay until the block ends.

    ``is_read``: whether the files of a run are read. Raises StorageError if the bucket does not give them.
    """
    if request.records is None:
        yield request
        return
    cache, start = _cache(request.records), f"{request.records.url}/"
    files = 2 * sum(len(run.files) for run in request.runs if is_read(run))
    _allow_open_files(files + _SPARE_FILES)
    with contextlib.ExitStack() as copies:

        def here(uri: str) -> str:
            return str(copies.enter_context(cache.reading(uri.removeprefix(start))))

        def brought(run: RunData) -> RunData:
            cycles = None if run.cycles is None else brought(run.cycles)
            return replace(run, files=tuple(map(here, run.files)), cycles=cycles)

        runs = tuple(brought(run) if is_read(run) else run for run in request.runs)
        yield replace(request, runs=runs)


@lru_cache(maxsize=1)
def _cache(place: RecordsPlace) -> RecordCache:
    return RecordCache(opened_bucket(place), place)


def _allow_open_files(files: int) -> None:
    """Each file that is held is open: let this process have so many, as far as the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = files if hard == resource.RLIM_INFINITY else min(files, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


# The most that an analysis holds per launch.
_BYTES_PER_LAUNCH = 400


def submit_analysis(executor: Executor, request: AnalysisRequest) -> Future[Pages]:
    """The future report of a campaign; raises BrokenExecutor, WorkersAwayError.

    Workloads are analysed one after the other if all at once might exceed the memory limit of one machine.
    """
    workloads = request.workloads
    if len(workloads) < 2:
        return executor.submit(analyse_campaign, request)
    needed_bytes = _BYTES_PER_LAUNCH * sum(run.launches for run in request.runs)
    fits = isinstance(executor, ExecutorApart) or needed_bytes <= request.memory_limit_bytes
    joined = _Joined(executor, request, {name: request.of_workload(name) for name in workloads})
    joined.begin(len(workloads) if fits else 1)
    return joined.report


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
        self._waiting = deque(requests)
        self._under_way: list[Future[WorkloadAnalysis]] = []

    def begin(self, at_once: int) -> None:
        """Submit so many parts; each that ends lets the next one follow. Raises what submitting raises."""
        for _ in range(at_once):
            self._submit_next()

    def _submit_next(self) -> None:
        with self._lock:
            if self.report.done() or not self._waiting:
                return
            name = self._waiting.popleft()
        part = self._executor.submit(analyse_one_workload, self._requests[name], name)
        self._under_way.append(part)
        part.add_done_callback(partial(self._heard, name))

    def _heard(self, name: str, part: Future[WorkloadAnalysis]) -> None:
        if self.report.done():
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
        except BaseException as error:  # noqa: BLE001 - whoever waits for the report must hear of it
            self._fail(error)

    def _end(self, joined: Future[Pages]) -> None:
        try:
            self.report.set_result(joined.result())
        except BaseException as error:  # noqa: BLE001 - as above
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """End the report with this error, unless it has ended, and drop parts that have not begun."""
        with contextlib.suppress(InvalidStateError):
            if isinstance(error, CancelledError):
                self.report.cancel()
            else:
                self.report.set_exception(error)
        for part in list(self._under_way):
            part.cancel()
