"""Groups put together until a launch of each takes no longer than all others: simulating them then saves
at least half of the time.

Where hardly anything repeats (a compiler that names every kernel after its shapes, sizes drawn at random)
the division of least error would ask for most of the launches. Groups of least time are put together within
their kernels; where one group a kernel still takes too long, kernels with less than 1 % of the time each
share one.

A launch with a tenth of the time that is a group by itself must be taken whatever the others do, so it
counts on neither side. The launch that stands for a group is expected to take the group's mean time by time,
sum of squares / sum, as the launch at which cumulative time reaches half does.

Source: ours; docs/methods/pks.md, "Groups". Memory: 100 bytes a group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from assay_sampling.engines.blockwise import counts_by, sums_by

LEAST_SPEEDUP = 2.0
SMALL_KERNEL_PERCENT = 1.0
_ALONE_PERCENT = 10.0


@dataclass(frozen=True)
class GroupTimes:
    """Sum of the times of each group's launches, of their squares, and their number, shape (g,)."""

    time: np.ndarray
    squares: np.ndarray
    launches: np.ndarray

    @classmethod
    def of(cls, labels: np.ndarray, time: np.ndarray) -> GroupTimes:
        """``labels``, 0-based with none empty, and ``time`` have shape (n,)."""
        launches = counts_by(labels)
        count = len(launches)
        squares = sums_by(labels, time, count, lambda value, _: np.square(value))
        return cls(sums_by(labels, time, count), squares, launches)

    @property
    def alone(self) -> np.ndarray:
        """Groups of one launch that takes a tenth of the time or more, shape (g,)."""
        mask: np.ndarray = (self.launches == 1) & (self.time >= _ALONE_PERCENT / 100 * self.time.sum())
        return mask

    def saves(self, target: np.ndarray | None = None) -> bool:
        """Whether one launch of each group takes at most half of the time; groups of one ``target``, shape
        (g,), are put together."""
        place = np.arange(len(self.time)) if target is None else target
        counted = ~self.alone
        time, squares = (np.bincount(place[counted], one[counted]) for one in (self.time, self.squares))
        if time.sum() < _ALONE_PERCENT / 100 * self.time.sum():
            return True  # whatever is put together of so little saves nothing to speak of
        simulated = np.divide(squares, time, out=np.zeros(len(time)), where=time > 0)
        return float(simulated.sum()) * LEAST_SPEEDUP <= float(time.sum())


def within_kernels(times: GroupTimes, kernel: np.ndarray) -> np.ndarray:
    """The group that each of g groups joins, shape (g,): groups of least time join one another within their
    ``kernel``, shape (g,), as few as it takes."""
    unmoved = np.arange(len(kernel))
    if times.saves():
        return unmoved
    movable = np.flatnonzero(~times.alone)
    order = movable[np.argsort(times.time[movable], kind="stable")]

    def together(count: int) -> np.ndarray:
        target = unmoved.copy()
        chosen = order[:count]
        first = np.full(int(kernel.max()) + 1, len(kernel))
        np.minimum.at(first, kernel[chosen], chosen)
        target[chosen] = first[kernel[chosen]]
        return target

    return together(_fewest(len(order), lambda count: times.saves(together(count))))


def kernels_to_share(
    times: GroupTimes, target: np.ndarray, kernel: np.ndarray, order: np.ndarray, least: int
) -> int:
    """How many kernels of ``order`` (of least time first) share one group, at least ``least``.

    ``target``, shape (g,), says which groups are together already, ``kernel``, shape (g,), whose they are.
    """
    place = np.full(int(kernel.max()) + 1, len(order))
    place[order] = np.arange(len(order))

    def shared(count: int) -> np.ndarray:
        groups: np.ndarray = np.where(place[kernel] < count, len(target), target)
        return groups

    if times.saves(shared(least)):
        return least
    return _fewest(len(order), lambda count: times.saves(shared(count)))


def _fewest(most: int, enough: Callable[[int], bool]) -> int:
    """The fewest that are enough, by bisection; all where none is."""
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle + 1
    return low
