"""Contiguous segments of sorted, weighted values, all at once: moments, best cuts, and recursive splitting.

A segment is a run of atoms (:mod:`assay_sampling.methods.kernel_values`). Splitting goes level by level over
all segments of all kernels: no loop over kernels, and a million of them cost as much as one of the same size.

Numerics: every segment is centred on its mean before squares are summed, so large values do not cancel its
spread. Running sums over all segments come back to zero at the end of each; what rounding leaves there is
taken off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Moments:
    """Of each segment, shape (s,): launches, mean, and population standard deviation (divisor n)."""

    launches: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray

    def cov(self) -> np.ndarray:
        """Coefficient of variation, shape (s,); 0 where the mean is 0."""
        ratio: np.ndarray = np.divide(
            self.deviation, self.mean, out=np.zeros_like(self.mean), where=self.mean > 0
        )
        return ratio

    def at(self, which: np.ndarray | slice) -> Moments:
        return Moments(self.launches[which], self.mean[which], self.deviation[which])


# (parent, left, right, state of the parents) -> (split it?, state of left, state of right), of shape (s,).
Rule = Callable[
    [Moments, Moments, Moments, np.ndarray],
    tuple[np.ndarray, np.ndarray, np.ndarray],
]


def moments(value: np.ndarray, count: np.ndarray, start: np.ndarray) -> Moments:
    """Moments of the segments [start[i], start[i + 1]) of atoms; no segment is empty.

    ``value`` and ``count`` have shape (u,), ``start`` (s + 1,) from 0 to u.
    """
    if len(start) < 2:
        return Moments(*(np.empty(0) for _ in range(3)))
    first, sizes = start[:-1], np.diff(start)
    launches = np.add.reduceat(count, first)
    # Relative to the smallest value, equal values have exactly their mean and no deviation.
    lowest = value[first]
    above = value - np.repeat(lowest, sizes)
    offset = np.add.reduceat(count * above, first) / launches
    above -= np.repeat(offset, sizes)
    squares = np.add.reduceat(count * np.square(above), first) / launches
    return Moments(launches, lowest + offset, np.sqrt(squares))


def best_cuts(value: np.ndarray, count: np.ndarray, start: np.ndarray, parts: Moments) -> np.ndarray:
    """The cuts of exact 2-means, shape (s,): the first atom of each segment's upper half.

    The cut of least within-group squares, found among all of them from prefix sums; segments have at least
    two atoms. Equal cuts: the lowest.
    """
    first, last, sizes = start[:-1], start[1:] - 1, np.diff(start)
    centred = (value - np.repeat(parts.mean, sizes)) * count
    total, below = np.cumsum(centred), np.cumsum(count)
    before = np.repeat(np.concatenate([[0.0], total])[first], sizes)
    left = below - np.repeat(np.concatenate([[0.0], below])[first], sizes)
    right = np.repeat(parts.launches, sizes) - left
    # Centred sums of the two halves are opposite: s^2 / left + s^2 / right is what a cut explains.
    right[last] = 1.0
    explained = np.square(total - before) / (left * right)
    explained[last] = -1.0
    best = np.repeat(np.maximum.reduceat(explained, first), sizes)
    hits = np.flatnonzero(explained == best)
    cuts: np.ndarray = hits[np.searchsorted(hits, first)] + 1
    return cuts


def split_segments(
    value: np.ndarray, count: np.ndarray, start: np.ndarray, rule: Rule, state: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Divide segments by exact 2-means, repeatedly, as long as ``rule`` wants it.

    Args:
        value, count: atoms, shape (u,), ascending within each segment.
        start: bounds of the segments to begin with, shape (s + 1,).
        rule: which splits to make; it sees many segments at once.
        state: what the rule wants to know of each segment, shape (s,); zeros by default.

    Returns the bounds of the leaves, shape (leaves + 1,), and their states.
    """
    low, high = start[:-1], start[1:]
    state = np.zeros(len(low)) if state is None else state
    leaves: list[tuple[np.ndarray, np.ndarray]] = []
    while low.size:
        single = high - low < 2
        leaves.append((low[single], state[single]))
        low, high, state = low[~single], high[~single], state[~single]
        if not low.size:
            break
        cut, splits, left_state, right_state = _level((value, count), (low, high), state, rule)
        leaves.append((low[~splits], state[~splits]))
        bounds = np.stack([low[splits], cut[splits], high[splits]], axis=1)
        low, high = bounds[:, :2].reshape(-1), bounds[:, 1:].reshape(-1)
        state = np.stack([left_state[splits], right_state[splits]], axis=1).reshape(-1)
    lows = np.concatenate([low for low, _ in leaves]) if leaves else np.empty(0, np.int64)
    states = np.concatenate([state for _, state in leaves]) if leaves else np.empty(0)
    order = np.argsort(lows, kind="stable")
    return np.append(lows[order], start[-1:]), states[order]


def _level(
    atoms: tuple[np.ndarray, np.ndarray], bounds: tuple[np.ndarray, np.ndarray], state: np.ndarray, rule: Rule
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Cuts of the segments [low, high), whether the rule wants them, and the states of the halves."""
    low, high = bounds
    sizes = high - low
    start = np.concatenate([[0], np.cumsum(sizes)])
    chosen = np.arange(start[-1]) + np.repeat(low - start[:-1], sizes)
    value, count = atoms[0][chosen], atoms[1][chosen]
    parent = moments(value, count, start)
    cut = best_cuts(value, count, start, parent)
    halves = moments(value, count, np.append(np.stack([start[:-1], cut], axis=1).reshape(-1), start[-1]))
    splits, left_state, right_state = rule(
        parent, halves.at(slice(0, None, 2)), halves.at(slice(1, None, 2)), state
    )
    return cut - start[:-1] + low, splits, left_state, right_state
