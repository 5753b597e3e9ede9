"""Finds launches that a file holds twice: an export that was merged, or a trace that repeats events."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np


def doubled_rows(keys: Sequence[np.ndarray], whole: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Rows that equal an earlier row in everything that is read, ascending, shape (d,), int64.

    Args:
        keys: columns of shape (n,) that are compared first; the last is the duration. A launch of duration 0
            may really run twice within the resolution of the clock, so such rows are kept.
        whole: given rows that agree in the keys, shape (m,), ascending: all of their columns, shape (m, c).

    Memory: 8 bytes a launch, and what ``whole`` gives.
    """
    order = np.lexsort(keys)
    same = np.ones(max(len(order) - 1, 0), bool)
    for values in keys:
        same &= np.diff(values[order]) == 0
    alike = np.zeros(len(order), bool)
    alike[order[1:][same]] = alike[order[:-1][same]] = True
    rows = np.flatnonzero(alike & (keys[-1] != 0))
    if not len(rows):
        return rows
    _, first = np.unique(whole(rows), axis=0, return_index=True)
    return np.setdiff1d(rows, rows[first])
