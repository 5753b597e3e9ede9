"""Runs a program under the stand-in for Nsight Systems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay_sampling.running.identity import Condition
from assay_virtual.model.gpu import ProcessLaunches
from assay_virtual.model.timeline import CALL_DURATION_NS
from assay_virtual.tools.columns import Columns, numbers
from assay_virtual.tools.environment import VirtualEnvironment
from assay_virtual.tools.nsys.report import Capture
from assay_virtual.tools.program import Program, run_launches

_KERNEL_FIELDS = ("name", "block", "registers", "static_shared_bytes", "dynamic_shared_bytes")
_DROPPED_EVERY = 10


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
    condition = Condition(cache="none", clock=environment.clock, sm_percent=environment.sm_percent)
    parts: list[ProcessLaunches] = []
    if program.workload is not None and "cuda" in traces:
        parts = [
            run_launches(program, environment, process, level="light", condition=condition)
            for process, total in enumerate(program.totals)
            if total
        ]
    kernels: dict[tuple[Any, ...], int] = {}
    tables = [_launches(part, kernels) for part in parts]
    kept = np.ones(sum(map(len, parts)), np.bool_)
    told = "dropped_events" in environment.faults
    if (told or "lost_events" in environment.faults) and len(kept):
        kept = np.arange(len(kept)) % _DROPPED_EVERY != _DROPPED_EVERY - 1
        kept[-1] &= len(kept) >= _DROPPED_EVERY
    if "lost_end" in environment.faults and len(kept):
        kept[-1] = False
    columns = {name: np.concatenate([_NONE, *(table[name] for table in tables)]) for name in _COLUMNS}
    launches = Columns({name: numbers(values) for name, values in {**columns, "kept": kept}.items()})
    document = {
        "gpu": environment.gpu.architecture.kind,
        "seed": environment.gpu.seed,
        "uuids": [uuid for _, uuid in environment.gpus],
        "version": version,
        "kernels": [dict(zip(_KERNEL_FIELDS, key, strict=True)) for key in kernels],
        "processes": [
            {**_process(part, program, nvtx="nvtx" in traces), "device": environment.ordinal_of(part.process)}
            for part in parts
        ],
        "whole_graphs": whole_graphs,
        "dropped": int((~kept).sum()) if told else 0,
        "call_duration_ns": CALL_DURATION_NS,
        "command": list(program.arguments),
        "environment": dict(variables),
    }
    return Capture(document, launches)


_COLUMNS = ("process", "call", "call_ns", "start_ns", "duration_ns", "kernel", "x", "y", "z", "stream",
            "graph_launch", "graph_node")  # fmt: skip
_NONE = np.zeros(0, np.int64)


def _launches(part: ProcessLaunches, kernels: dict[tuple[Any, ...], int]) -> dict[str, NDArray[np.int64]]:
    keys = [tuple(getattr(kernel, name) for name in _KERNEL_FIELDS) for kernel in part.kernels]
    numbers = np.array([kernels.setdefault(key, len(kernels)) for key in keys])
    n = len(part)
    return {
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
