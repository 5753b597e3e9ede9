"""Finds the time ranges that contain a moment: NVTX ranges and framework operators around a launch.

Ranges of one thread usually nest (a stack), but start/end ranges may overlap, and time stamps rounded to
microseconds make a child outlast its parent. Nothing here relies on nesting: a range contains [at, until]
iff start <= at and end >= until, and "inner" means it started later (ties: it ends earlier; else it
comes later in the file).

Memory: 24 bytes for each range besides what the caller holds. Time: sorting the ranges, then a few
vectorised steps for each level of nesting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from assay_sampling.errors import LaunchTableError
from assay_sampling.launches.table import LONGEST_NAME_BYTES

# A path deeper than this is cut at its outer end; real programs nest a few dozen ranges.
MAX_DEPTH = 128
CUT_MARK = "..."


class Ranges:
    """Ranges of one thread. ``starts``, ``ends`` (integers) and ``labels`` (int32) have shape (r,)."""

    def __init__(self, starts: np.ndarray, ends: np.ndarray, labels: np.ndarray) -> None:
        order = np.lexsort((-ends, starts))
        self._starts = starts[order]
        self._ends = ends[order]
        self.labels = labels[order]
        self._outer = _previous_greater(self._ends)

    def innermost(self, at: np.ndarray, until: np.ndarray) -> np.ndarray:
        """Index (into :attr:`labels`) of the innermost range around each [at, until], -1: none.

        ``at``, ``until`` and the result have shape (n,).
        """
        last_started = np.searchsorted(self._starts, at, side="right") - 1
        return self._containing(last_started, until)

    def stacks(self, at: np.ndarray, until: np.ndarray) -> np.ndarray:
        """Labels of all ranges around each [at, until], innermost first, shape (n, depth), -1: no more.

        Holds at most MAX_DEPTH + 1 columns: the last is not -1 where a stack goes deeper.
        """
        levels: list[np.ndarray] = []
        positions = self.innermost(at, until)
        while len(levels) <= MAX_DEPTH and (positions >= 0).any():
            levels.append(np.where(positions >= 0, self.labels[positions], -1))
            positions = self._containing(positions - 1, until)
        return np.stack(levels, axis=1) if levels else np.full((len(at), 0), -1)

    def _containing(self, candidate: np.ndarray, until: np.ndarray) -> np.ndarray:
        """The nearest range at or before ``candidate`` that lasts until ``until``, -1: none."""
        candidate = np.maximum(candidate, -1)
        open_rows = np.flatnonzero(candidate >= 0)
        while len(open_rows):
            current = candidate[open_rows]
            too_short = self._ends[current] < until[open_rows]
            open_rows = open_rows[too_short]
            # The ranges between one and its next longer one end no later than it, so they are skipped.
            candidate[open_rows] = self._outer[current[too_short]]
            open_rows = open_rows[candidate[open_rows] >= 0]
        return candidate


def _previous_greater(values: np.ndarray) -> np.ndarray:
    """For each position the nearest earlier one with a greater value, -1 where there is none.

    Pointer doubling: nothing between a position and its candidate is greater, so a candidate that is not
    greater either hands over its own candidate.
    """
    candidates = np.arange(-1, len(values) - 1, dtype=np.int64)
    open_rows = np.arange(1, len(values))
    while len(open_rows):
        current = candidates[open_rows]
        smaller = values[current] <= values[open_rows]
        open_rows, current = open_rows[smaller], current[smaller]
        candidates[open_rows] = candidates[current]
        open_rows = open_rows[candidates[open_rows] >= 0]
    return candidates


@dataclass(frozen=True)
class Paths:
    """Paths of moments: ``index`` into ``texts``, shape (n,), -1 where no range contains the moment."""

    index: np.ndarray
    texts: list[str]


class ThreadRanges:
    """Named ranges of many threads.

    Args:
        thread, starts, ends, labels: shape (r,); ``labels`` are indices into ``texts``.
        texts: the names of ranges.
    """

    def __init__(
        self,
        thread: np.ndarray,
        starts: np.ndarray,
        ends: np.ndarray,
        labels: np.ndarray,
        texts: Sequence[str],
    ) -> None:
        self._texts = texts
        self._threads: dict[int, Ranges] = {}
        order = np.argsort(thread, kind="stable")
        bounds = np.flatnonzero(np.diff(thread[order], prepend=np.nan, append=np.nan))
        for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            rows = order[first:last]
            self._threads[int(thread[rows[0]])] = Ranges(starts[rows], ends[rows], labels[rows])

    def innermost(self, thread: np.ndarray, at: np.ndarray, until: np.ndarray) -> np.ndarray:
        """Label of the innermost range around each [at, until] on its thread, shape (n,), -1: none."""
        labels = np.full(len(thread), -1, np.int64)
        for ranges, rows in self._by_thread(thread):
            positions = ranges.innermost(at[rows], until[rows])
            labels[rows] = np.where(positions >= 0, ranges.labels[positions], -1)
        return labels

    def stacks(self, thread: np.ndarray, at: np.ndarray, until: np.ndarray) -> np.ndarray:
        """Labels of all ranges around each [at, until] on its thread, as :meth:`Ranges.stacks`."""
        by_thread = [(ranges.stacks(at[rows], until[rows]), rows) for ranges, rows in self._by_thread(thread)]
        depth = max((stacks.shape[1] for stacks, _ in by_thread), default=0)
        labels = np.full((len(thread), depth), -1, np.int64)
        for stacks, rows in by_thread:
            labels[rows, : stacks.shape[1]] = stacks
        return labels

    def paths(self, thread: np.ndarray, at: np.ndarray, until: np.ndarray) -> Paths:
        """Names of the ranges around each [at, until], outermost first, joined by "/".

        Raises LaunchTableError for a path that would be longer than a name may be.
        """
        index = np.full(len(thread), -1, np.int64)
        position: dict[str, int] = {}
        for ranges, rows in self._by_thread(thread):
            stacks = ranges.stacks(at[rows], until[rows])
            if not stacks.shape[1]:
                continue
            distinct, inverse = np.unique(stacks, axis=0, return_inverse=True)
            of_distinct = [self._position(stack, position) for stack in distinct.tolist()]
            index[rows] = np.array(of_distinct, np.int64)[inverse.reshape(-1)]
        return Paths(index, list(position))

    def _position(self, stack: list[int], position: dict[str, int]) -> int:
        names = [self._texts[label] for label in stack if label >= 0]
        if not names:
            return -1
        if len(names) > MAX_DEPTH:
            names[MAX_DEPTH] = CUT_MARK
        length = sum(map(len, names)) + len(names) - 1
        if length > LONGEST_NAME_BYTES:
            # Joining is refused before it is done: names may be shared by very many paths.
            raise LaunchTableError(
                "launch table",
                f"the names of {len(names):,} nested ranges, the outermost {names[-1][:60]!r}, have "
                f"{length:,} characters together, and a path may have {LONGEST_NAME_BYTES:,}",
                "give the ranges shorter names",
            )
        return position.setdefault("/".join(reversed(names)), len(position))

    def _by_thread(self, thread: np.ndarray) -> list[tuple[Ranges, np.ndarray]]:
        used = (int(t) for t in np.unique(thread))
        return [(self._threads[t], np.flatnonzero(thread == t)) for t in used if t in self._threads]
