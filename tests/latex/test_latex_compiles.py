"""Reports as LaTeX compile, whatever names are in them, in Debian's TeX Live."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from assay_report.latex import render_latex
from assay_report.reading import read_report
from tests.latex import unpack
from tests.real_tools.root import why_not
from tests.support.server.made_reports import HOSTILE, made_report

pytestmark = pytest.mark.timeout(600)

EVERY_PRINTABLE = (
    "".join(map(chr, range(32, 127))) + "\\end{document} äß±\u00d7µ 中 \U0001f600 \x00\x1b\u202e -- ''"
)


@pytest.fixture(scope="session")
def tex() -> Path:
    given = os.environ.get("ASSAY_LATEX")
    if not given:
        pytest.skip("'make test-latex' runs it")
    if reason := why_not(Path(given), unpack.TEX):
        pytest.skip(f"no TeX Live: {reason}")
    return Path(given)


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(made_report(14), id="every kind of row"),
        pytest.param(made_report(2, kernel=HOSTILE, prefix=HOSTILE), id="hostile"),
        pytest.param(made_report(2, kernel=EVERY_PRINTABLE, prefix=EVERY_PRINTABLE), id="every character"),
        pytest.param({**made_report(1), "rows": [], "summary": [], "recommendations": []}, id="empty"),
        pytest.param(made_report(60), id="60 workloads"),
    ],
)
def test_a_report_compiles(tex: Path, tmp_path: Path, document: dict[str, Any]) -> None:
    source = tmp_path / "report.tex"
    source.write_text(render_latex(read_report(document)))
    ended = unpack.compile_pdf(tex, source)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    made = (tmp_path / "report.pdf").read_bytes()
    assert made.startswith(b"%PDF")
    # Nothing of a name was taken for a command: no file was read besides TeX's own and this one.
    read = re.findall(r"\((\./[^\s()]+)", ended.stdout)
    assert set(read) <= {"./report.tex", "./report.aux"}
