"""Which operation each launch belongs to, from the ranges that a recording has.

Of nested ranges around a launch one is the operation:

1. the outermost compiled region (``CompiledFxGraph``, ``Torch-Compiled Region``): its kernels differ by GPU;
2. else the outermost operator of a framework (``aten::linear``, not the ``aten::addmm`` that it calls, nor
   the autograd engine's range around it): library calls below it differ by vendor;
3. else the outermost library routine (``cublasGemmEx``);
4. else the innermost other range.

A replay of a graph outside of operators is one operation, known by the functions of its kernels in order. A
launch outside of everything is an operation of its own, known by its kernel's function.

Source: docs/concepts.md, "Operations". Memory: about 100 bytes a launch, and 8 a launch and level of nesting
for 65,536 launches at a time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import pyarrow as pa

from assay_sampling.launches.row_hash import hash_rows
from assay_sampling.launches.table import text_id
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.operations.identity import Operation, OperationKind
from assay_sampling.operations.kernel_names import base_name
from assay_sampling.readers.base import NameTracker
from assay_sampling.readers.nesting import MAX_DEPTH, ThreadRanges

_BLOCK = 1 << 16
# Kineto may cut the ends of ranges to microseconds.
ROUNDING_NS = 1000


class RangeKind(IntEnum):
    """What a range may be, in the order in which one becomes the operation."""

    REGION = 0
    OPERATOR = 1
    ROUTINE = 2
    RANGE = 3

    @property
    def operation(self) -> OperationKind:
        """The kind of the operation that it becomes."""
        return _KINDS[self]


_KINDS: dict[RangeKind, OperationKind] = {
    RangeKind.REGION: "region",
    RangeKind.OPERATOR: "operator",
    RangeKind.ROUTINE: "routine",
    RangeKind.RANGE: "range",
}

_REGION = re.compile(r"CompiledFxGraph|Torch-Compiled Region|CompiledFunction\b")
_REGION_SERIAL = re.compile(r"\b(f[a-z0-9]{40,}|[0-9a-f]{16,})\b")
_OPERATOR = re.compile(r"[A-Za-z_]\w*(::\w+)+(\.\w+)*")
_ENGINE = ("autograd::engine::", "torch::autograd::", "torch::dynamo", "torch::jit")
# The functions of NVIDIA's libraries, which announce themselves by NVTX ranges too.
_ROUTINE = re.compile(r"(cublas|cudnn|cusparse|cusolver|cufft|curand|nccl)[A-Z]\w*")
# torch.autograd.profiler.emit_nvtx and nsys --pytorch=autograd-shapes-nvtx append these.
_NVTX_SUFFIX = re.compile(
    r",\s*(?:(seq|op_id|input_op_ids)\s*=\s*(?:\[[^\]]*\]|-?\d+)|sizes\s*=\s*(\[[\[\]\d,\s-]*\]))"
)


@dataclass(frozen=True)
class RangeName:
    """A range's name taken apart: what it is, the name without serial numbers, and input shapes, "" if the
    name has none."""

    kind: RangeKind
    name: str
    shapes: str = ""


def range_name(text: str, *, framework: bool = False, routine: bool = False) -> RangeName:
    """Take a range's name apart.

    ``framework``: the profiler itself says that it is an operator of a framework; ``routine``: it is a row of
    a table of library calls.
    """
    if routine or _ROUTINE.fullmatch(text):
        return RangeName(RangeKind.ROUTINE, text)
    if _REGION.search(text):
        name = re.sub(r"\s+", " ", _REGION_SERIAL.sub("", text).replace("#", "")).strip()
        return RangeName(RangeKind.REGION, name)
    shapes, annotated = "", False
    for suffix in _NVTX_SUFFIX.finditer(text):
        annotated = True
        shapes = re.sub(r"\s+", "", suffix[2]) if suffix[2] else shapes
    name = _NVTX_SUFFIX.sub("", text).strip() if annotated else text
    operator = _OPERATOR.fullmatch(name) is not None and not name.startswith(_ENGINE)
    if operator and (framework or annotated or name.startswith("aten::")):
        return RangeName(RangeKind.OPERATOR, name, shapes)
    return RangeName(RangeKind.RANGE, name, shapes)


@dataclass(frozen=True)
class CallRanges:
    """Ranges that may be operations, arrays of shape (r,).

    ``thread`` is the calling thread, ``starts`` and ``ends`` are in ns, ``name`` indexes ``names``,
    ``shapes`` indexes ``texts_of_shapes``, -1 where the name itself has them or nobody knows. ``cut`` marks
    ranges that were open when the recording ended; None: there are none.
    """

    thread: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    name: np.ndarray
    shapes: np.ndarray
    names: Sequence[RangeName]
    texts_of_shapes: Sequence[str] = ()
    cut: np.ndarray | None = None

    def by_thread(self) -> ThreadRanges:
        rows = np.arange(len(self.thread), dtype=np.int32)
        return ThreadRanges(self.thread, self.starts, self.ends, rows, [])


@dataclass(frozen=True)
class LaunchedFrom:
    """Where launches came from, in API order, arrays of shape (n,).

    ``thread``: the calling thread, -1 if unknown; ``at`` and ``until``: a moment or a time that the call's
    ranges contain; ``graph_launch``: its ordinal, -1 outside of graphs; ``kernel`` indexes ``kernels``.
    """

    process: np.ndarray
    launch: np.ndarray
    thread: np.ndarray
    at: np.ndarray
    until: np.ndarray
    graph_launch: np.ndarray
    kernel: np.ndarray
    kernels: Sequence[str]


@dataclass(frozen=True)
class Calls:
    """The operation of each launch: ``call``, shape (n,), is the ordinal of its first launch; ``identity``,
    shape (n,), indexes ``texts``. ``deep`` counts launches in more than MAX_DEPTH nested ranges,
    ``crossed`` marks those in ranges that cross, ``cut`` those whose range was open when the recording ended,
    both of shape (n,)."""

    call: np.ndarray
    identity: np.ndarray
    texts: list[str]
    crossed: np.ndarray
    deep: int
    cut: np.ndarray

    def notes(self) -> list[Note]:
        """What is doubtful about these operations."""
        notes = []
        if self.crossed.any():
            notes.append(make_note("operations_cross", **self._marked(self.crossed)))
        if self.deep:
            notes.append(make_note("operations_nested_deep", launches=self.deep, depth=MAX_DEPTH))
        if self.cut.any():
            notes.append(make_note("operations_cut", **self._marked(self.cut)))
        return notes

    def _marked(self, mark: np.ndarray) -> dict[str, int | str]:
        """How many launches are marked, and the operation of the first."""
        first = Operation.from_text(self.texts[self.identity[np.argmax(mark)]])
        return {"launches": int(mark.sum()), "operation": first.label()}

    def columns(self, part: slice, names: NameTracker, offset: int) -> dict[str, pa.Array | np.ndarray]:
        """The columns of a launch table for some of the launches, whose ordinals begin at ``offset``."""
        return {
            "call": self.call[part] + offset,
            "operation_id": names.intern_indices(self.texts, self.identity[part]),
        }


def calls_of(launched: LaunchedFrom, ranges: CallRanges) -> Calls:
    """The operation of every launch; see the module for which range counts."""
    row, crossed, deep = _operation_rows(launched, ranges)
    keys = _call_keys(launched, row, len(ranges.thread))
    _, first, call = np.unique(keys, return_index=True, return_inverse=True)
    identity, texts = _identities(launched, ranges, row[first], first, call)
    cut = np.zeros(len(row), bool) if ranges.cut is None else (row >= 0) & _take(ranges.cut, row).astype(bool)
    return Calls(launched.launch[first][call], identity[call], texts, crossed, deep, cut)


def _operation_rows(launched: LaunchedFrom, ranges: CallRanges) -> tuple[np.ndarray, np.ndarray, int]:
    """The range that is the operation of each launch, -1: none, and which launches are in ranges that cross,
    both of shape (n,); how many are in more than MAX_DEPTH ranges, of which the inner ones count."""
    count = len(launched.thread)
    rows, crossed, deep = np.full(count, -1, np.int64), np.zeros(count, bool), 0
    if not len(ranges.thread):
        return rows, crossed, deep
    kind = np.array([name.kind for name in ranges.names], np.int64)[ranges.name]
    threads = ranges.by_thread()
    for start in range(0, len(rows), _BLOCK):
        part = slice(start, start + _BLOCK)
        stacks = threads.stacks(launched.thread[part], launched.at[part], launched.until[part])
        deep += int((stacks[:, MAX_DEPTH:] >= 0).any(axis=1).sum())
        stacks = stacks[:, :MAX_DEPTH]
        chosen = _chosen(stacks, kind)
        crossed[part] = _crossed(stacks, chosen, kind, ranges.ends)
        rows[part] = chosen
    return rows, crossed, deep


def _chosen(stacks: np.ndarray, kind: np.ndarray) -> np.ndarray:
    """The operation among the ranges around each launch, innermost first, shape (n, depth)."""
    best = np.full(len(stacks), -1, np.int64)
    best_kind = np.full(len(stacks), len(RangeKind), np.int64)
    for rows in stacks.T:
        of_row = np.where(rows >= 0, kind[rows], len(RangeKind))
        # A later column lies further out: it replaces an equal kind, but for other ranges.
        better = (of_row < best_kind) | ((of_row == best_kind) & (of_row < RangeKind.RANGE))
        best, best_kind = np.where(better, rows, best), np.where(better, of_row, best_kind)
    return best


def _crossed(stacks: np.ndarray, chosen: np.ndarray, kind: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Which launches are in ranges that cross, shape (n,): another of the operation's kind began after the
    outermost and outlasts it, or began before the innermost and ends first."""
    if not stacks.shape[1]:
        return np.zeros(len(stacks), bool)
    other = (stacks >= 0) & (kind[stacks] == kind[chosen][:, None])
    longer = ends[stacks] > ends[chosen][:, None] + ROUNDING_NS
    shorter = ends[stacks] < ends[chosen][:, None] - ROUNDING_NS
    wrong = np.where((kind[chosen] < RangeKind.RANGE)[:, None], longer, shorter)
    crosses: np.ndarray = (other & wrong).any(axis=1) & (chosen >= 0)
    return crosses


