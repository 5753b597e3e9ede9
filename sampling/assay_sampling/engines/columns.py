"""Columns on disk: arrays in unlinked files of a scratch folder, mapped into memory and read in blocks.

A column is a NumPy array that functions may index as any other; what takes all of it at once brings all of
it into memory, so code for many launches goes through :mod:`assay_sampling.engines.blockwise`. Pages that
were read are given back after each block.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from assay_sampling.engines.beyond_memory import LEAST_MEMORY_BYTES, DuckEngine
from assay_sampling.engines.in_memory import ArrowEngine
from assay_sampling.engines.pages import give_back_pages
from assay_sampling.engines.scratch import Scratch
from assay_sampling.engines.seam import Engine
from assay_sampling.errors import RefusedError, StorageError

BLOCK_ROWS = 1 << 19
# Of the memory limit: the engine's share; columns in blocks, results and the program need the rest.
_ENGINE_SHARE = 0.375
_MOST_THREADS = 4


@dataclass(frozen=True)
class Place:
    """Where columns lie, and the memory that work on them may take, engine included."""

    scratch: Scratch
    memory_bytes: int
    threads: int = field(default_factory=lambda: min(_MOST_THREADS, len(os.sched_getaffinity(0))))

    @property
    def engine(self) -> Engine:
        memory = max(LEAST_MEMORY_BYTES, int(self.memory_bytes * _ENGINE_SHARE))
        return DuckEngine(self.scratch.folder, memory, self.scratch.free_bytes, self.threads)

    def column(
        self, rows: int, kind: Any, values: Callable[[slice], np.ndarray], *read: np.ndarray
    ) -> Column:
        """A new column of ``rows`` values of ``kind``, which ``values`` gives block by block; it reads the
        columns ``read``."""
        with ColumnWriter(self, kind) as writer:
            for block in blocks(rows, *read):
                writer.write(values(block))
            return writer.column()


class Column(np.ndarray):
    """An array of shape (n,) on disk, read-only, and its ``place``.

    What is computed from it is an ordinary array in memory.
    """

    place: Place

    def __array_finalize__(self, parent: Any) -> None:
        if isinstance(parent, Column):
            self.place = parent.place

    def __array_wrap__(self, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> Any:
        plain = array.view(np.ndarray)
        return plain[()] if return_scalar else plain

    def __getitem__(self, key: Any) -> Any:
        return super().view(np.ndarray)[key]


class ColumnWriter:
    """Writes a column; its file has no name, so nothing is left of it when nobody refers to it.

    Raises StorageError where the disk refuses, RefusedError beyond the bound of the scratch folder.
    """

    def __init__(self, place: Place, kind: Any) -> None:
        self._place, self._kind, self._bytes = place, np.dtype(kind), 0
        with _storage():
            self._file = tempfile.TemporaryFile(dir=place.scratch.folder, buffering=0)  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, values: np.ndarray) -> None:
        """Append values."""
        data = np.ascontiguousarray(values, self._kind).data.cast("B") if len(values) else memoryview(b"")
        self._place.scratch.take(len(data))
        self._bytes += len(data)
        with _storage():
            while len(data):
                data = data[os.write(self._file.fileno(), data) :]

    def column(self) -> Column:
        """The column, once all of it was written."""
        if self._bytes:
            buffer: Any = mmap.mmap(self._file.fileno(), self._bytes, prot=mmap.PROT_READ)
        else:
            buffer = b""  # an empty file cannot be mapped
        values = np.frombuffer(buffer, self._kind).view(Column)
        values.place = self._place
        weakref.finalize(values, self._place.scratch.give_back, self._bytes)
        return values


class _storage:
    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, OSError):
            raise StorageError("scratch folder", str(error), "free space there, or set TMPDIR") from error


def place_of(*arrays: np.ndarray | None) -> Place | None:
    """Where the first of these arrays that is on disk lies; None if all are in memory."""
    return next((each.place for each in arrays if isinstance(each, Column)), None)


def require_in_memory(*arrays: np.ndarray | None) -> None:
    """Raise RefusedError if one of these is on disk: the step needs all of it in memory."""
    if place_of(*arrays) is not None:
        raise RefusedError(
            "launches",
            "they do not fit the memory limit, and this step needs all of them in memory",
            "raise --memory-limit, or leave out what needs it: launches_per_group, weights=light_time",
        )


def engine_of(*arrays: np.ndarray) -> Engine:
    """The engine for rows of these columns."""
    place = place_of(*arrays)
    return ArrowEngine() if place is None else place.engine


def blocks(rows: int, *arrays: np.ndarray | None) -> Iterator[slice]:
    """Slices of all rows, one after the other; pages of the arrays on disk are given back after each."""
    for start in range(0, rows, BLOCK_ROWS):
        yield slice(start, min(start + BLOCK_ROWS, rows))
        give_back_pages(*arrays)


def in_place_of(
    like: np.ndarray, kind: Any, values: Callable[[slice], np.ndarray], *read: np.ndarray
) -> np.ndarray:
    """An array of as many values as ``like`` has, on disk where that or one that is ``read`` is, else in
    memory: ``values`` gives it for slices of rows."""
    place = place_of(like, *read)
    if place is None:
        return np.ascontiguousarray(values(slice(0, len(like))), kind)
    return place.column(len(like), kind, values, like, *read)
