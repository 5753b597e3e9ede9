"""Flat tables as Parquet, with the same keys and values as the CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay_report.data.flat import DataTable, Kind, main_table
from assay_report.model.report import Report
from assay_report.verdicts.verdicts import verdicts_of

if TYPE_CHECKING:
    import pyarrow as pa

SENTENCE = "assay.sentence"


def arrow_table(table: DataTable) -> pa.Table:
    """The table in Arrow: float64, int64, bool or string columns; a missing value is null."""
    import pyarrow as pa  # noqa: PLC0415 - a third of a second that other forms do not need

    kinds: dict[Kind, pa.DataType] = {
        "number": pa.float64(), "integer": pa.int64(), "truth": pa.bool_(), "text": pa.string(),
    }  # fmt: skip
    arrays = [pa.array(column.values, kinds[column.kind]) for column in table.columns]
    return pa.table(dict(zip((column.key for column in table.columns), arrays, strict=True)))


def parquet_bytes(table: DataTable) -> bytes:
    """The file; the same table gives the same bytes."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    sink = pa.BufferOutputStream()
    pq.write_table(arrow_table(table), sink)
    return bytes(sink.getvalue().to_pybytes())


def report_parquet(report: Report) -> bytes:
    """The table of rows; the file's metadata have the report's first sentence under :data:`SENTENCE`."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    sentence = verdicts_of(report).overall.sentence
    sink = pa.BufferOutputStream()
    pq.write_table(arrow_table(main_table(report)).replace_schema_metadata({SENTENCE: sentence}), sink)
    return bytes(sink.getvalue().to_pybytes())