def _call_keys(launched: LaunchedFrom, row: np.ndarray, ranges: int) -> np.ndarray:
    """A number for the call of each launch, shape (n,): its range, else its graph launch, else itself."""
    count = len(row)
    keys = ranges + count + np.arange(count)
    in_graph = launched.graph_launch >= 0
    if in_graph.any():
        pairs = hash_rows([launched.process, launched.graph_launch])
        _, graph = np.unique(pairs, return_inverse=True)
        keys = np.where(in_graph, ranges + graph.reshape(-1), keys)
    return np.where(row >= 0, row, keys)


def _identities(
    launched: LaunchedFrom, ranges: CallRanges, row: np.ndarray, first: np.ndarray, call: np.ndarray
) -> tuple[np.ndarray, list[str]]:
    """The identity of each call, shape (c,), and the identities' texts.

    ``row``: its range; ``first``: its first launch, both shape (c,); ``call``: of each launch, shape (n,).
    """
    thread = _thread_ordinals(launched)[first]
    in_range, graph = row >= 0, (row < 0) & (launched.graph_launch[first] >= 0)
    columns = [
        np.where(in_range, 0, np.where(graph, 1, 2)),
        np.where(in_range, _take(ranges.name, row), _base_names(launched)[first]),
        np.where(in_range, _take(ranges.shapes, row), -1),
        np.where(graph, _graph_hashes(launched, call, len(first)), np.uint64(0)).view(np.int64),
        np.where(graph, np.bincount(call, minlength=len(first)), 0),
        thread,
    ]
    distinct, index = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    bases = _distinct_bases(launched.kernels)
    texts = [_operation(values, ranges, bases).to_text() for values in distinct.tolist()]
    return index.reshape(-1), texts


