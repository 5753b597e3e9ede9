"""The report's page in a real browser: hostile names, sizes of text, a phone, print, and axe."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay_report.html import render_html
from assay_report.reading import read_report
from tests.support.browser.opening import OpenPage
from tests.support.server.made_reports import HOSTILE, made_report

pytestmark = pytest.mark.timeout(180)


def test_hostile_names_run_nothing_and_are_shown_as_they_are(open_page: OpenPage, tmp_path: Path) -> None:
    place = tmp_path / "report.html"
    place.write_text(render_html(read_report(made_report(workloads=2, kernel=HOSTILE))))
    page = open_page(place)
    assert page.locator("script").count() == 0
    assert HOSTILE in page.locator("body").inner_text()
