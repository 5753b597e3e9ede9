"""The work of worker processes: the analysis of a campaign, or of one of its workloads, and its page.

The files of an analysis are read on the machine that makes it: those of a bucket are brought there and held.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from assay_core.files.durable import storage_error, storage_fails
from assay_server.analysis.runs.intact import require_intact
from assay_server.analysis.runs.request import AnalysisRequest, RunData
from assay_server.places import RecordsPlace
from assay_server.store.objects.bucket import opened_bucket
from assay_server.store.objects.cache import RecordFetcher

if TYPE_CHECKING:
    from assay_report.model.report import Report
    from assay_server.analysis.runs.request import AnalysisRequest, RunData
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

    with at_hand(request) as here, _reading(here.runs):
        report = analyse(here)
    return _pages(report)


def analyse_one_workload(request: AnalysisRequest, workload: str) -> WorkloadAnalysis:
    """The part of the report about one workload; raises AssayError."""
    from assay_server.analysis.pipeline import analyse_part  # noqa: PLC0415

    with at_hand(request, lambda run: run.workload == workload) as here:
        runs = [run for run in here.runs if run.workload == workload]
        with _reading(runs):
            return analyse_part(here, workload)


def join_workloads(request: AnalysisRequest, parts: Sequence[WorkloadAnalysis]) -> Pages:
    """The report from the parts of all workloads, in order; raises AssayError."""
    from assay_server.analysis.pipeline import joined_report  # noqa: PLC0415

    with at_hand(request, _facts_in_file) as here:
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
    from assay_report.data.parquet import report_parquet  # noqa: PLC0415
    from assay_report.html import render_html  # noqa: PLC0415

    text = json.dumps(report.to_document(), ensure_ascii=False, allow_nan=False, indent=1)
    return text.encode() + b"\n", render_html(report).encode(), report_parquet(report)


def end_with_server(lifeline: Connection) -> None:
    """Initialise a worker: it ends when the server closes its end of the lifeline, or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the server decides
    # scikit-learn's joblib tests a semaphore on import. A worker that ends at that moment leaks it, and
    # Python warns the user; fits here use one thread and need no semaphore.
    os.environ.setdefault("JOBLIB_MULTIPROCESSING", "0")
    threading.Thread(target=_wait_for_end, args=(lifeline,), daemon=True).start()


def _wait_for_end(lifeline: Connection) -> None:
    try:
        lifeline.recv()
    except (EOFError, OSError):
        os._exit(1)


@contextlib.contextmanager
def at_hand(
    request: AnalysisRequest, is_read: Callable[[RunData], bool] = lambda run: True
) -> Iterator[AnalysisRequest]:
    """The request with paths of this machine, whose files stay until the block ends.

    ``is_read``: whether the files of a run are read. Raises StorageError if the bucket does not give them.
    """
    if request.records is None:
        yield request
        return
    fetcher, start = _fetcher(request.records), f"{request.records.url}/"
    files = 2 * sum(len(run.files) for run in request.runs if is_read(run))
    _allow_open_files(files + _SPARE_FILES)
    with contextlib.ExitStack() as held:

        def here(uri: str) -> str:
            return str(held.enter_context(fetcher.reading(uri.removeprefix(start))))

        def brought(run: RunData) -> RunData:
            cycles = None if run.cycles is None else brought(run.cycles)
            return replace(run, files=tuple(map(here, run.files)), cycles=cycles)

        runs = tuple(brought(run) if is_read(run) else run for run in request.runs)
        yield replace(request, runs=runs)


@lru_cache(maxsize=1)
def _fetcher(place: RecordsPlace) -> RecordFetcher:
    return RecordFetcher(opened_bucket(place), place)


def _allow_open_files(files: int) -> None:
    """Each file that is held is open: let this process have so many, as far as the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = files if hard == resource.RLIM_INFINITY else min(files, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
