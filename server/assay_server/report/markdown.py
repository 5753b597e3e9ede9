"""A report document as Markdown: the same tables as the page, for notes and code review."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, count
from typing import Any

from assay_server.report import tables
from assay_server.report.compared import compared_tables
from assay_server.report.gallery import Picture, compared_pictures, summary_pictures, workload_pictures
from assay_server.report.provenance import provenance_table
from assay_server.report.sections import by_workload, workload_tables

Report = Mapping[str, Any]

PICTURES_FOLDER = "report-pictures"

# Everything that Markdown or HTML inside it would take for markup.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&$!])")


Show = Callable[[Iterable[Picture]], Iterator[str]]


def render_markdown(report: Report) -> str:
    """The tables of a report document as GitHub-flavoured Markdown; all texts are escaped."""
    return "\n".join(_lines(report, lambda pictures: iter(()))) + "\n"


def markdown_files(report: Report) -> dict[str, str]:
    """The same with pictures: texts by the paths of their files, report.md and the SVG files beside it."""
    files: dict[str, str] = {}

    def show(pictures: Iterable[Picture]) -> Iterator[str]:
        for each in pictures:
            # Names made from those of two workloads may come to the same.
            names = chain([each.name], (f"{each.name}-{number}" for number in count(2)))
            path = next(p for p in (f"{PICTURES_FOLDER}/{name}.svg" for name in names) if p not in files)
            files[path] = each.svg
            yield from (f"![{escaped(each.title)}]({path})", "")

    text = "\n".join(_lines(report, show)) + "\n"
    return {"report.md": text, **files}


def _lines(report: Report, show: Show) -> Iterator[str]:
    campaign = report["campaign"]
    yield f"# Assay: {escaped(campaign['name'])}{' (synthetic)' if campaign['synthetic'] else ''}"
    yield ""
    if campaign["synthetic"]:
        yield from ("**SYNTHETIC data: no silicon produced these numbers.**", "")
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    yield escaped(f"Campaign {campaign['id']}, seed {campaign['seed']}; {versions}.")
    yield ""
    yield from _table(tables.summary_table(report), level=2)
    yield from show(summary_pictures(report))
    yield from show(compared_pictures(report))
    for table in compared_tables(report):
        yield from _table(table, level=2)
    for name, rows in by_workload(report["rows"]).items():
        yield f"## {escaped(name)}{' (synthetic)' if campaign['synthetic'] else ''}"
        yield ""
        yield from show(workload_pictures(report, name, rows))
        for table in workload_tables(report, rows):
            yield from _table(table, level=3)
    provenance = provenance_table(report)
    if provenance is not None:
        yield from _table(provenance, level=2)
    yield from _table(tables.runs_table(report), level=2)
    failed = tables.failed_runs_table(report)
    if failed is not None:
        yield from _table(failed, level=2)
    yield from ("## Words", "")
    for word, meaning in tables.DEFINITIONS:
        yield f"- **{word}**: {escaped(meaning)}"


def escaped(text: str) -> str:
    """``text`` on one line, with everything that could be markup escaped."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _table(table: tables.Table, level: int) -> Iterator[str]:
    yield f"{'#' * level} {escaped(table.title)}"
    yield ""
    yield _line([escaped(column.name) for column in table.columns])
    yield _line(["---:" if column.kind == "number" else "---" for column in table.columns])
    for row in table.rows:
        yield _line([escaped(cell) for cell in row])
    yield ""
    if table.note:
        yield from (escaped(table.note), "")


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
