"""Packed columns: how the columns of a launch table travel in few bytes, and how they are read.

A packed batch has the columns of its table in order, and each of them is in one of these forms:

| form | Arrow type | metadata of the field | the value of row i |
|---|---|---|---|
| plain | the column's own | | as it is |
| narrow | a smaller integer | | as it is |
| empty | null | | null |
| codes | uint8 or uint16 | ``codes``: base64 of the values, little-endian | the value in that place |
| steps | int8, int16 or int32 | ``steps``: the value before the first row | the sum of all steps so far |

Codes may have nulls, steps may not. Readers trust nothing: :func:`column_of` checks what Arrow does not.
:mod:`assay_sampling.wire.packing` writes them.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay_sampling.arrays import distinct, numbers_from, validity_of, values_of
from assay_sampling.errors import LaunchTableError
from assay_sampling.launches.table import base_fields

CODES, STEPS = b"codes", b"steps"
CODE_TYPES = (pa.uint8(), pa.uint16())
STEP_TYPES = (pa.int8(), pa.int16(), pa.int32())
# Sums of 2**31 steps of 32 bits stay within 64 bits from here.
_LARGEST_FIRST = 1 << 61


class Column(Protocol):
    """A column of launches, packed or not."""

    @property
    def nulls(self) -> int:
        """How many rows have no value."""

    def smallest(self) -> int | float | None:
        """No value is smaller; None if there is no value."""

    def distinct(self) -> np.ndarray:
        """The values that occur, each once, and perhaps a few that do not."""

    def write(self, target: np.ndarray, first: int) -> None:
        """Write the values of rows from ``first`` on into all of ``target``; under a null, anything."""

    def valid(self, first: int, count: int) -> np.ndarray:
        """Which of these rows have a value, bool."""


@dataclass(frozen=True)
class PlainColumn:
    """Values as they are, perhaps in a smaller type of integer."""

    values: pa.Array

    @property
    def nulls(self) -> int:
        return int(self.values.null_count)

    def smallest(self) -> int | float | None:
        found: int | float | None = pc.min(self.values).as_py() if len(self.values) else None
        return found

    def distinct(self) -> np.ndarray:
        return values_of(pc.unique(self.values).drop_null())

    def write(self, target: np.ndarray, first: int) -> None:
        kind = np.dtype(self.values.type.to_pandas_dtype())
        start = (self.values.offset + first) * kind.itemsize
        target[:] = np.frombuffer(self.values.buffers()[1], kind, len(target), start)

    def valid(self, first: int, count: int) -> np.ndarray:
        return validity_of(self.values.slice(first, count))


@dataclass(frozen=True)
class EmptyColumn:
    """No row has a value."""

    nulls: int

    def smallest(self) -> None:
        return None

    def distinct(self) -> np.ndarray:
        return np.empty(0)

    def write(self, target: np.ndarray, first: int) -> None:
        """What is under a null does not matter."""

    def valid(self, first: int, count: int) -> np.ndarray:
        return np.zeros(count, bool)


@dataclass(frozen=True)
class CodesColumn:
    """Places in a short list of values."""

    codes: pa.Array
    listed: np.ndarray

    @property
    def nulls(self) -> int:
        return int(self.codes.null_count)

    def smallest(self) -> int | float | None:
        found: int | float | None = self.listed.min().item() if self.nulls < len(self.codes) else None
        return found

    def distinct(self) -> np.ndarray:
        return self.listed

    def write(self, target: np.ndarray, first: int) -> None:
        if len(self.listed) == 1:
            target[:] = self.listed[0]
            return
        kind = np.dtype(self.codes.type.to_pandas_dtype())
        start = (self.codes.offset + first) * kind.itemsize
        codes = np.frombuffer(self.codes.buffers()[1], kind, len(target), start)
        # Codes are in bounds, except perhaps under a null.
        np.take(self.listed, codes, out=target, mode="clip")

    def valid(self, first: int, count: int) -> np.ndarray:
        return validity_of(self.codes.slice(first, count))


@dataclass(frozen=True)
class StepsColumn:
    """Differences from row to row."""

    steps: np.ndarray
    before: int

    nulls = 0

    @cached_property
    def _values(self) -> np.ndarray:
        values = np.empty(len(self.steps), np.int64)
        self.write(values, 0)
        return values

    def smallest(self) -> int | None:
        if not len(self.steps):
            return None
        if self.steps.min() >= 0:
            return self.before + int(self.steps[0])
        return int(self._values.min())

    def distinct(self) -> np.ndarray:
        return distinct(self._values)

    def consecutive(self) -> tuple[int, int] | None:
        """The first and the last value, if each is the one before plus one."""
        if not len(self.steps) or not (self.steps[1:] == 1).all():
            return None
        first = self.before + int(self.steps[0])
        return first, first + len(self.steps) - 1

    def write(self, target: np.ndarray, first: int) -> None:
        np.cumsum(self.steps[first : first + len(target)], dtype=np.int64, out=target)
        target += self.before + int(self.steps[:first].sum(dtype=np.int64))

    def valid(self, first: int, count: int) -> np.ndarray:
        return np.ones(count, bool)


@dataclass(frozen=True)
class PackedColumns:
    """The columns of a batch; ``schema``: that of its table, without any packing."""

    schema: pa.Schema
    columns: tuple[Column, ...]
    num_rows: int

    def column(self, name: str) -> Column:
        found: Column = self.columns[self.schema.get_field_index(name)]
        return found

    def values(self, name: str) -> np.ndarray:
        """The values of a column without nulls."""
        place = self.schema.get_field_index(name)
        values = np.empty(self.num_rows, self.schema.field(place).type.to_pandas_dtype())
        self.columns[place].write(values, 0)
        return values

    def plain(self) -> pa.RecordBatch:
        """The launches as a batch of the table's schema."""
        arrays = [self._plain(*each) for each in zip(self.columns, self.schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _plain(self, column: Column, item: pa.Field) -> pa.Array:
        if isinstance(column, PlainColumn) and column.values.type == item.type:
            return column.values
        values = np.zeros(self.num_rows, item.type.to_pandas_dtype())
        column.write(values, 0)
        valid = column.valid(0, self.num_rows) if column.nulls else None
        return numbers_from(values, item.type, valid)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of the table behind a packed batch's schema; what is not packed in a known form stays."""
    return pa.schema([_plain_field(schema, place) for place in range(len(schema))], schema.metadata)


def _plain_field(schema: pa.Schema, place: int) -> pa.Field:
    item = schema.field(place)
    known = base_fields(schema)
    kind = known[place].type if place < len(known) else pa.float64()
    packing = {CODES, STEPS} & (item.metadata or {}).keys()
    if item.type == kind and not packing:
        return item
    metadata = {key: value for key, value in (item.metadata or {}).items() if key not in packing}
    return pa.field(item.name, kind, item.nullable, metadata) if _is_packed(item.type, kind) else item


def _is_packed(found: pa.DataType, kind: pa.DataType) -> bool:
    if pa.types.is_null(found) or found in CODE_TYPES:
        return True
    return pa.types.is_signed_integer(kind) and found in STEP_TYPES


def columns_of(batch: pa.RecordBatch, schema: pa.Schema) -> PackedColumns:
    """The columns of a packed batch that passed Arrow's full validation, as those of a table of ``schema``.

    Raises LaunchTableError.
    """
    found = [
        column_of(values, packed, item.type)
        for values, packed, item in zip(batch.columns, batch.schema, schema, strict=True)
    ]
    return PackedColumns(schema, tuple(found), batch.num_rows)


def column_of(values: pa.Array, packed: pa.Field, kind: pa.DataType) -> Column:
    """A column of type ``kind`` from its packed field. Raises LaunchTableError."""
    metadata = packed.metadata or {}
    if pa.types.is_null(values.type):
        return EmptyColumn(len(values))
    if CODES in metadata:
        return _codes(values, packed, metadata[CODES], kind)
    if STEPS in metadata:
        return _steps(values, packed, metadata[STEPS], kind)
    if values.type != kind and not _narrows(values.type, kind):
        raise _wrong(packed, f"values of type {values.type} do not fit {kind}")
    return PlainColumn(values)


def _narrows(found: pa.DataType, kind: pa.DataType) -> bool:
    """Whether each value of one type of integer is one of the other, too."""
    if not (pa.types.is_integer(found) and pa.types.is_integer(kind)) or found.bit_width >= kind.bit_width:
        return False
    return bool(pa.types.is_unsigned_integer(found) or pa.types.is_signed_integer(kind))


def _codes(codes: pa.Array, packed: pa.Field, listed: bytes, kind: pa.DataType) -> Column:
    if codes.type not in CODE_TYPES:
        raise _wrong(packed, f"its codes are of type {codes.type}")
    try:
        values = np.frombuffer(base64.b64decode(listed, validate=True), kind.to_pandas_dtype())
    except (binascii.Error, ValueError) as error:
        raise _wrong(packed, f"its values cannot be read ({error})") from error
    largest = pc.max(codes).as_py() if len(codes) else None
    if largest is None:
        return EmptyColumn(len(codes))
    if largest >= len(values):
        raise _wrong(packed, f"it has the code {largest}, but only {len(values)} values")
    return CodesColumn(codes, values)


def _steps(steps: pa.Array, packed: pa.Field, before: bytes, kind: pa.DataType) -> Column:
    if steps.type not in STEP_TYPES or kind != pa.int64() or steps.null_count:
        raise _wrong(packed, "its steps have nulls, or are of another type than they may be")
    try:
        start = int(before)
    except ValueError:
        raise _wrong(packed, "its steps begin nowhere") from None
    if abs(start) > _LARGEST_FIRST:
        raise _wrong(packed, f"its steps begin at {start}")
    return StepsColumn(values_of(steps), start)


def _wrong(packed: pa.Field, cause: str) -> LaunchTableError:
    return LaunchTableError("launch table", f"packed column {packed.name!r}: {cause}")
