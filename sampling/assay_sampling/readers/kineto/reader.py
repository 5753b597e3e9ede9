"""Reader of Kineto traces of the PyTorch profiler (JSON, also gzip-compressed).

Launches are the complete events of category ``kernel``. They are in API order: by the time of the
runtime call with the same correlation (ties: by correlation, then by start on the GPU); a kernel without
a call by its own start. ``process`` is the ordinal of the calling process, by its first launch.

Operators are joined in one of two ways, whichever finds more launches in the file at hand: traces since
2024 give a kernel the External id of its operator; older ones give it its own correlation there, and the
operator is the innermost one that contains the runtime call on its thread. An External id that equals the
kernel's correlation proves nothing, so only others count for the first way.

Memory: see :mod:`assay_sampling.readers.kineto.trace`, and about 100 bytes a launch for the joins. The
whole trace is read when it is opened, because calls may come after the kernels that they launch.

Where only launches are asked for, operators are neither read nor joined.

Source: docs/reading-recordings.md, "Kineto traces".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from assay_sampling.errors import NoLaunchesError
from assay_sampling.launches.table import LaunchBatch, launch_schema, make_batch
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.readers.base import (
    NameTracker,
    OpenRecording,
    ReadOptions,
    check_offset,
    foreign_metadata,
)
from assay_sampling.readers.kineto.operations import operation_calls
from assay_sampling.readers.kineto.trace import Columns, KinetoTrace
from assay_sampling.readers.nesting import ThreadRanges
from assay_sampling.readers.operation_calls import ROUNDING_NS, Calls, LaunchedFrom
from assay_sampling.readers.ordinals import graph_ordinals, process_ordinals, within

FORMAT = "kineto-json"


class KinetoReader:
    """Recognises JSON with trace events."""

    format = FORMAT

    def recognises(self, path: Path, head: bytes) -> bool:
        text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
        if text.startswith(b"{"):
            return b'"traceEvents"' in text
        return text.startswith(b"[") and b'"ph"' in text

    def open(self, path: Path, options: ReadOptions) -> KinetoRecording:
        check_offset(path, options)
        return KinetoRecording(path, options)


class KinetoRecording(OpenRecording):
    """A trace; see the module."""

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self._trace = KinetoTrace(path, operators=options.operations)
        if not len(self._trace.kernels):
            raise NoLaunchesError(
                path,
                "the trace is whole but holds no kernels",
                "profile with ProfilerActivity.CUDA, and check that the workload runs on the GPU",
            )
        self._offset = options.launch_offset or 0
        self._join = _join(self._trace, operations=options.operations)
        metadata = foreign_metadata(
            options,
            level="light",
            format_=FORMAT,
            tool="PyTorch profiler (Kineto)",
            devices=self._trace.devices,
        )
        super().__init__(path, FORMAT, launch_schema(metadata, operations=self._join.calls is not None))

    @property
    def world_size(self) -> int:
        """How many processes the job had, of which the trace shows one; 1 where it does not say."""
        return self._trace.world_size

    def _read(self, max_launches: int) -> Iterator[LaunchBatch]:
        names = NameTracker()
        texts, shapes = self._trace.texts.to_list(), self._trace.shapes.to_list()
        for start in range(0, len(self._join.row), max_launches):
            part = slice(start, start + max_launches)
            columns = self._columns(part, names, texts, shapes)
            records = make_batch(self.schema, columns)
            yield LaunchBatch(records, names.take_new())
        self.notes.extend(self._join.notes)

    def _columns(
        self, part: slice, names: NameTracker, texts: list[str], shapes: list[str]
    ) -> dict[str, pa.Array | np.ndarray]:
        join, kernels, operators = self._join, self._trace.kernels, self._trace.operators
        row, operator = join.row[part], join.operator[part]
        paths = join.annotations.paths(join.thread[part], join.call[part], join.call[part])
        columns: dict[str, pa.Array | np.ndarray] = {
            "process": join.process[part],
            "launch": join.launch[part] + self._offset,
            "graph_launch": _null_below_zero(join.graph_launch[part]),
            "graph_node": _null_below_zero(join.graph_node[part]),
            "start_ns": kernels["ts"][row] + self._trace.base_ns,
            "duration_ns": kernels["dur"][row],
            "kernel_id": names.intern_indices(texts, kernels["name"][row]),
            "nvtx_id": names.intern_indices(paths.texts, paths.index),
            "operator_id": names.intern_indices(texts, _take(operators["name"], operator)),
            "input_shapes_id": names.intern_indices(shapes, _take(operators["shapes"], operator)),
        }
        if join.calls is not None:
            columns |= join.calls.columns(part, names, self._offset)
        for axis in "xyz":
            columns[f"grid_{axis}"] = _null_below_zero(kernels[f"g{axis}"][row])
            columns[f"block_{axis}"] = _null_below_zero(kernels[f"b{axis}"][row])
        for name, source in (
            ("device", "device"),
            ("stream", "stream"),
            ("registers_per_thread", "registers"),
            ("shared_memory_bytes", "shared"),
        ):
            columns[name] = _null_below_zero(kernels[source][row])
        return columns


def _take(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """``values[rows]``, -1 where the row is negative."""
    if not len(values):
        return np.full(len(rows), -1, np.int64)
    return np.where(rows >= 0, values[rows], -1)


def _null_below_zero(values: np.ndarray) -> pa.Array:
    return pa.array(values, mask=values < 0)


def _until(trace: KinetoTrace, operator: np.ndarray) -> np.ndarray:
    """Until when the ranges around each operator last at least: its end, but for what both may be rounded."""
    start, end = (_take(trace.operators[name], operator) for name in ("ts", "end"))
    until: np.ndarray = np.maximum(end - ROUNDING_NS, start + (end - start) // 2)
    return until


@dataclass(frozen=True)
class _Join:
    """All launches in API order, arrays of shape (n,).

    ``row`` is the kernel's row, ``call`` the time of its call (ns), ``thread`` the calling thread (-1: no
    call), ``operator`` the operator's row (-1: none).
    """

    row: np.ndarray
    process: np.ndarray
    launch: np.ndarray
    call: np.ndarray
    thread: np.ndarray
    operator: np.ndarray
    graph_launch: np.ndarray
    graph_node: np.ndarray
    annotations: ThreadRanges
    calls: Calls | None
    notes: tuple[Note, ...]


def _join(trace: KinetoTrace, *, operations: bool) -> _Join:
    kernels = trace.kernels
    correlation, start = kernels["correlation"], kernels["ts"]
    call_rows = _calls_of(trace)
    joined = call_rows >= 0
    call = np.where(joined, _take(trace.calls["ts"], call_rows), start)
    thread = _take(trace.calls["thread"], call_rows)
    process = _processes(trace, thread, call)
    order = np.lexsort((start, correlation, call, process))
    operator, notes = _operators(trace, thread, call) if operations else (np.full(len(thread), -1), [])
    node = kernels["node"][order]
    # Graph launches show by their nodes or by their call; without node IDs the order numbers the nodes.
    by_graph = (node > 0) | (_take(trace.calls["graph"], call_rows)[order] == 1)
    node = np.where(node > 0, node, np.arange(1, len(node) + 1)) * by_graph
    graph_launch, graph_node = graph_ordinals(process[order], correlation[order], node)
    if trace.doubles:
        notes.append(make_note("kernel_events_twice", events=trace.doubles))
    if not joined.all():
        missing = int((~joined).sum())
        notes.append(make_note("no_api_call", launches=missing))
    launch = within(process[order])
    # Without a runtime call, the time of its operator tells which ranges are around a launch.
    by_operator = (call_rows < 0) & (operator >= 0)
    calls = None
    if operations:
        launched = LaunchedFrom(
            process=process[order],
            launch=launch,
            thread=np.where(by_operator, _take(trace.operators["thread"], operator), thread)[order],
            at=np.where(by_operator, _take(trace.operators["ts"], operator), call)[order],
            until=np.where(by_operator, _until(trace, operator), call)[order],
            graph_launch=graph_launch,
            kernel=trace.kernels["name"][order],
            kernels=trace.texts.to_list(),
        )
        calls = operation_calls(trace, launched)
    if calls is not None:
        notes.extend(calls.notes())
    bare = int(((kernels["gx"] < 0) | (kernels["bx"] < 0)).sum())
    if bare:
        notes.append(make_note("shapes_unknown", launches=bare))
    return _Join(
        row=order,
        process=process[order],
        launch=launch,
        call=call[order],
        thread=thread[order],
        operator=operator[order],
        graph_launch=graph_launch,
        graph_node=graph_node,
        annotations=_ranges(trace.annotations, trace.annotations["name"], trace.texts.to_list()),
        calls=calls,
        notes=tuple(notes),
    )


def _calls_of(trace: KinetoTrace) -> np.ndarray:
    """Row of the first call with each kernel's correlation, shape (n,), -1: none."""
    correlation = trace.calls["correlation"]
    order = np.lexsort((trace.calls["ts"], correlation))
    first = order[np.flatnonzero(np.diff(correlation[order], prepend=-1))]
    return _find_rows(correlation[first], first, trace.kernels["correlation"])


