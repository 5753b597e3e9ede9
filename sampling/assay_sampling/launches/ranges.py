"""Ranges of launches that the files of a recording cover, where they leave gaps: slices of a detailed run.

A launch missing within a range was lost; one between two ranges was never asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, order=True)
class LaunchRange:
    """The launches of a process from the ordinal ``first`` to ``last``, both included."""

    process: int
    first: int
    last: int


# By process, the first and the last launch.
Extent = Mapping[int, tuple[int, int]]


def extent_of(process: np.ndarray, launch: np.ndarray) -> Extent:
    """The first and last launch of each process; ``process`` and ``launch`` have shape (n,), in any order."""
    ordinals, of_launch = np.unique(process, return_inverse=True)
    first, last = np.full(len(ordinals), np.iinfo(np.int64).max), np.full(len(ordinals), -1)
    np.minimum.at(first, of_launch, launch)
    np.maximum.at(last, of_launch, launch)
    return {int(each): (int(low), int(high)) for each, low, high in zip(ordinals, first, last, strict=True)}


def joined_extent(one: Extent, other: Extent) -> Extent:
    """The extent of two parts of one file."""
    extent = dict(one)
    for process, (first, last) in other.items():
        low, high = extent.get(process, (first, last))
        extent[process] = (min(low, first), max(high, last))
    return extent


def ranges_with_gaps(extents: Iterable[Extent]) -> tuple[LaunchRange, ...]:
    """The ranges that files with these extents cover together, in order; empty where no process has a gap.

    Ranges that overlap or touch are one.
    """
    pieces = sorted(LaunchRange(process, *ends) for extent in extents for process, ends in extent.items())
    merged: list[LaunchRange] = []
    for piece in pieces:
        before = merged[-1] if merged else None
        if before is not None and before.process == piece.process and piece.first <= before.last + 1:
            merged[-1] = LaunchRange(before.process, before.first, max(before.last, piece.last))
        else:
            merged.append(piece)
    return tuple(merged) if len(merged) > len({piece.process for piece in merged}) else ()
