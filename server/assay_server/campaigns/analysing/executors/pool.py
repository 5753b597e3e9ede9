"""Analyses in processes of this machine."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing.connection import Connection

from assay_server.campaigns.analysing.job import end_with_server


class WorkerPool:
    """A process pool (spawn, as fork breaks gRPC) whose workers die with this process, however it dies."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._lifeline: Connection | None = None
        self._executor: ProcessPoolExecutor | None = None

    def __call__(self) -> Executor:
        """A new pool; ends the earlier one."""
        self._end(wait=False)
        context = multiprocessing.get_context("spawn")
        receiver, self._lifeline = context.Pipe(duplex=False)
        self._executor = ProcessPoolExecutor(
            self._workers, mp_context=context, initializer=end_with_server, initargs=(receiver,)
        )
        return self._executor

    def end(self) -> None:
        """End the workers at once, and wait until their semaphores are unlinked.

        The pool's own thread may be a daemon; if it unlinked them while the process exits, it could be
        cut off half-way, and Python's resource tracker would print a warning.
        """
        self._end(wait=True)

    def _end(self, *, wait: bool) -> None:
        if self._lifeline is not None:
            self._lifeline.close()
            self._lifeline = None
        if self._executor is not None:
            self._executor.shutdown(wait=wait, cancel_futures=True)
            self._executor = None
