"""Row groups of a Parquet file, put together from column chunks.

A launch table has many columns in which all rows of a row group are equal: one device, one stream, blocks of
one row, nothing for what was not measured. Parquet's writer looks at each of their values; here such a chunk
is encoded once and used again. pyarrow encodes all chunks, and the bytes are those that its ParquetWriter
would write for the whole table; only what says where chunks are is changed.

Source: Apache Parquet, parquet.thrift (FileMetaData, RowGroup, ColumnChunk, ColumnMetaData), and Thrift's
compact protocol.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

MAGIC = b"PAR1"
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
_INTEGERS = (4, 5, 6)
_NUM_ROWS, _ROW_GROUPS = 3, 4  # of FileMetaData
_META_DATA = 3  # of ColumnChunk
_UNCOMPRESSED, _COMPRESSED, _DATA_PAGE, _DICTIONARY_PAGE = 6, 7, 9, 11  # of ColumnMetaData
_MOST_KEPT = 1_024  # equal columns take about a kilobyte each
_FEW_ROWS = 30_000  # a file of fewer is written sooner in one step

Options = Callable[[pa.Schema], dict[str, Any]]


@dataclass(frozen=True)
class _Chunk:
    """An encoded column of a row group.

    ``before``, ``between`` and ``after`` are its ColumnChunk without the places of its pages: the data page
    comes ``data_page`` bytes behind the start of the chunk; ``has_dictionary``: a dictionary page is there.
    """

    data: bytes
    uncompressed_bytes: int
    before: bytes
    between: bytes
    after: bytes
    data_page: int
    has_dictionary: bool

    def described(self, place: int) -> bytes:
        """Its ColumnChunk, where it begins at byte ``place`` of the file."""
        pages = self.before + _integer(place + self.data_page) + self.between
        return pages + (_integer(place) if self.has_dictionary else b"") + self.after


class RowGroupsFile:
    """A Parquet file of row groups, written to ``write`` in order.

    Args:
        options: of pyarrow's ParquetWriter, for a schema of some of the columns, too.
    """

    def __init__(self, schema: pa.Schema, options: Options, write: Callable[[bytes], Any]) -> None:
        self._schema, self._options, self._write = schema, options, write
        self._place = 0
        self._rows = 0
        self._groups: list[bytes] = []

    def write_group(self, table: pa.Table) -> None:
        """Write a table of one chunk a column as the next row group."""
        chunks = self._encoded(table)
        start = self._place or len(MAGIC)
        described, place = [], start
        for chunk in chunks:
            described.append(chunk.described(place))
            place += len(chunk.data)
        self._groups.append(
            b"\x19" + _list_of(described)
            + b"\x16" + _integer(sum(chunk.uncompressed_bytes for chunk in chunks))
            + b"\x16" + _integer(table.num_rows)
            + b"\x26" + _integer(start)
            + b"\x16" + _integer(place - start) + b"\0"
        )  # fmt: skip
        self._write(b"".join([b"" if self._place else MAGIC, *(chunk.data for chunk in chunks)]))
        self._place, self._rows = place, self._rows + table.num_rows

    def end(self, metadata: dict[bytes, bytes], last: pa.Table | None = None) -> None:
        """Write the last row group, and the footer, with more metadata than the schema has."""
        if last is not None and not self._groups and last.num_rows < _FEW_ROWS:
            self._write(self._written_by_pyarrow(metadata, last))
            return
        if last is not None:
            self.write_group(last)
        footer = _footer(self._written_by_pyarrow(metadata))
        places = {field: span for field, _, *span in _fields(footer, 0)}
        rows, groups = places[_NUM_ROWS], places[_ROW_GROUPS]
        ended = b"".join([
            footer[: rows[0]], _integer(self._rows), footer[rows[1] : groups[0]], _list_of(self._groups),
            footer[groups[1] :],
        ])  # fmt: skip
        start = b"" if self._place else MAGIC
        self._write(start + ended + len(ended).to_bytes(4, "little") + MAGIC)

    def _written_by_pyarrow(self, metadata: dict[bytes, bytes], table: pa.Table | None = None) -> bytes:
        """A file of this table alone, or of none."""
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(sink, self._schema, **self._options(self._schema)) as writer:
            if table is not None:
                writer.write_table(table, row_group_size=table.num_rows)
            writer.add_key_value_metadata(metadata)
        written: bytes = sink.getvalue().to_pybytes()
        return written

    def _encoded(self, table: pa.Table) -> list[_Chunk]:
        """The chunks of a row group, in the order of its columns."""
        found: dict[int, _Chunk] = {}
        others = []
        for place, item in enumerate(table.schema):
            equal = _equal_bits(table.column(place).chunk(0))
            if equal is None:
                others.append(place)
            else:
                bare = pa.field(item.name, item.type, item.nullable)
                found[place] = _equal_chunk(bare, table.num_rows, equal, self._options)
        if others:
            part = table.select(others).replace_schema_metadata(None)
            found.update(zip(others, _chunks(part, self._options), strict=True))
        return [found[place] for place in range(table.num_columns)]


def _equal_bits(values: pa.Array) -> bytes | None:
    """The bits of the value that all rows have, b"" if none has a value; None if rows differ."""
    if values.null_count == len(values):
        return b""
    if values.null_count or not pa.types.is_primitive(values.type) or values.type.bit_width % 8:
        return None
    # By bits: NaN is not equal to itself, and 0 is equal to -0.
    kind = np.dtype(f"u{values.type.bit_width // 8}")
    bits = np.frombuffer(values.buffers()[1], kind, len(values), values.offset * kind.itemsize)
    if not (bits[:64] == bits[0]).all() or not (bits == bits[0]).all():
        return None
    return bits[:1].tobytes()


@functools.lru_cache(maxsize=_MOST_KEPT)
def _equal_chunk(item: pa.Field, rows: int, bits: bytes, options: Options) -> _Chunk:
    """The chunk of a column in which all rows have one value."""
    if bits:
        values = pa.Array.from_buffers(item.type, rows, [None, pa.py_buffer(bits * rows)])
    else:
        values = pa.nulls(rows, item.type)
    [chunk] = _chunks(pa.Table.from_arrays([values], schema=pa.schema([item])), options)
    return chunk


def _chunks(table: pa.Table, options: Options) -> Iterator[_Chunk]:
    """Encode the columns of a table of one row group."""
    sink = pa.BufferOutputStream()
    made = options(table.schema) | {"store_schema": False}
    with pq.ParquetWriter(sink, table.schema, **made) as writer:
        writer.write_table(table, row_group_size=table.num_rows)
    file = sink.getvalue().to_pybytes()
    footer = _footer(file)
    [groups] = [start for field, _, start, _ in _fields(footer, 0) if field == _ROW_GROUPS]
    [(group, _)] = _structs(footer, groups)
    columns = next(start for field, _, start, _ in _fields(footer, group) if field == 1)
    for start, end in _structs(footer, columns):
        yield _chunk(file, footer, start, end)


def _chunk(file: bytes, footer: bytes, start: int, end: int) -> _Chunk:
    """The chunk that the ColumnChunk in ``footer[start:end]`` describes."""
    meta_data = next(place for field, _, place, _ in _fields(footer, start) if field == _META_DATA)
    spans = {field: (first, last) for field, _, first, last in _fields(footer, meta_data)}
    values = {
        field: _number(footer, spans[field][0])[0]
        for field in (_UNCOMPRESSED, _COMPRESSED, _DATA_PAGE, _DICTIONARY_PAGE)
        if field in spans
    }
    first, last = spans[_DATA_PAGE]
    dictionary = spans.get(_DICTIONARY_PAGE)
    begins = values.get(_DICTIONARY_PAGE, values[_DATA_PAGE])
    return _Chunk(
        data=file[begins : begins + values[_COMPRESSED]],
        uncompressed_bytes=values[_UNCOMPRESSED],
        before=footer[start:first],
        between=b"" if dictionary is None else footer[last : dictionary[0]],
        after=footer[last if dictionary is None else dictionary[1] : end],
        data_page=values[_DATA_PAGE] - begins,
        has_dictionary=dictionary is not None,
    )


def _footer(file: bytes) -> bytes:
    size = int.from_bytes(file[-8:-4], "little")
    return file[-8 - size : -8]


def _fields(data: bytes, place: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of a struct: number, type, and where the value begins and ends."""
    number = 0
    while data[place]:
        head = data[place]
        place += 1
        if head >> 4:
            number += head >> 4
        else:
            number, place = _number(data, place)
        end = _after(data, place, head & 15)
        yield number, head & 15, place, end
        place = end


