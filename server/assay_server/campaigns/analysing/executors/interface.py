"""The seam of executors: where the workloads of a campaign are analysed, each as a task.

A task is a function of :mod:`assay_server.campaigns.analysing.job` with values that can be pickled; files are
named by paths that must lead to the same files where the task runs. An executor ends a task whose process
died again and again with ``BrokenExecutor``, and with WorkersAwayError where it could not be tried.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import Executor

from assay_sampling.errors import NotReadyError


class WorkersAwayError(NotReadyError):
    """The workers that analyse cannot be reached, or none may be used; the analysis waits for them."""


class Executors(ABC):
    """Makes the executor of analyses, and a new one after the earlier one broke.

    Making one, and submitting to it, raise WorkersAwayError.
    """

    _last: Executor | None = None

    def __call__(self) -> Executor:
        """A new executor; ends the earlier one."""
        self._end(wait=False)
        self._last = self.make()
        return self._last

    @abstractmethod
    def make(self) -> Executor:
        """An executor of its own."""

    def end(self) -> None:
        """End the last executor and its tasks, at once.

        Of processes, wait until their semaphores are unlinked. The threads of a pool may be daemons; if one
        unlinked them while the process exits, it could be cut off half-way, and Python's resource tracker
        would print a warning.
        """
        self._end(wait=True)

    def _end(self, *, wait: bool) -> None:
        if self._last is not None:
            self._last.shutdown(wait=wait, cancel_futures=True)
            self._last = None


class ExecutorApart(Executor):
    """An executor whose workers have memory of their own: workloads side by side share none of it."""
