"""Launches that do not fit into memory: an Assay file in a scratch folder, its columns brought on request.

The selection methods PKS, Sieve and STEM, and the scores of their selections, read columns in blocks. Other
steps need all launches in memory, ask for a whole column, and are refused.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from assay_sampling.engines.columns import Column, ColumnWriter, Place
from assay_sampling.engines.seam import BATCH_ROWS, FileRows
from assay_sampling.errors import RefusedError
from assay_sampling.launches.in_memory import Launches, null_value, twice
from assay_sampling.launches.parquet import LaunchWriter, scratch_encoding_of
from assay_sampling.launches.table import SHAPE_COLUMNS, Device, LaunchBatch, Names
from assay_sampling.notes.registry import Note

_IDENTITY = ("process", "launch", "kernel_id", *SHAPE_COLUMNS)


class TableOnDisk:
    """What code may ask of a launch table on disk: schema, rows, nulls of a column, single values.

    Anything else would bring a whole column into memory and is refused.
    """

    nbytes = 0

    def __init__(self, path: Path, schema: pa.Schema, nulls: dict[str, int], rows: int, place: Place) -> None:
        self.path, self.schema, self.num_rows, self.place = path, schema, rows, place
        self._nulls = nulls
        self._columns: dict[str, Column] = {}

    def __getitem__(self, name: str) -> ColumnOnDisk:
        return ColumnOnDisk(self, name, self._nulls[name])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise needs_memory(self)

    def array(self, name: str) -> Column:
        """A column with nulls as :meth:`assay_sampling.launches.in_memory.Launches.column` fills them."""
        if name not in self._columns:
            kind = self.schema.field(name).type
            with ColumnWriter(self.place, kind.to_pandas_dtype()) as writer:
                for batch in self.batches([name]):
                    writer.write(_filled(batch.column(0)))
                self._columns[name] = writer.column()
        return self._columns[name]

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of all launches, in order."""
        with pq.ParquetFile(self.path, pre_buffer=False) as file:
            for batch in file.iter_batches(BATCH_ROWS, columns=list(names), use_threads=False):
                yield batch.select(list(names))

    def take(self, names: Sequence[str], rows: np.ndarray) -> pa.Table:
        """Some columns of the given rows, in their order. Only the row groups that hold one are read."""
        order = np.argsort(rows, kind="stable")
        ascending = np.asarray(rows)[order]
        schema = pa.schema([self.schema.field(name) for name in names], metadata=self.schema.metadata)
        parts = [schema.empty_table()]
        with pq.ParquetFile(self.path, pre_buffer=False) as file:
            begin = 0
            for number in range(file.num_row_groups):
                end = begin + file.metadata.row_group(number).num_rows
                low, high = np.searchsorted(ascending, [begin, end])
                if low < high:
                    group = file.read_row_group(number, columns=list(names), use_threads=False)
                    columns = group.select(list(names)).take(pa.array(ascending[low:high] - begin)).columns
                    parts.append(pa.Table.from_arrays(columns, schema=schema))
                begin = end
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        return pa.concat_tables(parts).take(pa.array(places))

    def rows(self, names: Sequence[str]) -> FileRows:
        """Some columns as an engine reads them."""
        return FileRows((self.path,), tuple(names))


@dataclass(frozen=True)
class ColumnOnDisk:
    """A column of a table on disk: how many nulls it has, and single values."""

    table: TableOnDisk
    name: str
    null_count: int

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            raise needs_memory(self.table)
        return self.table.take([self.name], np.array([row]))[0][0]

    def is_null(self) -> pa.ChunkedArray:
        """Which launches lack a value: a bit each."""
        parts = [batch.column(0).is_null() for batch in self.table.batches([self.name])]
        return pa.chunked_array(parts, pa.bool_())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise needs_memory(self.table)


@dataclass(frozen=True)
class LaunchesOnDisk(Launches):
    """Launches on disk, sorted by (process, launch), each pair once; ``table`` is a :class:`TableOnDisk`."""

    _floats: dict[str, np.ndarray] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_on_disk(self) -> bool:
        return True

    def column(self, name: str) -> np.ndarray:
        """Refused: it would take all launches' values into memory."""
        raise needs_memory(self.table)

    def array(self, name: str) -> np.ndarray:
        """See :meth:`assay_sampling.launches.in_memory.Launches.array`."""
        column: np.ndarray = self.table.array(name)
        return column

    def floats(self, name: str) -> np.ndarray:
        """See :meth:`assay_sampling.launches.in_memory.Launches.floats`."""
        values = self.array(name)
        if values.dtype == np.float64:
            return values
        if name not in self._floats:
            place: Place = self.table.place
            self._floats[name] = place.column(
                len(self), np.float64, lambda block: values[block].astype(np.float64), values
            )
        return self._floats[name]

    def batches(self, names: Sequence[str]) -> Iterator[list[np.ndarray]]:
        """See :meth:`assay_sampling.launches.in_memory.Launches.batches`."""
        for batch in self.table.batches(names):
            yield [_filled(column) for column in batch.columns]

    def computed(
        self, names: Sequence[str], kind: Any, values: Callable[[list[np.ndarray]], np.ndarray]
    ) -> np.ndarray:
        """See :meth:`assay_sampling.launches.in_memory.Launches.computed`."""
        with ColumnWriter(self.table.place, kind) as writer:
            for part in self.batches(names):
                writer.write(values(part))
            return writer.column()

    def kernels(self) -> int:
        """Number of distinct kernels (demangled names)."""
        return len(self.table.place.engine.groups(self.table.rows(["kernel_id"]), ["kernel_id"]))

    def processes(self) -> int:
        """Number of processes that launched."""
        return len(self.table.place.engine.groups(self.table.rows(["process"]), ["process"]))

    def devices(self) -> tuple[Device, ...]:
        """See :meth:`assay_sampling.launches.in_memory.Launches.devices`."""
        indices = self.table.place.engine.groups(self.table.rows(["device"]), ["device"]).keys["device"]
        by_index = {device.index: device for device in self.metadata.devices}
        return tuple(by_index.get(index, Device(index)) for index in sorted(indices.drop_null().to_pylist()))

    def slice(self, offset: int, length: int | None = None) -> Launches:
        """Refused: see :meth:`column`."""
        raise needs_memory(self.table)

    def take(self, rows: np.ndarray) -> Launches:
        """The given rows, in memory, with the columns that say which launches they are."""
        table: pa.Table = self.table.take(_IDENTITY, rows)
        return Launches(table, self.names, self.sources, self.notes, self.ranks)


