"""A report of light runs alone says so, and has no column about detailed data that nobody asked for."""

from __future__ import annotations

from typing import Any

import pytest

from assay_report.reading import read_report
from assay_report.tables.scores import summary_table
from tests.support.server.report_forms import render_html, render_markdown

SAID = "Light runs only, without counters"
OF_THE_WINDOW = ("accuracy", "balanced", "agreement", "ambiguous", "unknown launches")


def light_alone(report: dict[str, Any]) -> dict[str, Any]:
    for entry in report["summary"]:
        for name in entry:
            if name.endswith(("accuracy_percent", "agreement_percent", "ambiguous_percent")):
                entry[name] = None
        entry["unknown_launches"] = None
    for row in report["rows"]:
        row["model"] = row["window"] = row["unknown"] = None
    report["runs"] = [{**run, "level": "light"} for run in report["runs"]]
    report["failed_runs"] = [{**run, "level": "light"} for run in report["failed_runs"]]
    return report


def headings(report: dict[str, Any]) -> str:
    return " | ".join(column.title for column in summary_table(read_report(report)).columns)


def test_columns_about_the_window_are_left_out(report: dict[str, Any]) -> None:
    assert all(word in headings(report) for word in OF_THE_WINDOW)
    shown = headings(light_alone(report))
    assert not any(word in shown for word in OF_THE_WINDOW)
    assert "| error |" in shown
    assert "Accuracies" not in " ".join(summary_table(read_report(report)).notes)


@pytest.mark.parametrize("render", [render_html, render_markdown])
def test_every_form_says_it(report: dict[str, Any], render: Any) -> None:
    assert SAID not in render(report)
    assert SAID in render(light_alone(report))


def test_where_the_detailed_runs_failed_nothing_of_the_kind_is_said(report: dict[str, Any]) -> None:
    made = light_alone(report)
    made["failed_runs"] = [
        {"run_id": "c-1.0000", "workload": "training", "device": "V100", "level": "detailed",
         "condition": made["summary"][0]["condition"], "repeat": 0, "reason": "permission"}
    ]  # fmt: skip
    assert SAID not in render_markdown(made)
