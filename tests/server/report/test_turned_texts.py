"""No form of a report lets a name turn or hide the text around it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from assay_report.figures import forms as figure_forms
from assay_report.figures import gallery
from assay_report.forms import Form, files_of, single
from assay_report.html import render_html
from assay_report.reading import read_report
from tests.support.turning_text import TURNED, TURNING, hidden_in


@pytest.fixture
def turned(report: dict[str, Any]) -> dict[str, Any]:
    """The report with such characters in every name and reason that is not ours."""
    text = json.dumps(report)
    for name in (report["failed_runs"][0]["reason"], "V100", "training"):
        text = text.replace(json.dumps(name)[1:-1], json.dumps(name + TURNED)[1:-1])
    changed: dict[str, Any] = json.loads(text)
    changed["campaign"]["name"] = TURNED
    return changed


@pytest.mark.parametrize("form", [form for form in Form if form is not Form.PARQUET])
def test_no_form_of_a_report_turns_text(turned: dict[str, Any], form: Form) -> None:
    report = read_report(turned)
    files = {**files_of(report, form), "one stream": single(report, form)}
    kept = {"\ufeff", "\U000e0041"} if form is Form.JSON else set()
    for path, data in files.items():
        assert hidden_in(data.decode()) <= kept, path
    shown = "".join(data.decode() for data in files.values())
    assert "202E" in shown or "\\u202e" in shown, "the form has no such name"
    if form is Form.JSON:
        assert json.loads(shown[: len(shown) // 2]) == report.to_document()


def test_no_figure_or_interactive_page_turns_text(turned: dict[str, Any]) -> None:
    report = read_report(turned)
    assert not hidden_in(render_html(report, with_scripts=True).split("<script>")[0])
    figures = gallery.of_report(report)
    for figure in figures:
        for suffix in (".svg", ".json"):
            assert not hidden_in(figure_forms.FORMS[suffix](figure).decode()), figure.name
        page = figure_forms.html(figure)
        assert not hidden_in(page.replace(figure_forms.bundle(), "")), figure.name
    assert any("<U+202E>" in figure.spec_bytes().decode() for figure in figures)


def test_workloads_that_differ_by_a_direction_character_are_told_apart(report: dict[str, Any]) -> None:
    rows = [{**report["rows"][0], "workload": f"train{each}"} for each in ("", *TURNING)]
    changed = read_report({**report, "rows": rows})
    for form in (Form.HTML, Form.MARKDOWN, Form.CSV):
        shown = single(changed, form).decode().replace("&lt;", "<").replace("&gt;", ">").replace("\\", "")
        for each in TURNING:
            assert f"train<U+{ord(each):04X}>" in shown, (form, hex(ord(each)))
