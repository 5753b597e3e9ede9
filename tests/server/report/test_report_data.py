"""CSV, Parquet and JSON of a report hold the same values under the same keys."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_report.data import (
    FORMULA_STARTS,
    DataColumn,
    DataTable,
    arrow_table,
    csv_text,
    data_tables,
    defused,
    main_table,
    parquet_bytes,
)
from assay_report.reading import read_report
from assay_sampling.visible import visible
from tests.support.server.made_reports import made_report


def in_json(document: dict[str, Any], table: str) -> list[dict[str, Any]]:
    found = document[table] if table in document else document["verdicts"][table]
    assert isinstance(found, list)
    return found


def at(entry: Any, key: str) -> Any:
    for part in key.split("."):
        entry = entry.get(part) if isinstance(entry, dict) else None
    return entry


def as_csv_says(value: Any) -> str:
    """The cell of a JSON value."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return defused(value) if isinstance(value, str) else repr(value)


def test_csv_equals_json_equals_parquet() -> None:
    document = made_report(17, kernel="=cmd|' /C calc'!A0", prefix="-2+3")
    for row in document["rows"]:  # whole numbers stay numbers of their kind
        row["speedup"] = 100
    report = read_report(document)
    written = report.to_document()
    names = []
    for table in data_tables(report):
        names.append(table.name)
        entries = in_json(written, table.name)
        read = list(csv.DictReader(io.StringIO(csv_text(table), newline="")))
        columns = pq.read_table(io.BytesIO(parquet_bytes(table))).to_pydict()
        assert len(read) == len(table.columns[0].values) == len(entries)
        for column in table.columns:
            for place, entry in enumerate(entries):
                value = at(entry, column.key)
                if column.kind == "number" and value is not None:
                    value = float(value)
                if column.kind == "text" and value is not None and not isinstance(value, str):
                    value = json.dumps(value, ensure_ascii=False)
                where = (table.name, column.key, place)
                assert columns[column.key][place] == value, where
                assert read[place][column.key] == as_csv_says(value), where
    assert {"rows", "summary", "suite", "gpus", "best", "excluded", "runs", "recommendations"} <= set(names)


def test_no_key_of_a_row_is_missing_in_its_table() -> None:
    report = read_report(made_report(1))
    keys = {column.key.split(".")[0] for column in main_table(report).columns}
    assert keys == set(report.rows[0].model_dump())


@given(st.builds(str.__add__, st.sampled_from(["", *FORMULA_STARTS]), st.text()))
def test_no_text_of_a_csv_is_a_formula_and_what_is_not_hidden_comes_back(text: str) -> None:
    table = DataTable("t", (DataColumn("name", "text", (text, "end")),))
    # RFC 4180 knows no NUL and no lone surrogates; both are written by their number.
    read = list(csv.reader(io.StringIO(csv_text(table).encode().decode(), newline="")))
    [shown] = read[1] if read[1] else [""]
    assert not shown.startswith(FORMULA_STARTS)
    assert shown in (visible(text), f"'{visible(text)}")


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\n=1"])
def test_formulas_get_an_apostrophe(text: str) -> None:
    table = DataTable("t", (DataColumn("name", "text", (text,)), DataColumn("n", "number", (-1.5,))))
    [cells] = list(csv.reader(io.StringIO(csv_text(table), newline="")))[1:]
    assert cells == [f"'{text}", "-1.5"]


def test_lines_end_as_rfc_4180_says() -> None:
    table = DataTable(
        "t", (DataColumn("name", "text", ('a "b", c', None)), DataColumn("ok", "truth", (True, None)))
    )
    assert csv_text(table) == 'name,ok\r\n"a ""b"", c",true\r\n,\r\n'
    assert arrow_table(table).to_pydict() == {"name": ['a "b", c', None], "ok": [True, None]}
