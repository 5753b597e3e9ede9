"""A server as a process of its own: started, measured, stopped."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil


class ServerProcess:
    """``assay-server`` over a state folder; its socket is in the folder."""

    def __init__(self, state: Path, heartbeat_ms: int = 5_000, lease_ms: int = 60_000, *options: str) -> None:
        self.address = f"unix:{state.parent / 'server.sock'}"
        self._command = [
            sys.executable, "-m", "assay_server.main", "--listen", self.address, "--state", str(state),
            "--heartbeat", f"{heartbeat_ms}ms", "--lease", f"{lease_ms}ms", "--json", *options,
        ]  # fmt: skip
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> float:
        """Start it; returns the seconds until it listened."""
        began = time.perf_counter()
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert json.loads(self._process.stdout.readline())["addresses"] == [self.address]
        return time.perf_counter() - began

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    @property
    def cpu_seconds(self) -> float:
        """CPU time of the server so far; its analyses are processes of their own and do not count."""
        times = self._seen().cpu_times()
        return float(times.user + times.system)

    @property
    def memory_mib(self) -> float:
        return float(self._seen().memory_info().rss) / 2**20

    def _seen(self) -> psutil.Process:
        assert self._process is not None
        return psutil.Process(self._process.pid)
