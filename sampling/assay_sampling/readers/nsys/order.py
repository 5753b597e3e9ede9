"""The order of launches in a Nsight Systems export, and the API call behind each.

A kernel is joined to the runtime call with its correlation ID in its process (correlation IDs repeat
across processes; the process is in the upper bits of a global thread ID). Launches are ordered by
(process, start of the call, start on the GPU, correlation ID); processes by their first launch.

Memory: 72 bytes a launch, and twice that while sorting; the runtime table passes through in chunks.

Source: docs/reading-recordings.md, "Nsight Systems exports".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from assay_sampling.errors import InputError
from assay_sampling.readers.doubles import doubled_rows
from assay_sampling.readers.nsys.database import KERNEL, KERNEL_COLUMNS, RUNTIME, Database
from assay_sampling.readers.nsys.lost import JoinedCalls, Lost, LostLaunches, call_kind
from assay_sampling.readers.ordinals import graph_ordinals, process_ordinals, within

# Global IDs hold hardware, VM and process in the upper bits, the thread in the lower 24.
PROCESS_MASK = np.int64(~0xFFFFFF)
_NO_CORRELATION = -1
_NO_THREAD = np.iinfo(np.int64).min
_END = '"end"'  # a keyword of SQL
_IN_ORDER = "ORDER BY rowid"  # several passes over the kernels must agree, whatever indices the file has


@dataclass(frozen=True)
class LaunchOrder:
    """All launches in API order, arrays of shape (n,).

    ``row`` is the row ID in the kernel table; ``process`` and ``launch`` are ordinals; ``thread`` is the
    index of the launching thread in ``threads`` (global IDs, sorted, shape (t,)), -1 where no API call
    was found; [``call_start``, ``call_end``] is the call (the start on the GPU where there is none);
    ``graph_launch`` and ``graph_node`` are ordinals or -1. ``lost`` counts launch calls without a kernel,
    ``doubles`` rows that equal another one in everything that is read; they are left out.
    """

    row: np.ndarray
    process: np.ndarray
    launch: np.ndarray
    thread: np.ndarray
    call_start: np.ndarray
    call_end: np.ndarray
    graph_launch: np.ndarray
    graph_node: np.ndarray
    threads: np.ndarray
    lost: Lost
    doubles: int


def launch_order(database: Database) -> LaunchOrder:
    """Read the keys of all launches and put them in order. Raises InputError for a damaged table."""
    columns = database.tables[KERNEL]
    row, start, duration, owner, correlation, node = integers(
        database,
        KERNEL,
        ["rowid", "start", f"{_END} - start"]
        + [
            _or_default(columns, *pair)
            for pair in (("globalPid", 0), ("correlationId", _NO_CORRELATION), ("graphNodeId", 0))
        ],
        _IN_ORDER,
    )
    doubles = _doubles(database, row, [owner, correlation, start, duration])
    row, start, owner, correlation, node = [
        np.delete(values, doubles) for values in (row, start, owner & PROCESS_MASK, correlation, node)
    ]
    group, distinct_keys = _groups(owner, correlation)
    lost = LostLaunches()
    calls = _calls(database, distinct_keys, lost, by_process="globalPid" in columns)
    call_start, call_end, thread = calls[0][group], calls[1][group], calls[2][group]
    unknown = thread == _NO_THREAD
    call_start[unknown] = start[unknown]
    call_end[unknown] = start[unknown]
    process = process_ordinals(owner, call_start)
    order = np.lexsort((correlation, start, call_start, process))
    graph_launch, graph_node = graph_ordinals(process[order], group[order], node[order])
    threads = np.unique(thread[~unknown])
    return LaunchOrder(
        row=row[order],
        process=process[order],
        launch=within(process[order]),
        thread=np.where(unknown, -1, np.searchsorted(threads, thread))[order],
        call_start=call_start[order],
        call_end=call_end[order],
        graph_launch=graph_launch,
        graph_node=graph_node,
        threads=threads,
        lost=lost.judge(
            np.unique(owner[node != 0]),
            lambda: _extent(database),
            lambda: _joined(database, doubles, owner, thread, call_start),
        ),
        doubles=len(doubles),
    )


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
    known = thread != _NO_THREAD
    _, stream = np.unique(keys[known], axis=0, return_inverse=True)
    return JoinedCalls(owner[known], thread[known], start[known], stream.reshape(-1))


def _or_default(columns: tuple[str, ...], name: str, default: int) -> str:
    return f'COALESCE("{name}", {default})' if name in columns else str(default)


def integers(database: Database, table: str, expressions: list[str], where: str = "") -> list[np.ndarray]:
    """Columns of whole numbers, each of shape (m,), int64; raises InputError where a value is not one."""
    parts = list(integer_chunks(database, table, expressions, where))
    if not parts:
        return [np.zeros(0, np.int64) for _ in expressions]
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def integer_chunks(
    database: Database, table: str, expressions: list[str], where: str = ""
) -> Iterator[list[np.ndarray]]:
    """Columns of whole numbers in chunks, each column of shape (m,), int64.

    Raises InputError where a value is not a whole number.
    """
    query = f"SELECT {', '.join(expressions)} FROM {table} {where}"
    for batch in database.integer_batches(table, query):
        for field, column in zip(batch.schema, batch.columns, strict=True):
            if column.null_count:
                cause = f"a value of {field.name} is missing"
                raise InputError(database.path, cause, "export the report again", field=table)
        yield [column.to_numpy() for column in batch.columns]


def _groups(owner: np.ndarray, correlation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct (process, correlation) pairs, sorted, shape (g, 2), and the pair of each launch, (n,)."""
    order = np.lexsort((correlation, owner))
    pairs = np.stack([owner[order], correlation[order]], axis=1)
    new = np.ones(len(pairs), bool)
    new[1:] = (pairs[1:] != pairs[:-1]).any(axis=1)
    group = np.empty(len(order), np.int64)
    group[order] = np.cumsum(new) - 1
    return group, pairs[new]