def _after(data: bytes, place: int, kind: int) -> int:
    """Where a value ends."""
    if kind in (_TRUE, _FALSE):
        return place
    if kind in _INTEGERS:
        while data[place] & 0x80:
            place += 1
        return place + 1
    if kind in (_BYTE, _DOUBLE):
        return place + (1 if kind == _BYTE else 8)
    if kind == _BINARY:
        size, place = _varint(data, place)
        return place + size
    if kind in (_LIST, _SET):
        size, kind, place = _list_head(data, place)
        for _ in range(size):
            place = place + 1 if kind in (_TRUE, _FALSE) else _after(data, place, kind)
        return place
    assert kind == _STRUCT, "Parquet's footers have no maps"
    ends = [place, *(end for _, _, _, end in _fields(data, place))]
    return ends[-1] + 1


def _structs(data: bytes, place: int) -> Iterator[tuple[int, int]]:
    """Where each struct of a list begins and ends."""
    size, _, place = _list_head(data, place)
    for _ in range(size):
        end = _after(data, place, _STRUCT)
        yield place, end
        place = end


def _list_head(data: bytes, place: int) -> tuple[int, int, int]:
    """Size, type of the items, and where they begin."""
    size, kind = data[place] >> 4, data[place] & 15
    place += 1
    if size == 15:
        size, place = _varint(data, place)
    return size, kind, place


def _list_of(structs: list[bytes]) -> bytes:
    size = len(structs)
    head = bytes([size << 4 | _STRUCT]) if size < 15 else bytes([0xF0 | _STRUCT]) + _unsigned(size)
    return head + b"".join(structs)


def _number(data: bytes, place: int) -> tuple[int, int]:
    found, place = _varint(data, place)
    return (found >> 1) ^ -(found & 1), place


def _varint(data: bytes, place: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        byte = data[place]
        place += 1
        found |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return found, place


def _integer(number: int) -> bytes:
    """An integer that is not negative, in zigzag form."""
    return _unsigned(2 * number)


def _unsigned(number: int) -> bytes:
    made = bytearray()
    while number >= 0x80:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)
