"""Finds launches that a file holds twice: an export that was merged, or a trace that repeats events."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def doubled_rows(keys: Sequence[np.ndarray], whole: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Rows that equal an earlier row in everything that is read, ascending, shape (d,), int64.

    Args:
        keys: some columns of whole numbers, shape (n,), whose hashes are compared first; the last is the
            duration. A launch of duration 0 may really run twice within the resolution of the clock, so such
            rows are kept.
        whole: given the rows of equal hashes, shape (m,), ascending: all of their columns, shape (m, c).

    Memory: 32 bytes a launch, and what ``whole`` gives.
    """
    hashes = np.zeros(len(keys[0]), np.uint64)
    for values in keys:
        hashes = hashes * _MULTIPLIER + values.astype(np.uint64)
    ascending = np.sort(hashes)
    repeated = ascending[1:][ascending[1:] == ascending[:-1]]
    if not len(repeated):
        return np.zeros(0, np.int64)
    rows = np.flatnonzero(np.isin(hashes, repeated) & (keys[-1] != 0))
    if not len(rows):
        return rows
    _, first = np.unique(whole(rows), axis=0, return_index=True)
    return np.setdiff1d(rows, rows[first])
