"""What runs in worker processes: the analysis of a campaign, or of each of its workloads, and its page."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from assay_server.analysis.intact import require_intact

if TYPE_CHECKING:
    from assay_server.analysis.request import AnalysisRequest
    from assay_server.analysis.workload import WorkloadAnalysis

Pages = tuple[bytes, bytes]


def analyse_campaign(request: AnalysisRequest) -> Pages:
    """The report of a campaign as JSON and as an HTML page, UTF-8.

    Raises RecordsChangedError where a file is not what was published, AssayError.
    """
    from assay_server.analysis.pipeline import analyse  # noqa: PLC0415 - only workers load the analysis

    require_intact(request.runs)
    report = analyse(request)
    require_intact(request.runs)  # nobody wrote to a file while it was read
    return _pages(report)


def analyse_one_workload(request: AnalysisRequest, workload: str) -> WorkloadAnalysis:
    """A part of that report; raises AssayError."""
    from assay_server.analysis.pipeline import analyse_part  # noqa: PLC0415

    runs = [run for run in request.runs if run.workload == workload]
    require_intact(runs)
    part = analyse_part(request, workload)
    require_intact(runs)
    return part


def join_workloads(request: AnalysisRequest, parts: Sequence[WorkloadAnalysis]) -> Pages:
    """The same report from the parts of all workloads, in order."""
    from assay_server.analysis.pipeline import report_document  # noqa: PLC0415

    require_intact(run for run in request.runs if not run.facts.known)  # a file tells their facts
    return _pages(report_document(request, parts))


def _pages(report: dict[str, Any]) -> Pages:
    from assay_server.report.html import render_html  # noqa: PLC0415

    document = json.dumps(report, ensure_ascii=False, allow_nan=False, indent=1)
    return document.encode() + b"\n", render_html(report).encode()


def end_with_server(lifeline: Connection) -> None:
    """Initialise a worker: it ends when the server closes its end of the lifeline, or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the server decides
    # scikit-learn's joblib tries out a semaphore as it is imported. A worker that ends within that leaves it
    # to be cleaned up, which Python tells the user; fits here use one thread and need none.
    os.environ.setdefault("JOBLIB_MULTIPROCESSING", "0")
    threading.Thread(target=_wait_for_end, args=(lifeline,), daemon=True).start()


def _wait_for_end(lifeline: Connection) -> None:
    try:
        lifeline.recv()
    except (EOFError, OSError):
        os._exit(1)
