"""Bytes that are not text, where Python would decode them itself; fuzzing guided by coverage found them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest

from assay_sampling.errors import InputError, LaunchTableError
from assay_sampling.launches.checks import check_schema
from assay_sampling.launches.table import TableMetadata, counter_columns, launch_schema
from assay_sampling.readers.opening import read_launches

PAGE = b'''"ID",e,"Kernel Name","","Metric Name","Metric Unit","Metric Value",""
"0","",1""","","","",""
"""\r""""'''


def test_a_row_with_carriage_returns_is_blamed_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "details.csv"
    path.write_bytes(PAGE)
    with pytest.raises(InputError, match=r"details\.csv:2"):
        read_launches(path)


def test_a_schema_that_is_not_text_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "trace.sqlite"
    with sqlite3.connect(path) as made:
        made.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, marker_name INTEGER)")
    made.close()
    # SQLite quotes the table's name in its complaint, and Python cannot decode it.
    content = path.read_bytes().replace(b"CUPTI_ACTIVITY_KIND_KERNEL", b"CUPTI_ACTIVITY\xb0KIND_KERNEL")
    path.write_bytes(content.replace(b"INTEGER, marker_name", b"INTEGER( marker_name"))
    with pytest.raises(InputError, match="damaged"):
        read_launches(path)


@pytest.mark.parametrize("column", [0, -1])
def test_metadata_of_a_column_must_be_text(column: int) -> None:
    schema = launch_schema(TableMetadata("light", "made"))
    fields = list(schema)
    fields[column] = fields[column].with_metadata({b"kind": b"counter", b"unit": b"\x99"})
    damaged = pa.schema(fields, metadata=schema.metadata)
    for read in (check_schema, counter_columns):
        with pytest.raises(LaunchTableError, match="not UTF-8"):
            read(damaged)
