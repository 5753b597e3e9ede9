"""Checks of launch tables that came from outside: schema, values, and a name for every id."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay_sampling.arrays import distinct, values_of
from assay_sampling.errors import LaunchTableError
from assay_sampling.launches.table import (
    BASE_FIELDS,
    SHAPE_COLUMNS,
    Names,
    TableMetadata,
    base_fields,
    column_marks,
    table_metadata,
    text_columns,
)


def check_schema(schema: pa.Schema) -> TableMetadata:
    """Check that ``schema`` is a launch table's: base fields first and exact, then counters of float64.

    Returns its metadata; raises LaunchTableError naming the first field that is wrong.
    """
    # The runs of a campaign have few schemas. Equality of schemas leaves out their metadata, bytes do not.
    serialized = schema.serialize().to_pybytes()
    metadata = _checked.get(serialized)
    if metadata is None:
        metadata = _check(schema)
        if len(serialized) <= _MOST_SCHEMA_BYTES:
            if len(_checked) >= _MOST_SCHEMAS:
                _checked.clear()
            _checked[serialized] = metadata
    return metadata


_MOST_SCHEMA_BYTES, _MOST_SCHEMAS = 64 << 10, 64
_checked: dict[bytes, TableMetadata] = {}


def _check(schema: pa.Schema) -> TableMetadata:
    metadata = table_metadata(schema)
    if len(schema) < len(BASE_FIELDS):
        raise LaunchTableError("launch table", f"it has only {len(schema)} columns")
    base = base_fields(schema)
    for expected, actual in zip(base, schema, strict=False):
        # A file whose grids are all known may say that none is null.
        if not expected.equals(actual.with_nullable(True) if actual.name in SHAPE_COLUMNS else actual):
            raise LaunchTableError("launch table", f"found the column {actual.name!r}, expected {expected}")
    for place, item in enumerate(schema):
        marks = column_marks(item)
        if place < len(base):
            continue
        if item.type != pa.float64() or not {"kind", "unit", "metric", "variant"} <= marks.keys():
            raise LaunchTableError("launch table", f"column {item.name!r} is not a counter column")
    if len(set(schema.names)) != len(schema.names):
        raise LaunchTableError("launch table", "a column name appears twice")
    return metadata


_NOT_NEGATIVE = ("process", "launch", "report_id", "registers_per_thread", "shared_memory_bytes",
                 "dynamic_shared_memory_bytes", "duration_ns", "call")  # fmt: skip


def check_batch(batch: pa.RecordBatch) -> None:
    """Check the invariants of a batch that came from outside; raises LaunchTableError.

    Full Arrow validation, no null in a mandatory column, no negative ordinal or duration, no empty
    grid or block.
    """
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise LaunchTableError("launch table", f"damaged batch: {error}") from error
    for item in BASE_FIELDS:
        if not item.nullable and batch.column(item.name).null_count:
            raise LaunchTableError("launch table", f"column {item.name!r} has nulls")
    for names, least in ((_NOT_NEGATIVE, 0), (SHAPE_COLUMNS, 1)):
        for name in (each for each in names if each in batch.schema.names):
            smallest = pc.min(batch.column(name)).as_py()
            if smallest is not None and smallest < least:
                raise LaunchTableError(
                    "launch table", f"column {name!r} holds {smallest}, which is below {least}"
                )


def referenced_ids(batch: pa.RecordBatch) -> np.ndarray:
    """Distinct name ids that a batch refers to, shape (m,), uint64, sorted."""
    columns = [batch.column(name) for name in text_columns(batch.schema)]
    parts = [
        values_of(pc.unique(column).drop_null())
        for column in columns
        if column.null_count < len(column)  # most recordings have neither NVTX nor operators
    ]
    return distinct(np.concatenate([np.empty(0, np.uint64), *parts]))


def check_names(batches: Iterable[pa.RecordBatch], names: Names) -> None:
    """Check that every id that the batches use has its name; raises LaunchTableError."""
    for batch in batches:
        for identifier in referenced_ids(batch).tolist():
            names[identifier]
