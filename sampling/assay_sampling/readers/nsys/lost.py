"""Launch calls of a Nsight Systems export that have no kernel in it: lost, or cut off.

A window of a workload (``--duration``, a capture range) ends while kernels wait in their streams: their
calls are in the file, the kernels are not. A call counts as *cut* where it began in the last hundredth of the
file's time and no later call on its stream has a kernel; every other call without a kernel is one that the
profiler *lost*. The diagnostics may not mention lost kernels. A call that is captured into a CUDA graph has
no kernel either, so a process with graphs proves nothing. Source: docs/recordings.md, "What to know";
docs/reading-recordings.md, "Nsight Systems exports"; a stream runs its kernels in the order of their calls
(CUDA C++ Programming Guide, "Streams").
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from assay_sampling.readers.nsys.database import RUNTIME, STRINGS, Database

_LAUNCH_CALL = re.compile(r"cu(da)?Launch(Cooperative)?(Kernel|_v)")
_GRAPH_CALL = re.compile(r"cu(da)?(GraphLaunch|StreamBeginCapture)")
_LAUNCH, _GRAPH = 1, 2
_END_OF_WINDOW = 0.01
_NEVER = np.iinfo(np.int64).min


def call_kind(database: Database) -> str:
    """An expression over the rows of the runtime table: 1 for a successful launch, 2 for graphs, else 0."""
    if not (database.has(RUNTIME, "nameId") and database.has(STRINGS, "id", "value")):
        return "0"
    launches, graphs = list[int](), list[int]()
    for rows in database.rows(f"SELECT id, value FROM {STRINGS} WHERE value GLOB 'cu*'"):
        for number, text in rows:
            if isinstance(number, int) and isinstance(text, str):
                launches += [number] if _LAUNCH_CALL.match(text) else []
                graphs += [number] if _GRAPH_CALL.match(text) else []
    succeeded = "AND COALESCE(returnValue, 0) = 0" if database.has(RUNTIME, "returnValue") else ""
    return (
        f"CASE WHEN nameId IN ({_listed(graphs)}) THEN {_GRAPH} "
        f"WHEN nameId IN ({_listed(launches)}) {succeeded} THEN {_LAUNCH} ELSE 0 END"
    )


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


@dataclass(frozen=True)
class Lost:
    """Launch calls without a kernel: ``lost`` by the profiler, ``cut`` off by the end of the capture."""

    lost: int = 0
    cut: int = 0


@dataclass(frozen=True)
class JoinedCalls:
    """The launches that have a call, arrays of shape (n,): process, launching thread, start of the call, and
    an ordinal of the stream, unique over processes, devices and contexts."""

    process: np.ndarray
    thread: np.ndarray
    start: np.ndarray
    stream: np.ndarray


class LostLaunches:
    """Collects launch calls without a kernel as the runtime table passes through; 24 bytes each."""

    def __init__(self) -> None:
        self._parts: list[np.ndarray] = []
        self._with_graphs: set[int] = set()

    def add(
        self,
        owner: np.ndarray,
        kind: np.ndarray,
        has_kernel: np.ndarray,
        thread: np.ndarray,
        start: np.ndarray,
    ) -> None:
        """Some calls, (m,) each: processes, kinds (:func:`call_kind`), whether a kernel has their ID,
        threads, and when they began."""
        self._with_graphs.update(np.unique(owner[kind == _GRAPH]).tolist())
        lacking = (kind == _LAUNCH) & ~has_kernel
        self._parts.append(np.stack([owner[lacking], thread[lacking], start[lacking]]))

    def judge(
        self,
        with_graphs: np.ndarray,
        window: Callable[[], tuple[int, int]],
        joined: Callable[[], JoinedCalls],
    ) -> Lost:
        """Tell cut calls from lost ones; those of processes with graphs count as neither.

        Args:
            with_graphs: more processes that have graphs.
            window: gives the first and the last time in the file, ns; called only if calls lack a kernel.
            joined: gives the launches that have a call; likewise.
        """
        calls = np.concatenate(self._parts, axis=1) if self._parts else np.empty((3, 0), np.int64)
        proving = ~np.isin(calls[0], [*self._with_graphs, *with_graphs.tolist()])
        owner, thread, start = calls[:, proving]
        if not len(owner):
            return Lost()
        first, last = window()
        cut = last - start.astype(np.float64) <= (last - first) * _END_OF_WINDOW
        rows = np.flatnonzero(cut)
        cut[rows] = start[rows] > _last_with_kernel(owner[rows], thread[rows], joined())
        return Lost(lost=int((~cut).sum()), cut=int(cut.sum()))


def _last_with_kernel(owner: np.ndarray, thread: np.ndarray, joined: JoinedCalls) -> np.ndarray:
    """Start of the last call with a kernel on any stream that each call may have gone to, shape (m,).

    An export names the stream of a kernel but not that of a call. A call may have gone to any stream on
    which its thread launched a kernel; if the thread launched none, to any stream of its process.
    """
    of_stream = _greatest(joined.stream, joined.start)[joined.stream] if len(joined.stream) else joined.start
    threads, of_thread = np.unique(joined.thread, return_inverse=True)
    owners, of_owner = np.unique(joined.process, return_inverse=True)
    by_thread = _lookup(threads, _greatest(of_thread, of_stream), thread)
    by_owner = _lookup(owners, _greatest(of_owner, of_stream), owner)
    return np.where(by_thread > _NEVER, by_thread, by_owner)


def _greatest(group: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The greatest value of each group 0 .. g - 1, shape (g,)."""
    greatest = np.full(int(group.max(initial=-1)) + 1, _NEVER)
    np.maximum.at(greatest, group, values)
    return greatest


def _lookup(keys: np.ndarray, values: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """The value of each wanted key among sorted distinct ones; ``_NEVER`` if the key is absent."""
    if not len(keys):
        return np.full(len(queries), _NEVER)
    position = np.minimum(np.searchsorted(keys, queries), len(keys) - 1)
    return np.where(keys[position] == queries, values[position], _NEVER)
