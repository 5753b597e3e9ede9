from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

from tests.support.server.report_forms import render_html, render_markdown


class Page(HTMLParser):
    """Texts of cells, tags with their attributes, and whether every tag was closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.cells: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1] += data


def test_page_holds_the_numbers_of_the_report(report: dict[str, Any]) -> None:
    page = Page(render_html(report))
    assert not page.open
    for text in (
        "4.12",
        "40.00",
        "512.50",
        "12,345",
        "91.25",
        "83.38",
        "77.50",
        "61.12",
        "88.75",
        "6.50",
        "28",
        "abc123def",
    ):
        assert text in page.cells, text
    assert "2,000,000,000" in page.cells
    assert "not applicable: PKS not applicable: no counters" in page.cells
    # Rounded down: a match of 98.999 % is not 99 %.
    assert "98.99" in page.cells
    assert "98.99, 99.5, 100 (levels: exact)" in page.cells
    assert "none, none, 100 %" in page.cells


def test_a_match_that_may_be_larger_says_so(report: dict[str, Any]) -> None:
    report["rows"][0]["match"]["at_least"] = ["exact", "name_block"]
    page = Page(render_html(report))
    assert "at least 98.99, at least 99.5, 100 (levels: exact)" in page.cells


def test_synthetic_is_said_first_and_in_every_picture(report: dict[str, Any]) -> None:
    page = render_html(report)
    body = page[page.index("<body>") :]
    assert re.sub(r"<[^>]*>", "", body).split()[0] == "SYNTHETIC"
    # One headline a picture, and each picture for a desk and for a phone.
    assert len(re.findall(r"\(synthetic\)</t(?:ext|span)>", page)) == page.count("<svg ") == 8
    report["campaign"]["synthetic"] = False
    report["runs"][0]["synthetic"] = False
    measured = render_html(report)
    assert "synthetic" not in measured.lower()
    assert "measured data" in measured


def test_hostile_texts_stay_texts(report: dict[str, Any]) -> None:
    name = report["selections"]["training/pks"]["groups"][0]["representatives"][0]["kernel"]
    report["campaign"]["name"] = report["rows"][0]["workload"] = name
    report["rows"][0]["device"] = report["summary"][0]["device"] = '"><svg onload=alert(1)>'
    report["rows"][0]["reason"] = "</style><script>1</script>"
    page = Page(render_html(report))
    assert "script" not in {tag for tag, _ in page.tags}
    assert not any(key.startswith("on") for _, attributes in page.tags for key in attributes)
    assert name in page.cells


def test_page_loads_nothing(report: dict[str, Any]) -> None:
    page = render_html(report)
    for _, attributes in Page(page).tags:
        for key, value in attributes.items():
            if key in ("src", "href", "data", "action"):
                assert (value or "").startswith("#"), (key, value)
    style = "".join(re.findall(r"<style>(.*?)</style>", page, re.S))
    assert "url(" not in style
    assert "@import" not in style
    assert page.count('http-equiv="Content-Security-Policy" content="default-src \'none\'') == 1


def test_links_lead_somewhere(report: dict[str, Any]) -> None:
    page = Page(render_html(report))
    targets = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    links = {attributes["href"] for tag, attributes in page.tags if tag == "a"}
    assert {"#workloads", "#further", "#words"} <= links <= {f"#{target}" for target in targets}


def test_a_campaign_without_rows_renders(report: dict[str, Any]) -> None:
    report.update(rows=[], summary=[], runs=[], selections={}, failed_runs=[])
    page = Page(render_html(report))
    assert not page.open


def test_same_report_same_page(report: dict[str, Any]) -> None:
    assert render_html(report) == render_html(report)


def test_an_assumed_condition_is_not_shown_as_if_it_were_recorded(report: dict[str, Any]) -> None:
    assumed = {"run_id": "demo-1.0001", "name": "condition_assumed", "detail": "not said: clock",
               "invalidates": False}  # fmt: skip
    for render in (render_html, render_markdown):
        assert "(assumed)" not in render(report)
    report["rows"][0]["flags"].append(assumed)
    report["runs"][0]["flags"].append(assumed)
    report["summary"][0]["flags"].append("condition_assumed")
    page = Page(render_html(report))
    # The row, the window, the summary and the run; said once above the three models, which agree.
    assert page.cells.count("none, none, 100 % (assumed)") == 4
    assert "none, none, 100 %" in page.cells, "the others are as recorded"
    assert not any("condition_assumed" in cell for cell in page.cells), (
        "said once, where the condition stands"
    )
    assert render_markdown(report).count("none, none, 100 % (assumed)") == 5