def needs_memory(table: Any) -> RefusedError:
    """The refusal of a step that needs all launches in memory."""
    return RefusedError(
        "launches",
        f"{table.num_rows:,} of them do not fit the memory limit, and this step needs all of them in memory",
        "raise --memory-limit (analysis.memory_limit_bytes in a campaign file); selecting by pks, sieve and "
        "stem from one level works beyond it",
    )


def gather_on_disk(
    batches: Iterable[LaunchBatch],
    schema: pa.Schema,
    names: Names,
    place: Place,
    *,
    sources: Sequence[str] = (),
    notes: Sequence[Note] = (),
) -> LaunchesOnDisk:
    """Write a stream of batches to a scratch folder, sort it, and check that each launch appears once.

    ``names`` are those of earlier batches. Raises LaunchTableError for a launch that appears twice,
    RefusedError beyond the bound of the scratch folder.
    """

    def named() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            names.update(batch.new_names)
            yield batch.records

    written = _Written(place, schema, names)
    written.write(named())
    if not written.is_sorted:
        again = _Written(place, schema, names)
        by = ("process", "launch")
        again.write(
            pa.RecordBatch.from_arrays(batch.columns, schema=schema)
            for batch in place.engine.sorted(FileRows((written.path,), tuple(schema.names)), by)
        )
        written.remove()
        written = again
    if written.twice is not None:
        raise twice(*written.twice, sources)
    table = written.table()
    return LaunchesOnDisk(table, names, tuple(sources), tuple(notes))


class _Written:
    """A scratch file of launches, and what was seen while it was written."""

    def __init__(self, place: Place, schema: pa.Schema, names: Names) -> None:
        self._place, self._schema, self._names = place, schema, names
        self.path = place.scratch.folder / f"launches-{id(self):x}.parquet"
        self._nulls = dict.fromkeys(schema.names, 0)
        self._rows = 0
        self._last: tuple[int, int] | None = None
        self.is_sorted = True
        self.twice: tuple[int, int] | None = None

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        size = 0
        with (
            self.path.open("xb") as file,
            LaunchWriter(file, self._schema, options=scratch_encoding_of) as writer,
        ):
            for batch in batches:
                if not batch.num_rows:
                    continue
                self._look(batch)
                writer.write(LaunchBatch(batch, {}), named=True)
                self._place.scratch.take(file.tell() - size)
                size = file.tell()
            writer.write(_nothing(self._schema, self._names), named=True)

    def _look(self, batch: pa.RecordBatch) -> None:
        for name in self._schema.names:
            self._nulls[name] += batch[name].null_count
        self._rows += batch.num_rows
        process, launch = batch["process"].to_numpy(), batch["launch"].to_numpy()
        if self._last is not None:
            process, launch = np.append(self._last[0], process), np.append(self._last[1], launch)
        step_process, step_launch = np.diff(process), np.diff(launch)
        same = (step_process == 0) & (step_launch == 0)
        if self.twice is None and same.any():
            row = int(np.argmax(same))
            self.twice = int(process[row]), int(launch[row])
        if not np.all((step_process > 0) | ((step_process == 0) & (step_launch > 0))):
            self.is_sorted = False
        self._last = int(process[-1]), int(launch[-1])

    def remove(self) -> None:
        self._place.scratch.give_back(self.path.stat().st_size)
        self.path.unlink()

    def table(self) -> TableOnDisk:
        on_disk = TableOnDisk(self.path, self._schema, self._nulls, self._rows, self._place)
        weakref.finalize(on_disk, self.path.unlink, missing_ok=True)
        return on_disk


def _nothing(schema: pa.Schema, names: Names) -> LaunchBatch:
    empty = pa.RecordBatch.from_arrays([pa.array([], item.type) for item in schema], schema=schema)
    return LaunchBatch(empty, dict(names.items()))


def _filled(column: pa.Array) -> np.ndarray:
    if column.null_count:
        column = pc.fill_null(column, pa.scalar(null_value(column.type), column.type))
    values: np.ndarray = column.to_numpy(zero_copy_only=False)
    return values
