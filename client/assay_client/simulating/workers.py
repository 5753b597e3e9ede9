"""Where launches are simulated: on this machine, or elsewhere behind the same seam."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Protocol

from assay_client.simulating.attempts import LEAST_MEMORY_BYTES
from assay_client.simulating.tasks import Ended, LaunchTask, simulate_launch
from assay_client.simulating.watching import LaunchProgress

# Called with the worker's name ("": this machine) while a launch runs, in any thread.
Report = Callable[[str, LaunchProgress], None]


class Workers(Protocol):
    """Runs tasks, each in a process of its own."""

    def submit(self, task: LaunchTask, report: Report) -> Future[Ended | None]:
        """Run a task as soon as there is room; those submitted first run first."""

    def result(self, future: Future[Ended | None], task: LaunchTask) -> Ended | Future[Ended | None] | None:
        """The result of a future that is done, None if it was cancelled; or a new future, where the task is
        tried elsewhere.

        Raises StorageError where a disk is full, NotReadyError if nobody runs tasks any more.
        """

    def room(self) -> int:
        """How many tasks run at a time."""

    def notices(self) -> Sequence[str]:
        """What people must know of the workers, so far."""

    def cancel(self) -> None:
        """End every task; called in any thread, and does not wait."""

    def close(self) -> None:
        """Wait until no process of a task runs any more."""


def default_jobs() -> int:
    """A process for each core that this one may use."""
    return len(os.sched_getaffinity(0))


def whole_memory_bytes() -> int:
    """The memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class LocalWorkers:
    """This machine, which runs so many processes at a time; they share its memory."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._pool = ThreadPoolExecutor(jobs, "assay-simulate")
        self._cancelled = threading.Event()
        self._share_bytes = max(whole_memory_bytes() // jobs, LEAST_MEMORY_BYTES)

    def submit(self, task: LaunchTask, report: Report) -> Future[Ended | None]:
        return self._pool.submit(
            simulate_launch, task, self._share_bytes, self._cancelled, partial(report, "")
        )

    def result(self, future: Future[Ended | None], task: LaunchTask) -> Ended | None:
        return None if future.cancelled() else future.result()

    def room(self) -> int:
        return self._jobs

    def notices(self) -> Sequence[str]:
        return ()

    def cancel(self) -> None:
        self._cancelled.set()

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
