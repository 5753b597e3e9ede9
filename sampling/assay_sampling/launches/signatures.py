"""Distinct signatures: what a light recording knows of launches before they run.

A launch's *signature* is all that a light recording tells before the launch runs: kernel, grid, block,
NVTX path, framework operator and input shapes. Millions of launches have few distinct signatures, so code
that processes launches can process each signature once.

Source: Principal Kernel Analysis, "Two-level profiling" (kernel name, grid, and the tensor dimensions and
layers that NVTX annotations give).
Memory: 12 bytes a launch while signatures are found, 4 afterwards, and 68 a distinct signature.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.row_hash import hash_rows
from assay_sampling.launches.table import SHAPE_COLUMNS, TEXT_COLUMNS

SIGNATURE_COLUMNS: tuple[str, ...] = (
    "kernel_id",
    *SHAPE_COLUMNS,
    "nvtx_id",
    "operator_id",
    "input_shapes_id",
)
_COMPARED_ROWS = 1 << 16


@dataclass(frozen=True)
class Signatures:
    """The distinct signatures of n launches, in the order in which they first appear.

    ``columns`` holds, for each of SIGNATURE_COLUMNS, an array of shape (m,) (ids uint64 with 0 for null,
    shapes int64 with -1 for null); ``inverse``, shape (n,), int32, the signature of every launch;
    ``first_rows``, shape (m,), the first launch of each.
    """

    columns: Mapping[str, np.ndarray]
    inverse: np.ndarray
    first_rows: np.ndarray

    def __len__(self) -> int:
        return len(self.first_rows)

    def take(self, chosen: np.ndarray | slice) -> dict[str, np.ndarray]:
        """The columns of some of the signatures."""
        return {name: values[chosen] for name, values in self.columns.items()}

    def hashes(self, seed: int = 0) -> np.ndarray:
        """A 64-bit hash of each signature, shape (m,): the same in every recording."""
        return hash_rows(list(self.columns.values()), seed=seed)


def distinct_signatures(launches: Launches) -> Signatures:
    """Find the distinct signatures of all launches, exactly.

    Rows are grouped by a 64-bit hash and then compared; if two signatures share a hash, they are grouped by
    sorting instead.
    """
    used = [name for name in SIGNATURE_COLUMNS if launches.table[name].null_count < len(launches)]
    columns = [launches.column(name) for name in used] or [launches.column("kernel_id")]
    inverse, first_rows = _group(hash_rows(columns))
    if not _same_within_groups(columns, inverse, first_rows):
        inverse, first_rows = _group_by_sorting(columns)
    distinct = {}
    for name in SIGNATURE_COLUMNS:
        if name in used:
            values = columns[used.index(name)][first_rows]
        else:
            values = np.full(len(first_rows), 0 if name in TEXT_COLUMNS else -1)
        distinct[name] = values.astype(np.uint64 if name in TEXT_COLUMNS else np.int64)
    return Signatures(distinct, inverse, first_rows)


def _group(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Group equal codes: inverse (n,), numbered in order of first appearance, and first rows (m,)."""
    encoded = pa.array(codes).dictionary_encode()
    inverse = encoded.indices.to_numpy(zero_copy_only=False)
    return inverse, _first_rows(inverse)


def _first_rows(inverse: np.ndarray) -> np.ndarray:
    # Numbers follow the order of first appearance, so a new one is larger than all before it.
    return np.flatnonzero(np.diff(np.maximum.accumulate(inverse), prepend=-1))


def _same_within_groups(columns: list[np.ndarray], inverse: np.ndarray, first_rows: np.ndarray) -> bool:
    for column in columns:
        of_group = column[first_rows]
        for start in range(0, len(inverse), _COMPARED_ROWS):
            rows = slice(start, start + _COMPARED_ROWS)
            if not np.array_equal(of_group[inverse[rows]], column[rows]):
                return False
    return True


def _group_by_sorting(columns: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    order = np.lexsort(columns)
    changes = np.zeros(len(order), bool)
    for column in columns:
        changes[1:] |= np.diff(column[order]) != 0
    by_row = np.empty(len(order), np.int64)
    by_row[order] = np.cumsum(changes)
    return _group(by_row)
