"""NVTX ranges and library calls of a Nsight Systems export, of the threads that launch.

The export has a table of NVTX events, and with ``--trace=cublas,cudnn`` one of the calls of each library.
Source: docs/reading-recordings.md, "Nsight Systems exports".

Memory: 37 bytes a range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay_sampling.errors import InputError
from assay_sampling.readers.nesting import ThreadRanges
from assay_sampling.readers.nsys.database import CUBLAS, CUDNN, NVTX, Database

_PUSH_POP, _START_END = 59, 60
_LIBRARIES = (CUBLAS, CUDNN)
# An open range lasts longer than every launch; times are checked to lie below 2**62.
NEVER_ENDED = 2**62
_OPEN = f'("end" IS NULL AND eventType = {_PUSH_POP})'
_CLOSED = f'("end" >= start AND eventType IN ({_PUSH_POP}, {_START_END}))'


@dataclass(frozen=True)
class TracedRanges:
    """Ranges, arrays of shape (r,): ``thread`` indexes the launching threads, ``starts`` and ``ends`` in ns,
    ``label`` indexes ``texts``, int32; ``open`` marks push/pop ranges that the recording does not end."""

    thread: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    label: np.ndarray
    open: np.ndarray
    texts: Sequence[str]

    def closed(self) -> ThreadRanges:
        """The ranges that the recording ends."""
        complete = ~self.open
        columns = (self.thread[complete], self.starts[complete], self.ends[complete], self.label[complete])
        return ThreadRanges(*columns, self.texts)


def has_ranges(database: Database) -> bool:
    """Whether the export has ranges or library calls that may be operations."""
    nvtx = database.has(NVTX, "start", "end", "eventType", "globalTid") and database.first(
        f"SELECT 1 FROM {NVTX} WHERE ({_CLOSED} OR {_OPEN}) AND globalTid IS NOT NULL LIMIT 1"
    )
    return bool(nvtx) or any(
        database.first(f'SELECT 1 FROM {table} WHERE "end" > start LIMIT 1') for table in _tables(database)
    )


def nvtx_ranges(database: Database, threads: np.ndarray) -> TracedRanges | None:
    """The NVTX ranges of the given threads (global IDs, sorted), or None without any."""
    if not database.has(NVTX, "start", "end", "eventType", "globalTid"):
        return None
    columns = database.tables[NVTX]
    text, text_id = (name if name in columns else "NULL" for name in ("text", "textId"))
    registered = database.texts(f"SELECT textId FROM {NVTX}") if "textId" in columns else {}
    query = (
        f'SELECT globalTid, start, COALESCE("end", {NEVER_ENDED}), "end" IS NULL, {text}, {text_id} '
        f"FROM {NVTX} WHERE ({_CLOSED} OR {_OPEN}) AND globalTid IS NOT NULL"
    )
    return _collected(database, NVTX, query, registered, threads)


def library_calls(database: Database, threads: np.ndarray) -> TracedRanges | None:
    """The calls of cuBLAS and cuDNN by the given threads, or None without any."""
    ranges = []
    for table in _tables(database):
        # A row without a length is a remark of the tool, such as "cuDNN profiling started".
        query = (
            f'SELECT globalTid, start, "end", 0, NULL, nameId FROM {table} '
            'WHERE "end" > start AND globalTid IS NOT NULL'
        )
        names = database.texts(f"SELECT nameId FROM {table}")
        calls = _collected(database, table, query, names, threads)
        ranges += [calls] if calls is not None else []
    return joined(ranges) if ranges else None


def joined(parts: Sequence[TracedRanges]) -> TracedRanges:
    """Several tables of ranges as one."""
    offsets = np.cumsum([0, *(len(part.texts) for part in parts[:-1])])
    labels = [part.label + offset for part, offset in zip(parts, offsets.tolist(), strict=True)]
    return TracedRanges(
        thread=np.concatenate([part.thread for part in parts]),
        starts=np.concatenate([part.starts for part in parts]),
        ends=np.concatenate([part.ends for part in parts]),
        label=np.concatenate(labels),
        open=np.concatenate([part.open for part in parts]),
        texts=[text for part in parts for text in part.texts],
    )


def _tables(database: Database) -> list[str]:
    return [table for table in _LIBRARIES if database.has(table, "start", "end", "globalTid", "nameId")]


def _collected(
    database: Database, table: str, query: str, registered: dict[int, str], threads: np.ndarray
) -> TracedRanges | None:
    labels: dict[str, int] = {}
    times, label = [], []
    for part, names in _chunks(database, table, query, registered):
        of_part = np.array([labels.setdefault(name, len(labels)) for name in names], np.int32)
        of_threads = np.isin(part[0], threads)
        times.append(part[:, of_threads])
        label.append(of_part[of_threads])
    if not times:
        return None
    thread, starts, ends, is_open = np.concatenate(times, axis=1)
    index = np.searchsorted(threads, thread)
    return TracedRanges(index, starts, ends, np.concatenate(label), is_open.astype(bool), list(labels))


def _chunks(
    database: Database, table: str, query: str, registered: dict[int, str]
) -> Iterator[tuple[np.ndarray, list[str]]]:
    for rows in database.rows(query):
        *columns, texts, ids = zip(*rows, strict=True)
        yield (
            _integers(database, table, columns),
            [
                text if isinstance(text, str) else registered.get(number, "")
                for text, number in zip(texts, ids, strict=True)
            ],
        )


def _integers(database: Database, table: str, columns: Sequence[Sequence[Any]]) -> np.ndarray:
    try:
        return np.array(columns, np.int64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            database.path, f"a value is not a whole number ({error})", "export again", field=table
        ) from error
