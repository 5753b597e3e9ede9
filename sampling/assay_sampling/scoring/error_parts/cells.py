"""Cells: the launches of one group, kernel and size together, in one order for all recordings of a workload.

Size is the number of blocks of the grid. Launches of a cell are as alike as a light run can tell.

Source: docs/methods/error-decomposition.md, "Across GPUs". Memory: 16 bytes a launch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay_sampling.engines.blockwise import counts_by, places_in, sums_by
from assay_sampling.engines.columns import blocks, in_place_of
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.row_hash import hash_rows

_AXES = ("grid_x", "grid_y", "grid_z")


@dataclass(frozen=True)
class Cells:
    """m cells of n launches, ordered by group and then by the hash of kernel and size.

    ``group`` and ``kind`` (that hash) have shape (m,); ``of_launch``, shape (n,), is the cell of each launch.
    """

    group: np.ndarray
    kind: np.ndarray
    of_launch: np.ndarray

    @classmethod
    def of(cls, labels: np.ndarray, kinds: np.ndarray) -> Cells:
        """From the group of every launch and its :func:`kernel_and_size`, both of shape (n,): where one lies
        on disk, the cells of launches do, too."""
        kind = _distinct(lambda block: kinds[block], kinds)
        codes = max(len(kind), 1)

        def pairs(block: slice) -> np.ndarray:
            first: np.ndarray = np.asarray(labels[block], np.int64) * codes
            pair: np.ndarray = first + places_in(kind, np.asarray(kinds[block]))
            return pair

        keys = _distinct(pairs, labels, kinds)
        of_launch = in_place_of(labels, np.int64, lambda block: places_in(keys, pairs(block)), labels, kinds)
        return cls(keys // codes, kind[keys % codes], of_launch)

    def __len__(self) -> int:
        return len(self.group)

    def sums(self, values: np.ndarray) -> np.ndarray:
        """The sum of ``values``, shape (n,), over the launches of each cell, shape (m,)."""
        return sums_by(self.of_launch, values, len(self))

    def launches(self) -> np.ndarray:
        """How many launches each cell has, shape (m,)."""
        return counts_by(self.of_launch, len(self))


@dataclass(frozen=True)
class CellTimes:
    """Launches and light time of each cell where a selection was made, shape (m,) both."""

    launches: np.ndarray
    light_time: np.ndarray

    def of_launches(self, labels: np.ndarray, kinds: np.ndarray) -> np.ndarray | None:
        """The light time of every launch of a recording, shape (n,): each has the mean of its cell, so that
        sums over cells are exact. None if the recording is divided otherwise into cells."""
        cells = Cells.of(labels, kinds)
        launches = cells.launches()
        if not np.array_equal(launches, self.launches):
            return None
        mean, of_launch = self.light_time / launches, cells.of_launch
        return in_place_of(of_launch, np.float64, lambda block: mean[of_launch[block]], of_launch)


def kernel_and_size(launches: Launches) -> np.ndarray:
    """A hash of the kernel and the number of blocks of every launch, shape (n,), uint64: the same in every
    recording. A launch without a grid has one block. It lies where the launches lie."""
    return launches.computed(("kernel_id", *_AXES), np.uint64, _hashed)


def _hashed(columns: list[np.ndarray]) -> np.ndarray:
    kernel, *axes = columns
    blocks = np.ones(len(kernel), np.uint64)
    for axis in axes:
        # Products beyond 64 bits wrap: what counts is whether two are equal.
        blocks *= np.maximum(axis, 1).astype(np.uint64)
    return hash_rows([kernel, blocks])


def only_groups(kinds: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The group that all launches of the same kind have among some, shape (n,); -1 where they have several,
    or there are none.

    ``kinds`` and ``labels`` have shape (n,); ``rows`` are those of the launches that count.
    """
    kind, code = np.unique(kinds, return_inverse=True)
    least = np.full(len(kind), np.iinfo(np.int64).max)
    most = np.full(len(kind), -1)
    np.minimum.at(least, code[rows], labels[rows])
    np.maximum.at(most, code[rows], labels[rows])
    groups: np.ndarray = np.where(least == most, most, -1)[code]
    return groups


def _distinct(values: Callable[[slice], np.ndarray], *read: np.ndarray) -> np.ndarray:
    """The distinct values, ascending, that a function gives for slices of rows; it reads the columns
    ``read``."""
    parts = [pc.unique(pa.array(values(block))).to_numpy() for block in blocks(len(read[0]), *read)]
    return np.unique(np.concatenate(parts)) if parts else np.asarray(values(slice(0, 0)))
