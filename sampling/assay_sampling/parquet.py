"""Our own files: a launch table as Parquet, self-contained with its names.

The names stand in the footer under ``assay.names``: base64 of a zstd frame that holds an Arrow IPC stream
of the table of names, sorted by id. Row groups have 131,072 rows, pages are zstd-compressed and carry
checksums. The bytes written depend only on the sequence of launches and on the names, never on how they
were cut into batches.

Source: design, "The launch table" and "On the wire".
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from assay_sampling.errors import AssayError, InputError, LaunchTableError, StorageError
from assay_sampling.launch_table import NAMES_SCHEMA, LaunchBatch, Names, check_names, check_schema
from assay_sampling.private_folders import private_opener

NAMES_KEY = b"assay.names"
ROW_GROUP_ROWS = 131_072
# Ordinals and times are all distinct: dictionaries of them cost twice the time and half the space again.
_DELTA_COLUMNS = ("launch", "report_id", "graph_launch", "graph_node", "start_ns", "duration_ns")
# A footer that unpacks to more than this is not ours: a million names of 1,000 characters fit.
MAX_NAMES_BYTES = 2 << 30
_SMALL_NAMES_BYTES = 64 << 20
_MOST_UNPACKED_TIMES = 250


def encoding_of(schema: pa.Schema) -> dict[str, Any]:
    """How a launch table is written: options of pyarrow's ParquetWriter."""
    return {
        "compression": "zstd",
        "use_dictionary": [name for name in schema.names if name not in _DELTA_COLUMNS],
        "column_encoding": dict.fromkeys(_DELTA_COLUMNS, "DELTA_BINARY_PACKED"),
    }


class LaunchWriter:
    """Writes one file of launches, which appears under its name only when it is whole and durable.

    Args:
        path: the file to write; it is replaced if it is there.
        schema: a launch table's schema; every batch must have exactly this.
        private: give the file mode 0600, whatever the umask.

    Raises StorageError where the disk refuses, LaunchTableError for a batch of another schema or with
    an id that no name was given for. On any error nothing is left behind.
    """

    def __init__(self, path: str | Path, schema: pa.Schema, *, private: bool = False) -> None:
        check_schema(schema)
        self._opener = private_opener if private else None
        self.path = Path(path)
        self.launches = 0
        self._schema = schema
        self._names = Names()
        self._held: list[pa.RecordBatch] = []
        self._held_rows = 0
        self._temporary = self.path.with_name(f"{self.path.name}.tmp-{os.getpid()}")
        self._file: IO[bytes] | None = None
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> Self:
        try:
            self._file = open(self._temporary, "wb", opener=self._opener)
            self._writer = pq.ParquetWriter(
                self._file,
                self._schema,
                **encoding_of(self._schema),
                write_page_checksum=True,
                store_schema=True,
            )
        except OSError as error:
            self._discard()
            raise self._refused(error) from error
        return self

    def write(self, batch: LaunchBatch) -> None:
        """Append launches with the names that they are the first to use."""
        if not batch.records.schema.equals(self._schema, check_metadata=True):
            raise LaunchTableError(str(self.path), "a batch has another schema than the file")
        self._names.update(batch.new_names)
        check_names([batch.records], self._names)
        self._held.append(batch.records)
        self._held_rows += batch.records.num_rows
        self.launches += batch.records.num_rows
        while self._held_rows >= ROW_GROUP_ROWS:
            self._write_group(ROW_GROUP_ROWS)

    def _write_group(self, rows: int) -> None:
        assert self._writer is not None, "use the writer as a context manager"
        table = pa.Table.from_batches(self._held, schema=self._schema)
        # One chunk a column: page boundaries must not depend on how the rows came in.
        group = table.slice(0, rows).combine_chunks()
        rest = table.slice(rows)
        self._held, self._held_rows = rest.to_batches(), rest.num_rows
        try:
            self._writer.write_table(group, row_group_size=ROW_GROUP_ROWS)
        except OSError as error:
            raise self._refused(error) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._discard()
            return
        try:
            self._finish()
        except OSError as refused:
            self._discard()
            raise self._refused(refused) from refused
        except BaseException:
            self._discard()
            raise

    def _finish(self) -> None:
        assert self._writer is not None and self._file is not None
        if self._held_rows:
            self._write_group(self._held_rows)
        self._writer.add_key_value_metadata({NAMES_KEY: pack_names(self._names)})
        self._writer.close()
        self._writer = None
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._file = None
        self._temporary.replace(self.path)
        sync_directory(self.path.parent)

    def _discard(self) -> None:
        """Close and remove the temporary file, whatever state it is in."""
        if self._writer is not None:
            # Closing writes a footer, which a full disk refuses; the file goes away all the same.
            with contextlib.suppress(OSError, pa.ArrowException):
                self._writer.close()
            self._writer = None
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None
        with contextlib.suppress(OSError):
            self._temporary.unlink(missing_ok=True)

    def _refused(self, error: OSError) -> StorageError:
        return StorageError(
            str(self.path),
            f"it cannot be written ({error.strerror or error})",
            "free space or permit writing there, and try again; nothing half-written was left",
        )


def sync_directory(directory: Path) -> None:
    """Make a rename in ``directory`` survive a power cut; raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def pack_names(names: Names) -> bytes:
    """Names as they stand in the footer; the same names give the same bytes in whatever order they came."""
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
