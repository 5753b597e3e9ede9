"""Which tables stand in which part of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assay_server.report import tables
from assay_server.report.differences import differences_table

Report = Mapping[str, Any]
Row = Mapping[str, Any]


def by_workload(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows of each workload, in the order of the report."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["workload"], []).append(row)
    return found


def workload_tables(report: Report, rows: Sequence[Row]) -> Iterator[tables.Table]:
    """The tables of one workload's part of the report."""
    yield tables.rows_table(rows)
    for table in (differences_table(rows), tables.window_table(rows), tables.models_table(rows)):
        if table is not None:
            yield table
    for key in dict.fromkeys(row["selection"] for row in rows if row["selection"]):
        groups = tables.groups_table(key, report["selections"].get(key, {}))
        if groups is not None:
            yield groups
