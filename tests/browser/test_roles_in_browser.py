"""The live page in a real browser, as people of each role have it: their buttons, and what is refused."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from assay_core.identity.roles import Role
from assay_server.app import Server, ServerSettings
from assay_server.store.sqlite import SqliteStore
from tests.support.browser.opening import OpenPage
from tests.support.server.server_support import StandInExecutor
from tests.support.server.web_lab import WebLab, web_lab

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.timeout(300)

CAMPAIGN = "made-1"
TOKEN = "document.querySelector('[name=csrf]').value"


MakeServer = Callable[..., Server]


@pytest.fixture
def make_server(short_path: Path) -> Iterator[MakeServer]:
    """Starts servers over one state folder; each ends the one before."""
    analysis = StandInExecutor()
    with contextlib.ExitStack() as started:

        def make(**settings: Any) -> Server:
            started.close()
            address = f"unix:{short_path}/server.sock"
            config = ServerSettings(state_dir=short_path / "state", listen=(address,), **settings)
            server = Server(config, make_executor=lambda: analysis)
            server.start()
            started.callback(server.stop)
            return server

        yield make
    analysis.close()


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose path is short enough for Unix sockets."""
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        yield Path(folder)


@pytest.fixture
def lab(make_server: MakeServer, short_path: Path) -> WebLab:
    return web_lab(make_server, short_path)


def page_of(lab: WebLab, open_page: OpenPage, who: str) -> Page:
    """The campaign's page in the browser of somebody who has logged in."""
    page = open_page(lab.link(who))
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(re.compile("/$"))
    page.goto(f"{lab.base}/campaigns/{CAMPAIGN}")
    page.wait_for_selector("body[data-live=yes]")
    return page


def paused(lab: WebLab) -> bool:
    """The truth behind the page."""
    store = SqliteStore(lab.server.settings.state_dir / "metadata.sqlite")
    with store.snapshot() as reader:
        campaign = reader.campaign(CAMPAIGN)
    store.close()
    assert campaign is not None
    return campaign.paused


def forged(page: Page, lab: WebLab, action: str, csrf: str | None) -> int:
    """The status of a form that no page of ours has, with the cookie of the browser's session."""
    form = {} if csrf is None else {"csrf": csrf}
    answer = page.context.request.post(
        f"{lab.base}/campaigns/{CAMPAIGN}/{action}", form=form, max_redirects=0
    )
    return answer.status


@pytest.mark.parametrize("who", ["viewer", "other submitter"])
def test_who_may_only_look_has_no_button_and_a_forged_form_is_refused(
    lab: WebLab, open_page: OpenPage, who: str
) -> None:
    page = page_of(lab, open_page, who)
    assert page.locator("main button[form]").count() == 0
    assert page.locator("#act").count() == 0
    csrf = page.evaluate(TOKEN)
    for action in ("pause", "resume", "cancel", "retry"):
        assert forged(page, lab, action, csrf) == 403, action
    assert not paused(lab)
    page.locator("[data-region=state] .badge.running").wait_for()


@pytest.mark.parametrize("who", ["submitter", "operator", "admin"])
def test_whose_campaign_it_is_and_operators_pause_resume_and_cancel_it(
    lab: WebLab, open_page: OpenPage, who: str
) -> None:
    page = page_of(lab, open_page, who)
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("button", name="Resume", exact=True).wait_for()
    assert paused(lab)
    page.get_by_role("button", name="Resume", exact=True).click()
    page.get_by_role("button", name="Pause", exact=True).wait_for()
    assert not paused(lab)
    page.get_by_text("Cancel…").click()
    page.get_by_role("button", name="Cancel the campaign").click()
    page.locator("[data-region=state] .badge.cancelled").wait_for(timeout=60_000)
    page.get_by_role("button", name="Retry failed and cancelled runs").click()
    page.locator("[data-region=state] .badge.running").wait_for(timeout=60_000)


def test_a_form_without_its_token_or_of_another_site_is_refused(lab: WebLab, open_page: OpenPage) -> None:
    page = page_of(lab, open_page, "operator")
    for csrf in (None, "0" * 64):
        assert forged(page, lab, "pause", csrf) == 403
    # Another site's form: the session's cookie is not sent along (SameSite=Strict).
    csrf = page.evaluate(TOKEN)
    elsewhere = page.context.new_page()
    elsewhere.goto("data:text/html,<form method=post></form>")
    with elsewhere.expect_navigation():
        elsewhere.evaluate(
            """([action, csrf]) => {
                 const form = document.forms[0];
                 form.action = action;
                 form.innerHTML = '<input name=csrf>';
                 form.csrf.value = csrf;
                 form.submit();
               }""",
            [f"{lab.base}/campaigns/{CAMPAIGN}/pause", csrf],
        )
    assert "assay lab login --web" in elsewhere.locator("main").inner_text()
    assert not paused(lab)


def test_an_open_page_loses_its_session_and_its_buttons_with_the_role(
    lab: WebLab, open_page: OpenPage
) -> None:
    page = page_of(lab, open_page, "operator")
    lab.change("operator", role=Role.VIEWER)
    lab.notice()
    page.get_by_text("Your session has ended, or your role was changed.").wait_for(timeout=60_000)
    page.reload()
    assert page.locator("main button[form]").count() == 0


def test_a_page_of_before_an_upgrade_is_told_to_reload_and_then_works(
    lab: WebLab, open_page: OpenPage, make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = page_of(lab, open_page, "submitter")
    page = first.context.new_page()  # while its server is away, its console says so
    page.goto(first.url)
    page.wait_for_selector("body[data-live=yes]")
    first.close()
    base = lab.base
    lab.server.stop()
    page.get_by_text("The server does not answer; trying again.").wait_for(timeout=60_000)
    for module in ("routes.watching", "routes.context", "page"):
        monkeypatch.setattr(f"assay_server.web.{module}.release", lambda: "9.9.9-upgraded")
    make_server(web=base.removeprefix("http://"))
    page.get_by_text("The server was upgraded.").wait_for(timeout=60_000)
    page.get_by_role("link", name="Reload the page").click()
    page.wait_for_selector("body[data-live=yes][data-release='9.9.9-upgraded']")
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("button", name="Resume", exact=True).wait_for()


def test_the_campaign_of_another_project_is_not_there(lab: WebLab, open_page: OpenPage) -> None:
    page = open_page(lab.link("viewer elsewhere"))
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(re.compile("/$"))
    assert page.get_by_text(CAMPAIGN).count() == 0
    assert page.context.request.get(f"{lab.base}/campaigns/{CAMPAIGN}").status == 404
