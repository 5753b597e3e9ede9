"""Runs the simulations of launches and designs: a few processes at a time, the longest first.

A launch that something killed is tried again; a failure of another class is kept, and the others go on. A
full disk ends everything. One driver works in a folder at a time: its lock stays held until the last process
of a driver that was killed has ended, so the next one waits for these.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from assay_client.ending import ended_in_order, raise_if_asked
from assay_client.simulating.attempts import Limits, Stop, simulate
from assay_client.simulating.installation import Simulator
from assay_client.simulating.launch_folder import LaunchFolder
from assay_client.simulating.stopping import OnlineStop, StopRule
from assay_client.simulating.watching import GrowingIntervals, LaunchProgress
from assay_core.files.durable import storage_errors
from assay_sampling.documents.designs import LaunchNumbers, SimulationFailure
from assay_sampling.errors import RefusedError

_LOOK_SECONDS = 0.5
_KILLED_AT_MOST = 3
_LOCK_SECONDS = 15.0


@dataclass
class RunningLaunch:
    """A launch whose simulator runs."""

    folder: LaunchFolder
    stop: Stop = field(default_factory=Stop)
    online: OnlineStop | None = None
    began: float = field(default_factory=time.monotonic)
    progress: LaunchProgress = field(default_factory=LaunchProgress)
    _intervals: GrowingIntervals | None = None
    _written: tuple[int, ...] = ()
    _wrote_at: float = field(default_factory=time.monotonic)

    @property
    def share(self) -> float:
        """The part of its blocks that have ended."""
        return min(self.progress.blocks / max(self.folder.launch.blocks, 1), 1.0)

    def look(self, hang_seconds: float) -> None:
        """Read how far it is, and end it if its rule stops it, or if it has written nothing for so long."""
        intervals = self.folder.intervals
        if self._intervals is None and intervals.is_file():
            self._intervals = GrowingIntervals(intervals)
        if self._intervals is not None:
            self.progress = self._intervals.look()
            if self.online is not None and self.online.reached(self._intervals.samples()):
                self.stop.because_a_rule_said_so()
        written = tuple(_size(path) for path in (self.folder.log, intervals))
        if written != self._written:
            self._written, self._wrote_at = written, time.monotonic()
        elif time.monotonic() - self._wrote_at > hang_seconds:
            self.stop.because_it_hung()


@dataclass(frozen=True)
class Progress:
    """How far the driver is: launches done and failed of all, those that run, and the seconds left."""

    done: int
    failed: int
    launches: int
    running: Sequence[RunningLaunch]
    seconds_left: float | None


@dataclass(frozen=True)
class Outcome:
    """What came of a launch."""

    folder: LaunchFolder
    numbers: LaunchNumbers | None
    failure: SimulationFailure | None
    resumed: bool = False


class Driver:
    """Simulates launches; :meth:`run` gives what came of each.

    Args:
        simulator: what runs.
        limits: of each process.
        jobs: how many run at a time.
        follow: called every half second, in the caller's thread.
        ended: called for each launch that has ended.
        rule: of projection, by which launches are stopped; None: they are simulated whole.
    """

    def __init__(
        self,
        simulator: Simulator,
        limits: Limits,
        jobs: int,
        *,
        follow: Callable[[Progress], None] = lambda _: None,
        ended: Callable[[Outcome], None] = lambda _: None,
        rule: StopRule | None = None,
    ) -> None:
        self._rule = rule
        self._simulator, self._limits, self._jobs = simulator, limits, jobs
        self._follow, self._ended = follow, ended
        self._running: dict[Path, RunningLaunch] = {}
        self._lock = threading.Lock()
        self._cancelled = threading.Event()
        self._done_bytes, self._done_seconds = 0, 0.0

    def run(self, folders: Sequence[LaunchFolder], held: Sequence[int]) -> list[Outcome]:
        """Simulate launches that have no result yet. ``held`` are descriptors of locks that their processes
        keep.

        Raises StorageError for a full disk, and KeyboardInterrupt or SystemExit where a signal asked for the
        end, after every process has ended.
        """
        waiting = sorted(folders, key=lambda each: each.launch.trace_bytes, reverse=True)
        outcomes: list[Outcome] = []
        with ended_in_order(self._cancel), ThreadPoolExecutor(self._jobs, "assay-simulate") as pool:
            futures = {pool.submit(self._simulate, folder, held): folder for folder in waiting}
            try:
                self._follow_all(futures, outcomes)
            except BaseException:
                self._cancel()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        raise_if_asked()
        return outcomes

    def _follow_all(
        self,
        futures: dict[Future[LaunchNumbers | SimulationFailure | None], LaunchFolder],
        outcomes: list[Outcome],
    ) -> None:
        waiting = set(futures)
        while waiting:
            ready, waiting = wait(waiting, _LOOK_SECONDS, FIRST_COMPLETED)
            for future in ready:
                result = future.result()
                if result is None:
                    continue
                failure = result if isinstance(result, SimulationFailure) else None
                numbers = None if isinstance(result, SimulationFailure) else result
                outcomes.append(Outcome(futures[future], numbers, failure))
                self._ended(outcomes[-1])
            with self._lock:
                running = list(self._running.values())
            for each in running:
                each.look(self._limits.hang_seconds)
            started = {each.folder.path for each in running}
            left = [futures[each] for each in waiting if futures[each].path not in started]
            self._follow(
                Progress(
                    sum(each.failure is None for each in outcomes),
                    sum(each.failure is not None for each in outcomes),
                    len(futures),
                    running,
                    self._seconds_left(running, left),
                )
            )

    def _simulate(
        self, folder: LaunchFolder, held: Sequence[int]
    ) -> LaunchNumbers | SimulationFailure | None:
        result: LaunchNumbers | SimulationFailure | None = None
        for _ in range(_KILLED_AT_MOST):
            running = RunningLaunch(
                folder, online=None if self._rule is None else OnlineStop(folder, self._rule)
            )
            with self._lock:
                if self._cancelled.is_set():
                    return None
                self._running[folder.path] = running
            try:
                result = simulate(
                    folder, self._simulator, self._limits, running.stop, held=held, rule=self._rule
                )
            finally:
                with self._lock:
                    del self._running[folder.path]
            if not (isinstance(result, SimulationFailure) and result.kind == "killed"):
                break
        with self._lock:
            self._done_bytes += folder.launch.trace_bytes
            self._done_seconds += time.monotonic() - running.began
        return result

    def _cancel(self) -> None:
        with self._lock:
            self._cancelled.set()
            for each in self._running.values():
                each.stop.event.set()

    def _seconds_left(
        self, running: Sequence[RunningLaunch], waiting: Sequence[LaunchFolder]
    ) -> float | None:
        """The time until the last launch ends, by the seconds that bytes of traces took so far."""
        done, seconds = float(self._done_bytes), self._done_seconds
        for each in running:
            done += each.share * each.folder.launch.trace_bytes
            seconds += time.monotonic() - each.began
        if not done > 0:
            return None
        rest = [(1 - each.share) * each.folder.launch.trace_bytes for each in running]
        rest += [float(each.launch.trace_bytes) for each in waiting]
        return seconds / done * max(sum(rest) / self._jobs, max(rest, default=0.0))


@contextlib.contextmanager
def folder_locked(folder: Path) -> Iterator[int]:
    """Hold the lock of a folder of simulations, and give its descriptor.

    Raises RefusedError if another driver works there, StorageError if the lock cannot be made.
    """
    path = folder / ".lock"
    with storage_errors(path, "name a folder that you may write to"):
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        until = time.monotonic() + _LOCK_SECONDS
        while not _locked(handle):
            if time.monotonic() > until:
                raise RefusedError(
                    str(folder), "another 'assay simulate' works there", "wait for it, or name another folder"
                )
            time.sleep(_LOOK_SECONDS)
        yield handle
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
