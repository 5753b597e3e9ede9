"""Reader of Nsight Systems SQLite exports: launches in API order with their NVTX path.

The NVTX path of a launch is the names of all push/pop and start/end ranges of the launching thread that
contain the launch call, outermost first, joined by "/" (:mod:`assay_sampling.readers.nesting`). Times are
the profiler's own, in ns since the start of the session.

Memory: 24 bytes a launch for the order, a hundred while it is made, 37 bytes for each range of a launching
thread, twice that where operations are joined, and one batch; everything else is fetched from the file batch
by batch. The file is never written to.

Source: docs/reading-recordings.md, "Nsight Systems exports".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay_sampling.arrays import identifiers_from
from assay_sampling.errors import InputError, NoLaunchesError
from assay_sampling.files.reading import PlainFile
from assay_sampling.files.watching import note_total_launches
from assay_sampling.launches.table import LaunchBatch, launch_schema, make_batch
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.readers.base import (
    NameTracker,
    OpenRecording,
    ReadOptions,
    check_mark,
    check_offset,
    foreign_metadata,
)
from assay_sampling.readers.nesting import ThreadRanges
from assay_sampling.readers.nsys.database import (
    GRAPH_TRACE,
    KERNEL,
    MAGIC,
    STRINGS,
    Database,
    devices,
    has_synthetic_mark,
    tool_version,
)
from assay_sampling.readers.nsys.diagnostics import diagnostics
from assay_sampling.readers.nsys.operations import operation_calls
from assay_sampling.readers.nsys.order import LaunchOrder, launch_order
from assay_sampling.readers.nsys.ranges import has_ranges, library_calls, nvtx_ranges
from assay_sampling.readers.operation_calls import Calls

FORMAT = "nsys-sqlite"
_SHAPE = {"grid_x": "gridX", "grid_y": "gridY", "grid_z": "gridZ",
          "block_x": "blockX", "block_y": "blockY", "block_z": "blockZ"}  # fmt: skip
_OPTIONAL = {
    "registers_per_thread": "registersPerThread",
    "dynamic_shared_memory_bytes": "dynamicSharedMemory",
    "device": "deviceId",
    "stream": "streamId",
}
_OTHER_INTEGERS = ("staticSharedMemory", "correlationId", "globalPid", "graphNodeId")
_BOUNDS = {
    **dict.fromkeys(("start", "end"), (-(2**62), 2**62)),
    **dict.fromkeys(_SHAPE.values(), (1, 2**31 - 1)),
}


class NsysSqliteReader:
    """Recognises SQLite by its first bytes; opening it shows whether it is an export."""

    format = FORMAT

    def recognises(self, path: Path, head: bytes) -> bool:
        return head.startswith(MAGIC)

    def open(self, path: Path, options: ReadOptions) -> NsysRecording:
        check_offset(path, options)
        return NsysRecording(path, options)


class NsysRecording(OpenRecording):
    """A SQLite export; see the module.

    Args:
        path: the file as the user named it.
        options: what the user knows about the file.
        plain: the SQLite file to read instead of ``path``.
        format_: what the recording calls itself.
    """

    def __init__(
        self, path: Path, options: ReadOptions, *, plain: Path | None = None, format_: str = FORMAT
    ) -> None:
        self._options = options
        self._plain = PlainFile(plain or path)
        try:
            self._database = Database(path, self._plain.path)
        except BaseException:
            self._plain.close()
            raise
        try:
            kernels = _checked_kernels(self._database)
            marked = has_synthetic_mark(self._database)
            check_mark(path, options, marked_synthetic=marked)
            metadata = foreign_metadata(
                options,
                level="light",
                format_=format_,
                tool="Nsight Systems",
                tool_version=tool_version(self._database),
                devices=devices(self._database),
                marked_synthetic=marked,
            )
            self._operations = options.operations and has_ranges(self._database)
        except BaseException:
            self.close()
            raise
        super().__init__(path, format_, launch_schema(metadata, operations=self._operations))
        self.expected_launches = kernels

    def _read(self, max_launches: int) -> Iterator[LaunchBatch]:
        try:
            yield from self._checked_batches(max_launches)
        except InputError:
            # These find the row, and take longer than looking at what is fetched anyway.
            _check_rows(self._database)
            _check_whole_numbers(self._database)
            raise

    def _checked_batches(self, max_launches: int) -> Iterator[LaunchBatch]:
        order = launch_order(self._database)
        nvtx = nvtx_ranges(self._database, order.threads)
        fetch = _Fetch(self._database, self._options.launch_offset or 0)
        calls, notes = None, list[Note]()
        if self._operations:
            libraries = library_calls(self._database, order.threads)
            calls, notes = operation_calls(self._database, order, nvtx, libraries, fetch.name_column)
        ranges = None if nvtx is None else nvtx.closed()
        note_total_launches(self.path, len(order.row))
        for start in range(0, len(order.row), max_launches):
            yield fetch.batch(self.schema, order, slice(start, start + max_launches), ranges, calls)
        self.notes.extend([*_notes(self._database, order), *notes])

    def close(self) -> None:
        self._database.close()
        self._plain.close()


def _checked_kernels(database: Database) -> int:
    """How many rows of kernels there are. Raises InputError where there are none to read, saying what kind of
    capture this is."""
    if KERNEL not in database.tables:
        if GRAPH_TRACE in database.tables:
            raise NoLaunchesError(
                database.path,
                "no kernels were captured one by one: CUDA graphs were traced as a whole",
                "profile again with --cuda-graph-trace=node",
            )
        if STRINGS not in database.tables:
            raise InputError(
                database.path,
                "it is a SQLite database, but not an export of Nsight Systems",
                "export the report: nsys export -t sqlite REPORT",
            )
        raise NoLaunchesError(
            database.path,
            f"no kernels were captured (it has no table {KERNEL})",
            "profile with --trace=cuda, and check that the workload runs on the GPU",
        )
    missing = [c for c in ("start", "end", *_SHAPE.values()) if not database.has(KERNEL, c)]
    if not any(database.has(KERNEL, name) for name in ("demangledName", "shortName")):
        missing.append("demangledName")
    if missing:
        raise InputError(
            database.path,
            f"the table {KERNEL} lacks the column {missing[0]!r}",
            "export the report with a newer Nsight Systems",
            field=missing[0],
        )
    (kernels,) = database.first(f"SELECT count(*) FROM {KERNEL}") or (0,)
    if not kernels:
        raise NoLaunchesError(
            database.path,
            f"no kernels were captured (the table {KERNEL} is empty)",
            "profile with --trace=cuda, and check that the workload runs on the GPU",
        )
    return int(kernels)


def _check_rows(database: Database) -> None:
    """Raises InputError naming the first row with impossible times or shape.

    Fractions within the bounds are left to :func:`_check_whole_numbers`, which takes three times as long.
    """
    right = [f'"{name}" BETWEEN {least} AND {greatest}' for name, (least, greatest) in _BOUNDS.items()]
    right += [
        f'("{name}" IS NULL OR "{name}" BETWEEN {-(2**63)} AND {2**63 - 1})' for name in _optional(database)
    ]
    _refuse(database, f'({" AND ".join(right)} AND "end" >= start) IS NOT TRUE')


def _check_whole_numbers(database: Database) -> None:
    """Raises InputError naming the first row with a value that is not a whole number."""
    names = (*_BOUNDS, *_optional(database))
    _refuse(database, " OR ".join(f"typeof(\"{name}\") NOT IN ('integer', 'null')" for name in names))


def _optional(database: Database) -> list[str]:
    return [name for name in (*_OPTIONAL.values(), *_OTHER_INTEGERS) if database.has(KERNEL, name)]


def _refuse(database: Database, condition: str) -> None:
    """Raises InputError naming the first row for which ``condition`` holds."""
    names = (*_BOUNDS, *_optional(database))
    columns = ", ".join(f'"{name}"' for name in names)
    row = database.first(f"SELECT rowid, {columns} FROM {KERNEL} WHERE {condition} LIMIT 1")
    if row is None:
        return
    for name, value in zip(names, row[1:], strict=True):
        least, greatest = _BOUNDS.get(name, (-(2**63), 2**63))
        if value is None and name not in _BOUNDS:
            continue
        if not isinstance(value, int) or not least <= value <= greatest:
            raise InputError(
                database.path,
                f"row {row[0]} of {KERNEL} has {value!r} there",
                "the export is damaged; export the report again",
                field=name,
            )
    raise InputError(
        database.path,
        f"row {row[0]} of {KERNEL} ends ({row[2]}) before it starts ({row[1]})",
        "the export is damaged; export the report again",
        field="end",
    )


class _Fetch:
    """Fetches the rest of the launches' columns batch by batch."""

    def __init__(self, database: Database, launch_offset: int) -> None:
        self._database = database
        self._offset = launch_offset
        self._names = NameTracker()
        self.name_column = "demangledName" if database.has(KERNEL, "demangledName") else "shortName"
        self._identifiers: dict[int, int] = {}  # by the number of the kernel's name in StringIds
        columns = {"name": self.name_column, "start": "start", "end": '"end"', **_SHAPE}
        columns |= {k: v for k, v in _OPTIONAL.items() if database.has(KERNEL, v)}
        if database.has(KERNEL, "staticSharedMemory", "dynamicSharedMemory"):
            columns["shared"] = "staticSharedMemory + k.dynamicSharedMemory"
        self._columns = list(columns)
        selected = ", ".join(f"k.{column}" for column in columns.values())
        self._query = (
            f"SELECT k.rowid, {selected} FROM json_each(?) AS j CROSS JOIN {KERNEL} AS k ON k.rowid = j.value"
        )

    def batch(
        self,
        schema: pa.Schema,
        order: LaunchOrder,
        part: slice,
        ranges: ThreadRanges | None,
        calls: Calls | None,
    ) -> LaunchBatch:
        fetched = self._fetch(order.row[part])
        start = fetched.pop("start")
        process, launch = order.ordinals(part)
        columns: dict[str, pa.Array | np.ndarray] = {
            "process": process,
            "launch": launch + self._offset,
            "graph_launch": _null_below_zero(order.graph_launch[part]),
            "graph_node": _null_below_zero(order.graph_node[part]),
            "kernel_id": self._kernels(fetched.pop("name")),
            "start_ns": start,
            "duration_ns": np.subtract(fetched.pop("end"), start),
            **fetched,
        }
        if "shared" in columns:
            columns["shared_memory_bytes"] = columns.pop("shared")
        if ranges is not None:
            columns["nvtx_id"] = self._paths(order, part, ranges)
        if calls is not None:
            columns |= calls.columns(part, self._names, self._offset)
        records = make_batch(schema, columns, num_rows=len(start))
        return LaunchBatch(records, self._names.take_new())

    def _fetch(self, rows: np.ndarray) -> dict[str, pa.Array]:
        listed = pa.ListArray.from_arrays([0, len(rows)], pa.array(rows).cast(pa.string()))
        row_list = f"[{pc.binary_join(listed, ',')[0]}]"
        batches = list(self._database.integer_batches(KERNEL, self._query, (row_list,)))
        table = pa.Table.from_batches(batches).combine_chunks()
        row, *fetched = (column.chunk(0) for column in table.columns)
        # A cross join goes through the list in its order.
        if not np.array_equal(row, rows):
            raise InputError(self._database.path, "rows of the kernel table are missing", "export again")
        columns = dict(zip(self._columns, fetched, strict=True))
        if not _possible(columns):
            raise InputError(self._database.path, "a kernel has impossible times or shape", "export again")
        return columns

    def _kernels(self, numbers: pa.Array) -> pa.Array:
        encoded = numbers.dictionary_encode()
        used = encoded.dictionary.to_pylist()
        new = [number for number in used if number not in self._identifiers]
        texts = self._database.texts("SELECT value FROM json_each(?)", (json.dumps(new),))
        for number in new:
            if not texts.get(number):
                raise InputError(
                    self._database.path,
                    f"the kernel name {number} has no text",
                    "the export is damaged; export the report again",
                    field=STRINGS,
                )
            self._identifiers[number] = self._names.intern(texts[number])
        if encoded.indices.null_count:
            raise InputError(
                self._database.path, "a kernel has no name", "export again", field=self.name_column
            )
        return identifiers_from([self._identifiers[number] for number in used]).take(encoded.indices)

    def _paths(self, order: LaunchOrder, part: slice, ranges: ThreadRanges) -> pa.Array:
        paths = ranges.paths(order.thread[part], order.call_start[part], order.call_end[part])
        return self._names.intern_indices(paths.texts, paths.index)


