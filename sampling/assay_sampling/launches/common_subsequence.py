"""Longest common subsequence of two long sequences that differ in few places.

E. W. Myers, "An O(ND) Difference Algorithm and Its Variations", Algorithmica 1 (1986): paths in the edit
graph are extended by one difference at a time, on all diagonals at once; runs of equal elements are
skipped in blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

# After this many differences the best path so far is kept and a fresh search begins behind it.
SEGMENT_DIFFERENCES = 2048
# After this many differences the search ends: 1 % of 6.5 million launches on either side.
MOST_DIFFERENCES = 131_072

_OFF_GRID = -(1 << 40)
_BLOCK_LENGTHS = (16, 256)
_LONG_BLOCK = 1 << 16


@dataclass(frozen=True)
class CommonSubsequence:
    """Matched positions of two sequences, each of shape (m,), ascending.

    With ``exact`` no common subsequence is longer; otherwise m is a lower bound.
    """

    left: np.ndarray
    right: np.ndarray
    exact: bool


def common_subsequence(
    left: np.ndarray,
    right: np.ndarray,
    *,
    segment_differences: int = SEGMENT_DIFFERENCES,
    most_differences: int = MOST_DIFFERENCES,
) -> CommonSubsequence:
    """A longest common subsequence of ``left``, shape (n,), and ``right``, shape (m,).

    Exact where the sequences differ in at most ``segment_differences`` elements (left out on either
    side, counted together), and after their common beginning and end are taken off. With more
    differences it is a good but not always the longest one; past ``most_differences`` what lies between
    the last match and the common end counts as unmatched. Time grows with (n + m) x differences in a
    segment at worst; memory is 8 bytes an element for its codes, 16 for the matches, and at most
    2 x ``segment_differences``**2 bytes for the paths.
    """
    begin = _equal_length(left, right)
    end = _equal_length(left[begin:][::-1], right[begin:][::-1])
    middle_left, middle_right = left[begin : len(left) - end], right[begin : len(right) - end]
    runs = [(0, 0, begin)]
    exact = True
    if len(middle_left) and len(middle_right):
        matches, exact = _search(
            *_small_codes(middle_left, middle_right), segment_differences, most_differences
        )
        runs.extend((x + begin, y + begin, length) for x, y, length in matches)
    runs.append((len(left) - end, len(right) - end, end))
    starts = np.array(runs, np.int64)
    return CommonSubsequence(_expand(starts[:, 0], starts[:, 2]), _expand(starts[:, 1], starts[:, 2]), exact)


def _expand(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The concatenation of range(start, start + length), as one array."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))


def _equal_length(left: np.ndarray, right: np.ndarray) -> int:
    """Number of equal elements at the beginning of both."""
    most = min(len(left), len(right))
    for start in range(0, most, _LONG_BLOCK):
        stop = min(start + _LONG_BLOCK, most)
        equal = left[start:stop] == right[start:stop]
        if not equal.all():
            return start + int(np.argmin(equal))
    return most


def _small_codes(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both sequences as int32 codes, padded so that a block read past either end matches nothing."""
    encoded = pa.array(np.concatenate([left, right])).dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    padding = np.ones(_BLOCK_LENGTHS[-1], np.int32)
    return (
        np.concatenate([codes[: len(left)], -1 * padding]),
        np.concatenate([codes[len(left) :], -2 * padding]),
    )


Run = tuple[int, int, int]


