"""Files put together from column chunks are those that pyarrow writes, byte for byte."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.files import column_chunks
from assay_sampling.files.column_chunks import RowGroupsFile
from assay_sampling.launches.parquet import encoding_of

METADATA = {b"assay.names": b"names", b"more": bytes(300)}
KINDS = (pa.int32(), pa.int64(), pa.uint64(), pa.float64())
# Each with what makes a difference in bits but not in value, or the other way round.
SPECIAL = {
    pa.int32(): [0, 1, -1, 2**31 - 1],
    pa.int64(): [0, 7, -(2**63)],
    pa.uint64(): [0, 2**64 - 1],
    pa.float64(): [0.0, -0.0, float("nan"), 1.5, float("inf")],
}


def options(schema: pa.Schema) -> dict[str, Any]:
    return encoding_of(schema) | {"write_page_checksum": True, "store_schema": True}


def by_pyarrow(schema: pa.Schema, groups: list[pa.Table]) -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, schema, **options(schema)) as writer:
        for group in groups:
            writer.write_table(group, row_group_size=group.num_rows)
        writer.add_key_value_metadata(METADATA)
    return sink.getvalue()


def by_chunks(schema: pa.Schema, groups: list[pa.Table], *, last_at_end: bool) -> bytes:
    sink = io.BytesIO()
    file = RowGroupsFile(schema, options, sink.write)
    for group in groups[:-1] if last_at_end else groups:
        file.write_group(group)
    file.end(METADATA, groups[-1] if last_at_end and groups else None)
    return sink.getvalue()


@st.composite
def columns(draw: st.DrawFn, kind: pa.DataType, rows: int) -> pa.Array:
    form = draw(st.sampled_from(["equal", "null", "few", "distinct", "some null"]))
    value = st.sampled_from(SPECIAL[kind])
    if form == "equal":
        return pa.array([draw(value)] * rows, kind)
    if form == "null":
        return pa.nulls(rows, kind)
    if form == "distinct":
        return pa.array(np.arange(rows), pa.int64()).cast(kind)
    choices = st.one_of(value, st.none()) if form == "some null" else value
    return pa.array(draw(st.lists(choices, min_size=rows, max_size=rows)), kind)


@st.composite
def files(draw: st.DrawFn) -> tuple[pa.Schema, list[pa.Table]]:
    """Row groups of one schema; names of columns decide how they are encoded."""
    names = draw(
        st.lists(
            st.sampled_from(["process", "launch", "kernel_id", "start_ns", "duration_ns", "instructions"]),
            min_size=1, unique=True,
        )
    )  # fmt: skip
    kinds = {
        name: pa.int64() if name in ("launch", "start_ns", "duration_ns") else draw(st.sampled_from(KINDS))
        for name in names
    }
    schema = pa.schema([pa.field(name, kinds[name]) for name in names], {b"assay": b"{}"})
    groups = []
    for _ in range(draw(st.integers(0, 3))):
        rows = draw(st.integers(1, 90))
        groups.append(
            pa.Table.from_arrays([draw(columns(kinds[name], rows)) for name in names], schema=schema)
        )
    return schema, groups


@settings(deadline=None, max_examples=60)
@given(made=files(), last_at_end=st.booleans(), few=st.sampled_from([0, 30_000]))
def test_the_bytes_are_those_of_pyarrow_whatever_the_columns_hold(
    made: tuple[pa.Schema, list[pa.Table]], last_at_end: bool, few: int
) -> None:
    schema, groups = made
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_chunks, "_FEW_ROWS", few)
        assert by_chunks(schema, groups, last_at_end=last_at_end) == by_pyarrow(schema, groups)


@pytest.mark.parametrize(
    "values", [[0.0] * 70 + [-0.0], [-0.0] + [0.0] * 70, [float("nan")] * 70, [1.5] * 70]
)
def test_numbers_are_equal_if_their_bits_are(values: list[float]) -> None:
    schema = pa.schema([pa.field("instructions", pa.float64())])
    group = pa.Table.from_arrays([pa.array(values)], schema=schema)
    assert by_chunks(schema, [group], last_at_end=False) == by_pyarrow(schema, [group])


def test_many_row_groups_and_pages_are_described_where_they_are() -> None:
    rows = 40_000
    schema = pa.schema([pa.field("kernel_id", pa.uint64(), False), pa.field("device", pa.int32())])
    scattered = np.random.default_rng(1).integers(0, 2**63, rows).astype(np.uint64)
    equal = pa.array(np.zeros(rows, np.int32))
    group = pa.Table.from_arrays([pa.array(scattered), equal], schema=schema)
    groups = [group, *(group.slice(0, rows - place).combine_chunks() for place in range(1, 18))]
    written = by_chunks(schema, groups, last_at_end=False)
    assert written == by_pyarrow(schema, groups)
    read = pq.read_table(io.BytesIO(written), page_checksum_verification=True)
    assert read.equals(pa.concat_tables(groups))


def test_equal_columns_are_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = pa.schema([pa.field("device", pa.int32()), pa.field("launch", pa.int64())])
    encoded: list[list[str]] = []
    chunks = column_chunks._chunks

    def counted(table: pa.Table, given_options: Any) -> Any:
        encoded.append(table.column_names)
        return chunks(table, given_options)

    monkeypatch.setattr(column_chunks, "_chunks", counted)
    column_chunks._equal_chunk.cache_clear()
    group = pa.Table.from_arrays([pa.array([3] * 20, pa.int32()), pa.array(range(20))], schema=schema)
    by_chunks(schema, [group, group, group], last_at_end=False)
    assert encoded == [["device"], ["launch"], ["launch"], ["launch"]]
