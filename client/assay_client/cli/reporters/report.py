"""Draws a campaign's report on a terminal: its tables, and below them what stands in the way.

:mod:`assay_report.tables` decides what a table holds; this module only fits it into a terminal.
"""

from __future__ import annotations

from rich.console import Console

from assay_client.cli.reporters.tables import SYNTHETIC_NOTICE, Table
from assay_client.cli.reporters.text import clipped
from assay_report.model.report import Report
from assay_report.tables.remarks import remarks
from assay_report.tables.scores import summary_table
from assay_report.tables.sections import short_tables
from assay_report.tables.table import Cell, Column, Width
from assay_report.tables.table import Table as ReportTable
from assay_report.texts import ABSENT
from assay_report.verdicts.verdicts import first_sentence, verdicts_of
from assay_sampling.visible import visible

_LONGEST_NAME = 40


def render_report(report: Report, console: Console) -> None:
    """Draw a report; synthetic data are marked as such."""
    render_summary(report, console)
    for table in short_tables(report):
        render_table(table, console)
    for line in remarks(report):
        console.print(visible(line), soft_wrap=True)


def render_summary(report: Report, console: Console) -> None:
    """Draw the verdicts and the first table alone, workload x GPU."""
    console.print(visible(first_sentence(report)), soft_wrap=True)
    console.print(f"campaign {visible(report.campaign.id)}, seed {report.campaign.seed}")
    if report.campaign.synthetic:
        console.print(SYNTHETIC_NOTICE)
    for gpu in verdicts_of(report).gpus:
        console.print(visible(gpu.sentence), soft_wrap=True)
    render_table(summary_table(report), console)


def render_table(table: ReportTable, console: Console) -> None:
    """Draw a table; a value that all rows share goes into the title.

    Columns that need more room than a terminal has are left out.
    """
    if not table.rows:
        return
    title, shown = [table.title], []
    for index, column in enumerate(table.columns):
        cells = [_text(column, row[index]) for row in table.rows]
        values = set(cells) - {ABSENT, ""}
        if column.width is Width.WIDE or not values:
            continue
        if column.shared and len(values) == 1:
            title.append(f"{column.brief or column.title} {values.pop()}")
        else:
            shown.append((column, cells))
    drawn = Table(
        ", ".join(title),
        [column.narrow_heading for column, _ in shown],
        right=[column.narrow_heading for column, _ in shown if column.alignment == "right"],
        clip=[column.narrow_heading for column, _ in shown if column.clips],
    )
    for at in range(len(table.rows)):
        drawn.add_row(*(cells[at] for _, cells in shown))
    drawn.print(console)
    for note in table.notes:
        console.print(note, soft_wrap=True)


def _text(column: Column, cell: Cell) -> str:
    """A cell's short text; sentences follow below the tables."""
    if column.width is Width.LONG:
        return cell.brief or ""
    text = cell.text if cell.brief is None else cell.brief
    return clipped(text, _LONGEST_NAME) if column.clips else text
