"""Follows the simulations of launches and designs, the longest first, until all have ended.

A launch that something killed is tried again; a failure of another class is kept, and the others go on. A
full disk ends everything. One driver works in a folder at a time.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from assay_client.ending import ended_in_order, raise_if_asked
from assay_client.simulating.launch_folder import LaunchFolder
from assay_client.simulating.locking import file_locked
from assay_client.simulating.tasks import Ended, LaunchTask
from assay_client.simulating.watching import LaunchProgress
from assay_client.simulating.workers import Workers
from assay_sampling.documents.designs import LaunchNumbers, SimulationFailure
from assay_sampling.errors import NotReadyError, RefusedError

_LOOK_SECONDS = 0.5
_LOCK_SECONDS = 15.0


@dataclass
class RunningLaunch:
    """A launch whose simulator runs, and the worker where it does; "": this machine."""

    folder: LaunchFolder
    where: str
    began: float = field(default_factory=time.monotonic)
    progress: LaunchProgress = field(default_factory=LaunchProgress)

    @property
    def share(self) -> float:
        """The part of its blocks that have ended."""
        return min(self.progress.blocks / max(self.folder.launch.blocks, 1), 1.0)


@dataclass(frozen=True)
class Progress:
    """How far the driver is: launches done and failed of all, those that run, the seconds left, and what
    people must know of the workers."""

    completed: int
    failed: int
    launches: int
    running: Sequence[RunningLaunch]
    seconds_left: float | None
    notices: Sequence[str]


@dataclass(frozen=True)
class Outcome:
    """What came of a launch, and the worker that simulated it; "": this machine."""

    folder: LaunchFolder
    numbers: LaunchNumbers | None
    failure: SimulationFailure | None
    resumed: bool = False
    where: str = ""


class Driver:
    """Simulates launches; :meth:`run` gives what came of each.

    Args:
        workers: where they are simulated.
        follow: called every half second, in the caller's thread.
        ended: called for each launch that has ended.
    """

    def __init__(
        self,
        workers: Workers,
        *,
        follow: Callable[[Progress], None] = lambda _: None,
        ended: Callable[[Outcome], None] = lambda _: None,
    ) -> None:
        self._workers, self._follow, self._ended = workers, follow, ended
        self._waiting: dict[Future[Ended | None], LaunchTask] = {}
        self._open: set[Path] = set()
        self._running: dict[Path, RunningLaunch] = {}
        self._lock = threading.Lock()
        self._cancelled = threading.Event()
        self._done_bytes, self._done_seconds = 0, 0.0

    def run(self, tasks: Sequence[LaunchTask]) -> list[Outcome]:
        """Simulate launches that have no result yet.

        Raises StorageError for a full disk, NotReadyError if the workers are lost, and KeyboardInterrupt or
        SystemExit where a signal asked for the end; each after every process has ended.
        """
        outcomes: list[Outcome] = []
        with ended_in_order(self._cancel):
            try:
                for task in sorted(tasks, key=lambda each: each.folder.launch.trace_bytes, reverse=True):
                    self._waiting[self._submitted(task)] = task
                self._follow_all(len(tasks), outcomes)
            except BaseException as error:
                was_cancelled = self._cancelled.is_set()
                self._cancel()
                # A cancelled connection is a lost one.
                if not (was_cancelled and isinstance(error, NotReadyError)):
                    raise
            finally:
                self._workers.close()
        raise_if_asked()
        return outcomes

    def _submitted(self, task: LaunchTask) -> Future[Ended | None]:
        with self._lock:
            self._open.add(task.folder.path)
        return self._workers.submit(task, partial(self._report, task.folder))

    def _follow_all(self, launches: int, outcomes: list[Outcome]) -> None:
        while self._waiting and not self._cancelled.is_set():
            ready, _ = wait(self._waiting, _LOOK_SECONDS, FIRST_COMPLETED)
            for future in ready:
                outcome = self._take(future)
                if outcome is not None:
                    outcomes.append(outcome)
                    self._ended(outcome)
            with self._lock:
                running = list(self._running.values())
            self._follow(
                Progress(
                    sum(each.failure is None for each in outcomes),
                    sum(each.failure is not None for each in outcomes),
                    launches,
                    running,
                    self._seconds_left(running),
                    self._workers.notices(),
                )
            )

    def _take(self, future: Future[Ended | None]) -> Outcome | None:
        """What came of a task that has ended; None if it was cancelled, or is tried elsewhere."""
        task = self._waiting.pop(future)
        with self._lock:
            ran = self._running.pop(task.folder.path, None)
        result = self._workers.result(future, task)
        if isinstance(result, Future):
            self._waiting[result] = task
            return None
        with self._lock:
            self._open.discard(task.folder.path)
            self._running.pop(task.folder.path, None)
        if result is None:
            return None
        if ran is not None:
            self._done_bytes += task.folder.launch.trace_bytes
            self._done_seconds += time.monotonic() - ran.began
        where = "" if ran is None else ran.where
        if isinstance(result, SimulationFailure):
            return Outcome(task.folder, None, result, where=where)
        return Outcome(task.folder, result, None, where=where)

    def _report(self, folder: LaunchFolder, where: str, progress: LaunchProgress) -> None:
        """A launch runs; workers elsewhere may still say so after its end."""
        with self._lock:
            if folder.path not in self._open:
                return
            ran = self._running.get(folder.path)
            if ran is None or ran.where != where:
                ran = self._running[folder.path] = RunningLaunch(folder, where)
            ran.progress = progress

    def _cancel(self) -> None:
        self._cancelled.set()
        self._workers.cancel()

    def _seconds_left(self, running: Sequence[RunningLaunch]) -> float | None:
        """The time until the last launch ends, by the seconds that bytes of traces took so far."""
        done_bytes, seconds = float(self._done_bytes), self._done_seconds
        for each in running:
            done_bytes += each.share * each.folder.launch.trace_bytes
            seconds += time.monotonic() - each.began
        if not done_bytes > 0:
            return None
        started = {each.folder.path for each in running}
        rest = [(1 - each.share) * each.folder.launch.trace_bytes for each in running]
        rest += [
            float(task.folder.launch.trace_bytes)
            for task in self._waiting.values()
            if task.folder.path not in started
        ]
        return seconds / done_bytes * max(sum(rest) / max(self._workers.room(), 1), max(rest, default=0.0))


@contextlib.contextmanager
def folder_locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder of simulations.

    Raises RefusedError if another driver works there, StorageError if the lock cannot be made.
    """
    with file_locked(folder / ".lock", _LOCK_SECONDS) as lock:
        if lock is None:
            raise RefusedError(
                str(folder), "another 'assay simulate' works there", "wait for it, or name another folder"
            )
        yield
