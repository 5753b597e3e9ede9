"""The seam of executors: where the workloads of a campaign are analysed, each as a task.

A task is a function of :mod:`assay_server.campaigns.analysing.job` with values that can be pickled; files are
named by paths that must lead to the same files where the task runs. An executor ends a task whose process
died again and again with ``BrokenExecutor``, and with WorkersAwayError where it could not be tried.
"""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Protocol

from assay_sampling.errors import NotReadyError


class WorkersAwayError(NotReadyError):
    """The workers that analyse cannot be reached, or none may be used; the analysis waits for them."""


class Executors(Protocol):
    """Makes the executor of analyses, and a new one after the earlier one broke.

    Making one, and submitting to it, raise WorkersAwayError.
    """

    def __call__(self) -> Executor: ...

    def end(self) -> None:
        """End the last executor and its tasks, at once."""


class ExecutorApart(Executor):
    """An executor whose workers have memory of their own: workloads side by side share none of it."""