def _calls(database: Database, keys: np.ndarray, lost: LostLaunches, *, by_process: bool) -> list[np.ndarray]:
    """Start, end and global thread ID of the first API call of each key, shape (g,) each.

    Launch calls without a key go to ``lost``.
    """
    start = np.full(len(keys), np.iinfo(np.int64).max)
    end, thread = np.zeros(len(keys), np.int64), np.full(len(keys), _NO_THREAD)
    if not database.has(RUNTIME, "start", "end", "globalTid", "correlationId"):
        return [start, end, thread]
    lookup = _KeyLookup(keys)
    expressions = ["start", _END, "globalTid", "correlationId"]
    where = "WHERE " + " AND ".join(f"{name} IS NOT NULL" for name in expressions)
    for chunk in integer_chunks(database, RUNTIME, [*expressions, call_kind(database)], where):
        began, ended, caller, correlation, kind = chunk
        owner = caller & PROCESS_MASK if by_process else np.zeros(len(caller), np.int64)
        position = lookup.find(owner, correlation)
        lost.add(owner, kind, position >= 0, caller, began)
        rows = np.flatnonzero(position >= 0)
        rows = rows[np.lexsort((began[rows], position[rows]))]
        first = np.flatnonzero(np.diff(position[rows], prepend=-1))
        rows = rows[first]
        rows = rows[began[rows] < start[position[rows]]]
        found = position[rows]
        start[found], end[found], thread[found] = began[rows], ended[rows], caller[rows]
    return [start, end, thread]


class _KeyLookup:
    """Finds (process, correlation) pairs among sorted distinct ones, shape (g, 2)."""

    def __init__(self, keys: np.ndarray) -> None:
        self._owners = _distinct(keys[:, 0])
        self._correlations = _distinct(keys[:, 1])
        self._combined = self._combine(keys[:, 0], keys[:, 1])[0]

    def _combine(self, owner: np.ndarray, correlation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        of_owner = np.searchsorted(self._owners, owner)
        of_correlation = np.searchsorted(self._correlations, correlation)
        of_owner = np.minimum(of_owner, len(self._owners) - 1)
        of_correlation = np.minimum(of_correlation, len(self._correlations) - 1)
        known = (self._owners[of_owner] == owner) & (self._correlations[of_correlation] == correlation)
        return of_owner * len(self._correlations) + of_correlation, known

    def find(self, owner: np.ndarray, correlation: np.ndarray) -> np.ndarray:
        """Positions of the pairs, shape (m,), -1 where a pair is not among them."""
        if not len(self._combined):
            return np.full(len(owner), -1, np.int64)
        combined, known = self._combine(owner, correlation)
        known &= correlation != _NO_CORRELATION
        position = np.minimum(np.searchsorted(self._combined, combined), len(self._combined) - 1)
        return np.where(known & (self._combined[position] == combined), position, -1)


def _distinct(values: np.ndarray) -> np.ndarray:
    """Sorted distinct values; numpy.unique hashes whole numbers, which takes ten times as long here."""
    ascending = np.sort(values)
    return ascending[np.append(True, ascending[1:] != ascending[:-1])] if len(ascending) else ascending
