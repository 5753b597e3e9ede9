"""The live page in a real browser: a whole campaign on a virtual GPU, actions, keyboard, a phone, axe."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.browser.opening import DESK, PHONE, OpenPage, Window, axe_violations, sideways_overflow
from tests.support.browser.paged_lab import PagedLab, paged_lab

if TYPE_CHECKING:
    from playwright.sync_api import Page

# One lab for all of them, in one worker.
pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("paged_lab")]

HOSTILE = "<b onclick=alert(1)>gemm</b> & \u202ecexe.exe"
_DRAWN_FOR_A_PHONE = (
    "image => image.currentSrc.includes('narrow') && image.complete && image.naturalWidth <= 360"
)
_SCROLLS = "image => image.closest('.scroll').scrollWidth - image.closest('.scroll').clientWidth"
_LONG_MS = 120_000


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PagedLab]:
    with paged_lab(tmp_path_factory.mktemp("lab")) as made:
        yield made


@pytest.fixture(scope="module")
def done(lab: PagedLab, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A campaign that has ended."""
    workloads = {HOSTILE: "stencil", "a workload with a rather long name, version 2": "solver"}
    campaign_id = lab.submit(tmp_path_factory.mktemp("done"), "ended", workloads)
    assert list(lab.client.watch(campaign_id))[-1]["state"] == "done"
    return campaign_id


def logged_in(lab: PagedLab, open_page: OpenPage, window: Window = DESK, **options: object) -> Page:
    page = open_page(lab.link(), window, **options)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(re.compile("/$"))
    return page


def every_page(lab: PagedLab, campaign_id: str) -> dict[str, str]:
    """Addresses of all pages, by a name for their pictures."""
    run = lab.client.status(campaign_id)["runs"][0]["run_id"]
    of_campaign = f"{lab.base}/campaigns/{campaign_id}"
    return {
        "campaigns": f"{lab.base}/",
        "campaign": of_campaign,
        "runs": f"{of_campaign}/runs",
        "run": f"{lab.base}/runs/{run}",
        "records": f"{of_campaign}/records",
        "gpus": f"{lab.base}/gpus",
        "queue": f"{lab.base}/queue",
    }


def test_a_campaign_is_watched_from_its_submission_to_its_report_without_a_reload(
    lab: PagedLab, open_page: OpenPage, tmp_path: Path, screenshots: Path
) -> None:
    page = logged_in(lab, open_page)
    campaign_id = lab.submit(tmp_path, "watched", {"stencil": "stencil", "solver": "solver"})
    lab.client.pause(campaign_id)
    # The list learns of it by itself.
    page.get_by_role("link", name=campaign_id).wait_for(timeout=_LONG_MS)
    page.get_by_role("link", name=campaign_id).click()
    state = page.locator("[data-region=state]")
    state.locator(".badge.paused").wait_for()
    page.screenshot(path=screenshots / "page-paused.png", full_page=True)
    page.evaluate("window.untouched = true")
    page.get_by_role("button", name="Resume").click()
    page.evaluate("window.untouched = true")
    page.locator("[data-region=now] tbody tr").first.wait_for(timeout=_LONG_MS)
    page.screenshot(path=screenshots / "page-running.png", full_page=True)
    state.locator(".badge.done").wait_for(timeout=_LONG_MS)
    page.locator("[data-region=verdict] tbody tr").first.wait_for(timeout=_LONG_MS)
    assert page.evaluate("window.untouched"), "the page was not loaded again"
    results = page.locator("[data-region=workloads]").inner_text()
    assert "stencil" in results
    assert re.search(r"\d\.\d\d %", results)
    figure = page.locator("[data-region=figures] img").first
    figure.wait_for(timeout=_LONG_MS)
    figure.scroll_into_view_if_needed()
    figure.evaluate("image => image.decode()")
    assert figure.evaluate("image => image.naturalWidth") > 100
    page.screenshot(path=screenshots / "page-done.png", full_page=True)
    page.set_viewport_size({"width": PHONE.width, "height": PHONE.height})
    for drawn in page.locator("[data-region=figures] img:visible").all():
        drawn.scroll_into_view_if_needed()
        page.wait_for_function(_DRAWN_FOR_A_PHONE, arg=drawn.element_handle(), timeout=_LONG_MS)
        assert drawn.evaluate(_SCROLLS) <= 1, "a phone sees the whole figure"
    page.screenshot(path=screenshots / "page-done-phone.png", full_page=True)
    page.set_viewport_size({"width": DESK.width, "height": DESK.height})
    page.get_by_role("link", name="Open the report").click()
    page.wait_for_url(re.compile("report.html"))
    assert "stencil" in page.locator("body").inner_text()
    assert page.evaluate("origin") == "null", "the report has no origin, so no cookie"


