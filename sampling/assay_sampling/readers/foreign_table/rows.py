"""The rows of a CSV, JSON or Parquet file as text cells, with where each is in the file.

Every cell is text, "" where there is none: a number is parsed where the mapping says that it is one. JSON is
flattened: ``{"a": {"b": 1}}`` has the column ``a.b``, a list of objects with a name and a value a column for
each name, and what stands around the list of records belongs to every record.

Memory: the file, and its cells. Files above MOST_BYTES are refused.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from assay_sampling.errors import InputError
from assay_sampling.files.reading import PlainFile, read_blocks, read_head, require_file

MOST_BYTES = 2 << 30
_BLOCK_BYTES = 8 << 20
_PARQUET = b"PAR1"
_EXPORT = "write the file again from where it came"


@dataclass(frozen=True)
class ForeignRows:
    """Text cells of n rows by column, each of shape (n,); ``names`` are all columns of the file.

    ``line_of`` gives the 1-based line of a row, or None in files without lines.
    """

    path: Path
    names: tuple[str, ...]
    cells: Mapping[str, pa.Array]
    rows: int
    line_of: Callable[[int], int | None]

    def error(self, row: int, column: str, cause: str, remedy: str) -> InputError:
        """The error of a cell."""
        line = self.line_of(row)
        where = "" if line is not None else f"row {row:,} (counted from 0): "
        return InputError(self.path, where + cause, remedy, line=line, field=column)


ColumnChoice = Callable[[Sequence[str]], Sequence[str]]


def read_rows(
    path: Path, choose_columns: ColumnChoice, *, records: str = "", separator: str = ","
) -> ForeignRows:
    """Read a table.

    Args:
        path: a file of comma-separated values, JSON lines, JSON or Parquet, plain or compressed.
        choose_columns: given all names of columns, those to read; raises InputError for one that is
            not there.
        records: of JSON, the keys that lead to the list of records, joined by dots.
        separator: of comma-separated values.

    Raises InputError for a file that cannot be read, has no rows, or a row that is malformed.
    """
    require_file(path, "name a table with a row for each launch")
    head = read_head(path)
    if head.startswith(_PARQUET):
        return _parquet(path, choose_columns)
    text = _text(path)
    start = text.lstrip()[:1]
    if records or start in ("{", "["):
        return _json(path, text, records, choose_columns)
    return _csv(path, text, separator, choose_columns)


def _text(path: Path) -> str:
    parts, size = [], 0
    for block in read_blocks(path, _BLOCK_BYTES):
        parts.append(block)
        size += len(block)
        if size > MOST_BYTES:
            raise InputError(path, f"it holds more than {MOST_BYTES:,} bytes", "split it, or write Parquet")
    try:
        text = b"".join(parts).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            path, f"it is not text in UTF-8 ({error.reason} at byte {error.start})", "save it as UTF-8"
        ) from error
    if not text.strip():
        raise InputError(path, "it is empty", _EXPORT)
    return text


# ---- comma-separated values


def _csv(path: Path, text: str, separator: str, choose_columns: ColumnChoice) -> ForeignRows:
    try:
        names = next(csv.reader(io.StringIO(text, newline=""), delimiter=separator), [])
    except csv.Error as error:
        raise InputError(path, f"its header is not one of a table ({error})", _EXPORT, line=1) from error
    data = text.encode()
    chosen = _chosen(path, names, choose_columns)
    bad: list[tuple[int, int]] = []

    def refuse(row: pyarrow.csv.InvalidRow) -> str:
        bad.append((row.number or 0, row.actual_columns))
        return "error"

    positions = [str(index) for index in range(len(names))]
    read = [str(names.index(name)) for name in chosen] or positions[:1]
    try:
        table = pyarrow.csv.read_csv(
            pa.py_buffer(data),
            read_options=pyarrow.csv.ReadOptions(
                use_threads=False, column_names=positions, skip_rows=1, block_size=len(data) + 1
            ),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=separator, newlines_in_values=True, invalid_row_handler=refuse
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                include_columns=read, column_types=dict.fromkeys(read, pa.string()),
                strings_can_be_null=False, null_values=[],
            ),
        )  # fmt: skip
    except pa.ArrowInvalid as error:
        if not bad:
            raise InputError(path, f"it is not a table ({str(error)[:200]})", _EXPORT) from error
        # The row is not numbered where the parser is told to go on from the header.
        line, cell_count = _ragged(text, separator, len(names))
        raise InputError(
            path, f"the row has {cell_count} cells, and the header {len(names)}", _EXPORT, line=line
        ) from error
    if not table.num_rows:
        raise InputError(path, "it has a header but no rows", _EXPORT)
    cells = {name: table[place].combine_chunks() for name, place in zip(chosen, read, strict=False)}
    return ForeignRows(path, tuple(names), cells, table.num_rows, lambda row: _line(text, separator, row))


def _rows_with_lines(text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """The rows after the header, with the line on which each begins."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    with suppress(csv.Error):  # a cell that is too long for it: only the line is not known then
        next(reader, None)
        begin = reader.line_num + 1
        for row in reader:
            if row:
                yield begin, row
            begin = reader.line_num + 1


