"""Packing: the columns of a batch in few bytes, for the wire (:mod:`assay_sampling.wire.packed`).

A server spends most of its time with a segment on unpacking it, and codes of one or two bytes unpack many
times faster than numbers of eight.
"""

from __future__ import annotations

import base64

import numpy as np
import pyarrow as pa

from assay_sampling.arrays import numbers_from, validity_of, values_of
from assay_sampling.wire.packed import CODE_TYPES, CODES, STEP_TYPES, STEPS

# Lists of values travel in the schema, so they are short; a column with more values in few rows stays plain.
_MOST_LISTED = 16_384
_LOOKED_AT_FIRST = 2_048
_LARGEST_BEFORE = 1 << 61


def packed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The launches of a batch with each column in the form that takes fewest bytes."""
    found = [_packed(*each) for each in zip(batch.columns, batch.schema, strict=True)]
    schema = pa.schema([item for _, item in found], batch.schema.metadata)
    return pa.RecordBatch.from_arrays([values for values, _ in found], schema=schema)


def _packed(values: pa.Array, item: pa.Field) -> tuple[pa.Array, pa.Field]:
    if not len(values):
        return values, item
    if values.null_count == len(values):
        return pa.nulls(len(values)), item.with_type(pa.null())
    return _as_codes(values, item) or _as_steps(values, item) or (values, item)


def _as_codes(values: pa.Array, item: pa.Field) -> tuple[pa.Array, pa.Field] | None:
    """Codes, if there are few distinct values; a few rows tell first of columns where nearly all differ."""
    head = values.slice(0, _LOOKED_AT_FIRST)
    if len(values) > len(head) and len(head.unique()) > len(head) // 2:
        return None
    coded = values.dictionary_encode()
    listed = coded.dictionary
    kind = CODE_TYPES[len(listed) > 1 << 8]
    # In base64, a list takes a third more.
    bits = len(listed) * listed.type.bit_width * 4 // 3 + len(values) * kind.bit_width
    if len(listed) > _MOST_LISTED or bits >= len(values) * listed.type.bit_width:
        return None
    codes = np.zeros(len(values), kind.to_pandas_dtype())
    valid = validity_of(values) if values.null_count else None
    places = coded.indices
    found = np.frombuffer(places.buffers()[1], np.int32, len(places), 4 * places.offset)
    np.copyto(codes, found, casting="unsafe")
    if valid is not None:
        codes[~valid] = 0
    text = base64.b64encode(values_of(listed).tobytes())
    return numbers_from(codes, kind, valid), _noted(item, kind, CODES, text)


def _as_steps(values: pa.Array, item: pa.Field) -> tuple[pa.Array, pa.Field] | None:
    """Steps, or the values in a smaller type if that is as small; None if both are too large."""
    if values.null_count or values.type != pa.int64():
        return None
    numbers = values_of(values)
    least, most = int(numbers.min()), int(numbers.max())
    narrow = _smallest(least, most)
    if abs(least) >= _LARGEST_BEFORE or abs(most) >= _LARGEST_BEFORE:
        return None
    steps = np.diff(numbers, prepend=numbers[:1])
    stepped = _smallest(int(steps.min()), int(steps.max()))
    if stepped is not None and (narrow is None or stepped.bit_width < narrow.bit_width):
        text = str(int(numbers[0])).encode()
        return numbers_from(steps.astype(stepped.to_pandas_dtype()), stepped), _noted(
            item, stepped, STEPS, text
        )
    if narrow is not None:
        return numbers_from(numbers.astype(narrow.to_pandas_dtype()), narrow), item.with_type(narrow)
    return None


def _smallest(least: int, most: int) -> pa.DataType | None:
    for kind in STEP_TYPES:
        half = 1 << (kind.bit_width - 1)
        if -half <= least and most < half:
            return kind
    return None


def _noted(item: pa.Field, kind: pa.DataType, key: bytes, text: bytes) -> pa.Field:
    return item.with_type(kind).with_metadata({**(item.metadata or {}), key: text})
