"""A Nsight Systems export as a database: opened read-only, checked, with its tables and columns.

Exports are lazy: a table or column without data is absent, so everything is looked up first. The file is
opened immutable: SQLite writes neither to it nor next to it.

Source: docs/reading-recordings.md, "Nsight Systems exports".
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import adbc_driver_manager
import adbc_driver_sqlite
import pyarrow as pa

from assay_sampling.errors import InputError
from assay_sampling.files.synthetic_mark import SYNTHETIC_MARK
from assay_sampling.launches.table import Device

MAGIC = b"SQLite format 3\0"
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
GRAPH_TRACE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
NVTX = "NVTX_EVENTS"
CUBLAS = "CUBLAS_EVENTS"
CUDNN = "CUDNN_EVENTS"
STRINGS = "StringIds"
# What the readers use of a kernel.
KERNEL_COLUMNS = (
    "start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "demangledName",
    "shortName", "registersPerThread", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ",
    "staticSharedMemory", "dynamicSharedMemory", "graphNodeId",
)  # fmt: skip
_FETCH = 65536
_BATCHES = {adbc_driver_sqlite.StatementOptions.BATCH_ROWS.value: str(_FETCH)}
_LONGEST_VALUE_BYTES = 16 << 20
_EXPORT_AGAIN = "export the report again: nsys export -t sqlite -f true REPORT"


class Database:
    """An open export. ``tables`` maps each table to its columns. Raises InputError for every failure.

    Args:
        path: the file as the user named it, for messages.
        plain: the file to open (a decompressed copy, or ``path`` itself).
    """

    def __init__(self, path: Path, plain: Path) -> None:
        self.path = path
        _check_size(path, plain)
        _check_companions(path, plain)
        self._address = f"file:{quote(str(plain.absolute()))}?mode=ro&immutable=1"
        with self.reading():
            self._connection = sqlite3.connect(
                self._address,
                uri=True,
                isolation_level=None,
                check_same_thread=False,
            )
        try:
            self.tables = self._tables()
        except BaseException:
            self._connection.close()
            raise

    def _tables(self) -> dict[str, tuple[str, ...]]:
        with self.reading():
            # A column may be computed: a few bytes can declare a text of any length.
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE_BYTES)
            for pragma in ("trusted_schema=OFF", "cell_size_check=ON"):
                self._connection.execute(f"PRAGMA {pragma}")
            names = [
                row[0]
                for row in self._connection.execute("SELECT name FROM sqlite_master WHERE type='table'")
            ]
            return {
                name: tuple(row[1] for row in self._connection.execute(f"PRAGMA table_info({quoted(name)})"))
                for name in names
            }

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn what SQLite reports into an InputError."""
        try:
            yield
        # Its message quotes bytes of the file, which Python may be unable to decode.
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise InputError(
                self.path, f"the SQLite file is damaged or cut off ({error})", _EXPORT_AGAIN
            ) from error

    def has(self, table: str, *columns: str) -> bool:
        return set(columns) <= set(self.tables.get(table, ())) if table in self.tables else False

    def rows(self, query: str, parameters: Sequence[Any] = ()) -> Iterator[list[tuple[Any, ...]]]:
        """The result of a query in lists of at most 65,536 rows."""
        with self.reading():
            cursor = self._connection.execute(query, parameters)
        while True:
            with self.reading():
                rows = cursor.fetchmany(_FETCH)
            if not rows:
                return
            yield rows

    def integer_batches(
        self, table: str, query: str, parameters: Sequence[Any] = ()
    ) -> Iterator[pa.RecordBatch]:
        """The result of a query on ``table`` in batches of at most 65,536 rows, all columns int64.

        Raises InputError where a value is not a whole number. Arrow's driver fetches them: Python's own makes
        a tuple a row, which takes three times the CPU.
        """
        # Not the driver's cursors, which import pandas.
        with (
            adbc_driver_sqlite.connect(self._address) as opened,
            adbc_driver_manager.AdbcConnection(opened) as connection,
            adbc_driver_manager.AdbcStatement(connection) as statement,
        ):
            try:
                statement.set_options(**_BATCHES)
                statement.set_sql_query(query)
                if parameters:
                    statement.bind(
                        pa.record_batch(
                            [[value] for value in parameters],
                            [str(place) for place in range(len(parameters))],
                        )
                    )
                stream, _ = statement.execute_query()
                for batch in pa.RecordBatchReader.from_stream(stream):
                    self._check_whole(table, batch)
                    yield batch
            # An OSError: a value whose type is not that of its column, or a damaged page.
            except (adbc_driver_manager.Error, OSError) as error:
                cause = f"a value is not a whole number, or a page is damaged ({error})"
                raise InputError(self.path, cause, _EXPORT_AGAIN, field=table) from error

    def _check_whole(self, table: str, batch: pa.RecordBatch) -> None:
        for field in batch.schema:
            if field.type != pa.int64():
                cause = f"a value of {field.name} is not a whole number"
                raise InputError(self.path, cause, _EXPORT_AGAIN, field=table)

    def first(self, query: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """The first row of a query, or None."""
        with self.reading():
            row: tuple[Any, ...] | None = self._connection.execute(query, parameters).fetchone()
        return row

    def texts(self, query: str, parameters: Sequence[Any] = ()) -> dict[int, str]:
        """The entries of StringIds whose ids ``query`` selects."""
        if not self.has(STRINGS, "id", "value"):
            return {}
        entries: dict[int, str] = {}
        for rows in self.rows(f"SELECT id, value FROM {STRINGS} WHERE id IN ({query})", parameters):
            entries.update((row[0], row[1]) for row in rows if isinstance(row[1], str))
        return entries

    def close(self) -> None:
        self._connection.close()


def quoted(name: str) -> str:
    """A table or column name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def _check_size(path: Path, plain: Path) -> None:
    """SQLite itself notices a cut only when it reaches a missing page, so sizes are compared first."""
    try:
        size = plain.stat().st_size
        with plain.open("rb") as file:
            header = file.read(100)
    except OSError as error:
        raise InputError(path, f"it cannot be read ({error})", "check that you may read it") from error
    if len(header) < 100:
        raise InputError(path, "the SQLite file is cut off within its header", _EXPORT_AGAIN)
    page_size = int.from_bytes(header[16:18], "big")
    page_size = 65536 if page_size == 1 else page_size
    # The page count is valid only where these two counters agree.
    pages = int.from_bytes(header[28:32], "big") if header[24:28] == header[92:96] else 1
    if size < page_size * pages:
        raise InputError(
            path,
            f"the SQLite file is cut off: it has {size:,} of {page_size * pages:,} bytes",
            "copy it again from where it was exported, or export the report again",
        )


def _check_companions(path: Path, plain: Path) -> None:
    for suffix in ("-wal", "-journal"):
        companion = plain.with_name(plain.name + suffix)
        try:
            unfinished = companion.stat().st_size > 0
        except OSError:
            continue
        if unfinished:
            raise InputError(
                path,
                f"a write to it was not finished: {companion.name} is next to it",
                "close the program that writes to it, or export the report again",
            )


def tool_version(database: Database) -> str:
    """The version of Nsight Systems that exported the file, "" if the file does not say."""
    value = _export_fact(database, "EXPORT_PRODUCT_VERSION")
    return value[0] if value and isinstance(value[0], str) else ""


def has_synthetic_mark(database: Database) -> bool:
    """Whether the file says that no silicon produced its data."""
    return _export_fact(database, SYNTHETIC_MARK) is not None


def _export_fact(database: Database, name: str) -> tuple[Any, ...] | None:
    """The row of a fact in the metadata table, whose name changed with schema 3; None if absent."""
    for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
        if database.has(table, "name", "value"):
            row = database.first(f"SELECT value FROM {table} WHERE name = ?", (name,))
            if row is not None:
                return row
    return None


_GPU_COLUMNS = ("id", "cuDevice", "name", "uuid", "smCount", "computeMajor", "computeMinor")


def devices(database: Database) -> tuple[Device, ...]:
    """The GPUs by CUDA ordinal, which is what kernels refer to.

    The ordinal comes from TARGET_INFO_CUDA_DEVICE if the export has it, else from ``cuDevice`` of
    TARGET_INFO_GPU. GPUs that CUDA does not see are in that table with ordinal 0 and no properties:
    where several claim an ordinal, the one with most SMs gets it, and 0 SMs means "not known".
    """
    table = "TARGET_INFO_GPU"
    if not database.has(table, "id"):
        return ()
    present = [c if c in database.tables[table] else "NULL" for c in _GPU_COLUMNS]
    gpus = [
        row for rows in database.rows(f"SELECT {', '.join(present)} FROM {table} ORDER BY id") for row in rows
    ]
    ordinals = _cuda_ordinals(database)
    claims: dict[int, list[tuple[Any, ...]]] = {}
    for gpu in gpus:
        for ordinal in ordinals.get(
            gpu[0], [gpu[1] if gpu[1] is not None else gpu[0]] if not ordinals else []
        ):
            if isinstance(ordinal, int) and 0 <= ordinal < 2**31:
                claims.setdefault(ordinal, []).append(gpu)
    return tuple(_device(index, claims[index]) for index in sorted(claims))


def _cuda_ordinals(database: Database) -> dict[int, list[int]]:
    """CUDA ordinals by GPU id, from the table that newer exports have for it."""
    table = "TARGET_INFO_CUDA_DEVICE"
    ordinals: dict[int, list[int]] = {}
    if database.has(table, "gpuId", "cudaId"):
        for rows in database.rows(f"SELECT DISTINCT gpuId, cudaId FROM {table}"):
            for gpu, ordinal in rows:
                ordinals.setdefault(gpu, []).append(ordinal)
    return ordinals


def _device(index: int, claims: list[tuple[Any, ...]]) -> Device:
    _, _, name, uuid, sm_count, major, minor = max(claims, key=lambda gpu: gpu[4] if _count(gpu[4]) else 0)
    return Device(
        index=index,
        name=name if isinstance(name, str) else "",
        uuid=uuid if isinstance(uuid, str) else "",
        compute_capability=f"{major}.{minor}" if _count(major) and isinstance(minor, int) else "",
        sm_count=sm_count if _count(sm_count) else None,
    )


def _count(value: object) -> bool:
    return isinstance(value, int) and value > 0
