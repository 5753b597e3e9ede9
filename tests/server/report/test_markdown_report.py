from __future__ import annotations

from itertools import pairwise
from typing import Any

from assay_report.markdown import escaped
from tests.support.server.report_forms import render_markdown


def test_tables_are_whole(report: dict[str, Any]) -> None:
    lines = render_markdown(report).splitlines()
    tables = [line for line in lines if line.startswith("|")]
    assert len(tables) > 12
    for before, line in pairwise(lines):
        if line.startswith("| ---"):
            width = _cells(line)
            assert _cells(before) == width
        if before.startswith("|") and line.startswith("|"):
            assert _cells(before) == _cells(line), line
    assert any(
        line.startswith("| training | V100 | within target | duration") or "| V100 | within target |" in line
        for line in lines
    )


def _cells(line: str) -> int:
    return line.replace("\\|", "").count("|") - 1


def test_says_synthetic_first(report: dict[str, Any]) -> None:
    lines = render_markdown(report).splitlines()
    assert lines[0] == "# Assay: demo (synthetic)"
    assert lines[2] == "**SYNTHETIC data: no silicon produced these numbers.**"
    report["campaign"]["synthetic"] = False
    assert "SYNTHETIC" not in render_markdown(report)


def test_hostile_texts_stay_texts(report: dict[str, Any]) -> None:
    page = render_markdown(report)
    for markup in ("<script", "![i]", " `code`"):
        assert markup not in page.replace("\\<script", "").replace("\\!\\[i\\]", "")
    assert "void f\\<script\\>alert('x')\\</script\\>" in page


def test_escaping_keeps_one_line() -> None:
    assert escaped("a|b\n# c *d* <e>") == "a\\|b \\# c \\*d\\* \\<e\\>"
