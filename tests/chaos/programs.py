"""Programs of the lab, kept running as a service manager would: who dies is started again."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.chaos.interposing import Meddling

_LOOK_SECONDS = 0.1
_REST_SECONDS = 0.3


class Program:
    """One program: its command, its log, and its process, if it runs.

    Args:
        command: made anew for each start.
        before_start: called before each start.
    """

    def __init__(
        self,
        name: str,
        command: Callable[[], Sequence[str]],
        log: Path,
        meddling: Meddling,
        *,
        environment: Mapping[str, str] | None = None,
        before_start: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self.meddling = meddling
        self.log = log
        self.starts = 0
        self.deaths: list[int] = []
        self.started_at_byte = 0  # of its log
        self._command = command
        self._environment = {**os.environ, **meddling.environment, **(environment or {})}
        self._before_start = before_start
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.RLock()
        self._wanted = False
        self._died_at = 0.0

    @property
    def pid(self) -> int:
        """Of its process; 0: it does not run."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else 0

    def start(self) -> None:
        """Start it unless it runs, and from now on again whenever it has died."""
        with self._lock:
            self._wanted = True
            if not self.pid:
                self._start()

    def _start(self) -> None:
        self._before_start()
        self.starts += 1
        self.started_at_byte = self.log_bytes
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                list(self._command()),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )

    def keep(self) -> None:
        """Start it again if it has died, after a moment; called regularly."""
        with self._lock:
            process = self._process
            if not self._wanted or process is None or process.poll() is None:
                return
            now = time.monotonic()
            if not self._died_at:
                self._died_at = now
                self.deaths.append(process.returncode)
            elif now - self._died_at > _REST_SECONDS:
                self._died_at = 0.0
                self._start()

    def send(self, number: int) -> bool:
        """Send a signal to its process alone; False if there is none."""
        with self._lock:
            pid = self.pid
            if pid:
                os.kill(pid, number)
            return bool(pid)

    def end(self, number: int = signal.SIGKILL, seconds: float = 60.0) -> int:
        """End it for good, until it is started again; its exit status."""
        with self._lock:
            self._wanted = False
            process = self._process
            if process is None:
                return 0
            if process.poll() is None:
                process.send_signal(number)
                process.send_signal(signal.SIGCONT)
            try:
                return process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                return process.wait()

    def said(self, since: int = 0) -> str:
        """Its log, after so many bytes."""
        with self.log.open("rb") as log:
            log.seek(since)
            return log.read().decode(errors="replace")

    @property
    def log_bytes(self) -> int:
        """How long its log is."""
        return self.log.stat().st_size if self.log.exists() else 0


class Keeper:
    """A thread that keeps programs running."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self._programs = list(programs)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)
        self._thread.start()

    def keep_too(self, programs: Sequence[Program]) -> None:
        """Keep these running, too."""
        self._programs = [*self._programs, *programs]

    def _run(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            for program in self._programs:
                program.keep()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
