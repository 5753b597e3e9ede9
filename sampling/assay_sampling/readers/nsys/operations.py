"""The operations of a Nsight Systems export: NVTX ranges and library calls around each launch's call."""

from __future__ import annotations

import numpy as np

from assay_sampling.notes.registry import Note, make_note
from assay_sampling.operations.identity import Operation
from assay_sampling.readers.nsys.database import KERNEL, STRINGS, Database
from assay_sampling.readers.nsys.order import LaunchOrder, integers
from assay_sampling.readers.nsys.ranges import TracedRanges
from assay_sampling.readers.operation_calls import CallRanges, Calls, LaunchedFrom, calls_of, range_name
from assay_sampling.readers.range_names import distinct_names


def operation_calls(
    database: Database,
    order: LaunchOrder,
    nvtx: TracedRanges | None,
    libraries: TracedRanges | None,
    kernel_column: str,
) -> tuple[Calls, list[Note]]:
    """The operation of each launch in API order, and notes on them.

    ``kernel_column`` of the kernel table names the kernels.
    """
    kernel, kernels = _kernels(database, order, kernel_column)
    process, launch = order.ordinals()
    launched = LaunchedFrom(
        process=process,
        launch=launch,
        thread=order.thread,
        at=order.call_start,
        until=order.call_end,
        graph_launch=order.graph_launch,
        kernel=kernel,
        kernels=kernels,
    )
    calls = calls_of(launched, _ranges(nvtx, libraries))
    return calls, [*calls.notes(), *_shared_streams(database, order, calls)]


def _ranges(nvtx: TracedRanges | None, libraries: TracedRanges | None) -> CallRanges:
    names, of_text = distinct_names(nvtx.texts if nvtx else [])
    parts, labels = [], []
    if nvtx is not None:
        parts.append(nvtx)
        labels.append(of_text[nvtx.label])
    if libraries is not None:
        parts.append(libraries)
        labels.append(libraries.label + len(names))
        names += [range_name(text, routine=True) for text in libraries.texts]
    count = sum(len(part.thread) for part in parts)
    thread, starts, ends, cut = (
        np.concatenate([np.zeros(0, np.int64), *(getattr(part, field) for part in parts)])
        for field in ("thread", "starts", "ends", "open")
    )
    return CallRanges(
        thread=thread,
        starts=starts,
        ends=ends,
        name=np.concatenate([np.zeros(0, np.int64), *labels]),
        shapes=np.full(count, -1),
        names=names,
        cut=cut.astype(bool),
    )


def _kernels(database: Database, order: LaunchOrder, column: str) -> tuple[np.ndarray, list[str]]:
    """The name of each launch's kernel as an index, shape (n,), and the names; "" where it has no text."""
    row, number = integers(database, KERNEL, ["rowid", f"COALESCE({column}, -1)"])
    by_row = np.argsort(row)
    of_launch = number[by_row][np.searchsorted(row, order.row, sorter=by_row)]
    distinct, index = np.unique(of_launch, return_inverse=True)
    texts = database.texts(f"SELECT {column} FROM {KERNEL}") if STRINGS in database.tables else {}
    return index.reshape(-1), [texts.get(each, "") for each in distinct.tolist()]


def _shared_streams(database: Database, order: LaunchOrder, calls: Calls) -> list[Note]:
    """A note where several threads launch operations into one stream."""
    if len(order.threads) < 2 or not database.has(KERNEL, "streamId"):
        return []
    named = np.array([Operation.from_text(text).kind != "kernel" for text in calls.texts], bool)
    launches = np.flatnonzero((order.thread >= 0) & named[calls.identity])
    names = [name for name in ("deviceId", "contextId", "streamId") if database.has(KERNEL, name)]
    row, *keys = integers(database, KERNEL, ["rowid", *(f"COALESCE({name}, -1)" for name in names)])
    by_row = np.argsort(row)
    position = by_row[np.searchsorted(row, order.row[launches], sorter=by_row)]
    columns = [order.ordinals()[0][launches], *(key[position] for key in keys), order.thread[launches]]
    pairs = np.unique(np.stack(columns, axis=1), axis=0)
    _, threads = np.unique(pairs[:, :-1], axis=0, return_counts=True)
    most = int(threads.max(initial=0))
    return [make_note("operations_share_streams", threads=most)] if most > 1 else []
