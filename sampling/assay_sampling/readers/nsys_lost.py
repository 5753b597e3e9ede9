"""Launch calls of a Nsight Systems export that have no kernel in it: the profiler lost the kernel.

Lost kernels need not be told in the diagnostics. A call that is captured into a CUDA graph has no kernel of
its own either, so a process with graphs proves nothing. Source: notes on Nsight Systems, sections 2 and 6c
("kernels < launches").
"""

from __future__ import annotations

import re

import numpy as np

from assay_sampling.readers.nsys_database import RUNTIME, STRINGS, Database

_LAUNCH_CALL = re.compile(r"cu(da)?Launch(Cooperative)?(Kernel|_v)")
_GRAPH_CALL = re.compile(r"cu(da)?(GraphLaunch|StreamBeginCapture)")
_LAUNCH, _GRAPH = 1, 2


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


class LostLaunches:
    """Counts launch calls without a kernel, process by process, as the runtime table passes through."""

    def __init__(self) -> None:
        self._lost: dict[int, int] = {}
        self._with_graphs: set[int] = set()

    def add(self, owner: np.ndarray, kind: np.ndarray, has_kernel: np.ndarray) -> None:
        """Some calls, (m,) each: processes, kinds (:func:`call_kind`), whether a kernel has their ID."""
        self._with_graphs.update(np.unique(owner[kind == _GRAPH]).tolist())
        owners, counts = np.unique(owner[(kind == _LAUNCH) & ~has_kernel], return_counts=True)
        for process, count in zip(owners.tolist(), counts.tolist(), strict=True):
            self._lost[process] = self._lost.get(process, 0) + count

    def count(self, with_graphs: np.ndarray) -> int:
        """Calls without a kernel, of processes without graphs; ``with_graphs``: more processes with some."""
        proving = self._lost.keys() - self._with_graphs - set(with_graphs.tolist())
        return sum(self._lost[process] for process in proving)