def _line(text: str, separator: str, row_index: int) -> int | None:
    lines = (line for row, (line, _) in enumerate(_rows_with_lines(text, separator)) if row == row_index)
    return next(lines, None)


def _ragged(text: str, separator: str, fields: int) -> tuple[int | None, int]:
    ragged_rows = ((line, len(row)) for line, row in _rows_with_lines(text, separator) if len(row) != fields)
    return next(ragged_rows, (None, 0))


# ---- JSON


def _json(path: Path, text: str, records: str, choose_columns: ColumnChoice) -> ForeignRows:
    flat, lines = _json_records(path, text, records)
    names = list(dict.fromkeys(name for record in flat for name in record))
    chosen = _chosen(path, names, choose_columns)
    cells = {name: pa.array([record.get(name, "") for record in flat], pa.string()) for name in chosen}
    return ForeignRows(
        path, tuple(names), cells, len(flat), lambda row: None if lines is None else lines[row]
    )


def _json_records(path: Path, text: str, records: str) -> tuple[list[dict[str, str]], list[int] | None]:
    """Flat records, and the lines that they are on where each has its own."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        if records or text.lstrip().startswith("["):
            cause = f"it is not JSON, or cut off ({error})"
            raise InputError(path, cause, _EXPORT) from error
        return _json_lines(path, text)
    if isinstance(document, dict) and not records:
        return [_flat(document)], [1]
    flat_records = list(_within(path, document, [key for key in records.split(".") if key], {}))
    if not flat_records:
        raise InputError(path, f"there are no records at {records or 'its top'!r}", _EXPORT)
    return flat_records, None


def _json_lines(path: Path, text: str) -> tuple[list[dict[str, str]], list[int]]:
    records, lines = [], []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(
                path,
                f"it is not JSON ({error})",
                "write one object a line, or name the list of a JSON document with: records",
                line=number,
            ) from error
        if not isinstance(record, dict):
            raise InputError(path, "it is not an object", "write one object a line", line=number)
        records.append(_flat(record))
        lines.append(number)
    return records, lines


def _within(path: Path, value: Any, keys: Sequence[str], around: dict[str, str]) -> Iterator[dict[str, str]]:
    """The records below some keys; lists on the way are gone through."""
    if isinstance(value, list):
        for number, each in enumerate(value):
            if keys:
                yield from _within(path, each, keys, around)
            elif isinstance(each, dict):
                yield around | _flat(each)
            else:
                raise InputError(path, f"record {number:,} (counted from 0) is not an object", _EXPORT)
        return
    if not isinstance(value, dict):
        raise InputError(path, "its records are not objects", "name the list of records with: records")
    if not keys:  # objects by key, as a cache has them
        yield from _within(path, list(value.values()), keys, around)
        return
    if keys[0] not in value:
        names = ", ".join(map(repr, list(value)[:10]))
        raise InputError(path, f"there is no key {keys[0]!r} on the way to the records", f"there are {names}")
    rest = _flat({key: each for key, each in value.items() if key != keys[0]})
    yield from _within(path, value[keys[0]], keys[1:], around | rest)


def _flat(record: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """A record's scalars as text by dotted names; lists of scalars as JSON."""
    texts: dict[str, str] = {}
    for key, value in record.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            texts |= _flat(value, f"{name}.")
        elif isinstance(value, list) and (pairs := _pairs(value)) is not None:
            texts |= _flat(pairs, f"{name}.")
        else:
            texts[name] = _cell(value)
    return texts


def _pairs(values: Sequence[Any]) -> dict[str, Any] | None:
    """``[{"name": n, "value": v}, ...]`` as ``{n: v}``; None for any other list."""
    pairs = {}
    for each in values:
        lower = {str(key).lower(): value for key, value in each.items()} if isinstance(each, dict) else {}
        if not {"name", "value"} <= lower.keys() or not isinstance(lower["name"], str):
            return None
        pairs[lower["name"]] = lower["value"]
    return pairs or None


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "nan"
    return json.dumps(value)


# ---- Parquet


def _parquet(path: Path, choose_columns: ColumnChoice) -> ForeignRows:
    plain = PlainFile(path)
    try:
        with pq.ParquetFile(plain.path) as file:
            names = file.schema_arrow.names
            chosen = _chosen(path, names, choose_columns)
            table = file.read(columns=chosen)
    except (pa.ArrowException, OSError, ValueError) as error:
        cause = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise InputError(path, f"the Parquet file is cut off or damaged ({cause})", _EXPORT) from error
    finally:
        plain.close()
    if not table.num_rows:
        raise InputError(path, "it has no rows", _EXPORT)
    cells = {name: _as_text(table[name].combine_chunks()) for name in chosen}
    return ForeignRows(path, tuple(names), cells, table.num_rows, lambda row: None)


def _as_text(values: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    try:
        return pc.fill_null(pc.cast(values, pa.string()), "")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # lists and structures
        return pa.array([_cell(value) for value in values.to_pylist()], pa.string())


def _chosen(path: Path, names: Sequence[str], choose_columns: ColumnChoice) -> list[str]:
    chosen = list(choose_columns(names))
    twice = [name for name in chosen if list(names).count(name) > 1]
    if twice:
        raise InputError(path, "the column is there twice", "rename one of them", field=twice[0])
    return chosen
