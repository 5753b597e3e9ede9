"""Demos as processes of their own, and the killing of whatever belongs to one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.machine.commands import running_commands

PROGRAM = Path(sys.executable).with_name("assay")
_DONE = re.compile(r"^\S+ (running|analysing|done): (\d+) of (\d+) runs done")
_ATTEMPT = re.compile(rb"/jobs/[^/\0]*-(\d+)/")
_LAST_ATTEMPT = 3
_LIMIT_SECONDS = 600.0
SMALL_WORKLOAD = """\
workload = "{name}"
seed = {seed}
buffers.field = "{size} MiB"
[kernels.sweep]
name = "void sweep<float>(float*, int)"
block = 256
instructions = 120
global_loads = 6
global_stores = 2
reads = {{ field = 1.0 }}
writes = {{ field = 0.5 }}
[kernels.reduce]
name = "void reduce<float>(float const*, float*)"
block = 128
instructions = 60
global_loads = 2
reads = {{ field = 0.1 }}
[[phases]]
repeat = 40
nvtx = "step"
variables.size = {{ choices = [1, 4], hold = 0.5 }}
steps = [
  {{ kernel = "sweep", grid = 200, grid_by = "size", times = 3 }},
  {{ kernel = "reduce", grid = 40, grid_by = "size", work_spread = 0.2 }},
]
"""
SMALL_CAMPAIGN = """\
campaign: small
synthetic: true
gpus: [V100, RTX 2060, RTX 3070]
detailed: {{first: 60, slice_launches: 60, sets: features}}
conditions:
  - {{cache: all}}
workloads:
{workloads}analysis:
  reference: V100
  methods: [pks: {{model: scaled_counters}}, random]
"""


def small_campaign(folder: Path, names: Sequence[str] = ("one", "two")) -> Path:
    """A campaign of these workloads, 160 launches each, on the three GPUs of the demo: 9 runs each."""
    for seed, (name, size) in enumerate(zip(names, (2, 9), strict=False)):
        (folder / f"{name}.toml").write_text(SMALL_WORKLOAD.format(name=name, seed=seed, size=size))
    path = folder / "small.yaml"
    lines = "".join(f"  - {{name: {name}, command: [{name}.toml]}}\n" for name in names)
    path.write_text(SMALL_CAMPAIGN.format(workloads=lines))
    return path


def hearing_interrupts(command: Sequence[str | Path]) -> list[str]:
    """The command line of a program that hears SIGINT, even where the shell's background jobs ignore it.

    Not by ``preexec_fn``: that forks this process with gRPC's threads, and the child then writes gRPC's own
    log to the program's standard error before the program begins.
    """
    begin = "signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-S", "-c", f"import os, signal, sys; {begin}", *map(str, command)]


@dataclass
class Demo:
    """A demo as a process, whose standard error is read line by line."""

    out: Path
    campaign: Path | None = None
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        options = ["--campaign", self.campaign] if self.campaign else []
        self.process = subprocess.Popen(
            hearing_interrupts([PROGRAM, "demo", "--out", self.out, *options]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines.extend(self.process.stderr)

    def wait(self, until: Callable[[str], bool]) -> bool:
        """Wait for a line that is as wanted; False where the demo ended before."""
        seen = 0
        while True:
            alive = self._reader.is_alive()
            known = len(self.lines)
            if any(map(until, self.lines[seen:known])):
                return True
            if not alive:
                return False
            seen = known
            time.sleep(0.005)

    def end(self) -> str:
        """Wait for the end; returns what it printed. Fails where it did not end well."""
        self._closed()
        assert self.process.stdout is not None
        with self.process.stdout as stream:
            printed = stream.read()
        assert self.process.wait(_LIMIT_SECONDS) == 0, "".join(self.lines[-20:])
        return printed

    def _closed(self) -> None:
        self._reader.join(_LIMIT_SECONDS)
        assert self.process.stderr is not None
        self.process.stderr.close()

    def kill(self) -> None:
        """Kill the demo alone, as the system would for want of memory."""
        self.process.kill()
        self._closed()
        self.process.communicate()

    def interrupt(self) -> int:
        """Ctrl-C; returns the exit code."""
        self.process.send_signal(signal.SIGINT)
        self._closed()
        self.process.communicate(timeout=_LIMIT_SECONDS)
        return self.process.returncode


def progress(line: str) -> int:
    """How many runs a line says are done; -1 where it says nothing of them, a million in the analysis."""
    found = _DONE.match(line)
    if not found:
        return -1
    return 1_000_000 if found[1] == "analysing" else int(found[2])


def belonging(out: Path, *marks: str, spare_last_attempts: bool = False) -> list[int]:
    """Processes whose command names something in ``out``, and each of the marks."""
    found = []
    for process, command in running_commands():
        wanted = [os.fsencode(f"{out}/"), *map(os.fsencode, marks)]
        # A run whose tool is killed three times has failed for good, as it should.
        last = any(int(attempt) >= _LAST_ATTEMPT for attempt in _ATTEMPT.findall(command))
        if all(mark in command for mark in wanted) and not (last and spare_last_attempts):
            found.append(process)
    return sorted(found)


MARKS = {
    "server": ("assay-server", "--state"),
    "agent-V100": ("assay-agent", "/state/agent-V100"),
    "agent-RTX-2060": ("assay-agent", "/state/agent-RTX-2060"),
    "agent-RTX-3070": ("assay-agent", "/state/agent-RTX-3070"),
    "tool": ("assay_virtual.tools",),
    "supervisor": ("supervisor.py",),
}


def kill_one(out: Path, what: str, seconds: float = 20.0) -> bool:
    """Kill a process of a kind, waiting for one to come; False where none came."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for process in belonging(out, *MARKS[what], spare_last_attempts=True):
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
            return True
        time.sleep(0.005)
    return False


def wait_until_gone(out: Path, seconds: float = 30.0) -> list[int]:
    """Processes that still belong to ``out`` after a while; none, as soon as there are none."""
    until = time.monotonic() + seconds
    while (left := belonging(out)) and time.monotonic() < until:
        time.sleep(0.05)
    return left
