"""The seam of engines: what is asked of whoever groups and sorts launches, in memory or beyond it.

Engines return keys, counts, sums of integers and totally ordered rows, nothing else. Sums of floating-point
numbers depend on their order, so our own code makes them, in the order of the rows
(:mod:`assay_sampling.engines.blockwise`): an answer is then the same to the last bit whichever engine
brought the rows. The contract of ``tests/sampling/test_engine_contract.py`` runs over every engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

BATCH_ROWS = 1 << 17


@dataclass(frozen=True)
class ArrayRows:
    """Rows as columns of one length: NumPy or Arrow arrays, also such as lie on disk."""

    columns: Mapping[str, Any]


@dataclass(frozen=True)
class FileRows:
    """Rows of Parquet files with these ``columns``; row numbers go on from file to file."""

    paths: tuple[Path, ...]
    columns: tuple[str, ...]


Rows = ArrayRows | FileRows


@dataclass(frozen=True)
class Groups:
    """Rows grouped by equal keys, m groups in the order of their first rows.

    ``keys`` is a table of m rows; ``first_row`` and ``count`` have shape (m,), int64, as has each array of
    ``sums``.
    """

    keys: pa.Table
    first_row: np.ndarray
    count: np.ndarray
    sums: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.first_row)

    def key(self, name: str) -> np.ndarray:
        """A key without nulls, shape (m,)."""
        values: np.ndarray = self.keys[name].to_numpy()
        return values


class Engine(Protocol):
    """Groups and sorts rows.

    In keys, 0.0 and -0.0 are equal, every NaN is equal to every other, and so is null to null.
    """

    def groups(
        self, rows: Rows, keys: Sequence[str], sums: Sequence[str] = (), *, most: int | None = None
    ) -> Groups:
        """Rows with equal ``keys``, and of each group the sums of these integer columns (null counts as 0).

        Keys of floating-point numbers come back with 0.0 for -0.0. Raises RefusedError for a sum beyond
        int64 and for more than ``most`` groups, ValueError for a sum of a column that is not of integers.
        """
        ...

    def sorted(self, rows: Rows, by: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """All rows in ascending order of ``by``, then of their row number: NaN after numbers, null last.

        Text is ordered by its UTF-8 bytes.
        """
        ...
