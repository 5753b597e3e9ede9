"""Terminal, Markdown and HTML draw the same tables: each cell, note and sentence is in each form."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from assay_client.cli.reporters.report import render_report, render_table
from assay_report.html import render_html
from assay_report.markdown import escaped, render_markdown
from assay_report.model.report import Report
from assay_report.reading import parse_report
from assay_report.tables.scores import summary_table
from assay_report.tables.sections import (
    by_workload,
    further_sections,
    short_tables,
    workload_sections,
    workload_tables,
)
from assay_report.tables.table import Cell, Table, Width, condensed, names, numbers, table_of
from assay_report.tables.verdicts import first_tables
from assay_report.verdicts.verdicts import verdicts_of

FIXTURE = Path(__file__).parents[1] / "server" / "report" / "fixtures" / "report.json"


@pytest.fixture(scope="module")
def report() -> Report:
    """With every kind of comparison, two levels, refusals, flags and notes."""
    return parse_report(FIXTURE.read_text())


def of_pages(report: Report) -> Iterator[Table]:
    """The tables of a page as it draws them: without the columns in which all rows agree."""
    yield from first_tables(verdicts_of(report))
    for rows in by_workload(report.rows).values():
        yield from (condensed(table)[0] for table in workload_tables(report, rows))
    for section in further_sections(report):
        yield from (condensed(table)[0] for table in section.tables)


def facts_of_pages(report: Report) -> Iterator[str]:
    for section in (*workload_sections(report), *further_sections(report)):
        for table in section.tables:
            yield from condensed(table)[1]


def on_terminal(report: Report) -> str:
    stream = io.StringIO()
    render_report(report, Console(file=stream, width=400, no_color=True))
    return " ".join(stream.getvalue().split())


def test_pages_have_the_same_cells_in_the_same_order(report: Report) -> None:
    page = [html.unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", render_html(report))]
    cells = [cell.text for table in of_pages(report) for row in table.rows for cell in row]
    assert sorted(page) == sorted(cells), "the page has two tables of the first screen side by side"
    lines = [
        f"| {' | '.join(in_markdown(cell) for cell in row)} |"
        for table in of_pages(report)
        for row in table.rows
    ]
    markdown = [line for line in render_markdown(report).splitlines() if line.startswith("|")]
    headings = {
        f"| {' | '.join(escaped(column.heading) for column in table.columns)} |" for table in of_pages(report)
    }
    assert [line for line in markdown if not line.startswith("| --") and line not in headings] == lines


def in_markdown(cell: Cell) -> str:
    return f"**{escaped(cell.text)}**" if cell.mark == "above" else escaped(cell.text)


def test_what_all_rows_of_a_table_say_is_said_above_it(report: Report) -> None:
    page, markdown = html.unescape(render_html(report)), render_markdown(report)
    facts = list(facts_of_pages(report))
    assert facts
    for fact in facts:
        assert fact in page and escaped(fact) in markdown


def test_headings_and_notes_are_in_both_pages(report: Report) -> None:
    page, markdown = html.unescape(render_html(report)), render_markdown(report)
    for table in of_pages(report):
        assert f">{table.title}</h3>" in page and f"# {escaped(table.title)}\n" in markdown
        for column in table.columns:
            assert f">{column.heading}</th>" in page
        for note in table.notes:
            assert note in page and escaped(note) in markdown


def test_a_terminal_has_the_cells_that_it_has_room_for(report: Report) -> None:
    shown = on_terminal(report)
    for table in (summary_table(report), *short_tables(report)):
        for note in table.notes:
            assert note in shown
        for row in table.rows:
            for column, cell in zip(table.columns, row, strict=True):
                if column.width is Width.NARROW:
                    assert (cell.text if cell.brief is None else cell.brief) in shown, column.title


def test_a_terminal_tells_the_sentences_of_long_columns_below(report: Report) -> None:
    shown = on_terminal(report)
    said = 0
    for row in report.rows:
        for text in (row.reason, *(note.text for note in row.notes)):
            assert text in shown
            said += bool(text)
    for entry in (*report.rows, *report.entries(), *report.provenance):
        for flag in entry.flags:
            assert flag.detail in shown or flag.name == "condition_assumed"
            said += 1
    assert said > 10


def test_a_column_says_where_it_is_drawn(report: Report) -> None:
    """What somebody does who adds a column: one entry of a list of columns, and every form has it."""
    table = table_of(
        "T",
        [
            names("who", lambda entry: str(entry[0])),
            names("where", lambda _: "here", shared=True),
            numbers("cost", lambda entry: f"{entry[1]:.1f}", "ms"),
            numbers("more", lambda _: "4.25", "ms", width=Width.WIDE),
            names("nothing", lambda _: "-", optional=True),
        ],
        [("a", 1.5), ("b", 2.5)],
        ["said below"],
    )
    assert [column.title for column in table.columns] == ["who", "where", "cost", "more"]
    stream = io.StringIO()
    render_table(table, Console(file=stream, width=80, no_color=True))
    shown = stream.getvalue()
    assert "T, where here" in shown and "said below" in shown and "4.25" not in shown
    assert re.search(r"a +1\.5\nb +2\.5\n", shown)
