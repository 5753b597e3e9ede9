"""Guards of one run: they end it if its processes take too much memory, or its disk fills up.

The processes are the tool's whole tree (profiler and workload), by /proc. Their memory is the sum of their
resident sets, of which pages that several of them share count for each, of the memory files that they have
open (memfd), and of the files that a bundle's run writes, which are in memory, too. A thread looks twice a
second; it sets an event that ends the tool in order (INT, TERM, KILL).

The tree is read from /proc without psutil: virtual GPUs also work without the extra ``agent``, and one pass,
15 ms for 120 processes, covers all children of the agent, while psutil needs one for each (8 ms).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from assay_agent.execution.errors import ProfilerError
from assay_core.files.free_space import free_space
from assay_sampling.running.failures import FailureClass

_LOOK_SECONDS = 0.5
_JOIN_SECONDS = 10.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")


class RunGuards:
    """Watches while it is entered. Pass ``stop`` to the tool as its ``cancelled``.

    Args:
        memory_limit_bytes: of all processes together; 0: no limit.
        minimum_free_bytes: on the disk of ``directory``; 0: no floor.
        directory: where the run's files go.
        temporary: the private TMPDIR of the run, which marks its processes.
        cancelled: the run is no longer wanted; passed on to ``stop``.
        files_bytes: memory that the run's files take.
        tick: called about twenty times a second from the watching thread. Must not raise.
    """

    def __init__(
        self,
        *,
        memory_limit_bytes: int,
        minimum_free_bytes: int,
        directory: Path,
        temporary: Path,
        cancelled: threading.Event,
        look_seconds: float = _LOOK_SECONDS,
        files_bytes: Callable[[], int] = lambda: 0,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        self._files_bytes = files_bytes
        self._memory_limit_bytes, self._minimum_free_bytes = memory_limit_bytes, minimum_free_bytes
        self._directory, self._temporary, self._cancelled = directory, temporary, cancelled
        self._look_seconds, self._tick = look_seconds, tick
        self.stop = threading.Event()
        self.peak_bytes = 0
        self._problem: tuple[FailureClass, str] | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="assay-guards", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        # A network disk that hangs must not block the slot for ever.
        self._thread.join(_JOIN_SECONDS)

    def require_kept(self, subject: str) -> None:
        """Raises ProfilerError if a guard ended the run."""
        if self._problem is not None:
            failure_class, cause = self._problem
            raise ProfilerError(failure_class, subject, cause)

    def _watch(self) -> None:
        # Checked often: a cancellation must not wait for half a second.
        look_due: Callable[[], bool] = self._every_nth()
        while not self._over.wait(min(0.05, self._look_seconds)):
            if self._cancelled.is_set():
                self.stop.set()
                return
            self._tick()
            if look_due():
                self._problem = self._memory_problem() or self._disk_problem()
                if self._problem is not None:
                    self.stop.set()
                    return

    def _every_nth(self) -> Callable[[], bool]:
        rounds = max(1, round(self._look_seconds / 0.05))
        calls = 0

        def due() -> bool:
            nonlocal calls
            calls += 1
            return calls % rounds == 0

        return due

    def _memory_problem(self) -> tuple[FailureClass, str] | None:
        if not self._memory_limit_bytes:
            return None
        processes = run_processes(self._temporary)
        used = resident_bytes(processes) + memory_file_bytes(processes) + self._files_bytes()
        self.peak_bytes = max(self.peak_bytes, used)
        if used <= self._memory_limit_bytes:
            return None
        return (
            FailureClass.MEMORY_LIMIT,
            f"its processes and files took {used / 2**20:,.0f} MiB of memory, but its limit is "
            f"{self._memory_limit_bytes / 2**20:,.0f} MiB; it was ended",
        )

    def _disk_problem(self) -> tuple[FailureClass, str] | None:
        if not self._minimum_free_bytes:
            return None
        try:
            space = free_space(self._directory)
        except OSError:
            return None
        gone = space.place != self._directory.absolute()  # the run is at its end
        if gone or space.free_bytes >= self._minimum_free_bytes:
            return None
        return (
            FailureClass.DISK_FULL,
            f"the disk of {self._directory} has {space.free_bytes / 2**20:,.0f} MiB left, less than the "
            f"{self._minimum_free_bytes / 2**20:,.0f} MiB that must stay free; it was ended",
        )


def run_processes(temporary: Path) -> list[int]:
    """The children of this process whose TMPDIR is ``temporary``, and all their descendants."""
    children = _children()
    variable = f"TMPDIR={temporary}".encode()
    waiting = [pid for pid in children.get(os.getpid(), ()) if variable in _variables(pid)]
    processes: list[int] = []
    while waiting:
        process = waiting.pop()
        processes.append(process)
        waiting += children.get(process, ())
    return processes


def resident_bytes(processes: list[int]) -> int:
    """Resident memory of the processes together; 0 for those that have ended."""
    total = 0
    for process in processes:
        with contextlib.suppress(OSError, ValueError, IndexError):
            total += int((_PROC / str(process) / "statm").read_text().split()[1]) * _PAGE_BYTES
    return total


def memory_file_bytes(processes: list[int]) -> int:
    """Memory of the files without a name (memfd) that the processes have open, each once."""
    sizes: dict[tuple[int, int], int] = {}
    for process in processes:
        with contextlib.suppress(OSError), os.scandir(_PROC / str(process) / "fd") as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if os.readlink(entry.path).startswith("/memfd:"):  # noqa: PTH115
                        state = entry.stat()
                        sizes[state.st_dev, state.st_ino] = state.st_blocks * 512
    return sum(sizes.values())


def _children() -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for name in os.listdir(_PROC):  # noqa: PTH208 - twice a second, over all processes
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                stat = (_PROC / name / "stat").read_bytes()
                children.setdefault(int(stat.rpartition(b")")[2].split()[1]), []).append(int(name))
    return children


def _variables(process: int) -> list[bytes]:
    try:
        return (_PROC / str(process) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []
