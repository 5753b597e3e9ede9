"""The order of launches in a Nsight Systems export, and the API call behind each.

A kernel is joined to the runtime call with its correlation ID in its process (correlation IDs repeat
across processes; the process is in the upper bits of a global thread ID). Launches are ordered by
(process, start of the call, start on the GPU, correlation ID); processes by their first launch.

Memory: 24 bytes a launch, and a hundred while sorting, and up to 16 MiB, thrice, for the marks of correlation
IDs; both tables pass through in chunks.

Source: docs/reading-recordings.md, "Nsight Systems exports".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from assay_sampling.errors import InputError
from assay_sampling.readers.doubles import doubled_rows
from assay_sampling.readers.nsys.database import KERNEL, KERNEL_COLUMNS, RUNTIME, Database
from assay_sampling.readers.nsys.lost import JoinedCalls, Lost, LostLaunches, call_kind
from assay_sampling.readers.ordinals import graph_ordinals, process_ordinals

# Global IDs hold hardware, VM and process in the upper bits, the thread in the lower 24.
PROCESS_MASK = np.int64(~0xFFFFFF)
_NO_CORRELATION = -1
_NO_THREAD = -1
_END = '"end"'  # a keyword of SQL
_IN_ORDER = "ORDER BY rowid"  # several passes over the kernels must agree, whatever indices the file has
# Whether a kernel may have the correlation ID of a row of API calls: most calls launch nothing.
_MARKED = "substr(?, (correlationId >> ?) + 1, 1) = x'01'"
_MOST_MARKS = 1 << 24
_ALL = slice(None)


@dataclass(frozen=True)
class LaunchOrder:
    """All launches in API order, arrays of shape (n,).

    ``row`` is the row ID in the kernel table; ``begins``, shape (p,), the first launch of each process;
    ``thread`` is the index of the launching thread in ``threads`` (global IDs, sorted, shape (t,)), -1 where
    no API call was found; [``call_start``, ``call_end``] is the call (the start on the GPU where there is
    none); ``graph_launch`` and ``graph_node`` are ordinals or -1. ``lost`` counts launch calls without a
    kernel, ``doubles`` rows that equal another one in everything that is read; they are left out.
    """

    row: np.ndarray
    begins: np.ndarray
    thread: np.ndarray
    call_start: np.ndarray
    call_end: np.ndarray
    graph_launch: np.ndarray
    graph_node: np.ndarray
    threads: np.ndarray
    lost: Lost
    doubles: int

    def ordinals(self, part: slice = _ALL) -> tuple[np.ndarray, np.ndarray]:
        """The ordinals of some launches' processes, and of the launches in their process."""
        place = np.arange(*part.indices(len(self.row)))
        process = np.searchsorted(self.begins, place, side="right") - 1
        return process, place - self.begins[process]


def launch_order(database: Database) -> LaunchOrder:
    """Read the keys of all launches and put them in order. Raises InputError for a damaged table."""
    kernels, doubles = _kernels(database)
    launched, lost = _launched(database, kernels, doubles)
    process, begins = _processes(kernels.owner, len(kernels.owners), launched.call_start)
    order = np.lexsort((kernels.correlation, kernels.start, launched.call_start, process))
    graph_launch = graph_node = np.broadcast_to(np.int64(-1), len(order))  # takes no memory
    if kernels.node.any():
        graph_launch, graph_node = graph_ordinals(process[order], launched.group[order], kernels.node[order])
    return LaunchOrder(
        row=kernels.row[order],
        begins=begins,
        thread=launched.thread[order],
        call_start=launched.call_start[order],
        call_end=launched.call_end[order],
        graph_launch=graph_launch,
        graph_node=graph_node,
        threads=launched.threads,
        lost=lost,
        doubles=len(doubles),
    )


@dataclass(frozen=True)
class _Kernels:
    """The keys of all kernels in the order of their rows; ``owner`` indexes ``owners``, the global IDs of
    processes, sorted."""

    row: np.ndarray
    start: np.ndarray
    owner: np.ndarray
    correlation: np.ndarray
    node: np.ndarray
    owners: np.ndarray


def _kernels(database: Database) -> tuple[_Kernels, np.ndarray]:
    """The kernels without those that the file holds twice, and the positions of these."""
    columns = database.tables[KERNEL]
    expressions = [
        "rowid", "start", f"{_END} - start", _or_default(columns, "correlationId", _NO_CORRELATION),
        _or_default(columns, "graphNodeId", 0), _or_default(columns, "globalPid", 0),
    ]  # fmt: skip
    owners = _Codes()
    parts: list[list[np.ndarray]] = [[] for _ in expressions]
    for *numbers, owner in integer_chunks(database, KERNEL, expressions, _IN_ORDER):
        for column, values in zip(parts, [*map(_narrow, numbers), owners.of(owner)], strict=True):
            column.append(values)
    row, start, duration, correlation, node, owner = map(_joined_parts, parts)
    doubles = _doubles(database, row, [owner, correlation, start, duration])
    if len(doubles):
        row, start, correlation, node, owner = (
            np.delete(values, doubles) for values in (row, start, correlation, node, owner)
        )
    distinct, index = np.unique(owners.values & PROCESS_MASK, return_inverse=True)
    owner = index.astype(np.int32)[owner]
    return _Kernels(row, start, owner, correlation, node, distinct), doubles


@dataclass(frozen=True)
class _Launched:
    """The call of each kernel, in the order of rows; ``group`` is the pair of process and correlation ID, the
    rest as in :class:`LaunchOrder`."""

    group: np.ndarray
    thread: np.ndarray
    call_start: np.ndarray
    call_end: np.ndarray
    threads: np.ndarray


def _launched(database: Database, kernels: _Kernels, doubles: np.ndarray) -> tuple[_Launched, Lost]:
    keys = _Keys(kernels.owner, kernels.owners, kernels.correlation)
    lost = LostLaunches()
    calls = _calls(database, keys, _marks(kernels.correlation), lost)
    group = keys.of_launch
    thread = calls.thread[group]
    unknown = thread == _NO_THREAD
    call_start = np.where(unknown, kernels.start, calls.start[group])
    call_end = np.where(unknown, kernels.start, calls.end[group])
    judged = lost.judge(
        kernels.owners[np.unique(kernels.owner[kernels.node != 0])],
        lambda: _extent(database),
        lambda: _joined(database, doubles, kernels.owners[kernels.owner], thread, call_start),
    )
    threads, of_launch = _sorted_threads(calls.threads, thread)
    return _Launched(group, of_launch, call_start, call_end, threads), judged


class _Codes:
    """Numbers distinct values in the order in which they come."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def of(self, values: np.ndarray) -> np.ndarray:
        """The number of each value, int32."""
        encoded = pa.array(values).dictionary_encode()
        numbers = [
            self._numbers.setdefault(value, len(self._numbers)) for value in encoded.dictionary.to_pylist()
        ]
        codes: np.ndarray = np.array(numbers, np.int32)[encoded.indices.to_numpy()]
        return codes

    @property
    def values(self) -> np.ndarray:
        return np.array(list(self._numbers), np.int64)


def _narrow(values: np.ndarray) -> np.ndarray:
    """A copy that takes half the memory where the values allow it."""
    narrow = values.astype(np.int32)
    return narrow if np.array_equal(narrow, values) else values.copy()


def _joined_parts(parts: list[np.ndarray]) -> np.ndarray:
    whole = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    parts.clear()
    return whole


def _processes(owner: np.ndarray, owners: int, call_start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ordinal of each launch's process, shape (n,), and the first launch of each process in API order."""
    first = np.full(owners, np.iinfo(np.int64).max)
    np.minimum.at(first, owner, call_start)
    ordinal = process_ordinals(np.arange(owners), first).astype(np.int32)
    process = ordinal[owner]
    return process, np.append(0, np.cumsum(np.bincount(process)))[:-1]


