"""Puts kernel records, which arrive in the order in which they ended, into the order of their launches.

A launch is handed on when all launches before it are complete: their kernels have come, or the call failed.
If the kernels of a graph launch cannot be counted, it is complete when CUPTI was flushed five times without
another kernel of it, and a kernel of a later launch has come from one of its streams. The number of waiting
kernels is bounded: over the limit, the older half is handed on as it is. A kernel that comes after its place
was handed on is counted as late, never put elsewhere.

Memory: 160 bytes for each waiting launch. Time: a sort of the waiting launches for each hand-on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assay_agent.tracer.protocol import DEVICE_LAUNCHED, KERNEL, KERNELS_NONE, KERNELS_UNKNOWN, LAUNCH
from assay_sampling.readers.ordinals import graph_ordinals

DEFAULT_WINDOW = 1 << 19
_QUIET_FLUSHES = 5
_WAITING = np.dtype([*LAUNCH.descr, ("arrived", "<u4"), ("flush", "<u4")])


@dataclass(frozen=True)
class OrderedKernels:
    """Kernels of one process in API order, arrays of shape (n,).

    ``kernels`` are of protocol.KERNEL; ``launch`` is their ordinal in the process; ``range`` the id of the
    innermost NVTX range of the call, 0 for none; ``graph_launch`` and ``graph_node`` are ordinals or -1.
    """

    kernels: np.ndarray
    launch: np.ndarray
    range: np.ndarray
    graph_launch: np.ndarray
    graph_node: np.ndarray

    def __len__(self) -> int:
        return len(self.kernels)


class LaunchOrder:
    """Puts the kernels of one process in order; ``window`` kernels wait at most."""

    def __init__(self, window: int = DEFAULT_WINDOW) -> None:
        self._window = window
        self._launches = np.zeros(0, _WAITING)
        self._kernels = np.zeros(0, KERNEL)
        self._new: list[np.ndarray] = []
        self._new_launches: list[np.ndarray] = []
        self._flushes = 0
        self._handed_on_order = -1
        self._newest_of_stream: dict[int, int] = {}
        self._given_launches = self._given_graphs = 0
        self.late = 0  # kernels that came after their place was handed on
        self.missing = 0  # kernels that launches handed on should have had
        self.device_launched = 0

    @property
    def waiting(self) -> int:
        """How many kernels wait."""
        return len(self._kernels) + self.new

    @property
    def new(self) -> int:
        """How many came since the last :meth:`take`."""
        return sum(map(len, self._new))

    def add_launches(self, launches: np.ndarray) -> None:
        """Launch calls, of protocol.LAUNCH."""
        self._new_launches.append(launches)

    def add_kernels(self, kernels: np.ndarray) -> None:
        """Kernel records, of protocol.KERNEL; those launched by kernels have no call and are only counted."""
        own = (kernels["flags"] & DEVICE_LAUNCHED) == 0
        self.device_launched += int(len(own) - own.sum())
        late = kernels["order"].astype(np.int64) <= self._handed_on_order
        self.late += int((late & own).sum())
        self._new.append(kernels[own & ~late])

    def flushed(self) -> None:
        """Call when CUPTI was flushed."""
        self._flushes += 1

    def take(self, *, final: bool = False) -> OrderedKernels:
        """The kernels that can be handed on now; all of them if no more come (``final``)."""
        self._merge()
        if final:
            self._count_missing(len(self._launches))
            return self._handed_on(len(self._kernels))
        if not len(self._kernels):
            return self._handed_on(0)
        horizon = self._complete_until()
        if len(self._kernels) > self._window:
            horizon = max(horizon, int(self._kernels["order"][-self._window // 2]) - 1)
        if len(self._launches) > 4 * self._window:
            horizon = max(horizon, int(self._launches["order"][len(self._launches) // 2]))
        until = np.uint64(max(horizon, -1) + 1)
        self._count_missing(int(np.searchsorted(self._launches["order"], until, "left")))
        return self._handed_on(int(np.searchsorted(self._kernels["order"], until, "left")), horizon)

    def _merge(self) -> None:
        """Merge new launches and kernels, in order, and count the kernels of each launch."""
        if self._new:
            kernels = np.concatenate([self._kernels, *self._new])
            keys = (kernels["graph_node"], kernels["start_ns"], kernels["order"])
            self._kernels = kernels[np.lexsort(keys)]
            for new in self._new:
                self._note_streams(new)
        if self._new_launches:
            added = np.zeros(sum(map(len, self._new_launches)), _WAITING)
            for name in LAUNCH.names or ():
                added[name] = np.concatenate([launches[name] for launches in self._new_launches])
            launches = np.concatenate([self._launches, added])
            failed = launches["kernels"] == KERNELS_NONE
            if failed.any():
                launches = launches[~np.isin(launches["order"], launches["order"][failed])]
            self._launches = launches[np.argsort(launches["order"], kind="stable")]
        self._new, self._new_launches = [], []

    def _note_streams(self, kernels: np.ndarray) -> None:
        keys = _stream_keys(kernels)
        for key in np.unique(keys).tolist():
            newest = int(kernels["order"][keys == key].max())
            self._newest_of_stream[key] = max(newest, self._newest_of_stream.get(key, -1))

    def _complete_until(self) -> int:
        """The order up to which every launch is complete; the last one handed on if none is."""
        first = np.searchsorted(self._kernels["order"], self._launches["order"], "left")
        after = np.searchsorted(self._kernels["order"], self._launches["order"], "right")
        arrived = (after - first).astype(np.uint32)
        changed = arrived != self._launches["arrived"]
        self._launches["arrived"] = arrived
        self._launches["flush"][changed] = self._flushes
        expected = self._launches["kernels"]
        complete = arrived >= expected
        graphs = np.flatnonzero(expected == KERNELS_UNKNOWN)
        if len(graphs):
            complete[graphs] = self._graphs_complete(graphs, first[graphs])
        open_ = np.flatnonzero(~complete)
        if len(open_):
            return int(self._launches["order"][open_[0]]) - 1
        return int(self._launches["order"][-1]) if len(self._launches) else self._handed_on_order

    def _graphs_complete(self, graphs: np.ndarray, first: np.ndarray) -> np.ndarray:
        launches = self._launches[graphs]
        quiet = launches["flush"].astype(np.int64) + _QUIET_FLUSHES <= self._flushes
        arrived = launches["arrived"] > 0
        keys = _stream_keys(self._kernels[np.minimum(first, len(self._kernels) - 1)])
        streams, index = np.unique(keys, return_inverse=True)
        newest = np.array([self._newest_of_stream.get(key, -1) for key in streams.tolist()], np.int64)[index]
        # A graph without kernels (copies only) is complete when later launches came some flushes ago.
        empty = ~arrived & (self._newest_seen() > launches["order"].astype(np.int64))
        followed = arrived & (newest > launches["order"].astype(np.int64))
        complete: np.ndarray = quiet & (followed | empty)
        return complete

    def _newest_seen(self) -> int:
        return max(self._newest_of_stream.values(), default=-1)

    def _count_missing(self, passed: int) -> None:
        """How many kernels of the first ``passed`` launches are missing."""
        launches = self._launches[:passed]
        orders = launches["order"]
        first, after = (np.searchsorted(self._kernels["order"], orders, side) for side in ("left", "right"))
        self.missing += int(np.maximum(launches["kernels"].astype(np.int64) - (after - first), 0).sum())

    def _handed_on(self, rows: int, horizon: int = -1) -> OrderedKernels:
        kernels, self._kernels = self._kernels[:rows], self._kernels[rows:]
        ranges = self._ranges(kernels["order"])
        reached = max(horizon, int(kernels["order"][-1]) if rows else -1, self._handed_on_order)
        self._handed_on_order = reached
        self._launches = self._launches[self._launches["order"].astype(np.int64) > reached]
        node = kernels["graph_node"].astype(np.int64)
        graph_launch, graph_node = graph_ordinals(np.zeros(rows, np.int64), kernels["order"], node)
        graph_launch[graph_launch >= 0] += self._given_graphs
        self._given_graphs = max(self._given_graphs, int(graph_launch.max(initial=-1)) + 1)
        launch = np.arange(rows, dtype=np.int64) + self._given_launches
        self._given_launches += rows
        return OrderedKernels(kernels, launch, ranges, graph_launch, graph_node)

    def _ranges(self, order: np.ndarray) -> np.ndarray:
        if not len(self._launches):
            return np.zeros(len(order), np.uint32)
        at = np.minimum(np.searchsorted(self._launches["order"], order), len(self._launches) - 1)
        found = self._launches["order"][at] == order
        return np.where(found, self._launches["range"][at], 0).astype(np.uint32)


def _stream_keys(kernels: np.ndarray) -> np.ndarray:
    return (kernels["context"].astype(np.int64) << 32) | kernels["stream"].astype(np.int64)
