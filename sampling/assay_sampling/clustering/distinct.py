"""Distinct rows of a matrix, exactly, in an order that does not depend on the order of the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from assay_sampling.engines.blockwise import label_kind, places_in
from assay_sampling.engines.columns import ColumnWriter, place_of
from assay_sampling.engines.pages import give_back_pages
from assay_sampling.engines.seam import ArrayRows
from assay_sampling.errors import RefusedError
from assay_sampling.launches.row_hash import hash_rows

_BLOCK_ROWS = 1 << 15
# Of each value of a distinct row while it is grouped: k-means keeps several copies.
_BYTES_PER_VALUE = 40


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


def distinct_rows_on_disk(
    parts: Callable[[], Iterator[np.ndarray]], like: np.ndarray
) -> tuple[DistinctRows, np.ndarray]:
    """As :func:`distinct_rows`, of a matrix (n, d) that does not fit into memory; and those rows, (m, d).

    ``parts`` gives it from the start, in parts of any height; ``like`` is a column on disk of n values.
    ``inverse`` lies beside it. Raises RefusedError for distinct rows that do not fit into memory, or two
    that share a hash.
    """
    place = place_of(like)
    assert place is not None
    with ColumnWriter(place, np.uint64) as writer:
        width = 1
        for part in parts():
            width = part.shape[1]
            writer.write(hash_rows(list((part + 0.0).view(np.int64).T)))
        hashes = writer.column()
    most = place.memory_bytes // (_BYTES_PER_VALUE * (width + 2))
    groups = place.engine.groups(ArrayRows({"counters": hashes}), ["counters"], most=most)
    order = np.argsort(groups.key("counters"))
    sorted_hashes, first = groups.key("counters")[order], groups.first_row[order]
    rows = np.empty((len(first), width))
    by_row = np.argsort(first)
    begin = 0
    with ColumnWriter(place, label_kind(len(first))) as writer:
        for part in parts():
            inverse = places_in(sorted_hashes, hashes[begin : begin + len(part)])
            low, high = np.searchsorted(first[by_row], [begin, begin + len(part)])
            new = by_row[low:high]
            rows[new] = part[first[new] - begin]
            if not np.array_equal(part, rows[inverse]):
                raise RefusedError(
                    "launches",
                    "two of them differ and have one 64-bit hash of their counters",
                    "raise --memory-limit, so that they fit into memory",
                )
            writer.write(inverse)
            begin += len(part)
            give_back_pages(hashes)
        return DistinctRows(first, writer.column(), groups.count[order]), rows


def _blocks(rows: int) -> Iterator[slice]:
    for start in range(0, rows, _BLOCK_ROWS):
        yield slice(start, start + _BLOCK_ROWS)
