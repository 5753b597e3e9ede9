"""Every route of the live page x everybody who could ask: who is not named here is refused.

The routes come from the application itself, so a new one without a row here fails. The rows are written out,
not taken from the server's own table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from assay_server.app import Server
from assay_server.web.views.templating import release
from tests.support.server.web_lab import WebLab, web_lab

READERS = "viewer, submitter, other submitter, operator, admin, owner"
STRANGERS = "viewer elsewhere, submitter elsewhere"
ALL_READERS = f"{STRANGERS}, {READERS}"
OF_A_CAMPAIGN = "submitter, operator, admin, owner"
# Sessions that hold no longer, or never did.
NOBODY = ("no session", "made-up session", "ended session", "revoked", "withdrawn certificate", "agent")
ANYBODY = f"{', '.join(NOBODY)}, {ALL_READERS}"
MAY: dict[str, str] = {
    "login": ANYBODY,
    "log in": "",  # with a link only, which none of them has
    "log out": ANYBODY,
    "static": ANYBODY,
    "campaigns": ALL_READERS,
    "campaign": READERS,
    "runs": READERS,
    "run": READERS,
    "gpus": ALL_READERS,
    "queue": ALL_READERS,
    "events campaigns": ALL_READERS,
    "events campaign": READERS,
    "events runs": READERS,
    "events run": READERS,
    "events gpus": ALL_READERS,
    "events queue": ALL_READERS,
    "report": READERS,
    "figure": READERS,
    "records": READERS,
    "file": READERS,
    "pause": OF_A_CAMPAIGN,
    "resume": OF_A_CAMPAIGN,
    "cancel": OF_A_CAMPAIGN,
    "retry": OF_A_CAMPAIGN,
}
GIVEN = {
    "{campaign_id}": "made-1",
    "{run_id}": "made-1.0000",
    "{slice:int}": "0",
    "{form}": "json",
    "{figure}": "overview",
    "{name}": "page.css",
}
QUERY = {"campaign": "campaign_id=made-1", "runs": "campaign_id=made-1", "run": "run_id=made-1.0000"}


@pytest.fixture
def lab(make_server: Callable[..., Server], short_path: Path) -> WebLab:
    return web_lab(make_server, short_path)


def every_route(lab: WebLab) -> Iterator[tuple[str, str, str]]:
    """Name, method and path of every route; one for each kind of page that can be watched."""
    assert lab.server.page is not None
    for route in lab.server.page.routes:
        methods = (route.methods or set()) - {"HEAD"}
        [method] = methods
        path = route.path
        for placeholder, value in GIVEN.items():
            path = path.replace(placeholder, value)
        if "{release}" in path:
            path = path.replace("{release}", release())
        if "{kind}" in path:
            for kind in ("campaigns", "campaign", "runs", "run", "gpus", "queue"):
                yield f"events {kind}", method, f"{path.replace('{kind}', kind)}?{QUERY.get(kind, '')}"
        else:
            yield route.name, method, path


def everybody(lab: WebLab) -> Iterator[tuple[str, httpx.Client]]:
    yield "no session", lab.browser()
    made_up = lab.browser()
    made_up.cookies.set("assay-session", "A" * 43)
    yield "made-up session", made_up
    ended = lab.browser("admin")
    cookie = ended.cookies["assay-session"]
    ended.post("/logout", data={"csrf": lab.csrf(ended)})
    ended.cookies.set("assay-session", cookie)
    yield "ended session", ended
    for who in ALL_READERS.split(", "):
        yield who, lab.browser(who)


def code(browser: httpx.Client, method: str, path: str, csrf: str) -> tuple[int, str]:
    """The status, and the text of an error."""
    data = {"csrf": csrf} if method == "POST" else None
    with browser.stream(method, path, data=data) as answer:
        text = "" if answer.status_code < 400 else answer.read().decode()
        return answer.status_code, text


def test_every_route_has_a_row_here(lab: WebLab) -> None:
    assert {name for name, _, _ in every_route(lab)} == set(MAY), "say in MAY who may ask a new route"


def test_who_is_not_named_is_refused_and_who_is_named_is_let_in(lab: WebLab) -> None:
    routes, wrong = list(every_route(lab)), []
    for who, browser in everybody(lab):
        with closing(browser):
            csrf = lab.csrf(browser) if who not in NOBODY else ""
            for name, method, path in routes:
                if name == "log out":  # would end the session that the others need
                    continue
                status, text = code(browser, method, path, csrf)
                hidden = status == 404 and "the server knows no such" in text
                let_in = status not in (401, 403) and not hidden
                if let_in != (who in MAY[name].split(", ")):
                    wrong.append(f"{name} by {who}: {status}")
    assert wrong == []


def refused_everywhere(lab: WebLab, browser: httpx.Client, csrf: str) -> list[str]:
    """The routes that need a session, and let this browser in nevertheless."""
    named = {name: who.split(", ") for name, who in MAY.items()}
    return [
        name
        for name, method, path in every_route(lab)
        if "no session" not in named[name] and code(browser, method, path, csrf)[0] not in (401, 403)
    ]


def test_an_identity_that_was_revoked_loses_its_session_at_once(lab: WebLab) -> None:
    with closing(lab.browser("operator")) as browser:
        csrf = lab.csrf(browser)
        assert browser.get("/").status_code == 200
        lab.change("operator", revoked_at_ms=1)
        lab.notice()
        assert refused_everywhere(lab, browser, csrf) == []


def test_a_session_ends_with_the_certificate_that_its_link_was_asked_for_with(lab: WebLab) -> None:
    with closing(lab.browser("operator")) as browser, closing(lab.browser("admin")) as other:
        csrf = lab.csrf(browser)
        lab.withdraw("serial of operator", "operator")
        lab.notice()
        assert refused_everywhere(lab, browser, csrf) == []
        assert other.get("/").status_code == 200


def test_an_agent_that_has_a_session_learns_nothing(lab: WebLab) -> None:
    """The access table gives agents no link; a session of one would show nothing, too."""
    with closing(lab.browser("agent")) as browser:
        assert refused_everywhere(lab, browser, "") == []


def test_what_is_hidden_is_refused_as_what_is_not_there(lab: WebLab) -> None:
    with closing(lab.browser("submitter elsewhere")) as browser:
        for path in ("/campaigns/NAME", "/campaigns/NAME/runs", "/runs/NAME.0000", "/campaigns/NAME/records"):
            told = {
                browser.get(path.replace("NAME", name)).text.replace(name, "NAME")
                for name in ("made-1", "made-2")
            }
            assert len(told) == 1, path
        lists = browser.get("/").text + browser.get("/queue").text + browser.get("/gpus").text
        assert "made-1" not in lists
        assert "training" not in lists
