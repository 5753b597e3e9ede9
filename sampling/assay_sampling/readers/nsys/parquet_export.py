"""Reader of Nsight Systems' Parquet export: a folder with one file a table (``nsys export -t parquetdir``).

Copies the tables that matter, batch by batch and only their known columns, into a temporary SQLite file and
reads it like a SQLite export, so that one module orders launches and finds ranges. The copy takes about 200
bytes a launch in the temporary folder.

Source: docs/reading-recordings.md, "Nsight Systems exports"; an export of version 2023.4.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from assay_sampling.errors import InputError, StorageError
from assay_sampling.readers.base import ReadOptions, check_offset
from assay_sampling.readers.nsys.database import (
    CUBLAS,
    CUDNN,
    GRAPH_TRACE,
    KERNEL,
    KERNEL_COLUMNS,
    NVTX,
    RUNTIME,
    STRINGS,
    quoted,
)
from assay_sampling.readers.nsys.sqlite_export import NsysRecording

FORMAT = "nsys-parquet"
_SUFFIX = ".parquet"
_ROWS = 65536
_EXPORT_AGAIN = "export the report again: nsys export -t parquetdir -f true REPORT"
# Columns that the reader of SQLite exports asks for; None: all of a small table.
_COLUMNS: dict[str, tuple[str, ...] | None] = {
    KERNEL: KERNEL_COLUMNS,
    RUNTIME: ("start", "end", "globalTid", "correlationId", "nameId", "returnValue"),
    NVTX: ("start", "end", "eventType", "text", "textId", "globalTid"),
    CUBLAS: ("start", "end", "globalTid", "nameId"),
    CUDNN: ("start", "end", "globalTid", "nameId"),
    STRINGS: ("id", "value"),
    GRAPH_TRACE: ("start",),
    "META_DATA_EXPORT": None,
    "EXPORT_META_DATA": None,
    "TARGET_INFO_GPU": None,
    "TARGET_INFO_CUDA_DEVICE": None,
    "DIAGNOSTIC_EVENT": None,
}  # fmt: skip


class NsysParquetReader:
    """Recognises a folder by the files of Nsight Systems' tables in it."""

    format = FORMAT

    def recognises(self, path: Path, head: bytes) -> bool:
        return path.is_dir() and any((path / f"{name}{_SUFFIX}").is_file() for name in (STRINGS, KERNEL))

    def open(self, path: Path, options: ReadOptions) -> NsysParquetRecording:
        check_offset(path, options)
        return NsysParquetRecording(path, options)


class NsysParquetRecording(NsysRecording):
    """A Parquet export; see the module."""

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="assay-", ignore_cleanup_errors=True)
        copy = Path(self._directory.name) / "tables.sqlite"
        try:
            _copy_tables(path, copy)
            super().__init__(path, options, plain=copy, format_=FORMAT)
        except BaseException:
            self._directory.cleanup()
            raise

    def close(self) -> None:
        super().close()
        self._directory.cleanup()


def _copy_tables(folder: Path, target: Path) -> None:
    """Copy what is needed of each table; raises InputError naming the file that is damaged."""
    with _writing(folder), closing(sqlite3.connect(target)) as database:
        # Nobody needs the copy after a crash.
        database.execute("PRAGMA journal_mode=OFF")
        database.execute("PRAGMA synchronous=OFF")
        for table, columns in _COLUMNS.items():
            path = folder / f"{table}{_SUFFIX}"
            if path.is_file():
                _copy_table(path, table, columns, database)
        database.commit()


def _copy_table(
    path: Path, table: str, columns: tuple[str, ...] | None, database: sqlite3.Connection
) -> None:
    with _reading(path):
        file = pq.ParquetFile(path, pre_buffer=False)  # with it, Arrow keeps all that was read
    with file:
        with _reading(path):
            present = [name for name in file.schema_arrow.names if columns is None or name in columns]
        if not present:
            return
        listed = ", ".join(quoted(name) for name in present)
        database.execute(f"CREATE TABLE {table} ({listed})")
        insert = f"INSERT INTO {table} VALUES ({', '.join('?' * len(present))})"
        batches = file.iter_batches(batch_size=_ROWS, columns=present, use_threads=False)
        while True:
            with _reading(path):
                batch = next(batches, None)
                if batch is None:
                    break
                rows = zip(*(_plain(batch.column(name)) for name in present), strict=True)
            database.executemany(insert, rows)


def _plain(column: pa.Array) -> list[Any]:
    """Values as SQLite holds them: unsigned numbers become signed 64-bit ones with the same bits."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        # The tool stores what it found in memory; not every text of a process is UTF-8.
        texts = pc.cast(column, pa.large_binary()).to_pylist()
        return [None if text is None else text.decode(errors="replace") for text in texts]
    if pa.types.is_uint64(kind):
        column = column.view(pa.int64())
    elif pa.types.is_boolean(kind) or pa.types.is_temporal(kind):
        column = pc.cast(column, pa.int64())
    return list(column.to_pylist())


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        cause = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
        raise InputError(path, f"the Parquet file is cut off or damaged ({cause})", _EXPORT_AGAIN) from error


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StorageError(
            str(folder),
            f"its tables could not be put together in {tempfile.gettempdir()} ({error})",
            "free space there, or point TMPDIR elsewhere",
        ) from error
