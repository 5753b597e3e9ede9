"""Names in LaTeX: nothing of them is a command, and tables have as many cells as columns."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from assay_report.forms import Form, files_of
from assay_report.latex import latex_escaped, render_latex
from assay_report.reading import read_report
from tests.support.server.made_reports import HOSTILE, made_report

_OURS = re.compile(
    r"\\(?:textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar|textquotedbl"
    r"|textasciigrave|textquotesingle|allowbreak|textpm|texttimes|textmu|textdegree|S)\{\}|\\[{}$&#_%]"
    r"|-\{\}|\{[\[\]*]\}"
)


@given(st.text(max_size=60))
def test_no_character_of_a_name_is_a_command(text: str) -> None:
    left = _OURS.sub("", latex_escaped(text))
    assert not set(left) & set("\\{}$&#_%~^<>|\"`'-[]*\n\r\t\0"), left
    assert all(" " <= each <= "~" or "À" <= each <= "ÿ" for each in left)


def test_what_latin_fonts_lack_is_shown_by_its_number() -> None:
    assert latex_escaped("中") == "(U+4E2D)"
    assert latex_escaped("100 % of a_b") == r"100 \% of a\_b"


def test_tables_for_input_are_one_tabular_each_with_the_rows_of_the_report() -> None:
    report = read_report(made_report(3, kernel=HOSTILE, prefix="a & b \\\\"))
    files = files_of(report, Form.LATEX)
    assert list(files) == ["report.tex", "report-tables/suite.tex", "report-tables/methods.tex"]
    whole = files.pop("report.tex").decode()
    for source in map(bytes.decode, files.values()):
        needs, first, rule, head, *rows, bottom, label, last = source.splitlines()
        assert needs.startswith("% needs ") and first.startswith(r"\begin{tabular}{@{}")
        assert (rule, bottom, last) == (r"\toprule", r"\bottomrule", r"\end{tabular}")
        assert head.endswith(r"\\ \midrule") and rows
        assert all(row in whole for row in rows)
        assert "synthetic" in label.lower(), "who takes the table alone must see what its numbers are"


def test_every_line_of_a_table_has_its_columns() -> None:
    source = render_latex(read_report(made_report(3, kernel=HOSTILE, prefix="a & b \\\\")))
    tables = re.findall(
        r"\\begin\{longtable\}\[l\]\{@\{\}(.*?)@\{\}\}\n(.*?)\\end\{longtable\}", source, re.S
    )
    assert len(tables) > 10
    for spec, body in tables:
        width = len(re.sub(r">\{[^}]*\}p\{[^}]*\}", "p", spec))
        for line in body.splitlines():
            if line.endswith(r" \\") and not line.startswith(r"\multicolumn"):
                assert len(re.findall(r"(?<!\\)&", line)) == width - 1, line


def test_synthetic_data_says_so() -> None:
    document = made_report(1)
    assert "SYNTHETIC data" in render_latex(read_report(document))
    document["campaign"]["synthetic"] = False
    assert "SYNTHETIC" not in render_latex(read_report(document))
