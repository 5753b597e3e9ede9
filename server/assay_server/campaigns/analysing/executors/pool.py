"""Analyses in processes of this machine."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

from assay_server.campaigns.analysing.executors.interface import Executors
from assay_server.campaigns.analysing.job import end_with_server


class WorkerPool(Executors):
    """Makes executors of ``workers`` processes, which die with this process, however it dies."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def make(self) -> Executor:
        return _Processes(self._workers)


class _Processes(Executor):
    """Processes (spawn, as fork breaks gRPC), each a pool of one, with one task at a time.

    A process that dies ends its own task with BrokenExecutor, and no other; the next task gets a new process.
    """

    def __init__(self, count: int) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._receiver, self._lifeline = self._context.Pipe(duplex=False)
        self._threads = ThreadPoolExecutor(count, "assay-analysis-worker")
        self._own = threading.local()  # the process of each thread
        self._lock = threading.Lock()
        self._processes: set[ProcessPoolExecutor] = set()
        self._ended = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a task. Raises RuntimeError after the end."""
        return self._threads.submit(self._run, fn, *args, **kwargs)

    def _run(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        process = getattr(self._own, "process", None) or self._started()
        try:
            return process.submit(fn, *args, **kwargs).result()
        except BrokenExecutor:
            self._own.process = None
            with self._lock:
                self._processes.discard(process)
            process.shutdown(wait=False)
            raise

    def _started(self) -> ProcessPoolExecutor:
        with self._lock:
            if self._ended:
                raise BrokenExecutor("the workers were ended")
            process = self._own.process = ProcessPoolExecutor(
                1, mp_context=self._context, initializer=end_with_server, initargs=(self._receiver,)
            )
            self._processes.add(process)
            return process

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes at once, whatever they do."""
        self._threads.shutdown(wait=False, cancel_futures=cancel_futures)
        with self._lock:
            self._ended = True
            processes = list(self._processes)
        self._lifeline.close()
        for process in processes:
            process.shutdown(wait=wait, cancel_futures=cancel_futures)
        if wait:
            self._threads.shutdown()
