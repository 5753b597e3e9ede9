"""Executors of analyses, and those in processes of this machine.

A task is a function of :mod:`assay_server.campaigns.analysing.job` with values that can be pickled; files are
named by paths that must lead to the same files where the task runs. An executor ends a task whose process
died again and again with ``BrokenExecutor``, and with WorkersAwayError where it could not be tried.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

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
        self.end(wait=False)
        self._last = self.make()
        return self._last

    @abstractmethod
    def make(self) -> Executor:
        """An executor of its own."""

    def end(self, *, wait: bool = True) -> None:
        """End the last executor and its tasks, at once.

        Of processes, wait until their semaphores are unlinked. The threads of a pool may be daemons; if one
        unlinked them while the process exits, it could be cut off half-way, and Python's resource tracker
        would print a warning.
        """
        if self._last is not None:
            self._last.shutdown(wait=wait, cancel_futures=True)
            self._last = None


class ExecutorApart(Executor):
    """An executor whose workers have memory of their own: workloads side by side share none of it."""


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


def end_with_server(lifeline: Connection) -> None:
    """Initialise a worker: it ends when the server closes its end of the lifeline, or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the server decides
    # scikit-learn's joblib tests a semaphore on import. A worker that ends at that moment leaks it, and
    # Python warns the user; fits here use one thread and need no semaphore.
    os.environ.setdefault("JOBLIB_MULTIPROCESSING", "0")

    def wait_for_end() -> None:
        try:
            lifeline.recv()
        except (EOFError, OSError):
            os._exit(1)

    threading.Thread(target=wait_for_end, daemon=True).start()
