"""Launches as tables for people, and back: names as text, units and facts in the metadata.

The columns are those of the launch table (:mod:`assay_sampling.launches.table`) with one difference: a
column of name ids (``kernel_id``) is the text itself (``kernel``). docs/python.md lists them.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay_sampling.counters.definitions import registry
from assay_sampling.counters.own_names import column_of_metric
from assay_sampling.counters.simulated import simulated_counters
from assay_sampling.errors import LaunchTableError
from assay_sampling.launches.checks import check_batch
from assay_sampling.launches.in_memory import Launches, sort_launches
from assay_sampling.launches.table import (
    BASE_FIELDS,
    METADATA_KEY,
    OPERATION_FIELDS,
    TEXT_COLUMNS,
    CounterColumn,
    Device,
    Names,
    Origin,
    TableMetadata,
    launch_schema,
    make_batch,
)

_TEXT_IDS: tuple[str, ...] = (*TEXT_COLUMNS, str(OPERATION_FIELDS[1].name))
_TEXTS: dict[str, str] = {name.removesuffix("_id"): name for name in _TEXT_IDS}
_BASE = {
    item.name.removesuffix("_id") if item.name in _TEXT_IDS else item.name: item
    for item in (*BASE_FIELDS, *OPERATION_FIELDS)
}
_REQUIRED = ("kernel", "grid_x", "block_x")
_TIMES = {"duration": "duration_ns", "time": "duration_ns", "start": "start_ns"}
_TIME_UNITS = {"us": 1e3, "ms": 1e6, "s": 1e9, "usecond": 1e3, "msecond": 1e6, "second": 1e9}
_PAGE = "'assay docs python' lists the columns with their units"


def to_arrow(launches: Launches) -> pa.Table:
    """Launches as a table, in the order of (process, launch); text columns are dictionaries of strings."""
    return with_texts(launches.table, launches.names)


def with_texts(table: pa.Table, names: Names) -> pa.Table:
    """Columns of a launch table, with texts in place of their ids."""
    arrays, fields = [], []
    for item in table.schema:
        column = table[item.name]
        if item.name in _TEXT_IDS:
            column = _texts(column, names)
            item = pa.field(text_column(item.name), column.type, nullable=item.nullable)  # noqa: PLW2901
        arrays.append(column)
        fields.append(item)
    metadata = {METADATA_KEY: table.schema.metadata[METADATA_KEY]}
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata))


def text_column(column: str) -> str:
    """What a column of the launch table is called here: ``kernel`` for ``kernel_id``."""
    return column.removesuffix("_id") if column in _TEXT_IDS else column


def table_column(column: str) -> str:
    """What a column is called in the launch table: ``kernel_id`` for ``kernel``."""
    return _TEXTS.get(column, column)


def _texts(column: pa.ChunkedArray, names: Names) -> pa.Array:
    encoded = column.combine_chunks().dictionary_encode()
    texts = pa.array([names[each] for each in encoded.dictionary.to_pylist()], pa.string())
    return pa.DictionaryArray.from_arrays(encoded.indices, texts)


def from_arrow(
    table: pa.Table, *, name: str, synthetic: bool | None = None, device: str | None = None
) -> Launches:
    """Launches from a table as :func:`to_arrow` gives it, or one that somebody made.

    Args:
        table: ``kernel``, ``grid_x`` and ``block_x`` are required; ``launch`` is the order of the rows and
            ``process`` 0 where they are left out. Null is "not measured", in a grid or block "not known".
        name: what errors and selections call it.
        synthetic: whether silicon was not measured; None: as the table's metadata say, else measured.
        device: the GPU's name; None: as the metadata say.

    Raises LaunchTableError naming the first column that is missing, unknown, in another unit or of values
    that do not fit.
    """
    if not isinstance(table, pa.Table):
        raise TypeError(f"from_arrow takes a pyarrow.Table, not {type(table).__name__}")
    counters = _checked_columns(table.schema, name)
    metadata = _metadata(_own_metadata(table.schema, name), synthetic, device, with_counters=bool(counters))
    names = Names()
    columns: dict[str, pa.Array] = {}
    for column in table.schema.names:
        values = table[column].combine_chunks()
        if column in _TEXTS:
            columns[_TEXTS[column]] = _identifiers(values, names, name, column)
        else:
            columns[column] = _cast(values, _kind(column), name, column)
    rows = table.num_rows
    for column, values in (("process", np.zeros(rows, np.int32)), ("launch", np.arange(rows))):
        columns.setdefault(column, pa.array(values))
    columns.setdefault("device", pa.array(np.zeros(rows, np.int32)))
    _refuse_nulls(columns, name)
    operations = any(item.name in columns for item in OPERATION_FIELDS)
    schema = launch_schema(metadata, counters, operations=operations)
    try:
        batch = make_batch(schema, columns, num_rows=rows)
        check_batch(batch)
    except LaunchTableError as error:
        raise LaunchTableError(name, error.cause, error.remedy or _PAGE) from error
    launch_table = pa.Table.from_batches([batch], schema=schema)
    return Launches(sort_launches(launch_table, (name,)), names, (name,))


def _own_metadata(schema: pa.Schema, name: str) -> TableMetadata | None:
    """What the table's own metadata say of it."""
    text = (schema.metadata or {}).get(METADATA_KEY)
    if text is None:
        return None
    try:
        return TableMetadata.from_json(text)
    except LaunchTableError as error:
        raise LaunchTableError(name, error.cause, "leave out the metadata 'assay'") from error


