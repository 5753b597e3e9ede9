"""Parses the rows of a raw page to columns: numbers where every cell of a block plainly is one, else texts.

A column that held anything else once (thousands separators, say) is read as texts from then on, which
:mod:`assay_sampling.readers.numbers` parses more slowly, or refuses with the cell.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from assay_sampling.arrays import SYSTEM_POOL, values_of
from assay_sampling.readers.ncu.columns import Layout
from assay_sampling.readers.ncu.lines import RowBlock
from assay_sampling.readers.numbers import NOT_MEASURED

_TEXT = pa.dictionary(pa.int32(), pa.string())
_MOST_DIGITS = 18
_EXACT = 2.0**53
# What is parsed at once stays in the cache.
_PIECE_BYTES = 2 << 20
_Limits = tuple[int, int] | None


class CellParser:
    """Parses blocks of one file, whose header ``layout`` describes; ``settled``: fields that are left out."""

    def __init__(self, layout: Layout, settled: Collection[str] = ()) -> None:
        self._names = [str(index) for index in range(len(layout.fields))]
        self._id = str(layout.at("ID"))
        needed = layout.needed(settled)
        self._types = {str(index): _TEXT for index in needed} | {self._id: pa.string()}
        numbers = layout.numbers()
        self._numbers = {str(index): numbers[index] for index in needed if index in numbers}
        self._numbers.pop(self._id, None)  # kept as a counter, it still numbers the launches

    def parse(self, rows: RowBlock) -> pa.Table | None:
        """The needed cells, columns named by position; None where a row is malformed."""
        if not rows.data:
            return pa.table({name: pa.array([], kind) for name, kind in self._types.items()})
        columns = self._read(rows, self._types | dict.fromkeys(self._numbers, pa.float64()))
        if columns is not None and self._take_numbers(columns):
            return pa.table(columns)
        columns = self._read(rows, self._types)
        if columns is None:
            return None
        self._numbers = {
            name: limits
            for name, limits in self._numbers.items()
            if _checked(_numbers_of(columns[name]), limits) is not None
        }
        return pa.table(columns)

    def _take_numbers(self, columns: dict[str, pa.Array]) -> bool:
        """Put each column of numbers in its place, checked; whether all are."""
        for name, limits in self._numbers.items():
            checked = _checked(columns[name], limits)
            if checked is None:
                return False
            columns[name] = checked
        return True

    def _read(self, rows: RowBlock, types: dict[str, pa.DataType]) -> dict[str, pa.Array] | None:
        table = self._table(rows, types, _PIECE_BYTES)
        if table is None:
            return None
        table = table.unify_dictionaries(memory_pool=SYSTEM_POOL).combine_chunks(memory_pool=SYSTEM_POOL)
        columns = {name: table[name].chunk(0) for name in types}
        columns[self._id] = _ids(columns[self._id])
        return columns if columns[self._id] is not None else None

    def _table(self, rows: RowBlock, types: dict[str, pa.DataType], piece_bytes: int) -> pa.Table | None:
        try:
            table = pyarrow.csv.read_csv(
                pa.BufferReader(rows.data),
                memory_pool=SYSTEM_POOL,
                read_options=pyarrow.csv.ReadOptions(
                    column_names=self._names, use_threads=False, block_size=piece_bytes
                ),
                parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
                convert_options=pyarrow.csv.ConvertOptions(
                    include_columns=list(types),
                    column_types=types,
                    strings_can_be_null=False,
                    check_utf8=False,
                    null_values=NOT_MEASURED,
                ),
            )
            table.validate(full=True)  # each distinct text is checked for UTF-8 once
        except pa.ArrowInvalid:
            if piece_bytes > len(rows.data):
                return None
            # Perhaps a row is longer than two pieces.
            return self._table(rows, types, len(rows.data) + 1)
        return table if table.num_rows == len(rows.lines) else None


def part_of(table: pa.Table, start: int, rows: int) -> pa.Table:
    """Some rows of a table, with those texts only that they hold."""
    if rows >= table.num_rows:
        return table
    part = table.slice(start, rows)
    columns = [
        column.cast(pa.string()).dictionary_encode() if pa.types.is_dictionary(column.type) else column
        for column in part.columns
    ]
    return pa.table(columns, names=part.column_names)


def _ids(texts: pa.StringArray) -> pa.Array | None:
    """Numbers of texts that are digits only; None if there is any other, or one beyond 64 bits."""
    _, ends, characters = texts.buffers()
    places = np.frombuffer(ends, np.int32, len(texts) + 1)
    lengths = np.diff(places)
    digits = np.frombuffer(characters, np.uint8, places[-1])
    if lengths.min() < 1 or lengths.max() > _MOST_DIGITS or (digits - np.uint8(48) > 9).any():
        return None
    return pc.cast(texts, pa.int64(), memory_pool=SYSTEM_POOL)


def _numbers_of(texts: pa.DictionaryArray) -> pa.Array | None:
    """Numbers as Arrow reads them from CSV; None if a text is none."""
    missing = pc.is_in(texts.dictionary, value_set=pa.array(NOT_MEASURED))
    try:
        numbers = pc.cast(pc.if_else(missing, pa.scalar(None, pa.string()), texts.dictionary), pa.float64())
    except pa.ArrowInvalid:
        return None
    return numbers.take(texts.indices)


def _checked(numbers: pa.Array | None, limits: _Limits) -> pa.Array | None:
    """A column of finite numbers; with limits, one of whole numbers within them, none of which is missing.
    None for any other."""
    if numbers is None or (limits is not None and numbers.null_count):
        return None
    values = values_of(numbers.drop_null() if numbers.null_count else numbers)
    if not len(values):
        return numbers
    if not (np.isfinite(values.min()) and np.isfinite(values.max())):
        return None
    return numbers if limits is None else _whole(values, *limits)


def _whole(values: np.ndarray, least: int, greatest: int) -> pa.Array | None:
    """Whole numbers within the limits, exact; None if a value is none."""
    if values.min() < least or values.max() > greatest or values.max() >= _EXACT:
        return None
    whole = values.astype(np.int64)
    if not np.array_equal(whole, values):
        return None
    return pa.Array.from_buffers(pa.int64(), len(whole), [None, pa.py_buffer(whole)])
