"""Files about each launch block by block: basic-block vectors, and sizes of thread blocks.

A table in CSV (plain, ``.gz`` or ``.zst``, with a header) or Parquet, one row for each launch and block, in
any order: ``launch`` (and ``process`` before it, 0 without such a column), ``block``, and numbers.
Other columns are ignored. ``docs/bbv-format.md`` describes the two formats.

Source: docs/bbv-format.md (the artifact of STEM+ROOT records such files for Photon).
Memory: at most 150 bytes a row of the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from assay_sampling.errors import InputError
from assay_sampling.files.reading import PlainFile, open_binary, reading, require_file
from assay_sampling.launches.in_memory import Launches

_PARQUET_MAGIC = b"PAR1"
_REMEDY = "'assay docs bbv-format' has the format"
# Above this a float64 no longer holds every whole number.
_LARGEST = 2**53
# A gigabyte in memory; above it, repeated vectors shrink to a few bits a row, but never to zero.
_MOST_ROWS = 7_000_000
_MOST_ROWS_A_BYTE = 20


@dataclass(frozen=True)
class BasicBlockVectors:
    """Basic-block vectors of n launches, in the order of the profile, zeros left out.

    The entries of launch i are ``offsets[i]:offsets[i + 1]`` of ``block`` (index within the kernel,
    ascending) and ``count`` (how often warps executed it), int64 of shape (e,). ``warps`` has shape (n,).
    """

    offsets: np.ndarray
    block: np.ndarray
    count: np.ndarray
    warps: np.ndarray


def read_basic_block_vectors(path: Path, launches: Launches) -> BasicBlockVectors:
    """Read ``launch, block, count, warps`` for every launch of a profile.

    Raises InputError, naming file and field, for a file that cannot be read, lacks a column, holds something
    other than a whole number of at least 0, has one block of a launch twice or two numbers of warps for a
    launch, has a launch that the profile lacks, or lacks one of the profile.
    """
    rows = _read_rows(path, launches, ("count", "warps"))
    count, warps = rows.values
    # Sorted by launch: a launch with two numbers of warps has them in neighbouring rows somewhere.
    differs = (np.diff(warps) != 0) & (np.diff(rows.row) == 0)
    if differs.any():
        where = _launch_name(launches, int(rows.row[np.argmax(differs)]))
        raise InputError(path, f"{where} has two numbers of warps", _REMEDY, field="warps")
    first = np.searchsorted(rows.row, np.arange(len(launches)))
    executed = count > 0
    entries = np.bincount(rows.row[executed], minlength=len(launches))
    return BasicBlockVectors(
        np.concatenate([[0], np.cumsum(entries)]), rows.block[executed], count[executed], warps[first]
    )


def read_block_size_variation(path: Path, launches: Launches) -> np.ndarray:
    """Coefficient of variation of the thread instructions of each launch's thread blocks, shape (n,).

    Reads ``launch, block, thread_instructions``; population deviation, 0 for a launch without instructions.
    Raises InputError as :func:`read_basic_block_vectors`.
    """
    rows = _read_rows(path, launches, ("thread_instructions",))
    size = rows.values[0].astype(np.float64)
    blocks = np.bincount(rows.row, minlength=len(launches))
    mean = np.bincount(rows.row, weights=size, minlength=len(launches)) / blocks
    squares = np.bincount(rows.row, weights=np.square(size - mean[rows.row]), minlength=len(launches))
    return np.divide(np.sqrt(squares / blocks), mean, out=np.zeros_like(mean), where=mean > 0)


@dataclass(frozen=True)
class _Rows:
    """Rows of a file sorted by launch and block: row in the profile, block, and the asked-for columns."""

    row: np.ndarray
    block: np.ndarray
    values: tuple[np.ndarray, ...]


def _read_rows(path: Path, launches: Launches, names: Sequence[str]) -> _Rows:
    table = _table(path, ("process", "launch", "block", *names))
    if table.num_rows == 0:
        raise InputError(path, "it has no rows", _REMEDY)
    process = _integers(path, table, "process") if "process" in table.schema.names else None
    launch = _integers(path, table, "launch")
    block = _integers(path, table, "block")
    values = [_integers(path, table, name) for name in names]
    row = _rows_of(path, launches, np.zeros(len(launch), np.int64) if process is None else process, launch)
    order = np.lexsort((block, row))
    row, block = row[order], block[order]
    twice = (np.diff(row) == 0) & (np.diff(block) == 0)
    if twice.any():
        at = int(np.argmax(twice))
        where = _launch_name(launches, int(row[at]))
        raise InputError(path, f"block {block[at]} of {where} appears twice", _REMEDY, field="block")
    named = np.bincount(row, minlength=len(launches)) > 0
    if not named.all():
        missing = np.flatnonzero(~named)
        raise InputError(
            path,
            f"it lacks {len(missing):,} of the {len(launches):,} launches of the profile, first "
            f"{_launch_name(launches, int(missing[0]))}",
            "record every launch of the workload, or give the profile of the recorded launches",
            field="launch",
        )
    return _Rows(row, block, tuple(column[order] for column in values))


def _table(path: Path, names: Sequence[str]) -> pa.Table:
    """The table; of a Parquet file, only the columns with these names."""
    require_file(path)
    try:
        with reading(path):
            with path.open("rb") as raw:
                is_parquet = raw.read(len(_PARQUET_MAGIC)) == _PARQUET_MAGIC
            if is_parquet:
                return _parquet_table(path, names)
            with closing(PlainFile(path)) as plain, open_binary(plain.path) as file:
                return _named(csv.read_csv(file))
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise InputError(path, f"it is neither CSV nor Parquet ({error})", _REMEDY) from error


def _parquet_table(path: Path, names: Sequence[str]) -> pa.Table:
    """Raises InputError if it announces far more rows than a file of its size holds."""
    with parquet.ParquetFile(path) as file:
        rows, has = file.metadata.num_rows, file.schema_arrow.names
        most = max(_MOST_ROWS, _MOST_ROWS_A_BYTE * path.stat().st_size)
        if rows > most:
            raise InputError(
                path,
                f"it announces {rows:,} rows, and a file of its size has at most {most:,}",
                "if that is right, write the table as CSV",
            )
        column_names = [name for name in names if has.count(name) == 1]
        if set(names) - {"process"} - set(column_names):
            column_names = has  # the error lists all names that the file has
        return _named(file.read(columns=column_names, use_threads=False))


def _named(table: pa.Table) -> pa.Table:
    """The table; raises UnicodeDecodeError if the name of a column is not text."""
    return table.rename_columns(table.schema.names)


def _integers(path: Path, table: pa.Table, name: str) -> np.ndarray:
    """A column of whole numbers from 0 to 2^53, int64."""
    if table.schema.names.count(name) != 1:
        has = ", ".join(table.schema.names[:20])
        raise InputError(path, f"it has no column {name!r}, only {has}", _REMEDY, field=name)
    column = table[name]
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise InputError(path, f"the column holds {column.type}, not numbers", _REMEDY, field=name)
    values = column.to_numpy()
    # NaN compares false.
    with np.errstate(invalid="ignore"):
        right = (values >= 0) & (values <= _LARGEST) & (values == np.floor(values))
    if column.null_count or not right.all():
        row = int(np.argmin(right))
        value = column[row].as_py()
        raise InputError(
            path,
            f"{'nothing' if value is None else value} in row {row + 1:,} is not a whole number in 0..2^53",
            _REMEDY,
            field=name,
        )
    return np.asarray(values).astype(np.int64)


def _rows_of(path: Path, launches: Launches, process: np.ndarray, launch: np.ndarray) -> np.ndarray:
    """The row in the profile of each (process, launch), shape (r,)."""
    ours = launches.column("process").astype(np.int64), launches.column("launch")
    processes = np.unique(ours[0])
    at = np.minimum(np.searchsorted(processes, process), max(len(processes) - 1, 0))
    # Few processes with launches far below 2^40 each: both fit into one integer.
    span = int(max(ours[1].max(initial=0), launch.max(initial=0))) + 1
    keys = np.searchsorted(processes, ours[0]) * span + ours[1]
    file_keys = at * span + launch
    row: np.ndarray = np.minimum(np.searchsorted(keys, file_keys), len(keys) - 1)
    matches = (processes[at] == process) & (keys[row] == file_keys)
    if not matches.all():
        first = int(np.argmin(matches))
        raise InputError(
            path,
            f"row {first + 1:,} is of launch {launch[first]} of process {process[first]}, "
            "which the profile does not have",
            "give the file recorded with this profile; both count launches from 0",
            field="launch",
        )
    return row


def _launch_name(launches: Launches, row: int) -> str:
    process, launch = launches.table["process"][row].as_py(), launches.table["launch"][row].as_py()
    return f"launch {launch} of process {process}"
