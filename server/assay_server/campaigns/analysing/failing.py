"""Why an analysis failed, as a campaign says it."""

from __future__ import annotations

import logging
from concurrent.futures import BrokenExecutor

from assay_core.records.failure import Failure, failure
from assay_sampling.errors import (
    AssayError,
    CounterUnavailableError,
    InputError,
    LaunchTableError,
    StorageError,
)
from assay_sampling.running.failures import FailureClass
from assay_server.campaigns.analysing.executors.interface import WorkersAwayError
from assay_server.store.model import AnalysisTry

_log = logging.getLogger(__name__)


def failure_of_analysis(error: BaseException, campaign_id: str) -> Failure:
    """The failure of an analysis, for good or for now."""
    subject = f"analysis of {campaign_id}"
    if isinstance(error, BrokenExecutor):
        return Failure(
            str(FailureClass.INTERNAL),
            subject,
            "its process died, most likely because the system ran out of memory and killed it",
            "lower analysis.memory_limit_bytes in the campaign file, or give the server more memory",
        )
    if isinstance(error, WorkersAwayError):
        return Failure(
            str(FailureClass.ANALYSIS_WORKERS), error.subject, error.explained, error.remedy, retryable=True
        )
    if isinstance(error, AssayError):
        return Failure(_class_of(error), error.subject, error.explained, error.remedy)
    _log.error("%s failed", subject, exc_info=error)
    cause = f"{type(error).__name__}: {error}"
    return failure(FailureClass.INTERNAL, subject, cause)


def given_up(begun: AnalysisTry) -> Failure:
    """The failure of an analysis that outlived none of its servers."""
    return Failure(
        str(FailureClass.INTERNAL),
        f"analysis of {begun.campaign_id}",
        f"{begun.attempts - 1} servers in a row died, or stood still, while they made it",
        "look into their logs for memory that ran out; then try it again: assay lab retry",
    )


def _class_of(error: AssayError) -> str:
    if isinstance(error, InputError | LaunchTableError | CounterUnavailableError):
        return str(FailureClass.INPUT_UNREADABLE)
    if isinstance(error, StorageError):
        return str(FailureClass.DISK_FULL)
    return str(FailureClass.SERVER_REFUSED)
