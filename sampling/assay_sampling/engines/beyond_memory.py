"""The engine for rows that do not fit into memory: DuckDB, which spills to a bounded scratch folder.

Each question gets a database of its own, in memory, that can read the files of the question and its
scratch folder and nothing else: no network, no extension loaded or fetched, and a configuration that no
statement can change.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import pyarrow as pa

from assay_sampling.engines.in_memory import require_integers, sum_too_large, too_many_groups
from assay_sampling.engines.pages import give_back_pages
from assay_sampling.engines.row_numbers import RowNumbers
from assay_sampling.engines.seam import BATCH_ROWS, ArrayRows, FileRows, Groups, Rows
from assay_sampling.errors import MissingExtraError, RefusedError, StorageError

_ROW = "assay row number"
_GLOB = set("*?[]{}")
# Below this the engine cannot even begin.
LEAST_MEMORY_BYTES = 64 << 20


def is_installed() -> bool:
    """Whether the extra ``engine`` is there."""
    return importlib.util.find_spec("duckdb") is not None


@dataclass(frozen=True)
class DuckEngine:
    """Groups and sorts within ``memory_bytes``, spilling at most ``spill_bytes`` into ``folder``.

    ``folder`` is private and exists; whatever is put there is removed after each question.
    """

    folder: Path
    memory_bytes: int
    spill_bytes: int
    threads: int = 1

    def groups(
        self, rows: Rows, keys: Sequence[str], sums: Sequence[str] = (), *, most: int | None = None
    ) -> Groups:
        """See :class:`assay_sampling.engines.seam.Engine`."""
        kinds = _schema(rows)
        for name in sums:
            require_integers(name, kinds.field(name).type)
        by = [f"{_key(name, kinds)} AS {_quoted(name)}" for name in keys]
        # Unsigned sums too are given as int64, or refused.
        totals = [
            f"CAST(coalesce(sum({_quoted(name)}), 0) AS BIGINT) AS {_quoted(f'sum {place}')}"
            for place, name in enumerate(sums)
        ]
        numbers = _numbers(rows)
        with self._source(rows, [*keys, *sums], numbers) as (database, source):
            question = (
                f"SELECT {', '.join(by)}, min({_quoted(_ROW)}) AS first_row, "
                f"count(*) AS launches{''.join(f', {total}' for total in totals)} FROM {source} "
                f"GROUP BY {', '.join(str(1 + place) for place in range(len(keys)))}"
            )
            table = self._answer(database, question, sums, most)
        if most is not None and len(table) > most:
            raise too_many_groups(keys, most)
        first_row = numbers.rows(table["first_row"].to_numpy())
        order = np.argsort(first_row)
        table = pa.table({name: table[name].combine_chunks().take(order) for name in table.column_names})
        return Groups(
            keys=table.select(range(len(keys))).cast(pa.schema([kinds.field(name) for name in keys])),
            first_row=first_row[order],
            count=table["launches"].to_numpy(),
            sums={name: table[f"sum {place}"].to_numpy() for place, name in enumerate(sums)},
        )

    def sorted(self, rows: Rows, by: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See :class:`assay_sampling.engines.seam.Engine`."""
        kinds = _schema(rows)
        order = [f"{_key(name, kinds)} ASC NULLS LAST" for name in by]
        with self._source(rows, kinds.names, _numbers(rows)) as (database, source), self._faults():
            columns = ", ".join(_quoted(name) for name in kinds.names)
            question = f"SELECT {columns} FROM {source} ORDER BY {', '.join(order)}, {_quoted(_ROW)}"
            for batch in database.sql(question).to_arrow_reader(BATCH_ROWS):
                yield batch.cast(kinds) if batch.schema != kinds else batch

    def _answer(self, database: Any, question: str, sums: Sequence[str], most: int | None) -> pa.Table:
        import duckdb  # noqa: PLC0415 - 0.1 s that most programs do not need

        try:
            with self._faults(), database.sql(question).to_arrow_reader(BATCH_ROWS) as reader:
                return _up_to(reader, most)
        except (duckdb.ConversionException, duckdb.OutOfRangeException) as error:
            raise sum_too_large(" or ".join(sums)) from error

    @contextmanager
    def _source(self, rows: Rows, columns: Sequence[str], numbers: RowNumbers) -> Iterator[tuple[Any, str]]:
        """A database that holds the rows under the given name, with their numbers."""
        files = rows.paths if _is_read_by_duckdb(rows) else ()
        with self._database(files) as database:
            if files:
                yield database, _in_files(files, columns, numbers)
            else:
                numbered = _numbered(rows, columns, numbers)
                database.register("launches", numbered)
                yield database, "launches"

    @contextmanager
    def _database(self, files: Sequence[Path]) -> Iterator[Any]:
        try:
            import duckdb  # noqa: PLC0415
        except ImportError as missing:
            raise MissingExtraError("analysis beyond memory", "duckdb", "engine") from missing
        with tempfile.TemporaryDirectory(dir=self.folder, prefix="spill-") as spill:
            database = duckdb.connect(
                ":memory:",
                config={
                    "memory_limit": f"{max(self.memory_bytes, LEAST_MEMORY_BYTES)}B",
                    "threads": self.threads,
                    "autoinstall_known_extensions": "false",
                    "autoload_known_extensions": "false",
                    "preserve_insertion_order": "false",
                },
            )
            try:
                database.sql(f"SET temp_directory = {_text(spill)}")
                # Given when the database is opened, DuckDB shows this bound and does not keep to it.
                database.sql(f"SET max_temp_directory_size = '{self.spill_bytes}B'")
                if files:
                    database.sql(f"SET allowed_paths = [{', '.join(_text(str(path)) for path in files)}]")
                database.sql("SET enable_external_access = false")
                database.sql("SET lock_configuration = true")
                yield database
            finally:
                database.close()

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Turn DuckDB's refusals into ours: out of memory, out of scratch space, a damaged file."""
        import duckdb  # noqa: PLC0415

        try:
            yield
        except duckdb.OutOfMemoryException as error:
            raise RefusedError(
                "launches",
                f"grouping or sorting them takes more than {self.memory_bytes:,} bytes of memory and "
                f"{self.spill_bytes:,} of scratch space",
                "raise --memory-limit, or free space where the scratch folder is (TMPDIR)",
            ) from error
        except duckdb.IOException as error:
            cause = str(error).splitlines()[0]
            raise StorageError("scratch folder", cause, "free space there, or set TMPDIR") from error