def _find_rows(keys: np.ndarray, rows: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """The row of each wanted key among sorted distinct ``keys``, shape (n,), -1: not there."""
    if not len(keys):
        return np.full(len(queries), -1, np.int64)
    position = np.minimum(np.searchsorted(keys, queries), len(keys) - 1)
    return np.where(keys[position] == queries, rows[position], -1)


def _processes(trace: KinetoTrace, thread: np.ndarray, call: np.ndarray) -> np.ndarray:
    """Ordinals of the calling processes, shape (n,); a kernel without a call goes to the first process."""
    pids: dict[int | str, int] = {}
    of_thread = np.array([pids.setdefault(pid, len(pids)) for pid, _ in trace.thread_keys] or [0], np.int64)
    joined = thread >= 0
    process = np.zeros(len(thread), np.int64)
    if joined.any():
        process[joined] = process_ordinals(of_thread[thread[joined]], call[joined])
    return process


def _ranges(columns: Columns, labels: np.ndarray, texts: list[str]) -> ThreadRanges:
    return ThreadRanges(columns["thread"], columns["ts"], columns["end"], labels, texts)


def _operators(trace: KinetoTrace, thread: np.ndarray, call: np.ndarray) -> tuple[np.ndarray, list[Note]]:
    """The operator's row of each launch, shape (n,), -1: none; and notes on the join."""
    if not len(trace.operators):
        return np.full(len(thread), -1, np.int64), [make_note("no_operators")]
    by_identifier = _operators_by_identifier(trace)
    rows = np.arange(len(trace.operators), dtype=np.int32)
    # Time stamps may be cut to microseconds, so a range need contain only the start of the call.
    by_time = _ranges(trace.operators, rows, []).innermost(thread, call, call)
    own = trace.kernels["external"] != trace.kernels["correlation"]
    telling = int(((by_identifier >= 0) & own).sum())
    hits = int((by_time >= 0).sum())
    if telling and telling >= hits:
        operator, way, hits = by_identifier, "External id", int((by_identifier >= 0).sum())
    else:
        operator, way = by_time, "runtime call and time"
    return operator, [make_note("operators_joined", way=way, joined=hits, launches=len(thread))]


def _operators_by_identifier(trace: KinetoTrace) -> np.ndarray:
    external = trace.operators["external"]
    order = np.lexsort((trace.operators["ts"], external))
    last = np.flatnonzero(np.diff(external[order], append=-2))
    identifiers = np.where(trace.kernels["external"] > 0, trace.kernels["external"], -2)
    return _find_rows(external[order][last], order[last], identifiers)
