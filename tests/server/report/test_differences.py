"""A refusal is short in every table, and its launches stand once in the workload's part."""

from __future__ import annotations

import re
from typing import Any

from assay_report.model.common import Outcome
from assay_report.model.scores import Row
from assay_report.tables.scores import differences_table
from assay_sampling.errors import AssayError, MisalignedError, RefusedError
from assay_server.analysis.rows import fail
from tests.support.server.report_forms import render_html, render_markdown

MISALIGNED = MisalignedError(
    "a-1 and a-6",
    "only 98.11 % of the launches match, and 99 % are needed",
    "record both again with autotuning off",
    ("left has at launch 1 volta; right has at launch 1 turing", "left has at launch 2 sgemm"),
)
CAUSE = "a-1 and a-6: only 98.11 % of the launches match, and 99 % are needed"
DIFFERENCES = (
    "left has at launch 1 volta; right has at launch 1 turing | left has at launch 2 sgemm; "
    "record both again with autotuning off"
)


def refused(entry: dict[str, Any], error: AssayError = MISALIGNED) -> dict[str, Any]:
    found = Outcome()
    fail(found, error)
    return {**entry, "device": "RTX 2060", **found.model_dump(mode="json")}


def test_the_differences_of_a_gpu_stand_once(report: dict[str, Any]) -> None:
    first = report["rows"][0]
    found = [first, refused(first), {**refused(first), "method": "random"}]
    table = differences_table([Row.model_validate(row) for row in found])
    assert [[cell.text for cell in row] for row in table.rows] == [["RTX 2060", CAUSE, DIFFERENCES]]
    other = refused(first, RefusedError("a-1", "no; first differences: of counters"))
    assert not differences_table([Row.model_validate(row) for row in (first, other)]).rows


def test_tables_of_a_report_say_a_refusal_in_short(report: dict[str, Any]) -> None:
    first, entry = report["rows"][0], report["summary"][0]
    rows = [refused(first), {**refused(first), "method": "random"}]
    document = {**report, "rows": rows, "summary": [refused(entry)]}
    # Pictures of the page have the reason as a hint; here the tables count.
    cells = "".join(re.findall(r"<td[^>]*>[^<]*</td>", render_html(document)))
    for page in (cells, render_markdown(document)):
        assert page.count("left has at launch 1 volta") == 1
        # Each method's row agrees, so the workload's table says it once; the summary has its own line.
        assert page.count("99 % are needed (see Launches that differ)") == (1 if page is cells else 2)
