"""Row groups in memory: exactly the launches that were copied into them, however they came."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.launches.parquet import ROW_GROUP_ROWS
from assay_sampling.launches.table import Names
from assay_sampling.wire.packed import columns_of
from assay_server.store.row_groups import RowGroup, RowGroups, WaitingLaunches
from tests.support.server.made_segments import made_batch, made_schema

SCHEMA = pa.schema(
    [
        pa.field("launch", pa.int64(), nullable=False),
        pa.field("device", pa.int32()),
        pa.field("kernel_id", pa.uint64()),
        pa.field("cycles", pa.float64()),
    ]
)
ROW = st.tuples(
    st.integers(0, 2**63 - 1),
    st.none() | st.integers(-(2**31), 2**31 - 1),
    st.none() | st.integers(0, 2**64 - 1),
    st.none() | st.floats(allow_nan=False),
)


def table_of(rows: list[tuple[object, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [[]] * len(SCHEMA)
    arrays = [pa.array(list(c), item.type) for c, item in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


@settings(max_examples=60, deadline=None)
@given(before=st.lists(ROW, max_size=9), rows=st.lists(ROW, min_size=1, max_size=30), data=st.data())
def test_it_holds_what_was_copied_however_it_was_cut_and_nothing_from_before(
    before: list[tuple[object, ...]], rows: list[tuple[object, ...]], data: st.DataObject
) -> None:
    group = RowGroup(SCHEMA)
    for batch in table_of(before).to_batches():
        group.take(columns_of(batch, SCHEMA), 0)
    group.begin(SCHEMA)
    table, first = table_of(rows), 0
    while first < len(rows):
        count = data.draw(st.integers(1, len(rows) - first))
        lead = data.draw(st.integers(0, first))  # a batch whose first rows are not asked for
        [batch] = table.slice(first - lead, lead + count).combine_chunks().to_batches()
        assert group.take(columns_of(batch, SCHEMA), lead) == count
        first += count
    assert group.rows == len(rows)
    found = group.batch()
    found.validate(full=True)
    assert pa.Table.from_batches([found]).equals(table)


def test_it_takes_as_many_rows_as_fit() -> None:
    group = RowGroup(made_schema())
    batch = made_batch(made_schema(), 0, 100_000, Names())
    columns = columns_of(batch, made_schema())
    assert [group.take(columns, 0), group.take(columns, 0)] == [100_000, ROW_GROUP_ROWS - 100_000]
    assert group.is_full
    assert group.batch().slice(100_000).equals(batch.slice(0, ROW_GROUP_ROWS - 100_000))


def test_memory_is_used_again_for_columns_of_equal_types_and_only_so_much_is_kept() -> None:
    groups = RowGroups(most_free=2)
    other = SCHEMA.remove(3)
    taken = [groups.take(SCHEMA), groups.take(SCHEMA), groups.take(other)]
    for group, schema in zip(taken, (SCHEMA, SCHEMA, other), strict=True):
        groups.give_back(group, schema)
    assert groups.take(SCHEMA) is taken[1]
    assert groups.take(SCHEMA) is not taken[0]
    assert groups.take(other) is taken[2]


@pytest.mark.parametrize("kept", [0, 3])
def test_a_row_group_that_is_used_again_is_empty(kept: int) -> None:
    groups = RowGroups()
    group = groups.take(SCHEMA)
    for batch in table_of([(n, None, n, 1.0) for n in range(kept)]).to_batches():
        group.take(columns_of(batch, SCHEMA), 0)
    groups.give_back(group, SCHEMA)
    assert groups.take(SCHEMA) is group
    assert (group.rows, group.batch().num_rows) == (0, 0)


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(ROW, min_size=1, max_size=30), data=st.data())
def test_launches_that_wait_are_copied_whole_in_order_however_many_pieces_they_are(
    rows: list[tuple[object, ...]], data: st.DataObject
) -> None:
    waiting, table, first = WaitingLaunches(SCHEMA, RowGroups()), table_of(rows), 0
    while first < len(rows):
        lead = data.draw(st.integers(0, first))  # rows of the piece that are not asked for
        count = data.draw(st.integers(1, len(rows) - first))
        [batch] = table.slice(first - lead, lead + count).combine_chunks().to_batches()
        assert waiting.take(columns_of(batch, SCHEMA), lead) == count
        first += count
    assert (waiting.rows, waiting.is_full) == (len(rows), False)
    assert pa.Table.from_batches([waiting.copied().batch()]).equals(table)


def test_few_pieces_wait_without_a_row_group_and_as_many_rows_as_fit() -> None:
    groups = RowGroups()
    groups.give_back(RowGroup(made_schema()), made_schema())
    waiting = WaitingLaunches(made_schema(), groups)
    piece = columns_of(made_batch(made_schema(), 0, 50_000, Names()), made_schema())
    assert [waiting.take(piece, 0) for _ in range(3)] == [50_000, 50_000, ROW_GROUP_ROWS - 100_000]
    assert waiting.is_full
    free = groups.take(made_schema())
    groups.give_back(free, made_schema())
    assert waiting.copied() is free  # none was taken before
    assert free.rows == ROW_GROUP_ROWS
