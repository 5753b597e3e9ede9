"""Runs a program under the stand-in for Nsight Systems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay_sampling.running.identity import Condition
from assay_virtual.model.gpu import ProcessLaunches
from assay_virtual.model.operators import OperatorCalls
from assay_virtual.model.timeline import CALL_DURATION_NS, NvtxRanges
from assay_virtual.tools.announced import announced
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
    pytorch: str,
    whole_graphs: bool,
    variables: Mapping[str, str],
    version: str,
    duration_ns: int | None = None,
) -> Capture:
    """Run a program freely and write down what it launched; ``pytorch`` is the option of that name. The
    program is ended after ``duration_ns``; then the document has ``ended_ns``."""
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
    ended = duration_ns is not None and any((table["call_ns"] >= duration_ns).any() for table in tables)
    until_ns = duration_ns if ended and duration_ns is not None else _FOR_EVER_NS
    tables = [{name: each[table["call_ns"] < until_ns] for name, each in table.items()} for table in tables]
    finished = [table["start_ns"] + table["duration_ns"] <= until_ns for table in tables]
    is_recorded = np.concatenate([np.ones(0, np.bool_), *finished])
    is_reported = "dropped_events" in environment.faults
    if (is_reported or "lost_events" in environment.faults) and len(is_recorded):
        is_recorded &= np.arange(len(is_recorded)) % _DROPPED_EVERY != _DROPPED_EVERY - 1
        is_recorded[-1] &= len(is_recorded) >= _DROPPED_EVERY
    if "lost_end" in environment.faults and len(is_recorded):
        is_recorded[-1] = False
    columns = {name: np.concatenate([_NONE, *(table[name] for table in tables)]) for name in _COLUMNS}
    launches = Columns({name: numbers(values) for name, values in {**columns, "kept": is_recorded}.items()})
    document = {
        "gpu": environment.gpu.architecture.kind,
        "seed": environment.gpu.seed,
        "uuids": [uuid for _, uuid in environment.gpus],
        "version": version,
        "kernels": [dict(zip(_KERNEL_FIELDS, key, strict=True)) for key in kernels],
        "processes": [
            {
                **_process(part, program, until_ns, pytorch=pytorch if "nvtx" in traces else None),
                "device": environment.ordinal_of(part.process),
            }
            for part in parts
        ],
        "whole_graphs": whole_graphs,
        "dropped": int((~is_recorded).sum()) if is_reported else 0,
        "call_duration_ns": CALL_DURATION_NS,
        **({"ended_ns": until_ns} if ended else {}),
        "command": list(program.arguments),
        "environment": dict(variables),
    }
    return Capture(document, launches)


_COLUMNS = ("process", "call", "call_ns", "start_ns", "duration_ns", "kernel", "x", "y", "z", "stream",
            "graph_launch", "graph_node", "thread")  # fmt: skip
_NONE = np.zeros(0, np.int64)
_FOR_EVER_NS = 1 << 62


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
        "thread": part.thread,
    }


def _process(
    part: ProcessLaunches, program: Program, until_ns: int, *, pytorch: str | None
) -> dict[str, Any]:
    """A process with its ranges (text, begin, end or None if open, thread ID); ``pytorch`` None: without."""
    assert program.workload is not None
    ranges = [] if pytorch is None else _ranges(part, program, pytorch)
    last = min(int(part.call_ns[-1]) + CALL_DURATION_NS if len(part) else 0, until_ns)
    return {
        "process": part.process,
        "pid": program.process_id(part.process),
        "name": f"assay virtual {program.workload.workload}",
        # A program that ends early leaves its ranges open.
        "ranges": [
            (text, start, end if end <= last + CALL_DURATION_NS else None, thread)
            for text, start, end, thread in ranges
            if start < until_ns
        ],
        "threads": [program.thread_id(part.process, each) for each in range(int(part.thread.max()) + 1)],
    }


def _ranges(part: ProcessLaunches, program: Program, pytorch: str) -> list[tuple[str, int, int, int]]:
    """The ranges of a process by their begin, with those of operators that it announces."""
    loops = part.ranges
    sources: list[tuple[NvtxRanges | OperatorCalls, list[str]]] = [
        (loops, [loops.texts[i] for i in loops.text.tolist()])
    ]
    operators = announced(part.operators, program.arguments, pytorch)
    if operators is not None:
        sources.append((part.operators, operators))
    rows = [
        (text, start, end, program.thread_id(part.process, thread))
        for ranges, texts in sources
        for text, start, end, thread in zip(
            texts, ranges.start_ns.tolist(), ranges.end_ns.tolist(), ranges.thread.tolist(), strict=True
        )
    ]
    return sorted(rows, key=lambda row: row[1]) if operators is not None else rows