def test_buttons_do_what_they_say_and_keep_the_focus(
    lab: PagedLab, open_page: OpenPage, tmp_path: Path
) -> None:
    campaign_id = lab.submit(tmp_path, "acted", {"pipeline": "pipeline"})
    page = logged_in(lab, open_page)
    page.goto(f"{lab.base}/campaigns/{campaign_id}")
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("button", name="Resume", exact=True).wait_for()
    assert lab.client.status(campaign_id)["paused"]
    page.get_by_text("Cancel…").click()
    page.get_by_role("button", name="Cancel the campaign").focus()
    # Something changes elsewhere: what was opened stays open, and the focus stays.
    lab.client.resume(campaign_id)
    page.get_by_role("button", name="Pause", exact=True).wait_for(timeout=_LONG_MS)
    focused = "document.activeElement.textContent"
    assert page.evaluate(focused) == "Cancel the campaign"
    page.keyboard.press("Enter")
    page.locator("[data-region=state] .badge.cancelled").wait_for(timeout=_LONG_MS)
    assert lab.client.status(campaign_id)["state"] == "cancelled"


def test_the_page_works_without_script(lab: PagedLab, open_page: OpenPage, tmp_path: Path) -> None:
    campaign_id = lab.submit(tmp_path, "plain", {"pipeline": "pipeline"})
    page = logged_in(lab, open_page, java_script_enabled=False)
    page.get_by_role("link", name=campaign_id).click()
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("button", name="Resume", exact=True).wait_for()
    page.get_by_text("Cancel…").click()
    page.get_by_role("button", name="Cancel the campaign").click()
    page.locator(".badge.cancelled").first.wait_for()
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url(re.compile("/login$"))
    page.goto(f"{lab.base}/login")
    assert "assay lab login --web" in page.locator("main").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_keeps_a_reader_from_the_pages(
    lab: PagedLab, done: str, open_page: OpenPage, screenshots: Path, scheme: str
) -> None:
    window = Window(scheme="dark" if scheme == "dark" else "light")
    page = logged_in(lab, open_page, window)
    found = {}
    for name, place in every_page(lab, done).items():
        page.goto(place)
        page.screenshot(path=screenshots / f"page-{name}-{scheme}.png", full_page=True)
        found[name] = axe_violations(page)
    assert found == {name: [] for name in found}


def test_a_phone_shows_every_page_without_scrolling_sideways(
    lab: PagedLab, done: str, open_page: OpenPage, screenshots: Path
) -> None:
    page = logged_in(lab, open_page, PHONE)
    too_wide = {}
    for name, place in every_page(lab, done).items():
        page.goto(place)
        page.screenshot(path=screenshots / f"page-{name}-phone.png", full_page=True)
        too_wide[name] = sideways_overflow(page)
    assert too_wide == dict.fromkeys(too_wide, 0)


def test_the_keyboard_reaches_everything_and_shows_where_it_is(
    lab: PagedLab, done: str, open_page: OpenPage
) -> None:
    page = logged_in(lab, open_page)
    page.goto(f"{lab.base}/campaigns/{done}")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    seen = set()
    for _ in range(60):
        assert page.evaluate(outline) == "solid"
        seen.add(page.evaluate("document.activeElement.textContent.trim().slice(0, 40)"))
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            break
    assert {"GPUs", "Queue", "Log out", "Open the report", "All runs, one by one"} <= seen


def test_foreign_names_are_shown_and_run_nothing(lab: PagedLab, done: str, open_page: OpenPage) -> None:
    page = logged_in(lab, open_page)
    page.goto(f"{lab.base}/campaigns/{done}")
    text = page.locator("main").inner_text()
    assert "<b onclick=alert(1)>gemm</b> & <U+202E>cexe.exe" in text
    assert page.locator("main b").count() == 0


def test_an_old_page_is_told_to_reload(lab: PagedLab, done: str, open_page: OpenPage) -> None:
    page = logged_in(lab, open_page)

    def older(route: object) -> None:
        answer = route.fetch()  # type: ignore[attr-defined]
        body = answer.text().replace("release=", "release=0.0.9-")
        route.fulfill(response=answer, body=body)  # type: ignore[attr-defined]

    page.route(re.compile(f"/campaigns/{done}$"), older)
    page.goto(f"{lab.base}/campaigns/{done}")
    page.get_by_text("The server was upgraded.").wait_for()
    page.unroute_all()
    page.get_by_role("link", name="Reload the page").click()
    page.wait_for_selector("body[data-live=yes]")
    assert page.get_by_text("The server was upgraded.").count() == 0
