"""Cuts a window of launches into slices; pure.

Every slice starts the workload again and skips the launches before it. So later slices must be larger, to
keep the skipping a small part of their time, but not larger than needed: a crash costs a slice, and records
arrive one slice at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from assay_server.campaign_file.compiled import Slicing
from assay_server.campaign_file.slices.cost import SliceCost

MOST_SKIPPED_PERCENT = 20.0
# Slices are cut for this share, so that a slightly different cost does not change them all.
PLANNED_SKIPPED_PERCENT = 18.0
# Slices planned before the first is made, for a window without a fixed end.
SLICES_AHEAD = 2
LEAST_SLICE_LAUNCHES = 500
MOST_SLICES_OF_A_RUN = 200
_MOST_LAUNCHES = 1 << 40  # of a slice, as of a campaign file
_SHARE_OF_AN_OPEN_RUN = 50  # the next slice has at least 1/50 of the launches before it

Window = tuple[int, int]  # launches skipped, launches taken (0: all the rest)


def planned_windows(slicing: Slicing, cost: SliceCost) -> list[Window]:
    """The slices to plan before any has been made, without a light run to choose them from."""
    return list(cut(slicing, cost, most=SLICES_AHEAD if slicing.is_open else None))


def most_windows(slicing: Slicing) -> int:
    """The most slices that :func:`planned_windows` may give, whatever they cost; it cuts none."""
    if slicing.is_open:
        return SLICES_AHEAD
    return -(-slicing.first // (slicing.slice_launches or _least_launches(slicing)))


def cut(slicing: Slicing, cost: SliceCost, begin: int = 0, most: int | None = None) -> Iterator[Window]:
    """The slices from launch ``begin`` on, at most ``most``; those of an open run never end by themselves.

    Slices sized by cost each spend less than PLANNED_SKIPPED_PERCENT of their time on skipping; a rest that
    is too small for that joins the slice before it.
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
    """Launches in the slice that begins after ``skip`` launches."""
    if slicing.slice_launches:
        return slicing.slice_launches
    least = _least_launches(slicing)
    if slicing.is_open:  # however far it goes, its slices stay few
        least = max(least, -(-skip // _SHARE_OF_AN_OPEN_RUN))
    skipping = cost.skip_seconds * skip
    others = skipping * (100.0 / PLANNED_SKIPPED_PERCENT - 1.0) - cost.start_seconds
    if others <= 0:
        return least
    if cost.launch_seconds <= 0:
        return max(slicing.first - skip, least)
    # A cost near zero must not make the number infinite.
    return max(least, math.floor(min(others / cost.launch_seconds, _MOST_LAUNCHES)) + 1)


def _least_launches(slicing: Slicing) -> int:
    """Launches in the smallest slice that is sized by cost."""
    return max(LEAST_SLICE_LAUNCHES, -(-slicing.first // MOST_SLICES_OF_A_RUN))
