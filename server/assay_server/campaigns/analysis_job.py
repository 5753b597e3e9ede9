"""What runs in the worker process: the analysis of one campaign and its page."""

from __future__ import annotations

import json
import os
import signal
import threading
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay_server.analysis.request import AnalysisRequest


def analyse_campaign(request: AnalysisRequest) -> tuple[bytes, bytes]:
    """The report of a campaign as JSON and as an HTML page, UTF-8; raises AssayError."""
    from assay_server.analysis.pipeline import analyse  # noqa: PLC0415 - only workers load the analysis
    from assay_server.report.html import render_html  # noqa: PLC0415

    report = analyse(request)
    document = json.dumps(report, ensure_ascii=False, allow_nan=False, indent=1)
    return document.encode() + b"\n", render_html(report).encode()


def end_with_server(lifeline: Connection) -> None:
    """Initialise a worker: it ends when the server closes its end of the lifeline, or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the server decides
    threading.Thread(target=_wait_for_end, args=(lifeline,), daemon=True).start()


def _wait_for_end(lifeline: Connection) -> None:
    try:
        lifeline.recv()
    except (EOFError, OSError):
        os._exit(1)
