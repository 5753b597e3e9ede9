"""Packed columns: exactly the launches that were packed, in any window of them, and no lies believed."""

from __future__ import annotations

import base64
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from assay_sampling.arrays import distinct, identifiers_from, numbers_from, texts_from, validity_of
from assay_sampling.errors import LaunchTableError
from assay_sampling.launches.table import (
    BASE_FIELDS,
    CounterColumn,
    TableMetadata,
    launch_schema,
    make_batch,
)
from assay_sampling.wire.packed import CODES, STEPS, PackedColumns, column_of, columns_of, plain_schema
from assay_sampling.wire.packing import packed

SCHEMA = launch_schema(
    TableMetadata("detailed"), [CounterColumn(n, "1", "m", "hardware") for n in ("few", "many")]
)
_INTEGERS = {
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float64(): st.floats(),
}


@st.composite
def columns(draw: st.DrawFn) -> pa.RecordBatch:
    """A batch of which each column is constant, of few values, rising, or anything, perhaps with nulls."""
    rows = draw(st.integers(0, 40))
    arrays = []
    for item in SCHEMA:
        anything = _INTEGERS[item.type]
        kind = draw(st.sampled_from(("constant", "few", "rising", "anything", "empty")))
        if kind == "rising" and item.type == pa.int64():
            start = draw(st.integers(-(2**62), 2**62))
            steps = draw(
                st.lists(st.integers(-200, 2 ** draw(st.integers(0, 33))), min_size=rows, max_size=rows)
            )
            values = [start + int(total) for total in np.cumsum([0, *steps])[1:]]
        else:
            pool = draw(st.lists(anything, min_size=1, max_size={"constant": 1, "few": 4}.get(kind, 60)))
            values = draw(st.lists(st.sampled_from(pool), min_size=rows, max_size=rows))
        nulls = draw(st.sets(st.integers(0, max(rows - 1, 0)))) if item.nullable else set()
        if kind == "empty" and item.nullable:
            nulls = set(range(rows))
        arrays.append(pa.array([None if i in nulls else v for i, v in enumerate(values)], item.type))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def unpacked(batch: pa.RecordBatch) -> PackedColumns:
    """As it comes off the wire."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    with pa.ipc.open_stream(sink.getvalue()) as reader:
        [found] = list(reader)
    found.validate(full=True)
    return columns_of(found, plain_schema(found.schema))


def bits(column: pa.Array) -> tuple[object, ...]:
    """Values with their very bits: NaN and -0.0 count."""
    if column.type == pa.float64():
        values = np.array([0.0 if v is None else v for v in column.to_pylist()])
        return tuple(zip(column.is_valid().to_pylist(), values.view(np.int64).tolist(), strict=True))
    return tuple(column.to_pylist())


@settings(max_examples=50, deadline=None)
@given(columns(), st.data())
def test_what_was_packed_comes_out(batch: pa.RecordBatch, data: st.DataObject) -> None:
    lead = data.draw(st.integers(0, batch.num_rows))
    batch = batch.slice(lead)
    found = unpacked(packed(batch))
    assert found.schema.equals(SCHEMA, check_metadata=True)
    found.plain().validate(full=True)
    for name in SCHEMA.names:
        assert bits(found.plain().column(name)) == bits(batch.column(name))
        column, plain = found.column(name), batch.column(name)
        assert column.nulls == plain.null_count
        present = plain.drop_null()
        if plain.type != pa.float64():
            assert column.smallest() == (min(present.to_pylist()) if len(present) else None)
            assert column.distinct().tolist() == [] or set(column.distinct().tolist()) == set(
                present.to_pylist()
            )
        first = data.draw(st.integers(0, batch.num_rows))
        count = data.draw(st.integers(0, batch.num_rows - first))
        if column.nulls < len(plain):
            window = np.zeros(count, plain.type.to_pandas_dtype())
            column.write(window, first)
            valid = column.valid(first, count)
            assert bits(numbers_from(window, plain.type, valid)) == bits(plain.slice(first, count))


def test_each_column_takes_the_form_of_fewest_bytes() -> None:
    rows = 1000
    generator = np.random.default_rng(0)
    many = generator.permutation(rows)
    batch = make_batch(
        SCHEMA,
        {
            "process": np.zeros(rows, np.int32),
            "launch": np.arange(7, 7 + rows),
            "kernel_id": generator.integers(0, 300, rows).astype(np.uint64) << 40,
            "grid_x": many + 1,
            "block_x": np.full(rows, 256, np.int32),
            "start_ns": np.cumsum(many) * 10_000,
            "few": np.resize([1e9, 2e9], rows),
            "many": generator.random(rows),
        },
    )
    found = packed(batch)
    forms = {item.name: (str(item.type), {CODES, STEPS} & item.metadata.keys()) for item in found.schema}
    assert forms["process"] == ("uint8", {CODES})
    assert forms["launch"] == ("int8", {STEPS})
    assert forms["kernel_id"] == ("uint16", {CODES})
    assert forms["grid_x"] == ("int16", set())
    assert forms["start_ns"] == ("int32", {STEPS})
    assert forms["few"] == ("uint8", {CODES})
    assert forms["many"] == ("double", set())
    assert forms["grid_y"] == ("null", set())
    assert unpacked(found).plain().equals(batch)


@pytest.mark.parametrize("first", [2**63 - 3, -(2**63)])
def test_numbers_at_the_ends_of_their_range_are_no_steps(first: int) -> None:
    values = np.arange(3, dtype=np.int64) + np.int64(first)
    columns = {"process": np.zeros(3, np.int32), "launch": [0, 1, 2], "kernel_id": [1, 2, 3]}
    batch = make_batch(SCHEMA, columns | {"grid_x": [1, 1, 1], "block_x": [1, 1, 1], "start_ns": values})
    assert unpacked(packed(batch)).plain().equals(batch)


def field(kind: pa.DataType, key: bytes, text: bytes) -> pa.Field:
    return pa.field("grid_x", kind, metadata={key: text})


@pytest.mark.parametrize(
    ("values", "item", "told"),
    [
        (
            [0, 5],
            field(pa.uint8(), CODES, base64.b64encode(bytes(16))),
            "it has the code 5, but only 2 values",
        ),
        ([0], field(pa.uint8(), CODES, b""), "it has the code 0, but only 0 values"),
        ([0], field(pa.uint8(), CODES, base64.b64encode(bytes(9))), "its values cannot be read"),
        ([0], field(pa.uint8(), CODES, b"!"), "its values cannot be read"),
        ([0], field(pa.int64(), CODES, base64.b64encode(bytes(16))), "its codes are of type int64"),
        ([1], field(pa.int8(), STEPS, b"x"), "its steps begin nowhere"),
        ([1], field(pa.int8(), STEPS, str(2**62).encode()), "its steps begin at"),
        ([1, None], field(pa.int8(), STEPS, b"0"), "its steps have nulls"),
        ([1], field(pa.int64(), STEPS, b"0"), "or are of another type"),
        ([1.5], pa.field("grid_x", pa.float64()), "values of type double do not fit int64"),
        ([1], pa.field("grid_x", pa.uint64()), "values of type uint64 do not fit int64"),
    ],
)
def test_a_column_that_lies_is_refused(values: list[object], item: pa.Field, told: str) -> None:
    with pytest.raises(LaunchTableError, match="packed column 'grid_x'") as caught:
        column_of(pa.array(values, item.type), item, pa.int64())
    assert told in caught.value.cause


def test_codes_under_nulls_may_be_anything() -> None:
    codes = numbers_from(np.array([1, 200], np.uint8), pa.uint8(), np.array([True, False]))
    item = field(pa.uint8(), CODES, base64.b64encode(np.array([5, 6]).tobytes()))
    target = np.zeros(2, np.int64)
    column_of(codes, item, pa.int64()).write(target, 0)
    assert target[0] == 6


def test_a_schema_without_packing_is_its_own_and_foreign_types_stay() -> None:
    assert plain_schema(SCHEMA).equals(SCHEMA, check_metadata=True)
    foreign = pa.schema([BASE_FIELDS[0].with_type(pa.string()), *list(SCHEMA)[1:]], SCHEMA.metadata)
    assert plain_schema(foreign).field(0).type == pa.string()


@given(st.lists(st.none() | st.integers(0, 9), max_size=40), st.integers(0, 12))
@example([None, 1], 1)
def test_rows_with_a_value(values: list[int | None], lead: int) -> None:
    column = pa.array(values, pa.int64()).slice(lead)
    assert validity_of(column).tolist() == [v is not None for v in values[lead:]]


@given(st.lists(st.text(st.characters(codec="utf-8"))), st.lists(st.integers(0, 2**64 - 1)))
def test_columns_of_texts_and_identifiers(texts: list[str], identifiers: list[int]) -> None:
    assert texts_from(texts).equals(pa.array(texts, pa.large_string()))
    assert identifiers_from(identifiers).equals(pa.array(identifiers, pa.uint64()))
    assert distinct(np.array(identifiers, np.uint64)).tolist() == sorted(set(identifiers))


def test_packing_loads_neither_pandas_nor_masked_arrays() -> None:
    """They would cost a server its first second of ingest."""
    program = (
        "import sys, numpy as np, pyarrow as pa\n"
        "from assay_sampling.wire.packed import *\n"
        "from assay_sampling.wire.packing import *\n"
        "from assay_sampling.arrays import *\n"
        "a = numbers_from(np.arange(9), pa.int64())\n"
        "b = pa.RecordBatch.from_arrays([a, texts_from(['a'] * 9)], names=['process', 'text']).select([0])\n"
        "p = packed(b)\n"
        "c = columns_of(p, b.schema)\n"
        "c.plain(), c.values('process'), c.column('process').smallest()\n"
        "distinct(c.column('process').distinct())\n"
        "print(*({'pandas', 'numpy.ma'} & sys.modules.keys()))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