def _metadata(
    base: TableMetadata | None, synthetic: bool | None, device: str | None, *, with_counters: bool
) -> TableMetadata:
    metadata = base or TableMetadata("light", format="table")
    metadata = replace(metadata, level="detailed" if with_counters else "light")
    if synthetic is not None and not metadata.simulated:
        origin: Origin = "synthetic" if synthetic or metadata.synthetic else "measured"
        metadata = replace(metadata, origin=origin)
    if device is not None:
        metadata = replace(metadata, devices=(Device(0, device),))
    return metadata


def _checked_columns(schema: pa.Schema, name: str) -> tuple[CounterColumn, ...]:
    """The counter columns of a table whose columns are all known and in our units."""
    twice = [each for each in schema.names if schema.names.count(each) > 1]
    if twice:
        raise LaunchTableError(name, f"it has two columns {twice[0]!r}", "leave one of them out")
    missing = [each for each in _REQUIRED if each not in schema.names]
    missing_names = ", ".join(map(repr, missing))
    unknown = [each for each in schema.names if each not in _BASE and _counter(schema.field(each)) is None]
    if unknown:
        lacking = f" and lacks {missing_names}" if missing else ""
        raise LaunchTableError(
            name, f"it has an unknown column {unknown[0]!r}{lacking}", _instead(unknown[0])
        )
    if missing:
        raise LaunchTableError(name, f"it lacks {missing_names}", f"add what is missing; {_PAGE}")
    for item in schema:
        _check_unit(item, name)
    counters = ((item, _counter(item)) for item in schema if item.name not in _BASE)
    return tuple(
        replace(counter, metric=_word(item, "metric")) for item, counter in counters if counter is not None
    )


def _counter(item: pa.Field) -> CounterColumn | None:
    """The counter of a column: ours, or one under its own name, of which the metadata say the metric."""
    name, metric = item.name, _word(item, "metric")
    if name in registry():
        return registry()[name].column("")
    if name in simulated_counters():
        return simulated_counters()[name].column()
    if not metric:
        return None
    own = column_of_metric(metric)
    return replace(
        own, name=name, unit=_word(item, "unit") or own.unit, variant=_word(item, "variant") or own.variant
    )


def _unit(item: pa.Field) -> str:
    if item.name in _BASE:
        return _word(_BASE[item.name], "unit")
    counter = _counter(item)
    return counter.unit if counter is not None else ""


def _word(item: pa.Field, what: str) -> str:
    """A word of a field's metadata, "" if it has none."""
    return str((item.metadata or {}).get(what.encode(), b"").decode())


def _check_unit(item: pa.Field, name: str) -> None:
    word = _word(item, "unit")
    unit = _unit(item)
    if item.name in _TEXTS or not word or word == unit:
        return
    factor = _TIME_UNITS.get(word)
    how = f"multiply it by {factor:,.0f}" if factor and unit == "ns" else f"convert it to {unit}"
    raise LaunchTableError(name, f"the column {item.name!r} is in {word!r}, and Assay takes {unit!r}", how)


def _instead(column: str) -> str:
    stem, _, unit = column.rpartition("_")
    if unit in _TIME_UNITS and f"{stem}_ns" in _BASE:
        return f"multiply it by {_TIME_UNITS[unit]:,.0f} and call it {stem + '_ns'!r}"
    if column in _TIMES:
        return f"give it in nanoseconds and call it {_TIMES[column]!r}"
    columns = [*_BASE, *registry(), *simulated_counters()]
    close = difflib.get_close_matches(column, columns, n=1)
    return f"did you mean {close[0]!r}? {_PAGE}" if close else f"drop or rename it; {_PAGE}"


def _kind(column: str) -> pa.DataType:
    return _BASE[column].type if column in _BASE else pa.float64()


def _cast(values: pa.Array, kind: pa.DataType, name: str, column: str) -> pa.Array:
    if pa.types.is_floating(values.type):
        # "Not measured" is null; pandas and NumPy write it as NaN.
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    try:
        if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
                or pa.types.is_null(values.type)):  # fmt: skip
            raise pa.ArrowInvalid(f"it holds {values.type}")
        return values.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        what = "whole numbers" if pa.types.is_integer(kind) else "numbers"
        raise LaunchTableError(
            name, f"the column {column!r} does not hold {what} ({error})", f"convert it; {_PAGE}"
        ) from error


def _identifiers(values: pa.Array, names: Names, name: str, column: str) -> pa.Array:
    """Content hashes of texts, interned in ``names``."""
    encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    texts = encoded.dictionary
    if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)
            or pa.types.is_null(texts.type)):  # fmt: skip
        raise LaunchTableError(name, f"the column {column!r} holds {texts.type}, not text", "convert it")
    used = np.unique(encoded.indices.drop_null().to_numpy(zero_copy_only=False))
    hashes = np.zeros(len(texts), np.uint64)
    for index in used.tolist():
        hashes[index] = names.intern(texts[index].as_py())
    return pa.array(hashes).take(encoded.indices)


def _refuse_nulls(columns: Mapping[str, pa.Array], name: str) -> None:
    for column, item in _BASE.items():
        values = columns.get(item.name)
        if not item.nullable and values is not None and values.null_count:
            row = pc.index(values.is_null(), True).as_py()
            raise LaunchTableError(
                name, f"the column {column!r} has no value in row {row}", "every launch needs one"
            )
