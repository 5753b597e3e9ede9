"""A report as Markdown: the same sentences and tables as the page, for notes and code review."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from assay_report.figures import forms, gallery
from assay_report.figures.figure import Figure
from assay_report.model.report import Report
from assay_report.tables.sections import DEFINITIONS, further_sections, workload_sections
from assay_report.tables.table import Cell, Table, condensed
from assay_report.tables.verdicts import first_tables
from assay_report.texts import SYNTHETIC, mark, origin
from assay_report.verdicts.sentences import asked_sentences
from assay_report.verdicts.verdicts import first_sentence, verdicts_of
from assay_sampling.visible import visible

PICTURES_FOLDER = "report-pictures"

# Every character that Markdown, or HTML inside it, would take for markup.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&$!])")


Show = Callable[[Iterable[Figure]], Iterator[str]]


def render_markdown(report: Report) -> str:
    """The tables of a report as GitHub-flavoured Markdown; all texts are escaped."""
    return "\n".join(_lines(report, lambda figures: iter(()))) + "\n"


def markdown_files(report: Report) -> dict[str, str]:
    """The contents of report.md and of its figures (SVG), by file name.

    Where the packages that draw are not installed, the text names the command that installs them.
    """
    files: dict[str, str] = {}
    missing = forms.missing()

    def show(figures: Iterable[Figure]) -> Iterator[str]:
        if missing is not None:
            return
        for each in figures:
            path = f"{PICTURES_FOLDER}/{each.name}.svg"
            files[path] = forms.svg(each)
            yield from (f"![{escaped(each.title)}]({path})", "", escaped(each.caption), "")

    lines = list(_lines(report, show))
    if missing is not None:
        lines += ["", escaped(f"Figures are not drawn: {missing.cause}; {missing.remedy}")]
    return {"report.md": "\n".join(lines) + "\n", **files}


def _lines(report: Report, show: Show) -> Iterator[str]:
    yield from _first_screen(report)
    figures = gallery.of_report(report)
    yield from show(figure for figure in figures if figure.workload is None)
    for part in workload_sections(report):
        yield f"## {escaped(part.title)}{mark(report)}"
        yield ""
        yield from (escaped(part.lead), "") if part.lead else ()
        yield from show([figure for figure in figures if figure.workload == part.title])
        for table in part.tables:
            yield from _table(*condensed(table), level=3)
    for part in further_sections(report):
        yield from (f"## {part.title}", "")
        for table in part.tables:
            yield from _table(*condensed(table), level=3)
    yield from ("## Words", "")
    for word, meaning in DEFINITIONS:
        yield f"- **{word}**: {escaped(meaning)}"
    yield from ("", escaped(origin(report)))


def _first_screen(report: Report) -> Iterator[str]:
    verdicts = verdicts_of(report)
    yield from (f"# Assay: {escaped(report.campaign.name)}{mark(report)}", "")
    if report.campaign.synthetic:
        yield from (f"**{SYNTHETIC}**", "")
    yield from (f"**{escaped(first_sentence(report))}**", "")
    for sentence in asked_sentences(verdicts.asked, verdicts.target_error_percent):
        yield from (escaped(sentence), "")
    for gpu in verdicts.gpus:
        yield f"- {escaped(gpu.sentence)}"
    yield ""
    for table in first_tables(verdicts):
        yield from _table(table, (), level=2)


def escaped(text: str) -> str:
    """``text`` on one line, with everything that could be markup escaped, and nothing in it hidden."""
    return _SPECIAL.sub(r"\\\1", visible(" ".join(text.split())))


def _table(table: Table, facts: tuple[str, ...], level: int) -> Iterator[str]:
    yield f"{'#' * level} {escaped(table.title)}"
    yield ""
    if facts:
        yield from (escaped(f"All rows: {'; '.join(facts)}."), "")
    yield _line([escaped(column.heading) for column in table.columns])
    yield _line(["---:" if column.alignment == "right" else "---" for column in table.columns])
    for row in table.rows:
        yield _line([_cell(cell) for cell in row])
    yield ""
    for note in table.notes:
        yield from (escaped(note), "")


def _cell(cell: Cell) -> str:
    text = escaped(cell.text)
    return f"**{text}**" if cell.mark == "above" else text


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
