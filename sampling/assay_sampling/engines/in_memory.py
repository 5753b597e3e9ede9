"""The engine for rows that fit into memory: Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay_sampling.engines.seam import BATCH_ROWS, ArrayRows, Groups, Rows
from assay_sampling.errors import RefusedError

_ROW = "row number"
_LOW_BITS = 32


class ArrowEngine:
    """Groups by hashing and sorts in memory; it holds a few copies of the columns."""

    def groups(
        self, rows: Rows, keys: Sequence[str], sums: Sequence[str] = (), *, most: int | None = None
    ) -> Groups:
        """See :class:`assay_sampling.engines.seam.Engine`."""
        table = _table(rows)
        columns = {name: with_equal_floats(table[name]) for name in keys}
        columns[_ROW] = pa.chunked_array([pa.array(np.arange(table.num_rows))])
        for place, name in enumerate(sums):
            columns[f"{place} high"], columns[f"{place} low"] = _halves(table[name])
        aggregations: list[tuple[str, str, pc.FunctionOptions | None]] = [
            (_ROW, "min", None),
            (_ROW, "count", None),
        ]
        zero = pc.ScalarAggregateOptions(min_count=0)
        aggregations += [
            (f"{place} {half}", "sum", zero) for place in range(len(sums)) for half in ("high", "low")
        ]
        by_key = pa.table(columns).group_by(list(keys), use_threads=False).aggregate(aggregations)
        if most is not None and len(by_key) > most:
            raise too_many_groups(keys, most)
        order = np.argsort(by_key[f"{_ROW}_min"].to_numpy(), kind="stable")
        by_key = by_key.take(pa.array(order))
        return Groups(
            keys=by_key.select(list(keys)),
            first_row=by_key[f"{_ROW}_min"].to_numpy(),
            count=by_key[f"{_ROW}_count"].to_numpy(),
            sums={
                name: _whole(name, by_key[f"{place} high_sum"], by_key[f"{place} low_sum"])
                for place, name in enumerate(sums)
            },
        )

    def sorted(self, rows: Rows, by: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See :class:`assay_sampling.engines.seam.Engine`."""
        table = _table(rows)
        keys = {f"key {place}": with_equal_floats(table[name]) for place, name in enumerate(by)}
        keys[_ROW] = pa.chunked_array([pa.array(np.arange(table.num_rows))])
        order = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys])
        yield from table.take(order).combine_chunks().to_batches(max_chunksize=BATCH_ROWS)


def with_equal_floats(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of floating-point numbers with one zero and one NaN; any other column unchanged."""
    if not pa.types.is_floating(column.type):
        return column
    positive = pc.add(column, pa.scalar(0.0, column.type))
    return pc.if_else(pc.is_nan(positive), pa.scalar(float("nan"), column.type), positive)


def require_integers(name: str, kind: pa.DataType) -> None:
    """Raise ValueError unless a column's sums are those of integers."""
    if not pa.types.is_integer(kind):
        raise ValueError(f"an engine sums integers, and {name!r} is of type {kind}")


def sum_too_large(name: str) -> RefusedError:
    """The refusal of a sum that no 64-bit integer holds."""
    return RefusedError("launches", f"a sum of {name!r} is too large for 64 bits", "group fewer launches")


def too_many_groups(keys: Sequence[str], most: int) -> RefusedError:
    """The refusal of more groups than fit into memory."""
    return RefusedError(
        "launches",
        f"they have more than {most:,} distinct values of {' and '.join(keys)}: the memory limit is too low",
        "raise --memory-limit, or analyse fewer launches",
    )


def _table(rows: Rows) -> pa.Table:
    if isinstance(rows, ArrayRows):
        return pa.table({name: _column(values) for name, values in rows.columns.items()})
    import pyarrow.parquet as pq  # noqa: PLC0415 - programs that only move launches do without

    return pa.concat_tables([pq.read_table(path, columns=list(rows.columns)) for path in rows.paths])


def _column(values: object) -> pa.ChunkedArray | pa.Array:
    return values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(np.asarray(values))


def _halves(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """The upper and the lower 32 bits of integers, whose sums cannot exceed 64 bits."""
    require_integers("sum", column.type)
    if pa.types.is_unsigned_integer(column.type):
        column = column.cast(pa.uint64())
    else:
        column = column.cast(pa.int64())
    one = pa.scalar(_LOW_BITS, column.type)
    low = pc.bit_wise_and(column, pa.scalar((1 << _LOW_BITS) - 1, column.type))
    return pc.shift_right(column, one).cast(pa.int64()), low.cast(pa.int64())


def _whole(name: str, high: pa.ChunkedArray, low: pa.ChunkedArray) -> np.ndarray:
    lower = low.to_numpy()
    upper = high.to_numpy() + (lower >> _LOW_BITS)
    if bool(((upper >= 1 << 31) | (upper < -(1 << 31))).any()):
        raise sum_too_large(name)
    whole: np.ndarray = (upper << _LOW_BITS) + (lower & ((1 << _LOW_BITS) - 1))
    return whole