@dataclass(frozen=True)
class _Grid:
    """The edit graph: two padded code sequences, of ``n`` and ``m`` elements without the padding.

    Diagonals are x - y; the paths of ``d`` differences are on every second one of -d..d.
    """

    left: np.ndarray
    right: np.ndarray

    @property
    def n(self) -> int:
        return len(self.left) - _BLOCK_LENGTHS[-1]

    @property
    def m(self) -> int:
        return len(self.right) - _BLOCK_LENGTHS[-1]

    def behind(self, x: int, y: int) -> _Grid:
        return _Grid(self.left[x:], self.right[y:])

    def candidates(self, before: np.ndarray, diagonals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where each diagonal starts after one more difference: by a step down, by a step right.

        ``before`` holds the x reached on the diagonals of the round before, which are one fewer.
        """
        edge = np.array([_OFF_GRID])
        before = before.astype(np.int64)
        before[before < 0] = _OFF_GRID
        down = np.concatenate([before, edge])
        right = np.concatenate([edge, before]) + 1
        down[down - diagonals > self.m] = _OFF_GRID
        right[right > self.n] = _OFF_GRID
        return down, right

    def extend(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The x at which the run of equal elements from each point (x, y) ends, shape (p,)."""
        ends = x.astype(np.int64)
        going = np.flatnonzero(self.left[x] == self.right[y])
        ends[going] += 1
        for length in _BLOCK_LENGTHS:
            if not len(going):
                return ends
            # A point within a block of the end reads padding, but never past it.
            at = ends[going, None] + np.arange(length)
            equal = self.left[at] == self.right[at + (y[going] - x[going])[:, None]]
            whole = equal.all(axis=1)
            ends[going] += np.where(whole, length, equal.argmin(axis=1))
            going = going[whole]
        for point in going.tolist():
            start, other = int(ends[point]), int(ends[point] + y[point] - x[point])
            ends[point] += _equal_length(self.left[start : self.n], self.right[other : self.m])
        return ends

    def trace(self, rounds: list[np.ndarray], position: int) -> list[Run]:
        """The runs of matches on the path to the given position of the last round, in order."""
        runs: list[Run] = []
        for differences in range(len(rounds) - 1, -1, -1):
            diagonal = 2 * position - differences
            reached = int(rounds[differences][position])
            down = right = start = 0
            if differences:
                down, right = self._step_to(rounds[differences - 1], position, diagonal)
                start = max(down, right)
            if reached > start:
                runs.append((start, start - diagonal, reached - start))
            position = position if down >= right else position - 1
        runs.reverse()
        return runs

    def _step_to(self, before: np.ndarray, position: int, diagonal: int) -> tuple[int, int]:
        """:meth:`candidates` for one diagonal."""
        down = int(before[position]) if position < len(before) else -1
        right = int(before[position - 1]) if position > 0 else -1
        down = _OFF_GRID if down < 0 or down - diagonal > self.m else down
        right = _OFF_GRID if right < 0 or right == self.n else right + 1
        return down, right


def _search(
    left: np.ndarray, right: np.ndarray, segment_differences: int, most_differences: int
) -> tuple[list[Run], bool]:
    """Runs of matches (left start, right start, length) of two padded code sequences; whether exact."""
    grid = _Grid(left, right)
    runs: list[Run] = []
    x = y = used = 0
    while True:
        at_end, matches, (step_x, step_y), differences = _segment(grid, segment_differences)
        runs.extend((run_x + x, run_y + y, length) for run_x, run_y, length in matches)
        if at_end:
            return runs, used == 0
        grid = grid.behind(step_x, step_y)
        x, y, used = x + step_x, y + step_y, used + differences
        if used >= most_differences:
            return runs, False


def _segment(grid: _Grid, most: int) -> tuple[bool, list[Run], tuple[int, int], int]:
    """One search of at most ``most`` differences from the grid's origin towards its end.

    Returns whether the end was reached, the runs of matches on the way, the point reached, and the
    number of differences.
    """
    n, m = grid.n, grid.m
    rounds: list[np.ndarray] = []
    reach = np.zeros(1, np.int64)
    for differences in range(most + 1):
        diagonals = np.arange(-differences, differences + 1, 2)
        if differences:
            reach = np.maximum(*grid.candidates(rounds[-1], diagonals))
        valid = np.flatnonzero(reach >= 0)
        reach[valid] = grid.extend(reach[valid], reach[valid] - diagonals[valid])
        rounds.append(np.maximum(reach, -1).astype(np.int32 if n < 1 << 31 else np.int64))
        ends = valid[diagonals[valid] == n - m]
        if len(ends) and reach[ends[0]] == n:
            return True, grid.trace(rounds, int(ends[0])), (n, m), differences
    furthest = int(valid[np.argmax(2 * reach[valid] - diagonals[valid])])
    point = int(reach[furthest]), int(reach[furthest] - diagonals[furthest])
    return False, grid.trace(rounds, furthest), point, most
