"""The report's page in a real browser: hostile names, sizes, a phone, print, and what axe finds."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from assay_report.external_results import set_beside
from assay_report.figures import forms, gallery
from assay_report.figures.theme import DARK, INK, PAPER
from assay_report.html import render_html
from assay_report.model.external_results import SimulatedEntry
from assay_report.model.scores import Row
from assay_report.reading import read_report
from assay_sampling.projection.pka_table import ERRORS
from tests.support.browser.opening import DESK, PHONE, OpenPage, Window, axe_violations, sideways_overflow
from tests.support.server.made_reports import HOSTILE, made_report

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).resolve().parents[2]
# `make demo` leaves it, and CI runs that before; the other pages are made up from the typed model.
DEMO = Path(os.environ.get("ASSAY_DEMO", ROOT / "demo")) / "report.json"
# The verdict on each method takes a ninth sheet of 200 workloads.
SCREENS, SHEETS, SCREEN_PX, LEAST_CHART_PX, LEAST_CHARACTERS = 8, 9, 900, 11.0, 10
# A4 landscape without the page's margins of 10 mm, at 96 px to the inch.
SHEET = Window(width=1046, height=700)

# Of hundreds of workloads the first: the others are drawn alike, and browsers take minutes for all at once.
UNFOLD = """[...document.querySelectorAll('details')]
  .filter((each, at) => at < 12 || !each.id.startsWith('workload-')).forEach(each => each.open = true)"""
UNFOLD_FIGURES = "document.querySelectorAll('details:has(.plate svg)').forEach(each => each.open = true)"
# Leaves the first workloads of each stretch.
DROP = """[...document.querySelectorAll('details[id^=workload-]')]
  .filter((each, at) => at >= 3 && at % 40).forEach(each => each.remove())"""
# Columns of text narrower than ten digits of their own font: the narrowest cell of each column counts.
NARROW_CELLS = """() => {
  const widths = new Map(), found = [];
  const canvas = document.createElement('canvas').getContext('2d');
  for (const cell of document.querySelectorAll('td')) {
    const style = getComputedStyle(cell);
    if (style.textAlign === 'right' || !cell.offsetParent) continue;
    if (!widths.has(style.font)) {
      canvas.font = style.font;
      widths.set(style.font, canvas.measureText('0').width);
    }
    const room = cell.clientWidth / widths.get(style.font);
    if (room < 9.99) found.push(`${room.toFixed(1)} characters: ${cell.textContent.slice(0, 60)}`);
  }
  return found.slice(0, 5);
}"""
CHART_TEXT = """() => {
  let least = Infinity, where = 'no text';
  for (const text of document.querySelectorAll('svg text')) {
    const drawn = text.getScreenCTM();
    if (!text.textContent.trim() || !drawn || !text.getBoundingClientRect().width) continue;
    const px = parseFloat(getComputedStyle(text).fontSize) * Math.hypot(drawn.a, drawn.b);
    if (px < least) { least = px; where = text.textContent; }
  }
  return [least === Infinity ? 0 : least, where];
}"""
# Pictures that are cut or scroll within their place, and text that reaches beyond its picture.
CUT_FIGURES = """() => [...document.querySelectorAll('.plate')].flatMap(plate => {
    const svg = [...plate.querySelectorAll('svg')].find(each => each.checkVisibility());
    const name = plate.dataset.drawn;
    if (!svg || !plate.offsetParent) return [];
    const cut = plate.scrollHeight > plate.clientHeight + 1 || plate.scrollWidth > plate.clientWidth + 1;
    const room = svg.getBoundingClientRect();
    const outside = [...svg.querySelectorAll('text')].filter(text => {
      const box = text.getBoundingClientRect();
      return box.width && (box.left < room.left - 1 || box.right > room.right + 1
        || box.top < room.top - 1 || box.bottom > room.bottom + 1);
    });
    return [...(cut ? [`${name} is cut`] : []), ...outside.map(text => `${name}: ${text.textContent}`)];
  })"""
FIGURES_SHOWN = "[...document.querySelectorAll('.plate svg')].filter(each => each.checkVisibility()).length"
CUT_TABLES = """() => [...document.querySelectorAll('table')].filter(table => table.offsetParent
    && table.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map(table => `${table.getBoundingClientRect().right}: ${table.innerText.slice(0, 80)}`).slice(0, 3)"""


def document_of(name: str) -> dict[str, Any]:
    if name == "demo":
        if not DEMO.is_file():
            pytest.skip(f"'make demo' makes the report that this opens ({DEMO.name})")
        demo: dict[str, Any] = json.loads(DEMO.read_text())
        return demo
    if name == "hostile":
        return made_report(3, kernel=HOSTILE, prefix=f"a'\"><b>{HOSTILE}")
    return made_report({"seven workloads": 7, "simulated": 14, "200 workloads": 200}[name])


def simulations(rows: list[Row]) -> list[SimulatedEntry]:
    """A simulation of the first workload by each method, and one of a suite that the report does not have."""
    told = {f"{kind}{name}": 123.45 for kind in ("", "active_") for name in ERRORS}
    of_rows = [
        SimulatedEntry(
            application=row.workload, method=row.method, silicon_devices=[row.device], **told,
            pks_speedup=1234.5, pka_speedup=12345.6, pka_speedup_over="full",
        )
        for row in rows[:3]
    ]  # fmt: skip
    return [*of_rows, SimulatedEntry(suite="Rodinia", application="bfs", pka_error_percent=1.5)]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {"": tmp_path_factory.mktemp("pages")}


def page_of(pages: dict[str, Path], name: str) -> Path:
    """The page of a report, drawn once."""
    if name not in pages:
        place = pages[""] / f"{name.replace(' ', '-')}.html"
        report = read_report(document_of(name))
        if name == "simulated":
            set_beside(report, [], simulations(report.rows))
        place.write_text(render_html(report))
        pages[name] = place
    return pages[name]


every_page = pytest.mark.parametrize(
    "name", ["demo", "seven workloads", "200 workloads", "hostile", "simulated"]
)


@every_page
def test_a_folded_page_is_at_most_eight_screens(
    open_page: OpenPage, pages: dict[str, Path], name: str, screenshots: Path
) -> None:
    page = open_page(page_of(pages, name))
    page.screenshot(path=screenshots / f"report-{name.replace(' ', '-')}.png")
    assert page.evaluate("document.documentElement.scrollHeight") <= SCREENS * SCREEN_PX
    assert sideways_overflow(page) <= 0


def test_the_first_screen_has_verdicts_suite_best_method_and_what_is_excluded(
    open_page: OpenPage, pages: dict[str, Path]
) -> None:
    page = open_page(page_of(pages, "seven workloads"))
    for text in (
        "projections within",
        "mean speedup",
        "intervals",
        "largest part of the error",
        "Best method",
    ):
        box = page.get_by_text(text).first.bounding_box()
        assert box is not None and box["y"] + box["height"] <= SCREEN_PX, text


@every_page
def test_no_column_of_text_is_narrower_than_ten_characters(
    open_page: OpenPage, pages: dict[str, Path], name: str
) -> None:
    for window in (DESK, PHONE):
        page = open_page(page_of(pages, name), window)
        page.evaluate(UNFOLD)
        assert page.evaluate(NARROW_CELLS) == []


@every_page
def test_a_phone_need_not_scroll_the_page_sideways(
    open_page: OpenPage, pages: dict[str, Path], name: str, screenshots: Path
) -> None:
    page = open_page(page_of(pages, name), PHONE)
    page.screenshot(path=screenshots / f"report-{name.replace(' ', '-')}-phone.png")
    assert sideways_overflow(page) <= 0
    page.evaluate(UNFOLD)
    assert sideways_overflow(page) <= 0


@pytest.mark.parametrize("width", [400, 900, 1400])
@pytest.mark.parametrize("name", ["demo", "seven workloads"])
def test_text_in_charts_is_at_least_eleven_pixels(
    open_page: OpenPage, pages: dict[str, Path], name: str, width: int
) -> None:
    page = open_page(page_of(pages, name), Window(width=width))
    page.evaluate(UNFOLD)
    least, where = page.evaluate(CHART_TEXT)
    assert least >= LEAST_CHART_PX - 0.01, where


@pytest.mark.parametrize("window", [DESK, PHONE], ids=["desk", "phone"])
@every_page
def test_no_figure_is_cut_or_scrolls(
    open_page: OpenPage, pages: dict[str, Path], name: str, window: Window
) -> None:
    page = open_page(page_of(pages, name), window)
    page.evaluate(UNFOLD_FIGURES)
    drawn = page.evaluate("document.querySelectorAll('.broad svg').length")
    assert page.evaluate(FIGURES_SHOWN) == drawn >= 6
    cut = page.evaluate(CUT_FIGURES)
    # Letters that no font of the drawing has are wider in a browser; they are not cut either.
    assert [each for each in cut if name != "hostile" or each.endswith(" is cut")] == []


@pytest.mark.parametrize(
    ("name", "scheme"),
    [*((name, scheme) for name in ("seven workloads", "hostile") for scheme in ("light", "dark")),
     ("demo", "light"), ("200 workloads", "light")],
)  # fmt: skip
def test_axe_finds_nothing_serious(
    open_page: OpenPage, pages: dict[str, Path], name: str, scheme: str
) -> None:
    page = open_page(page_of(pages, name), Window(scheme="dark" if scheme == "dark" else "light"))
    # axe takes minutes for 95,000 elements, and most workloads are drawn alike.
    page.evaluate(DROP)
    assert axe_violations(page) == []
    page.evaluate(UNFOLD)
    assert axe_violations(page) == []


def test_a_phone_shows_every_line_of_the_suite_as_a_block(
    open_page: OpenPage, pages: dict[str, Path]
) -> None:
    page = open_page(page_of(pages, "simulated"), PHONE)
    # Nothing of the table is outside of the window, where one would have to scroll for it.
    outside = """[...document.querySelectorAll('.stacks td')].filter(cell => cell.offsetParent)
      .filter(cell => cell.getBoundingClientRect().right > 400).length"""
    assert page.evaluate(outside) == 0
    assert "PKS error (active)" in page.evaluate(
        "getComputedStyle([...document.querySelectorAll('.stacks td')].find("
        "cell => cell.dataset.heading.startsWith('PKS error')), '::before').content"
    )


@every_page
def test_paper_has_whole_tables(
    open_page: OpenPage, pages: dict[str, Path], name: str, screenshots: Path
) -> None:
    page = open_page(page_of(pages, name), SHEET)
    assert 1 <= pages_printed(page, screenshots / f"report-{name.replace(' ', '-')}.pdf") <= SHEETS
    page.emulate_media(media="print")
    page.evaluate(UNFOLD)
    assert page.evaluate(CUT_TABLES) == []


def pages_printed(page: Page, place: Path) -> int:
    """How many sheets the page takes as it is folded; the PDF is kept for people to look at."""
    page.pdf(path=place, prefer_css_page_size=True)
    return len(re.findall(rb"/Type\s*/Page\b", place.read_bytes()))


def test_hostile_names_run_nothing_and_are_shown_as_they_are(
    open_page: OpenPage, pages: dict[str, Path]
) -> None:
    page = open_page(page_of(pages, "hostile"))
    page.evaluate(UNFOLD)
    assert page.locator("script").count() == 0
    assert page.locator("b b").count() == 0
    assert HOSTILE in page.locator("body").inner_text()


def test_a_page_is_read_by_keyboard_alone(open_page: OpenPage, pages: dict[str, Path]) -> None:
    page = open_page(page_of(pages, "seven workloads"))
    first = page.locator("details").first
    first.locator("summary").focus()
    page.keyboard.press("Enter")
    assert first.get_attribute("open") is not None
    # Tables that scroll sideways can be reached, so that arrows move them.
    assert page.evaluate("[...document.querySelectorAll('.scroll')].every(each => each.tabIndex === 0)")


@pytest.mark.parametrize("name", ["seven workloads", "hostile"])
def test_a_button_makes_a_figure_interactive_although_the_page_forbids_eval(
    open_page: OpenPage, tmp_path: Path, screenshots: Path, name: str
) -> None:
    place = tmp_path / "interactive.html"
    place.write_text(render_html(read_report(document_of(name)), with_scripts=True))
    page = open_page(place)
    name_of_figure = page.locator("button[data-figure]").first.get_attribute("data-figure")
    page.locator("button[data-figure]").first.click()
    drawn = page.locator(f'[data-drawn="{name_of_figure}"] [role=graphics-document]')
    drawn.wait_for()
    assert drawn.locator("text").count() > 3
    page.screenshot(path=screenshots / f"interactive-{name.replace(' ', '-')}.png")


def test_an_interactive_figure_is_dark_where_the_reader_asks_for_it_and_light_on_paper(
    open_page: OpenPage, tmp_path: Path, screenshots: Path
) -> None:
    place = tmp_path / "figure.html"
    place.write_text(forms.html(gallery.of_report(read_report(made_report(2)))[0]))
    page = open_page(place, Window(scheme="dark"))
    page.locator("button[data-figure]").click()
    drawn = page.locator("svg.marks")
    drawn.locator("text").first.wait_for()
    page.screenshot(path=screenshots / "interactive-dark.png")
    colours = """[getComputedStyle(document.querySelector('svg.marks')).backgroundColor,
      getComputedStyle(document.querySelector('svg.marks text')).fill]"""
    in_rgb = {
        name: "rgb({}, {}, {})".format(*bytes.fromhex(name[1:])) for name in (INK, PAPER, *DARK.values())
    }
    assert page.evaluate(colours) == [in_rgb[DARK[PAPER]], in_rgb[DARK[INK]]]
    page.emulate_media(media="print")
    assert page.evaluate(colours) == [in_rgb[PAPER], in_rgb[INK]]
