"""Assay's own files: a launch table as Parquet, self-contained with its names.

The names are in the footer under ``assay.names``: base64 of a zstd frame that holds an Arrow IPC stream
of the table of names, sorted by id. Row groups have 131,072 rows, pages are zstd-compressed and carry
checksums. The bytes written depend only on the sequence of launches and on the names, never on how they
were cut into batches.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import functools
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from assay_sampling.errors import AssayError, InputError, LaunchTableError
from assay_sampling.launches.checks import check_names, check_schema
from assay_sampling.launches.table import NAMES_SCHEMA, LaunchBatch, Names

NAMES_KEY = b"assay.names"
ROW_GROUP_ROWS = 131_072
# Ordinals and times are all distinct: dictionaries of them cost twice the time and half the space again.
_DELTA_COLUMNS = ("launch", "report_id", "graph_launch", "graph_node", "start_ns", "duration_ns")
# Our footers unpack to less than this: a million names of 1,000 characters fit.
MAX_NAMES_BYTES = 2 << 30
_SMALL_NAMES_BYTES = 64 << 20
_MOST_UNPACKED_TIMES = 250
_FEW_NAMES = 4_000


def encoding_of(schema: pa.Schema) -> dict[str, Any]:
    """Options of pyarrow's ParquetWriter for a launch table."""
    return {
        "compression": "zstd",
        "use_dictionary": [name for name in schema.names if name not in _DELTA_COLUMNS],
        "column_encoding": {name: "DELTA_BINARY_PACKED" for name in _DELTA_COLUMNS if name in schema.names}
        or None,
    }


def _options_of(schema: pa.Schema) -> dict[str, Any]:
    """As :func:`encoding_of`, with what our files have besides."""
    return encoding_of(schema) | {"write_page_checksum": True, "store_schema": True}


def scratch_encoding_of(schema: pa.Schema) -> dict[str, Any]:
    """Options for a file that is read a few times and removed: a third of the time of :func:`encoding_of`,
    to write and to read, and two fifths more bytes with counters, of which no dictionaries are made."""
    dictionaries = [
        item.name
        for item in schema
        if item.name not in _DELTA_COLUMNS and not pa.types.is_floating(item.type)
    ]
    return _options_of(schema) | {"compression": "lz4", "use_dictionary": dictionaries}


class LaunchWriter:
    """Writes launches into a file that the caller opened, and makes durable and closes.

    Args:
        file: open for writing in binary.
        schema: a launch table's schema; every batch must have exactly this.
        subject: what errors call the file.
        options: of pyarrow's ParquetWriter, for the schema.

    Raises OSError where the disk refuses, LaunchTableError for a batch of another schema or with an id
    without a name. The file is complete only after the block of ``with`` ended without an error.
    """

    def __init__(
        self,
        file: IO[bytes],
        schema: pa.Schema,
        subject: str = "launches",
        options: Callable[[pa.Schema], dict[str, Any]] = _options_of,
    ) -> None:
        check_schema(schema)
        self._subject = subject
        self.launches = 0
        self._schema = schema
        self._names = Names()
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._writer = pq.ParquetWriter(file, schema, **options(schema))

    def __enter__(self) -> Self:
        return self

    def write(self, batch: LaunchBatch, *, named: bool = False) -> None:
        """Append launches with the names that they are the first to use.

        ``named``: the caller has checked the names, and that each id has one.
        """
        if not batch.records.schema.equals(self._schema, check_metadata=True):
            raise LaunchTableError(self._subject, "a batch has another schema than the file")
        if named:
            self._names.update_checked(batch.new_names)
        else:
            self._names.update(batch.new_names)
            check_names([batch.records], self._names)
        self._pending.append(batch.records)
        self._pending_rows += batch.records.num_rows
        self.launches += batch.records.num_rows
        while self._pending_rows >= ROW_GROUP_ROWS:
            self._write_group(ROW_GROUP_ROWS)

    def write_rest(self) -> None:
        """Complete the file with the launches that wait for a row group to fill: none may follow."""
        if self._writer.is_open:
            if self._pending_rows:
                self._write_group(self._pending_rows)
            self._writer.add_key_value_metadata({NAMES_KEY: pack_names(self._names)})
            self._writer.close()

    def _write_group(self, rows: int) -> None:
        table = pa.Table.from_batches(self._pending, schema=self._schema)
        # One chunk per column: page boundaries must not depend on how the rows arrived.
        group = table.slice(0, rows).combine_chunks()
        rest = table.slice(rows)
        self._pending, self._pending_rows = rest.to_batches(), rest.num_rows
        self._writer.write_table(group, row_group_size=rows)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.write_rest()
        finally:
            if self._writer.is_open:
                with contextlib.suppress(OSError, pa.ArrowException):  # what comes of it is not used
                    self._writer.close()


def pack_names(names: Names) -> bytes:
    """Names as the footer has them; equal names give equal bytes in any order."""
    # Runs of a workload have the same names: packing them takes as long as writing a small table.
    is_small = type(names) is Names and len(names) <= _FEW_NAMES
    return _packed_again(tuple(sorted(names.items()))) if is_small else _packed(names)


@functools.lru_cache(maxsize=8)
def _packed_again(names: tuple[tuple[int, str], ...]) -> bytes:
    return _packed(Names(dict(names)))


def _packed(names: Names) -> bytes:
    table = names.to_table().sort_by("id").combine_chunks()
    sink = pa.BufferOutputStream()
    with (
        pa.CompressedOutputStream(sink, "zstd") as compressed,
        pa.ipc.new_stream(compressed, NAMES_SCHEMA) as ipc,
    ):
        ipc.write_table(table)
    return base64.b64encode(sink.getvalue())


def unpack_names(packed: bytes, path: str | Path) -> Names:
    """Names back from :func:`pack_names`; raises InputError naming ``path`` where they are damaged."""
    try:
        compressed = base64.b64decode(packed, validate=True)
        with pa.CompressedInputStream(pa.BufferReader(compressed), "zstd") as stream:
            plain = _at_most(stream, max(_SMALL_NAMES_BYTES, _MOST_UNPACKED_TIMES * len(compressed)))
        if plain is None:
            raise InputError(path, "its table of names is unreasonably large", "write the file again")
        with pa.ipc.open_stream(plain) as ipc:
            table = ipc.read_all()
        table.validate(full=True)
        return Names.from_table(table)
    except AssayError as error:
        raise InputError(path, f"its table of names is damaged ({error.cause})", _WRITE_AGAIN) from error
    except (binascii.Error, pa.ArrowException, OSError, ValueError) as error:
        raise InputError(path, f"its table of names cannot be read ({error})", _WRITE_AGAIN) from error


def _at_most(stream: Any, most: int) -> bytes | None:
    """All of a stream; None where it is longer than ``most`` bytes."""
    parts, length = [], 0
    while part := stream.read(1 << 20):
        parts.append(part)
        length += len(part)
        if length > min(most, MAX_NAMES_BYTES):
            return None
    return b"".join(parts)


_WRITE_AGAIN = "copy the file again from where it was written, or write it again from its source"
