"""Numbers of rows that an engine sorts and groups by: in the rows' order, and back to the rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_sampling.engines.row_numbers import RowNumbers

duckdb = pytest.importorskip("duckdb", reason="the extra 'engine' is not installed")

_UINT32 = 2**32


def _asked(numbers: RowNumbers, places: list[tuple[int, int]]) -> list[int]:
    """What DuckDB makes of (place of the file, place in the file)."""
    with duckdb.connect(":memory:") as database:
        row = "(SELECT ?::UBIGINT AS file_index, ?::BIGINT AS file_row_number)"
        question = f"SELECT {numbers.in_files()} FROM {row}"
        return [database.execute(question, place).fetchone()[0] for place in places]


@given(lengths=st.lists(st.integers(0, 9), min_size=1, max_size=5))
def test_numbers_ascend_with_the_rows_and_lead_back_to_them(lengths: list[int]) -> None:
    numbers = RowNumbers(tuple(lengths))
    made = [file * numbers.longest + row for file, length in enumerate(lengths) for row in range(length)]
    assert made == sorted(set(made))
    found = numbers.rows(np.array(made, numbers.kind.to_pandas_dtype()))
    assert found.dtype == np.int64
    assert found.tolist() == list(range(sum(lengths)))


@pytest.mark.parametrize(
    ("lengths", "kind"),
    [
        ((_UINT32,), pa.uint32()),
        ((_UINT32 + 1,), pa.int64()),
        ((_UINT32 // 4, 1, 0, _UINT32 // 4), pa.uint32()),
        ((_UINT32 // 4, 1, 0, _UINT32 // 4 + 1), pa.int64()),
        ((0, 0), pa.uint32()),
    ],
)
def test_the_last_row_of_many_has_its_number_and_comes_back(
    lengths: tuple[int, ...], kind: pa.DataType
) -> None:
    numbers = RowNumbers(lengths)
    assert numbers.kind == kind
    last = len(lengths) - 1, max(0, lengths[-1] - 1)
    (number,) = _asked(numbers, [last])
    assert number == last[0] * numbers.longest + last[1]
    found = numbers.rows(np.array([number], kind.to_pandas_dtype()))
    assert found.tolist() == [sum(lengths[:-1]) + last[1]]
