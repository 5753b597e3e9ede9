"""Distinct rows of a matrix, exactly, in an order that does not depend on the order of the rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from assay_sampling.launches.row_hash import hash_rows

_BLOCK_ROWS = 1 << 15


@dataclass(frozen=True)
class DistinctRows:
    """``first`` row of each distinct row, shape (m,); ``inverse``, shape (n,), which distinct row each row
    is; ``counts``, shape (m,), how often each occurs."""

    first: np.ndarray
    inverse: np.ndarray
    counts: np.ndarray


def distinct_rows(rows: np.ndarray) -> DistinctRows:
    """Distinct rows of a float64 matrix (n, d), d >= 1, without NaN; 0.0 and -0.0 are equal.

    Rows are compared by a 64-bit hash and then verified; if two different rows share a hash, all are sorted
    instead. The order of the distinct rows depends on their values alone. Memory: 40 bytes a row.
    """
    hashes = np.empty(len(rows), np.uint64)
    for block in _blocks(len(rows)):
        values = np.ascontiguousarray(rows[block], np.float64) + 0.0  # turns -0.0 into 0.0
        hashes[block] = hash_rows(list(values.view(np.int64).T))
    _, first, inverse, counts = np.unique(hashes, return_index=True, return_inverse=True, return_counts=True)
    if not all(np.array_equal(rows[block], rows[first[inverse[block]]]) for block in _blocks(len(rows))):
        _, first, inverse, counts = np.unique(
            rows + 0.0, axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        inverse = inverse.reshape(-1)
    return DistinctRows(first, inverse, counts)


def _blocks(rows: int) -> Iterator[slice]:
    for start in range(0, rows, _BLOCK_ROWS):
        yield slice(start, start + _BLOCK_ROWS)
