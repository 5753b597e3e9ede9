"""Puts kernel records, which arrive in the order in which they ended, into the order of their launches.

A launch is handed on when all launches before it are complete: their kernels have come, or the call failed.
A kernel that comes before its launch is told waits for it, and so do all after it.
If the kernels of a graph launch cannot be counted, it is complete when CUPTI was flushed five times without
another kernel of it, and a kernel of a later launch has come from one of its streams. The number of waiting
kernels is bounded: over the limit, the older half is handed on as it is.

A call gets its number before the tracer hears of it, and the system may stop its thread in between. If later
launches have been handed on when it is told, it takes the place after them: its call was still to come when
they were complete. A kernel of any other launch that comes after its place was handed on is counted as late,
never put elsewhere.

Memory: 176 bytes for each waiting launch. Time: a sort of the waiting launches for each hand-on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assay_agent.tracer.protocol import DEVICE_LAUNCHED, KERNEL, KERNELS_NONE, KERNELS_UNKNOWN, LAUNCH
from assay_sampling.readers.ordinals import graph_ordinals

DEFAULT_WINDOW = 1 << 19
_QUIET_FLUSHES = 5
# Places are orders with room behind each, for launches that are told late.
_PLACE_BITS = 16
_PLACE = ("place", "<i8")
_WAITING = np.dtype([*LAUNCH.descr, _PLACE, ("arrived", "<u4"), ("flush", "<u4")])
_PLACED = np.dtype([*KERNEL.descr, _PLACE])


@dataclass(frozen=True)
class OrderedKernels:
    """Kernels of one process in API order, arrays of shape (n,).

    ``kernels`` have the fields of protocol.KERNEL; ``launch`` is their ordinal in the process; ``range`` the
    id of the innermost NVTX range of the call, 0 for none; ``graph_launch`` and ``graph_node`` are ordinals
    or -1.
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
        self._kernels = np.zeros(0, _PLACED)
        self._new: list[np.ndarray] = []
        self._new_launches: list[np.ndarray] = []
        self._flushes = 0
        self._handed_on_place = -1
        self._moved: dict[int, int] = {}  # places of launches that were told late, by order
        self._behind: list[np.ndarray] = []  # kernels whose place was handed on, as far as is known
        self._newest_of_stream: dict[int, int] = {}
        self._given_launches = self._given_graphs = 0
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

    @property
    def late(self) -> int:
        """How many kernels came after their place was handed on."""
        return sum(map(len, self._behind))

    def add_launches(self, launches: np.ndarray) -> None:
        """Launch calls, of protocol.LAUNCH."""
        self._new_launches.append(launches)
        told_late = self._places(launches["order"]) <= self._handed_on_place
        told_late &= launches["kernels"] != KERNELS_NONE
        if told_late.any():
            self._move(launches["order"][told_late])

    def _move(self, orders: np.ndarray) -> None:
        """Give launches that are told late the next places, and take back the kernels that wait for them."""
        next_place = max([self._handed_on_place, *self._moved.values()]) + 1
        behind_its_order = next_place & ((1 << _PLACE_BITS) - 1)
        room = (1 << _PLACE_BITS) - behind_its_order if behind_its_order else 0
        for place, order in enumerate(np.sort(orders)[:room].tolist(), next_place):
            self._moved[order] = place
        behind, self._behind = self._behind, []
        for kernels in behind:
            self._add_own(kernels)

    def _places(self, orders: np.ndarray) -> np.ndarray:
        """The places of launches, int64; they grow with the orders, but for launches that were told late."""
        places: np.ndarray = orders.astype(np.int64) << _PLACE_BITS
        for order, place in self._moved.items():
            places[orders == order] = place
        return places

    def add_kernels(self, kernels: np.ndarray) -> None:
        """Kernel records, of protocol.KERNEL; those launched by kernels have no call and are only counted."""
        own = (kernels["flags"] & DEVICE_LAUNCHED) == 0
        self.device_launched += int(len(own) - own.sum())
        self._add_own(kernels[own])

    def _add_own(self, kernels: np.ndarray) -> None:
        behind = self._places(kernels["order"]) <= self._handed_on_place
        if behind.any():
            self._behind.append(kernels[behind])
        self._new.append(kernels[~behind])

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
            horizon = max(horizon, int(self._kernels["place"][-self._window // 2]) - 1)
        if len(self._launches) > 4 * self._window:
            horizon = max(horizon, int(self._launches["place"][len(self._launches) // 2]))
        self._count_missing(int(np.searchsorted(self._launches["place"], horizon, "right")))
        return self._handed_on(int(np.searchsorted(self._kernels["place"], horizon, "right")), horizon)

    def _merge(self) -> None:
        """Merge new launches and kernels, in order, and count the kernels of each launch."""
        if self._new:
            new = self._with_places(self._new, _PLACED)
            kernels = np.concatenate([self._kernels, new])
            keys = (kernels["graph_node"], kernels["start_ns"], kernels["place"])
            self._kernels = kernels[np.lexsort(keys)]
            self._note_streams(new)
        if self._new_launches:
            added = self._with_places(self._new_launches, _WAITING)
            launches = np.concatenate([self._launches, added])
            failed = launches["kernels"] == KERNELS_NONE
            if failed.any():
                launches = launches[~np.isin(launches["order"], launches["order"][failed])]
            self._launches = launches[np.argsort(launches["place"], kind="stable")]
        self._new, self._new_launches = [], []

    def _with_places(self, parts: list[np.ndarray], dtype: np.dtype[np.void]) -> np.ndarray:
        """The parts as one array of a type with more fields, with the places of their orders."""
        made = np.zeros(sum(map(len, parts)), dtype)
        for name in parts[0].dtype.names or ():
            made[name] = np.concatenate([part[name] for part in parts])
        made["place"] = self._places(made["order"])
        return made

    def _note_streams(self, kernels: np.ndarray) -> None:
        keys = _stream_keys(kernels)
        for key in np.unique(keys).tolist():
            newest = int(kernels["place"][keys == key].max())
            self._newest_of_stream[key] = max(newest, self._newest_of_stream.get(key, -1))

    def _complete_until(self) -> int:
        """The place up to which every launch is complete; the last one handed on if none is."""
        first = np.searchsorted(self._kernels["place"], self._launches["place"], "left")
        after = np.searchsorted(self._kernels["place"], self._launches["place"], "right")
        arrived = (after - first).astype(np.uint32)
        changed = arrived != self._launches["arrived"]
        self._launches["arrived"] = arrived
        self._launches["flush"][changed] = self._flushes
        expected = self._launches["kernels"]
        complete = arrived >= expected
        graphs = np.flatnonzero(expected == KERNELS_UNKNOWN)
        if len(graphs):
            complete[graphs] = self._graphs_complete(graphs, first[graphs])
        places = self._launches["place"]
        if not len(places):
            return self._handed_on_place
        incomplete = (places[~complete], self._kernels["place"][~self._with_launch()])
        first_held = min(int(of[0]) for of in (*incomplete, places[-1:] + 1) if len(of))
        # Not up to the first that is held: launches between may be told yet.
        launches_before = int(np.searchsorted(places, first_held, "left"))
        return int(places[launches_before - 1]) if launches_before else self._handed_on_place

    def _with_launch(self) -> np.ndarray:
        """Which kernels' launches wait with them."""
        at = np.searchsorted(self._launches["place"], self._kernels["place"])
        matches: np.ndarray = (
            self._launches["place"][np.minimum(at, len(self._launches) - 1)] == (self._kernels["place"])
        )
        return matches

    def _graphs_complete(self, graphs: np.ndarray, first: np.ndarray) -> np.ndarray:
        launches = self._launches[graphs]
        quiet = launches["flush"].astype(np.int64) + _QUIET_FLUSHES <= self._flushes
        arrived = launches["arrived"] > 0
        keys = _stream_keys(self._kernels[np.minimum(first, len(self._kernels) - 1)])
        streams, index = np.unique(keys, return_inverse=True)
        newest = np.array([self._newest_of_stream.get(key, -1) for key in streams.tolist()], np.int64)[index]
        # A graph without kernels (copies only) is complete when later launches came some flushes ago.
        empty = ~arrived & (self._newest_seen() > launches["place"])
        followed = arrived & (newest > launches["place"])
        complete: np.ndarray = quiet & (followed | empty)
        return complete

    def _newest_seen(self) -> int:
        return max(self._newest_of_stream.values(), default=-1)

    def _count_missing(self, passed: int) -> None:
        """How many kernels of the first ``passed`` launches are missing."""
        launches = self._launches[:passed]
        places = launches["place"]
        first, after = (np.searchsorted(self._kernels["place"], places, side) for side in ("left", "right"))
        self.missing += int(np.maximum(launches["kernels"].astype(np.int64) - (after - first), 0).sum())

    def _handed_on(self, rows: int, horizon: int = -1) -> OrderedKernels:
        kernels, self._kernels = self._kernels[:rows], self._kernels[rows:]
        ranges = self._ranges(kernels["place"])
        reached = max(horizon, int(kernels["place"][-1]) if rows else -1, self._handed_on_place)
        self._handed_on_place = reached
        self._launches = self._launches[self._launches["place"] > reached]
        self._moved = {order: place for order, place in self._moved.items() if place > reached}
        node = kernels["graph_node"].astype(np.int64)
        graph_launch, graph_node = graph_ordinals(np.zeros(rows, np.int64), kernels["place"], node)
        graph_launch[graph_launch >= 0] += self._given_graphs
        self._given_graphs = max(self._given_graphs, int(graph_launch.max(initial=-1)) + 1)
        launch = np.arange(rows, dtype=np.int64) + self._given_launches
        self._given_launches += rows
        return OrderedKernels(kernels, launch, ranges, graph_launch, graph_node)

    def _ranges(self, place: np.ndarray) -> np.ndarray:
        if not len(self._launches):
            return np.zeros(len(place), np.uint32)
        at = np.minimum(np.searchsorted(self._launches["place"], place), len(self._launches) - 1)
        matches = self._launches["place"][at] == place
        return np.where(matches, self._launches["range"][at], 0).astype(np.uint32)


def _stream_keys(kernels: np.ndarray) -> np.ndarray:
    return (kernels["context"].astype(np.int64) << 32) | kernels["stream"].astype(np.int64)