def _up_to(reader: pa.RecordBatchReader, most: int | None) -> pa.Table:
    """An answer, or as much of it as shows that it has more than ``most`` rows."""
    batches, rows = [], 0
    for batch in reader:
        batches.append(batch)
        rows += batch.num_rows
        if most is not None and rows > most:
            break
    return pa.Table.from_batches(batches, schema=reader.schema)


def _schema(rows: Rows) -> pa.Schema:
    if isinstance(rows, FileRows):
        import pyarrow.parquet as pq  # noqa: PLC0415 - programs that only move launches do without

        whole = pq.read_schema(rows.paths[0])
        return pa.schema([whole.field(name).remove_metadata() for name in rows.columns])
    return pa.schema([(name, _column(values).type) for name, values in rows.columns.items()])


def _column(values: object) -> pa.ChunkedArray | pa.Array:
    return values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(np.asarray(values))


def _numbers(rows: Rows) -> RowNumbers:
    if isinstance(rows, ArrayRows):
        return RowNumbers((len(next(iter(rows.columns.values()), ())),))
    import pyarrow.parquet as pq  # noqa: PLC0415

    lengths = tuple(pq.read_metadata(path).num_rows for path in rows.paths)
    return RowNumbers(lengths if _is_read_by_duckdb(rows) else (sum(lengths),))


def _numbered(rows: Rows, columns: Sequence[str], numbers: RowNumbers) -> pa.RecordBatchReader:
    kinds = _schema(rows)
    schema = pa.schema([kinds.field(name) for name in columns]).append(pa.field(_ROW, numbers.kind))
    return pa.RecordBatchReader.from_batches(schema, _numbered_batches(rows, schema))


def _numbered_batches(rows: Rows, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    first = 0
    for batch in _batches(rows, schema.names[:-1]):
        numbers = pa.array(np.arange(first, first + batch.num_rows), schema.types[-1])
        first += batch.num_rows
        yield pa.RecordBatch.from_arrays([*batch.columns, numbers], schema=schema)


def _batches(rows: Rows, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    if isinstance(rows, FileRows):
        import pyarrow.parquet as pq  # noqa: PLC0415

        for path in rows.paths:
            with pq.ParquetFile(path, pre_buffer=False) as file:
                for batch in file.iter_batches(BATCH_ROWS, columns=list(columns), use_threads=False):
                    yield batch.select(list(columns))
        return
    whole = {name: _column(rows.columns[name]) for name in columns}
    for batch in pa.table(whole).to_batches(max_chunksize=BATCH_ROWS):
        yield batch
        give_back_pages(*rows.columns.values())


def _in_files(files: Sequence[Path], columns: Sequence[str], numbers: RowNumbers) -> str:
    """The rows of the files as a part of a question, with their numbers over all files."""
    names = ", ".join(_quoted(name) for name in dict.fromkeys(columns))
    listed = ", ".join(_text(str(path)) for path in files)
    return f"(SELECT {names}, {numbers.in_files()} AS {_quoted(_ROW)} FROM read_parquet([{listed}]))"


def _is_read_by_duckdb(rows: Rows) -> TypeGuard[FileRows]:
    """Whether DuckDB reads these files itself: not where it would take a path for a pattern of several."""
    return isinstance(rows, FileRows) and not any(_GLOB & set(str(path)) for path in rows.paths)


def _key(name: str, kinds: pa.Schema) -> str:
    column = _quoted(name)
    if not pa.types.is_floating(kinds.field(name).type):
        return column
    # One zero and one NaN, whatever their signs and payloads.
    return f"CASE WHEN isnan({column}) THEN 'nan' WHEN {column} = 0 THEN 0 ELSE {column} END"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
