"""The forms of a report as files: one place that says which file each form is."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import StrEnum

from assay_report.data import csv_text, data_tables, main_table, parquet_bytes, report_parquet
from assay_report.html import render_html
from assay_report.latex import latex_inputs, render_latex
from assay_report.markdown import markdown_files, render_markdown
from assay_report.model.report import Report
from assay_sampling.visible import visible_json

TABLES_FOLDER = "report-tables"


class Form(StrEnum):
    """The forms that are files."""

    JSON = "json"
    HTML = "html"
    MARKDOWN = "markdown"
    LATEX = "latex"
    CSV = "csv"
    PARQUET = "parquet"


def file_name(form: Form) -> str:
    """The file, or for tables the folder, that a form is written to."""
    names = {Form.MARKDOWN: "report.md", Form.LATEX: "report.tex"}
    return names.get(form, f"report.{form}") if form not in (Form.CSV, Form.PARQUET) else TABLES_FOLDER


def files_of(report: Report, form: Form) -> dict[str, bytes]:
    """The contents of all files of a form, by path; files that others refer to come last."""
    if form is Form.MARKDOWN:
        return {path: text.encode() for path, text in markdown_files(report).items()}
    if form is Form.CSV:
        return {f"{TABLES_FOLDER}/{each.name}.csv": csv_text(each).encode() for each in data_tables(report)}
    if form is Form.PARQUET:
        return {f"{TABLES_FOLDER}/{each.name}.parquet": parquet_bytes(each) for each in data_tables(report)}
    whole = {file_name(form): single(report, form)}
    if form is Form.LATEX:
        inputs = latex_inputs(report).items()
        return whole | {f"{TABLES_FOLDER}/{name}.tex": table.encode() for name, table in inputs}
    return whole


def single(report: Report, form: Form) -> bytes:
    """The form as one stream; of the tables, that of the rows."""
    makers: Mapping[Form, Callable[[Report], str]] = {
        Form.JSON: _json, Form.HTML: render_html, Form.MARKDOWN: render_markdown, Form.LATEX: render_latex,
        Form.CSV: lambda each: csv_text(main_table(each)),
    }  # fmt: skip
    return report_parquet(report) if form is Form.PARQUET else makers[form](report).encode()


def _json(report: Report) -> str:
    document = json.dumps(report.to_document(), ensure_ascii=False, allow_nan=False, indent=1)
    return visible_json(document) + "\n"
