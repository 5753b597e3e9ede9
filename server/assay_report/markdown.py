"""A report as Markdown: the same tables as the page, for notes and code review."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, count

from assay_report.model.report import Report
from assay_report.pictures.gallery import (
    Picture,
    compared_pictures,
    mark,
    summary_pictures,
    workload_pictures,
)
from assay_report.tables.compared import compared_tables
from assay_report.tables.runs import failed_runs_table, provenance_table, runs_table
from assay_report.tables.scores import summary_table
from assay_report.tables.sections import DEFINITIONS, by_workload, workload_tables
from assay_report.tables.table import Table

PICTURES_FOLDER = "report-pictures"

# Every character that Markdown, or HTML inside it, would take for markup.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&$!])")


Show = Callable[[Iterable[Picture]], Iterator[str]]


def render_markdown(report: Report) -> str:
    """The tables of a report as GitHub-flavoured Markdown; all texts are escaped."""
    return "\n".join(_lines(report, lambda pictures: iter(()))) + "\n"


def markdown_files(report: Report) -> dict[str, str]:
    """The contents of report.md and of its pictures (SVG), by file name."""
    files: dict[str, str] = {}

    def show(pictures: Iterable[Picture]) -> Iterator[str]:
        for each in pictures:
            # Two workloads' names may give the same file name.
            names = chain([each.name], (f"{each.name}-{number}" for number in count(2)))
            path = next(p for p in (f"{PICTURES_FOLDER}/{name}.svg" for name in names) if p not in files)
            files[path] = each.svg
            yield from (f"![{escaped(each.title)}]({path})", "")

    text = "\n".join(_lines(report, show)) + "\n"
    return {"report.md": text, **files}


def _lines(report: Report, show: Show) -> Iterator[str]:
    campaign = report.campaign
    yield f"# Assay: {escaped(campaign.name)}{mark(report)}"
    yield ""
    if campaign.synthetic:
        yield from ("**SYNTHETIC data: no silicon produced these numbers.**", "")
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    yield escaped(f"Campaign {campaign.id}{campaign.belongs}, seed {campaign.seed}; {versions}.")
    yield ""
    yield from _table(summary_table(report), level=2)
    yield from show(summary_pictures(report))
    yield from show(compared_pictures(report))
    for table in compared_tables(report):
        yield from _table(table, level=2)
    for name, rows in by_workload(report.rows).items():
        yield f"## {escaped(name)}{mark(report)}"
        yield ""
        yield from show(workload_pictures(report, name, rows))
        for table in workload_tables(report, rows):
            yield from _table(table, level=3)
    for found in (provenance_table(report), runs_table(report.runs), failed_runs_table(report.failed_runs)):
        if found is not None:
            yield from _table(found, level=2)
    yield from ("## Words", "")
    for word, meaning in DEFINITIONS:
        yield f"- **{word}**: {escaped(meaning)}"


def escaped(text: str) -> str:
    """``text`` on one line, with everything that could be markup escaped."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _table(table: Table, level: int) -> Iterator[str]:
    yield f"{'#' * level} {escaped(table.title)}"
    yield ""
    yield _line([escaped(column.heading) for column in table.columns])
    yield _line(["---:" if column.alignment == "right" else "---" for column in table.columns])
    for row in table.rows:
        yield _line([escaped(cell.text) for cell in row])
    yield ""
    for note in table.notes:
        yield from (escaped(note), "")


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
