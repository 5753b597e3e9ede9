"""A stand-in for a real GPU with MPS, a workload on it, and what is left behind when an agent is killed.

As a program it is an agent that measures one run and kills itself at a step of its journal: for each line of
its standard input (folder, step, "before" or "after" it is written) it forks a process that does so, and
answers with the status of that process.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from assay_agent.conditions.journal import Journal
from assay_agent.execution.environment import MeasuredGPU, private_directory
from assay_agent.execution.tool_version import ToolBox
from assay_agent.profilers.live import LiveMeasurement
from assay_core.processes.tool_run import ToolResult
from assay_core.records.attempt import AttemptKey
from assay_core.records.work import CommandSource, Work
from assay_sampling.launches.table import BASELINE, Condition, Device, LaunchBatch
from tests.support.agent import mps_stand_in
from tests.support.agent.fake_nvml import FakeNvml

# It is a client of the MPS daemon, says how many SMs it has, and stays for a while.
WORKLOAD = """
import ctypes, os, sys, time
if sys.argv[2] == "strayed":
    os.environ["CUDA_MPS_PIPE_DIRECTORY"] = "/nowhere"
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
status = cuda.cuInit(0) or cuda.cuDeviceGetAttribute(ctypes.byref(count), 16, 0)
print("status", status, "SMs", count.value, flush=True)
time.sleep(float(sys.argv[1]))
"""
LIGHT = Work(
    key=AttemptKey("c-1.0000", 0, 1, 1),
    campaign_id="c-1",
    workload="w",
    device_kind="V100",
    level="light",
    condition=BASELINE,
    profiler="nsight_systems",
)


class Plain(LiveMeasurement):
    """Runs the workload without a profiler."""

    result: ToolResult | None = None

    def batches(self) -> Iterator[LaunchBatch]:
        assert self.work.command is not None
        self.result = self.measure(self.work.command.argv)
        yield from ()


@dataclass
class Bench:
    """A box in a folder with a short name; ``variables`` are of its tools, such as the stand-ins' faults."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)
    sm_count: int | None = mps_stand_in.ALL_SMS
    capability: str = "7.0"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def nvml(self) -> FakeNvml:
        return FakeNvml(self.folder / "nvml.json")

    @property
    def gpu(self) -> MeasuredGPU:
        return MeasuredGPU(
            Device(0, "Stand-in V100", mps_stand_in.UUID, self.capability, self.sm_count),
            path=f"{self.folder / 'bin'}:/usr/bin:/bin",
            variables={"LD_LIBRARY_PATH": str(self.folder / "lib"), **self.variables},
        )

    @property
    def base(self) -> Path:
        return private_directory(self.gpu)

    @property
    def journal(self) -> Journal:
        return Journal(self.state, mps_stand_in.UUID, self.base / "lock")

    def work(
        self, *, seconds: float = 0.0, how: str = "", timeout_seconds: float = 30.0, **changes: Any
    ) -> Work:
        argv = (sys.executable, "-IS", "-c", WORKLOAD, str(seconds), how)
        command = CommandSource(argv, {}, str(self.folder), timeout_seconds)
        return replace(LIGHT, command=command, **changes)

    def measurement(self, work: Work, cancelled: threading.Event | None = None) -> Plain:
        return Plain(work, self.gpu, ToolBox(), self.state, cancelled or threading.Event())

    def measure(self, work: Work, cancelled: threading.Event | None = None) -> Plain:
        """One whole run."""
        with self.measurement(work, cancelled) as measurement:
            assert list(measurement.batches()) == []
        return measurement

    def processes(self) -> dict[int, str]:
        """Command lines of all processes that have this folder in their environment; not of this one."""
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                variables = (process / "environ").read_bytes()
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if command and f"{self.folder}/".encode() in variables and int(process.name) != os.getpid():
                found[int(process.name)] = command
        return found

    def left(self) -> list[str]:
        """Everything that a run should have undone, in words."""
        found = [f"process {process}: {command}" for process, command in self.processes().items()]
        if self.journal.path.exists():
            found.append(f"journal: {self.journal.entries()}")
        if (self.base / "mps").exists():
            found.append("the folder of the MPS daemon")
        if self.nvml.state["locked"] is not None:
            found.append(f"clocks: {self.nvml.state['locked']}")
        with (self.base / "lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                found.append("the lock of the GPU")
        return found


HALF_AT_BASE = Condition("none", "base", 50.0)


def _die_at(step: int, when: str) -> None:
    """Kill this process before or after the journal is written for the ``step``-th time, counted from 1."""
    written, write = 0, Journal._write

    def counted(journal: Journal, entries: dict[str, dict[str, Any]]) -> None:
        nonlocal written
        written += 1
        if (written, when) == (step, "before"):
            os.kill(os.getpid(), signal.SIGKILL)
        write(journal, entries)
        if (written, when) == (step, "after"):
            os.kill(os.getpid(), signal.SIGKILL)

    Journal._write = counted  # type: ignore[method-assign]


class Killed:
    """Agents that kill themselves at a step, forked from one process, which loads everything once."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.agent.conditions_bench"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        )

    @property
    def _channels(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin and self._process.stdout
        return self._process.stdin, self._process.stdout

    def start(self, folder: Path, step: int, when: str) -> int:
        """The process that measures."""
        given, said = self._channels
        given.write(f"{folder} {step} {when}\n")
        given.flush()
        return int(said.readline())

    def ended(self) -> int:
        return int(self._channels[1].readline())

    def close(self) -> None:
        for channel in self._channels:
            channel.close()
        self._process.wait(30)


def main() -> None:
    """See above."""
    for line in sys.stdin:
        folder, step, when = line.split()
        child = os.fork()
        if not child:
            tempfile.tempdir = folder
            bench = Bench(Path(folder))
            bench.nvml.install()
            _die_at(int(step), when)
            seconds = 60.0 if when == "during" else 0.0
            bench.measure(bench.work(seconds=seconds, condition=HALF_AT_BASE))
            os._exit(0)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
