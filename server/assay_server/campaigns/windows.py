"""How a window of launches is cut into slices: pure.

Every slice starts the workload anew and skips the launches before it, so later slices must be larger for
the skipping to stay a small part of their time, and no larger than that: a crash costs a slice, and records
arrive a slice at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from assay_server.campaigns.slice_cost import SliceCost

MOST_SKIPPED_PERCENT = 20.0
# What slices are cut for: a cost that turns out a little different does not change them all.
PLANNED_SKIPPED_PERCENT = 18.0
LEAST_SLICE_LAUNCHES = 500
MOST_SLICES_OF_A_RUN = 200
_SHARE_OF_AN_OPEN_RUN = 50  # the next slice has this part of the launches before it, at least

Window = tuple[int, int]  # launches skipped, launches taken (0: all the rest)


@dataclass(frozen=True)
class Slicing:
    """How far a detailed run goes, and in which slices.

    ``first`` launches (0: until the last slices bring no new kind of launch), in slices of
    ``slice_launches`` (0: sized by cost), until ``time_budget_s`` seconds are spent (0: no limit).
    """

    first: int
    slice_launches: int = 0
    time_budget_s: float = 0.0

    @property
    def is_open(self) -> bool:
        """Whether it goes on until nothing new comes."""
        return not self.first

    @property
    def is_fixed(self) -> bool:
        """Whether nothing that is measured changes its slices."""
        return bool(self.first and self.slice_launches and not self.time_budget_s)

    @property
    def least_launches(self) -> int:
        """The size of its smallest slice, but for the last."""
        return self.slice_launches or max(LEAST_SLICE_LAUNCHES, -(-self.first // MOST_SLICES_OF_A_RUN))


def cut(slicing: Slicing, cost: SliceCost, begin: int = 0, most: int | None = None) -> Iterator[Window]:
    """The slices from launch ``begin`` on, at most ``most``; an open run has no last one of its own.

    Slices that are sized by cost skip for less than PLANNED_SKIPPED_PERCENT of their time each; what would be
    left over for a slice too small for that belongs to the one before.
    """
    skip, made = begin, 0
    while (slicing.is_open or skip < slicing.first) and (most is None or made < most):
        size = slice_launches(slicing, cost, skip)
        if not slicing.is_open:
            left = slicing.first - skip - size
            if not slicing.slice_launches and left < slice_launches(slicing, cost, skip + size):
                size += max(left, 0)
            size = min(size, slicing.first - skip)
        yield skip, size
        skip, made = skip + size, made + 1


def slice_launches(slicing: Slicing, cost: SliceCost, skip: int) -> int:
    """Launches in the slice that begins behind ``skip`` launches."""
    if slicing.slice_launches:
        return slicing.slice_launches
    least = slicing.least_launches
    if slicing.is_open:  # however far it goes, its slices stay few
        least = max(least, -(-skip // _SHARE_OF_AN_OPEN_RUN))
    skipping = cost.skip_seconds * skip
    others = skipping * (100.0 / PLANNED_SKIPPED_PERCENT - 1.0) - cost.start_seconds
    if others <= 0:
        return least
    if cost.launch_seconds <= 0:
        return max(slicing.first - skip, least)
    return max(least, math.floor(others / cost.launch_seconds) + 1)