def _operation(values: list[int], ranges: CallRanges, bases: Sequence[str]) -> Operation:
    source, name, shapes, graph_hash, launches, thread = values
    if source == 0:
        named = ranges.names[name]
        text = ranges.texts_of_shapes[shapes] if shapes >= 0 else named.shapes
        return Operation(named.kind.operation, named.name, text, thread)
    if source == 1:
        code = graph_hash & 0xFFFFFFFFFFFFFFFF
        return Operation("graph", f"graph {code:016x} of {launches} kernels", "", thread)
    return Operation("kernel", bases[name], "", thread)


def _thread_ordinals(launched: LaunchedFrom) -> np.ndarray:
    """The ordinal of each launch's thread in its process, by first launch, shape (n,); 0 if unknown."""
    pairs = np.stack([launched.process, launched.thread], axis=1)
    distinct, first, index = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    has_thread = distinct[:, 1] >= 0
    order = np.lexsort((first, distinct[:, 0]))
    ordinal = np.zeros(len(distinct), np.int64)
    process, counted = distinct[order, 0], has_thread[order].astype(np.int64)
    running = np.cumsum(counted)
    before = np.concatenate([[0], running])[np.searchsorted(process, process, side="left")]
    ordinal[order] = np.maximum(running - before - 1, 0)
    return np.where(has_thread, ordinal, 0)[index.reshape(-1)]


def _distinct_bases(kernels: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(base_name(kernel) for kernel in kernels))


def _base_names(launched: LaunchedFrom) -> np.ndarray:
    """The index of each launch's function among the distinct ones, shape (n,)."""
    position = {name: index for index, name in enumerate(_distinct_bases(launched.kernels))}
    of_kernel = np.array([position[base_name(kernel)] for kernel in launched.kernels] or [0], np.int64)
    indices: np.ndarray = of_kernel[launched.kernel]
    return indices


def _graph_hashes(launched: LaunchedFrom, call: np.ndarray, calls: int) -> np.ndarray:
    """A hash of the functions that each call launches, in order, shape (calls,), uint64."""
    codes = np.array([text_id(base_name(kernel)) for kernel in launched.kernels] or [0], np.uint64)
    order = np.argsort(call, kind="stable")
    starts = np.searchsorted(call[order], np.arange(calls))
    place = np.arange(len(call)) - starts[call[order]]
    hashed = hash_rows([codes[launched.kernel[order]], place])
    total: np.ndarray = np.add.reduceat(hashed, starts) if len(hashed) else np.zeros(calls, np.uint64)
    return total


def _take(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return values[rows] if len(values) else np.full(len(rows), -1, np.int64)
