"""Row groups in memory: launches of arriving segments, copied together column by column.

A row group keeps its columns' memory and is used again and again, because memory that a process touches for
the first time costs more than everything else that is done with it. Columns are of fixed width (the launch
table has no others), and what stands under a null is never written to a file.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pyarrow as pa

from assay_sampling.launches.parquet import ROW_GROUP_ROWS
from assay_sampling.wire.packed import Column, PackedColumns

_MOST_PIECES = 4


class RowGroup:
    """Up to ``ROW_GROUP_ROWS`` launches of one schema; memory that no row needed yet is not touched."""

    def __init__(self, schema: pa.Schema) -> None:
        self.rows = 0
        self._schema = schema
        self._columns = [np.empty(ROW_GROUP_ROWS, item.type.to_pandas_dtype()) for item in schema]
        self._valid: dict[int, np.ndarray] = {}  # by column, for those with a null: which rows have a value

    @property
    def is_full(self) -> bool:
        return self.rows == ROW_GROUP_ROWS

    def begin(self, schema: pa.Schema) -> None:
        """Empty it for a table with columns of equal types."""
        self.rows, self._schema = 0, schema
        self._valid.clear()

    def take(self, batch: PackedColumns, first: int, most: int = ROW_GROUP_ROWS) -> int:
        """Copy rows of a batch from row ``first`` on, ``most`` or as many as fit; returns how many."""
        taken: int = min(batch.num_rows - first, ROW_GROUP_ROWS - self.rows, most)
        for place, column in enumerate(batch.columns):
            self._copy(place, column, first, slice(self.rows, self.rows + taken))
        self.rows += taken
        return taken

    def _copy(self, place: int, column: Column, first: int, into: slice) -> None:
        column.write(self._columns[place][into], first)
        valid = self._valid.get(place)
        if valid is None and column.nulls:
            valid = self._valid[place] = np.empty(ROW_GROUP_ROWS, bool)
            valid[: self.rows] = True
        if valid is not None:
            valid[into] = column.valid(first, into.stop - into.start) if column.nulls else True

    def batch(self) -> pa.RecordBatch:
        """Its launches, in its own memory: use them before it is emptied."""
        arrays = [self._array(place, item.type) for place, item in enumerate(self._schema)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, place: int, kind: pa.DataType) -> pa.Array:
        valid = self._valid.get(place)
        bits = None if valid is None else pa.py_buffer(np.packbits(valid[: self.rows], bitorder="little"))
        return pa.Array.from_buffers(kind, self.rows, [bits, pa.py_buffer(self._columns[place])])


class WaitingLaunches:
    """Launches that wait until they fill a row group.

    They wait as they came, which takes less memory than all columns in full do; if they are in many pieces,
    they are copied into a row group.
    """

    def __init__(self, schema: pa.Schema, groups: RowGroups) -> None:
        self.rows = 0
        self._schema, self._groups = schema, groups
        self._pieces: list[tuple[PackedColumns, int, int]] = []
        self._copied: RowGroup | None = None

    @property
    def is_full(self) -> bool:
        return self.rows == ROW_GROUP_ROWS

    def take(self, batch: PackedColumns, first: int) -> int:
        """Take rows of a batch from row ``first`` on, as many as fit; returns how many."""
        taken = min(batch.num_rows - first, ROW_GROUP_ROWS - self.rows)
        self._pieces.append((batch, first, taken))
        self.rows += taken
        if self._copied is not None or len(self._pieces) > _MOST_PIECES:
            self._copied = self.copied()
        return taken

    def pieces(self) -> list[pa.RecordBatch] | None:
        """All of them as they came, in full; None if they were copied already."""
        if self._copied is not None:
            return None
        return [batch.plain().slice(first, taken) for batch, first, taken in self._pieces]

    def copied(self) -> RowGroup:
        """All of them in one row group; give it back when it is written."""
        group = self._copied or self._groups.take(self._schema)
        for batch, first, taken in self._pieces:
            group.take(batch, first, taken)
        self._pieces.clear()
        return group


class RowGroups:
    """Row groups that are used again: at most ``most_free`` are kept. Thread-safe."""

    def __init__(self, most_free: int = 4) -> None:
        self._most_free = most_free
        self._lock = threading.Lock()
        self._free: list[tuple[Any, RowGroup]] = []

    def take(self, schema: pa.Schema) -> RowGroup:
        """An empty row group for a table of this schema."""
        types = tuple(schema.types)
        with self._lock:
            found = next((each for each in self._free if each[0] == types), None)
            if found is not None:
                self._free.remove(found)
        group = RowGroup(schema) if found is None else found[1]
        group.begin(schema)
        return group

    def give_back(self, group: RowGroup, schema: pa.Schema) -> None:
        """Keep a row group for others; the one that was free longest is let go if there are too many."""
        with self._lock:
            self._free.append((tuple(schema.types), group))
            del self._free[: -self._most_free]