def _possible(columns: Mapping[str, pa.Array]) -> bool:
    """Whether times and shapes of all rows are within their bounds, and none ends before it starts."""
    for name in ("start", "end", *_SHAPE):
        least, greatest = _BOUNDS[_SHAPE.get(name, name)]
        extent = pc.min_max(columns[name], skip_nulls=False).as_py()
        if extent["min"] is None or extent["min"] < least or extent["max"] > greatest:
            return False
    return bool(pc.all(pc.greater_equal(columns["end"], columns["start"])).as_py())


def _null_below_zero(values: np.ndarray) -> pa.Array:
    return pa.array(values, pa.int64(), mask=values < 0)


def _notes(database: Database, order: LaunchOrder) -> Iterator[Note]:
    if order.doubles:
        yield make_note("kernel_events_twice", events=order.doubles)
    unjoined = int((order.thread == -1).sum())
    if unjoined:
        yield make_note("no_api_call", launches=unjoined)
    if database.has(GRAPH_TRACE):
        row = database.first(f"SELECT count(*) FROM {GRAPH_TRACE}")
        if row is not None and row[0]:
            yield make_note("graphs_as_a_whole", graph_launches=int(row[0]))
    if not database.has(KERNEL, "demangledName"):
        yield make_note("short_names")
    yield from diagnostics(database)
    if order.lost.lost:
        yield make_note("kernels_lost", calls=order.lost.lost)
    if order.lost.cut:
        yield make_note("capture_cut", calls=order.lost.cut)