def _sorted_threads(threads: np.ndarray, thread: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The global IDs of the threads that launch, sorted, and the index among them of each launch's."""
    indices = np.unique(thread)
    indices = indices[indices != _NO_THREAD]
    by_id = indices[np.argsort(threads[indices])]
    place = np.full(len(threads) + 1, _NO_THREAD, np.int32)  # the last is of those without a thread
    place[by_id] = np.arange(len(by_id))
    return threads[by_id], place[thread]


def _doubles(database: Database, row: np.ndarray, keys: list[np.ndarray]) -> np.ndarray:
    """Positions of the rows to leave out, ascending, shape (d,); ``keys`` are columns, the duration last."""

    def whole(alike: np.ndarray) -> np.ndarray:
        columns = [_or_default(database.tables[KERNEL], name, -1) for name in KERNEL_COLUMNS]
        chunks = integer_chunks(database, KERNEL, ["rowid", *columns], _IN_ORDER)
        parts = [np.stack(chunk, axis=1)[np.isin(chunk[0], row[alike]), 1:] for chunk in chunks]
        return np.concatenate(parts)

    return doubled_rows(keys, whole)


def _extent(database: Database) -> tuple[int, int]:
    """The first and the last time of any kernel or API call, ns."""
    ends = [
        database.first(f"SELECT min(start), max({_END}) FROM {table}")
        for table in (KERNEL, RUNTIME)
        if database.has(table, "start", "end")
    ]
    times = [time for row in ends if row is not None for time in row if isinstance(time, int)]
    return (min(times), max(times)) if times else (0, 0)


def _joined(
    database: Database, doubles: np.ndarray, owner: np.ndarray, thread: np.ndarray, start: np.ndarray
) -> JoinedCalls:
    """The launches that have a call; without a column of stream numbers a context is one stream."""
    columns = database.tables[KERNEL]
    names = [_or_default(columns, name, -1) for name in ("deviceId", "contextId", "streamId")]
    streams = [np.delete(values, doubles) for values in integers(database, KERNEL, names, _IN_ORDER)]
    keys = np.stack([owner, *streams], axis=1)
    has_call = thread != _NO_THREAD
    _, stream = np.unique(keys[has_call], axis=0, return_inverse=True)
    return JoinedCalls(owner[has_call], thread[has_call], start[has_call], stream.reshape(-1))


def _or_default(columns: tuple[str, ...], name: str, default: int) -> str:
    return f'COALESCE("{name}", {default})' if name in columns else str(default)


def integers(database: Database, table: str, expressions: list[str], where: str = "") -> list[np.ndarray]:
    """Columns of whole numbers, each of shape (m,), int64; raises InputError where a value is not one."""
    parts = list(integer_chunks(database, table, expressions, where))
    if not parts:
        return [np.zeros(0, np.int64) for _ in expressions]
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def integer_chunks(
    database: Database, table: str, expressions: list[str], where: str = "", parameters: Sequence[Any] = ()
) -> Iterator[list[np.ndarray]]:
    """Columns of whole numbers in chunks, each column of shape (m,), int64.

    Raises InputError where a value is not a whole number.
    """
    query = f"SELECT {', '.join(expressions)} FROM {table} {where}"
    for batch in database.integer_batches(table, query, parameters):
        for field, column in zip(batch.schema, batch.columns, strict=True):
            if column.null_count:
                cause = f"a value of {field.name} is missing"
                raise InputError(database.path, cause, "export the report again", field=table)
        yield [column.to_numpy() for column in batch.columns]


@dataclass(frozen=True)
class _Calls:
    """The first API call of each key, shape (g,): ``thread`` indexes ``threads``, global IDs, -1: no call."""

    start: np.ndarray
    end: np.ndarray
    thread: np.ndarray
    threads: np.ndarray


def _marks(correlation: np.ndarray) -> tuple[bytes, int]:
    """A byte for each correlation ID, 1 where a kernel has it, and by how many bits to shift an ID to find
    its byte: neighbouring IDs share one where they are large, so that the bytes are few."""
    shift = max(int(correlation.max(initial=0)) // _MOST_MARKS, 0).bit_length()
    marked = correlation[correlation >= 0] >> shift
    marks = np.zeros(int(marked.max(initial=0)) + 1, np.uint8)
    marks[marked] = 1
    return marks.tobytes(), shift


def _calls(database: Database, keys: _Keys, marks: tuple[bytes, int], lost: LostLaunches) -> _Calls:
    """The first API call of each key, whose correlation IDs are marked. Launch calls without a key go to
    ``lost``."""
    start = np.full(len(keys), np.iinfo(np.int64).max)
    end, thread = np.zeros(len(keys), np.int64), np.full(len(keys), _NO_THREAD, np.int32)
    threads = _Codes()
    if not database.has(RUNTIME, "start", "end", "globalTid", "correlationId"):
        return _Calls(start, end, thread, threads.values)
    expressions = ["start", _END, "globalTid", "correlationId"]
    by_name = call_kind(database)
    broken = [f"+{name} <> +CAST({name} AS INTEGER)" for name in expressions]  # not a whole number
    condition = f"({' OR '.join([f'{by_name} > 0', _MARKED, *broken])})"
    conditions = [condition, *(f"{name} IS NOT NULL" for name in expressions)]  # last, as few rows are wanted
    where = f"WHERE {' AND '.join(conditions)}"
    by_process = "globalPid" in database.tables[KERNEL]
    for chunk in integer_chunks(database, RUNTIME, [*expressions, by_name], where, marks):
        began, ended, caller, correlation, kind = chunk
        owner = caller & PROCESS_MASK if by_process else np.zeros(len(caller), np.int64)
        caller = threads.of(caller)
        position = keys.find(owner, correlation)
        lost.add(owner, kind, position >= 0, caller, began)
        rows = np.flatnonzero(position >= 0)
        rows = rows[np.lexsort((began[rows], position[rows]))]
        first = np.flatnonzero(np.diff(position[rows], prepend=-1))
        rows = rows[first]
        rows = rows[began[rows] < start[position[rows]]]
        places = position[rows]
        start[places], end[places], thread[places] = began[rows], ended[rows], caller[rows]
    return _Calls(start, end, thread, threads.values)


class _Keys:
    """The distinct (process, correlation) pairs of launches, sorted.

    ``of_launch`` is the pair of each launch, shape (n,). A pair is one number: its process, and its
    correlation ID, which has 32 bits; where a file has longer ones, their ranks.
    """

    def __init__(self, owner: np.ndarray, owners: np.ndarray, correlation: np.ndarray) -> None:
        self._owners = owners
        small = not len(correlation) or (correlation.min() >= _NO_CORRELATION and correlation.max() < 2**32)
        self._distinct = None if small else _distinct(correlation)
        combined = self._combine(owner, self._rank(correlation))
        order = np.argsort(combined, kind="stable")
        combined = combined[order]
        new = np.append(True, combined[1:] != combined[:-1])[: len(combined)]
        self.of_launch = np.empty(len(order), np.int32)
        self.of_launch[order] = np.cumsum(new, dtype=np.int32) - 1
        self._combined = combined[new]

    def __len__(self) -> int:
        return len(self._combined)

    def find(self, owner: np.ndarray, correlation: np.ndarray) -> np.ndarray:
        """Positions of the pairs, shape (m,), -1 where a pair is not among them; ``owner`` are global IDs."""
        if not len(self):
            return np.full(len(owner), -1, np.int64)
        of_owner = np.minimum(np.searchsorted(self._owners, owner), len(self._owners) - 1)
        valid = (self._owners[of_owner] == owner) & (correlation != _NO_CORRELATION)
        if self._distinct is None:
            valid &= (correlation >= 0) & (correlation < 2**32)
        rank = self._rank(correlation)
        if self._distinct is not None:
            valid &= self._distinct[rank] == correlation
        combined = self._combine(of_owner, rank)
        position = np.minimum(np.searchsorted(self._combined, combined), len(self) - 1)
        return np.where(valid & (self._combined[position] == combined), position, -1)

    def _rank(self, correlation: np.ndarray) -> np.ndarray:
        if self._distinct is None:
            return correlation
        return np.minimum(np.searchsorted(self._distinct, correlation), len(self._distinct) - 1)

    def _combine(self, owner: np.ndarray, rank: np.ndarray) -> np.ndarray:
        # One more than the rank, as there are launches without a correlation ID.
        combined: np.ndarray = (owner.astype(np.int64) << 33) + rank + 1
        return combined


def _distinct(values: np.ndarray) -> np.ndarray:
    """Sorted distinct values; numpy.unique hashes whole numbers, which takes ten times as long here."""
    ascending = np.sort(values)
    return ascending[np.append(True, ascending[1:] != ascending[:-1])] if len(ascending) else ascending
