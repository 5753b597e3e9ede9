"""A refusal is short in every table, and its launches stand once in the workload's part."""

from __future__ import annotations

import re
from typing import Any

from assay_server.report.differences import differences_table
from assay_server.report.html import render_html
from assay_server.report.markdown import render_markdown

CAUSE = "a-1 and a-6: only 98.11 % of the launches match, and 99 % are needed"
DIFFERENCES = (
    "left has at launch 1 volta; right has at launch 1 turing; record both again with autotuning off"
)
REASON = f"{CAUSE}; first differences: {DIFFERENCES}"


def refused(entry: dict[str, Any], reason: str = REASON) -> dict[str, Any]:
    return {**entry, "device": "RTX 2060", "status": "refused", "reason": reason}


def test_the_differences_of_a_gpu_stand_once(report: dict[str, Any]) -> None:
    first = report["rows"][0]
    table = differences_table([first, refused(first), {**refused(first), "method": "random"}])
    assert table is not None
    assert table.rows == (("RTX 2060", CAUSE, DIFFERENCES),)
    assert differences_table([first, refused(first, "no counters")]) is None


def test_tables_of_a_report_say_a_refusal_in_short(report: dict[str, Any]) -> None:
    first, entry = report["rows"][0], report["summary"][0]
    rows = [refused(first), {**refused(first), "method": "random"}]
    document = {**report, "rows": rows, "summary": [refused(entry)]}
    # Pictures of the page have the reason as a hint; here the tables count.
    cells = "".join(re.findall(r"<td[^>]*>[^<]*</td>", render_html(document)))
    for page in (cells, render_markdown(document)):
        assert page.count("left has at launch 1 volta") == 1
        assert page.count("99 % are needed (see Launches that differ)") == 3
