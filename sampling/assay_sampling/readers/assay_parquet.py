"""Reader of our own Parquet files (:mod:`assay_sampling.launches.parquet`).

Streams batch by batch, with the names and at most one row group in memory. Checks everything on the way:
schema, every batch, page checksums, and that every id has its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from assay_sampling.errors import InputError, LaunchTableError
from assay_sampling.files.reading import PlainFile
from assay_sampling.files.watching import note_total_launches
from assay_sampling.launches.checks import check_batch, check_schema, referenced_ids
from assay_sampling.launches.parquet import NAMES_KEY, unpack_names
from assay_sampling.launches.table import (
    METADATA_KEY,
    LaunchBatch,
    counter_columns,
    has_operations,
    launch_schema,
)
from assay_sampling.readers.base import (
    CallNumbers,
    LaunchNumbers,
    OpenRecording,
    ReadOptions,
    check_mark,
    check_offset,
    refuse_synthetic_mark,
)

FORMAT = "assay-parquet"
_MAGIC = b"PAR1"
_FOOTER_LIMIT_BYTES = 1 << 30
_DAMAGED = "copy the file again from where it was written, or write it again from its source"


class AssayParquetReader:
    """Recognises Parquet by its first bytes; opening it shows whether Assay wrote it."""

    format = FORMAT

    def recognises(self, path: Path, head: bytes) -> bool:
        return head.startswith(_MAGIC)

    def open(self, path: Path, options: ReadOptions) -> AssayParquetRecording:
        check_offset(path, options)
        return AssayParquetRecording(path, options)


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    try:
        yield
    except LaunchTableError as error:
        raise InputError(path, error.cause, error.remedy or _DAMAGED) from error
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        cause = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
        raise InputError(path, f"the Parquet file is cut off or damaged ({cause})", _DAMAGED) from error


class AssayParquetRecording(OpenRecording):
    """A launch table that Assay wrote; it may be empty."""

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self._options = options
        self._plain = PlainFile(path)
        try:
            with _damage(path):
                self._file = pq.ParquetFile(
                    self._plain.path,
                    page_checksum_verification=True,
                    # Otherwise every row group stays in the cache until the file is closed.
                    pre_buffer=False,
                    thrift_string_size_limit=_FOOTER_LIMIT_BYTES,
                    thrift_container_size_limit=100_000_000,
                )
            super().__init__(path, FORMAT, self._launch_schema(path))
            self.expected_launches = self._file.metadata.num_rows
        except BaseException:
            self._plain.close()
            raise

    def _launch_schema(self, path: Path) -> pa.Schema:
        with _damage(path):
            stored = self._file.schema_arrow
            footer = self._file.metadata.metadata or {}
            if METADATA_KEY not in (stored.metadata or {}) or NAMES_KEY not in footer:
                raise InputError(
                    path,
                    "it is a Parquet file, but not one that Assay wrote",
                    "give the profiler's own file, or one written by Assay",
                )
            schema = stored.with_metadata({METADATA_KEY: stored.metadata[METADATA_KEY]})
            metadata = check_schema(schema)
            check_mark(path, self._options, marked_synthetic=metadata.synthetic)
            if metadata.simulated:
                refuse_synthetic_mark(path, self._options)
            self._names = unpack_names(footer[NAMES_KEY], path)
            return launch_schema(
                replace(
                    metadata,
                    origin="synthetic" if self._options.synthetic else metadata.origin,
                    condition=self._options.condition or metadata.condition,
                ),
                counter_columns(schema),
                operations=has_operations(schema),
            )

    def _read(self, max_launches: int) -> Iterator[LaunchBatch]:
        offset = self._options.launch_offset
        numbers, calls = LaunchNumbers(offset or 0), CallNumbers()
        ids = np.zeros(0, np.uint64)
        note_total_launches(self.path, self._file.metadata.num_rows)
        stream = self._file.iter_batches(batch_size=max_launches, use_threads=False)
        while True:
            with _damage(self.path):
                batch = next(stream, None)
                if batch is None:
                    return
                records = pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)
                check_batch(records)
                if offset is not None:
                    records = self._renumbered(records, numbers, calls)
                new = np.setdiff1d(referenced_ids(records), ids)
                ids = np.union1d(ids, new)
                names = {identifier: self._names[identifier] for identifier in new.tolist()}
            yield LaunchBatch(records, names)

    def _renumbered(
        self, records: pa.RecordBatch, numbers: LaunchNumbers, calls: CallNumbers
    ) -> pa.RecordBatch:
        process, was = (records.column(name).to_numpy() for name in ("process", "launch"))
        columns = {"launch": pa.array(numbers.number(process))}
        if has_operations(self.schema):
            call = pc.fill_null(records.column("call"), -1).to_numpy()
            call_numbers = calls.number(process, was, columns["launch"].to_numpy(), call)
            columns["call"] = pa.array(call_numbers, mask=call < 0)
        for name, values in columns.items():
            position = self.schema.get_field_index(name)
            records = records.set_column(position, self.schema.field(name), values)
        return records

    def close(self) -> None:
        self._file.close()
        self._plain.close()
