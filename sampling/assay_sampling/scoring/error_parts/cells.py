"""Cells: the launches of one group, kernel and size together, in one order for all recordings of a workload.

Size is the number of blocks of the grid. Launches of a cell are as alike as a light run can tell.

Source: docs/methods/error-decomposition.md, "Across GPUs". Memory: 40 bytes a launch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

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
        """From the group of every launch and its :func:`kernel_and_size`, both of shape (n,)."""
        code, kind = _numbered(kinds)
        pair = np.asarray(labels).astype(np.int64) * max(len(kind), 1) + code
        number, pairs = _numbered(pair)
        group, kind_of_pair = pairs // max(len(kind), 1), kind[pairs % max(len(kind), 1)]
        order = np.lexsort((kind_of_pair, group))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        return cls(group[order], kind_of_pair[order], place[number])

    def __len__(self) -> int:
        return len(self.group)

    def sums(self, values: np.ndarray) -> np.ndarray:
        """The sum of ``values``, shape (n,), over the launches of each cell, shape (m,)."""
        return np.bincount(self.of_launch, weights=values, minlength=len(self))

    def launches(self) -> np.ndarray:
        """How many launches each cell has, shape (m,)."""
        return np.bincount(self.of_launch, minlength=len(self))


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
        found: np.ndarray = (self.light_time / launches)[cells.of_launch]
        return found


def kernel_and_size(launches: Launches) -> np.ndarray:
    """A hash of the kernel and the number of blocks of every launch, shape (n,), uint64: the same in every
    recording. A launch without a grid has one block."""
    blocks = np.ones(len(launches), np.uint64)
    for name in _AXES:
        # Products beyond 64 bits wrap: what counts is whether two are equal.
        blocks *= np.maximum(launches.column(name), 1).astype(np.uint64)
    return hash_rows([launches.column("kernel_id"), blocks])


def only_groups(kinds: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The group that all launches of the same kind have among some, shape (n,); -1 where they have several,
    or there are none.

    ``kinds`` and ``labels`` have shape (n,); ``rows`` are those of the launches that count.
    """
    code, kind = _numbered(kinds)
    least = np.full(len(kind), np.iinfo(np.int64).max)
    most = np.full(len(kind), -1)
    np.minimum.at(least, code[rows], labels[rows])
    np.maximum.at(most, code[rows], labels[rows])
    found: np.ndarray = np.where(least == most, most, -1)[code]
    return found


def _numbered(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A number for each distinct value, shape (n,), and the values by number; by hashing, without a sort."""
    encoded = pa.array(values).dictionary_encode()
    return encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary.to_numpy(zero_copy_only=False)
