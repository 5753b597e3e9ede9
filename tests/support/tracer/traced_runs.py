"""Running the workload of the fake CUPTI under the tracer, and what it should have launched."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from assay_agent.profilers.cupti import tracer_environment
from assay_agent.tracer.receiver import Receiver, TracedProcess
from assay_sampling.launches.checks import check_batch
from assay_sampling.launches.table import LaunchBatch, TableMetadata, launch_schema

SCHEMA = launch_schema(TableMetadata(level="light", origin="synthetic"))
SECONDS = 240.0


@dataclass(frozen=True)
class BuiltTracer:
    """The tracer of one generation of headers, and a program that finds the fake CUPTI beside it."""

    cuda: str
    library: Path
    workload: Path

    @property
    def fake(self) -> Path:
        """The fake CUPTI."""
        return self.workload.with_name(f"libcupti.so.{self.cuda}")

    @property
    def newest(self) -> int:
        """The newest version of CUPTI that this build reads."""
        return {"13": 130500, "12": 28}[self.cuda]


@dataclass
class TracedRun:
    """What came of a run; ``said`` is the workload's line of JSON."""

    said: dict[str, Any]
    exit_code: int
    processes: list[TracedProcess]
    names: dict[int, str]
    batches: list[pa.RecordBatch] = field(default_factory=list)

    @property
    def table(self) -> pa.Table:
        return pa.Table.from_batches(self.batches, SCHEMA)

    @property
    def faults(self) -> list[str]:
        """Whatever makes the agent fail the run."""
        untimed = sum(process.untimed for process in self.processes)
        without = [f"{untimed:,} kernels have no times"] if untimed else []
        return [fault for process in self.processes for fault in process.faults()] + without

    def texts(self, column: str) -> list[str | None]:
        return [self.names[i] if i is not None else None for i in self.table[column].to_pylist()]


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for a socket's name."""
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        yield Path(folder)


def start(
    library: Path, workload: Path, path: Path, arguments: dict[str, object], switches: dict[str, object]
) -> subprocess.Popen[str]:
    """The workload under the tracer."""
    environment = {**tracer_environment(library, path), **{k: str(v) for k, v in switches.items()}}
    words = [str(workload), *(f"{name}={value}" for name, value in arguments.items())]
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def trace(
    library: Path,
    workload: Path,
    switches: dict[str, object] | None = None,
    *,
    window: int | None = None,
    on_batch: Callable[[LaunchBatch], None] | None = None,
    **arguments: object,
) -> TracedRun:
    """Run the workload to its end; batches are kept, or given to ``on_batch``."""
    more = {} if window is None else {"window": window}
    names: dict[int, str] = {}
    batches: list[pa.RecordBatch] = []

    def take(receiver: Receiver, seconds: float) -> None:
        for batch in receiver.batches(seconds):
            check_batch(batch.records)
            names.update(batch.new_names)
            if on_batch is not None:
                on_batch(batch)
            else:
                batches.append(batch.records)

    with short_folder() as folder:
        path = folder / "socket"
        with (
            Receiver(path, lambda hello: SCHEMA, **more) as receiver,
            start(library, workload, path, arguments, switches or {}) as process,
        ):
            while process.poll() is None:
                take(receiver, 0.02)
            take(receiver, 0)
            while receiver.connected:
                take(receiver, 0.02)
            output, errors = process.communicate(timeout=SECONDS)
            assert not errors, errors
            said = json.loads(output.splitlines()[-1]) if output else {}
            return TracedRun(said, process.returncode, receiver.processes, names, batches)


def drain(receiver: Receiver, process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """Take all that comes until the workload has ended and closed its connections."""
    while process.poll() is None:
        list(receiver.batches(0.02))
    list(receiver.batches(0))
    while receiver.connected:
        list(receiver.batches(0.02))


def numbers(records: pa.RecordBatch | pa.Table) -> np.ndarray:
    """The correlation IDs that the fake CUPTI put into grid and shared memory, shape (n,)."""
    grid = records["grid_x"].to_numpy()
    memory = records["dynamic_shared_memory_bytes"].to_numpy()
    found: np.ndarray = (grid - 1) + (memory << 20)
    return found


def expected_numbers(
    calls: int, *, graphs: int = 0, nodes: int = 4, captured: int = 0, failing: int = 0, first: int = 1
) -> np.ndarray:
    """Correlation IDs of the kernels of a run, in API order, one for each node of a graph launch."""
    begin = first + (1 if captured else 0)  # the call that begins the capture
    calls_made = np.arange(begin, begin + calls)
    count = np.ones(calls, np.int64)
    for divisor in (failing, captured):
        if divisor:
            count[calls_made % divisor == 0] = 0
    if graphs:
        count[calls_made % graphs == 0] = nodes
    return np.repeat(calls_made, count)
