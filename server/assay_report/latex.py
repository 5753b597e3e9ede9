r"""A report as LaTeX with booktabs: a document that compiles, whose tables can be copied into a paper.

Every text is escaped; characters that LaTeX's Latin fonts lack appear by their number, as in (U+4E2D).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from assay_report.model.report import Report
from assay_report.tables.sections import further_sections, workload_sections
from assay_report.tables.table import Alignment, Cell, Column, Table, Width, condensed
from assay_report.tables.verdicts import best_table, first_tables, suite_table
from assay_report.texts import SYNTHETIC, mark, origin
from assay_report.verdicts.sentences import asked_sentences
from assay_report.verdicts.verdicts import first_sentence, verdicts_of

_ESCAPED = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_",
    "%": r"\%", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}", "`": r"\textasciigrave{}",
    "'": r"\textquotesingle{}", "-": "-{}", "[": "{[}", "]": "{]}", "*": "{*}", "±": r"\textpm{}",
    "\u00d7": r"\texttimes{}", "µ": r"\textmu{}", "°": r"\textdegree{}", "§": r"\S{}",
}  # fmt: skip
# Names of kernels have no blanks to break lines at.
_BREAKS = re.compile(r"(?<=[,:;>(/=])(?=\S)")
_LONGEST_WORD = 24
_LONG_PIECE = re.compile(r"[^\0]{24}(?=[^\0])")
_LONG_CM, _NAME_CM = 7.0, 4.5
_MOST_COLUMNS = 16
_HEADING = 16
_PREAMBLE = r"""\documentclass[10pt]{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage{lmodern,textcomp,booktabs,longtable,array}
\usepackage[a3paper,landscape,margin=15mm]{geometry}
\setlength{\tabcolsep}{4pt}
\setlength{\parindent}{0pt}
\sloppy
\begin{document}
"""


def render_latex(report: Report) -> str:
    """The document; raises nothing of its own, whatever the names in the report are."""
    return "\n".join(_lines(report)) + "\n"


def latex_inputs(report: Report) -> dict[str, str]:
    r"""Tables for a paper by name: each a ``tabular`` and nothing else, for ``\input``.

    ``suite``: every method over all workloads; ``methods``: which one to take. Numbers as in the report.
    """
    verdicts = verdicts_of(report)
    tables = {"suite": suite_table(verdicts), "methods": best_table(verdicts)}
    label = SYNTHETIC if report.campaign.synthetic else ""
    return {name: latex_tabular(table, label) for name, table in tables.items() if table.rows}


def latex_tabular(table: Table, label: str = "") -> str:
    r"""A ``tabular`` and nothing else, for ``\input``; its last line is ``label``, if there is one."""
    return "\n".join(_tabular(table, label)) + "\n"


def _tabular(table: Table, label: str) -> Iterator[str]:
    columns, spec, heads, rows = _drawn(table)
    yield r"% needs \usepackage[T1]{fontenc} \usepackage{booktabs,array,textcomp}"
    yield rf"\begin{{tabular}}{{@{{}}{spec}@{{}}}}"
    yield r"\toprule"
    yield heads + r" \\ \midrule"
    yield from rows
    yield r"\bottomrule"
    if label:
        yield rf"\multicolumn{{{columns}}}{{@{{}}l@{{}}}}{{\footnotesize {latex_escaped(label)}}} \\"
    yield r"\end{tabular}"


def _drawn(table: Table) -> tuple[int, str, str, list[str]]:
    """How many columns fit, their layout, their headings, and the rows."""
    positions = _fitting(table)
    spec = "".join(_column(table.columns[at], [row[at] for row in table.rows]) for at in positions)
    heads = " & ".join(_heading(table.columns[at]) for at in positions)
    rows = [" & ".join(_cell(row[at]) for at in positions) + r" \\" for row in table.rows]
    return len(positions), spec, heads, rows


def latex_escaped(text: str) -> str:
    """``text`` on one line, with everything that LaTeX would take for a command escaped."""
    words = " ".join(_broken(word) for word in text.split())
    return "".join(_character(each) for each in words).replace("\0", r"\allowbreak{}")


def _broken(word: str) -> str:
    """The word with marks (NUL, which no word has afterwards) where a line may break."""
    word = word.replace("\0", "")
    if len(word) <= _LONGEST_WORD:
        return word
    return _LONG_PIECE.sub("\\g<0>\0", _BREAKS.sub("\0", word))


def _character(each: str) -> str:
    if each in _ESCAPED:
        return _ESCAPED[each]
    if each == "\0" or " " <= each <= "~" or ("À" <= each <= "ÿ" and each not in "\u00d7\u00f7"):
        return each
    return f"(U+{ord(each):04X})"


def latex_table(table: Table, facts: tuple[str, ...] = ()) -> Iterator[str]:
    """A longtable with the rules of booktabs, its title as caption; columns beyond the page are left out."""
    columns, spec, heads, rows = _drawn(table)
    yield rf"\begin{{longtable}}[l]{{@{{}}{spec}@{{}}}}"
    yield rf"\multicolumn{{{columns}}}{{@{{}}l@{{}}}}{{\textbf{{{latex_escaped(table.title)}}}}} \\"
    yield rf"\toprule {heads} \\ \midrule \endhead"
    yield from rows
    yield r"\bottomrule"
    yield r"\end{longtable}"
    if facts:
        yield rf"{{\footnotesize All rows: {latex_escaped('; '.join(facts))}.\par}}"
    for note in table.notes:
        yield rf"{{\footnotesize {latex_escaped(note)}\par}}"
    yield ""


def _fitting(table: Table) -> list[int]:
    """The columns that fit a page: those for pages that scroll go first where there are too many."""
    every = list(range(len(table.columns)))
    if len(every) <= _MOST_COLUMNS:
        return every
    narrow = [at for at in every if table.columns[at].width is not Width.WIDE]
    return narrow[:_MOST_COLUMNS]


def _heading(column: Column) -> str:
    """The heading, in short lines: a long one would make a column of numbers as wide as itself."""
    lines = textwrap.wrap(column.heading, _HEADING, break_long_words=False, break_on_hyphens=False)
    if len(lines) < 2:
        return latex_escaped(column.heading)
    side = "r" if column.alignment == "right" else "l"
    stacked = r" \\ ".join(map(latex_escaped, lines))
    return rf"\begin{{tabular}}[b]{{@{{}}{side}@{{}}}}{stacked}\end{{tabular}}"


def _column(column: Column, cells: list[Cell]) -> str:
    alignment: Alignment = column.alignment
    if alignment == "right":
        return "r"
    longest = max((len(cell.text) for cell in cells), default=0)
    if longest <= _LONGEST_WORD:
        return "l"
    width = _LONG_CM if column.width is Width.LONG else _NAME_CM
    return rf">{{\raggedright\arraybackslash}}p{{{width}cm}}"


def _cell(cell: Cell) -> str:
    text = latex_escaped(cell.text)
    return rf"\textbf{{{text}}}" if cell.mark == "above" else text


def _lines(report: Report) -> Iterator[str]:
    verdicts = verdicts_of(report)
    yield _PREAMBLE
    yield rf"\section*{{Assay: {latex_escaped(report.campaign.name)}{mark(report)}}}"
    if report.campaign.synthetic:
        yield rf"\textbf{{{SYNTHETIC}}}\par"
    yield rf"\textbf{{{latex_escaped(first_sentence(report))}}}\par"
    for sentence in asked_sentences(verdicts.asked, verdicts.target_error_percent):
        yield rf"{latex_escaped(sentence)}\par"
    yield r"\begin{itemize}"
    yield from (rf"\item {latex_escaped(gpu.sentence)}" for gpu in verdicts.gpus)
    yield r"\item[] \end{itemize}"
    yield r"\small"
    for table in first_tables(verdicts):
        yield from latex_table(table)
    for part in (*workload_sections(report), *further_sections(report)):
        yield rf"\subsection*{{{latex_escaped(part.title)}}}"
        yield rf"{latex_escaped(part.lead)}\par"
        yield r"\footnotesize"
        for table in part.tables:
            yield from latex_table(*condensed(table))
    yield rf"{latex_escaped(origin(report))}"
    yield r"\end{document}"
