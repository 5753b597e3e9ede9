"""What Nsight Systems captured of a run, and its report file: launches, ranges, the GPU, the command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from assay_agent.virtual.gpu import ProcessLaunches
from assay_agent.virtual.timeline import CALL_DURATION_NS
from assay_agent.virtual.tools.container import container_bytes, read_container
from assay_agent.virtual.tools.environment import VirtualEnvironment
from assay_agent.virtual.tools.program import Program, run_launches
from assay_sampling.launch_table import Condition

NSYS_MAGIC = b"ASSAYVIRTUALNSYS"
_KERNEL_FIELDS = ("name", "block", "registers", "static_shared_bytes", "dynamic_shared_bytes")
_DROPPED_EVERY = 10


@dataclass(frozen=True)
class Capture:
    """``launches`` has a row a launch (columns process, call, call_ns, start_ns, duration_ns, kernel, x, y,
    z, stream, graph_launch, graph_node, kept); ``document`` all else."""

    document: dict[str, Any]
    launches: pa.Table

    def to_bytes(self) -> bytes:
        return container_bytes(NSYS_MAGIC, self.document, self.launches)

    @classmethod
    def read(cls, path: Path) -> Capture:
        """Raises OSError or ContainerError."""
        return cls(*read_container(path, NSYS_MAGIC))


def capture_run(
    program: Program,
    environment: VirtualEnvironment,
    *,
    traces: tuple[str, ...],
    whole_graphs: bool,
    variables: Mapping[str, str],
    version: str,
) -> Capture:
    """Run a program freely and write down what it launched."""
    condition = Condition(cache="none", clock="none", sm_percent=environment.sm_percent)
    parts: list[ProcessLaunches] = []
    if program.workload is not None and "cuda" in traces:
        parts = [
            run_launches(program, environment, process, level="light", condition=condition)
            for process, total in enumerate(program.totals)
            if total
        ]
    kernels: dict[tuple[Any, ...], int] = {}
    tables = [_launches(part, kernels) for part in parts]
    launches = pa.concat_tables(tables) if tables else _EMPTY
    dropped = 0
    if "dropped_events" in environment.faults and launches.num_rows:
        kept = np.arange(launches.num_rows) % _DROPPED_EVERY != _DROPPED_EVERY - 1
        kept[-1] &= launches.num_rows >= _DROPPED_EVERY
        dropped = int((~kept).sum())
        launches = launches.set_column(launches.column_names.index("kept"), "kept", pa.array(kept))
    document = {
        "gpu": environment.gpu.architecture.kind,
        "seed": environment.gpu.seed,
        "uuid": environment.uuid,
        "version": version,
        "kernels": [dict(zip(_KERNEL_FIELDS, key, strict=True)) for key in kernels],
        "processes": [_process(part, program, nvtx="nvtx" in traces) for part in parts],
        "whole_graphs": whole_graphs,
        "dropped": dropped,
        "command": list(program.arguments),
        "environment": dict(variables),
    }
    return Capture(document, launches)


_COLUMNS = ("process", "call", "call_ns", "start_ns", "duration_ns", "kernel", "x", "y", "z", "stream",
            "graph_launch", "graph_node")  # fmt: skip
_EMPTY = pa.table({**{name: pa.array([], pa.int64()) for name in _COLUMNS}, "kept": pa.array([], pa.bool_())})


def _launches(part: ProcessLaunches, kernels: dict[tuple[Any, ...], int]) -> pa.Table:
    keys = [tuple(getattr(kernel, name) for name in _KERNEL_FIELDS) for kernel in part.kernels]
    numbers = np.array([kernels.setdefault(key, len(kernels)) for key in keys])
    n = len(part)
    values: dict[str, NDArray[Any]] = {
        "process": np.full(n, part.process),
        "call": part.call,
        "call_ns": part.call_ns,
        "start_ns": part.start_ns,
        "duration_ns": part.duration_ns,
        "kernel": numbers[part.kernel],
        "x": part.grid[:, 0],
        "y": part.grid[:, 1],
        "z": part.grid[:, 2],
        "stream": part.stream,
        "graph_launch": part.graph_launch,
        "graph_node": part.graph_node,
    }
    columns = {name: pa.array(values[name].astype(np.int64)) for name in _COLUMNS}
    return pa.table({**columns, "kept": pa.array(np.ones(n, np.bool_))})


def _process(part: ProcessLaunches, program: Program, *, nvtx: bool) -> dict[str, Any]:
    ranges = part.ranges
    named = [] if not nvtx else [ranges.texts[i] for i in ranges.text.tolist()]
    assert program.workload is not None
    last = int(part.call_ns[-1]) + CALL_DURATION_NS if len(part) else 0
    # A program that ends early leaves its ranges open.
    closed = [end if end <= last + CALL_DURATION_NS else None for end in ranges.end_ns.tolist()]
    return {
        "process": part.process,
        "pid": program.process_id(part.process),
        "name": f"assay virtual {program.workload.workload}",
        "ranges": list(zip(named, ranges.start_ns.tolist(), closed, strict=False)),
    }
