"""The live page over HTTP: sessions, forms, hostile text, downloads that go on, and events."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from assay_core.records.attempt import AttemptLog
from assay_core.records.runs import RunsAction
from assay_server.app import Server
from assay_server.web.views.templating import release
from tests.support.server.made_segments import made_segments
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import eventually
from tests.support.server.web_lab import COOKIE, WebLab, web_lab

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\x00\u202egnp.exe{{7*7}}"


@pytest.fixture
def lab(make_server: Callable[..., Server], short_path: Path) -> WebLab:
    return web_lab(make_server, short_path)


def campaign_state(lab: WebLab) -> tuple[bool, str]:
    with PlayingAgent(lab.server.addresses[-1]) as owner:
        status = owner.status("made-1", runs=False)
    return status.paused, str(status.state)


def test_a_link_opens_one_session_and_the_cookie_is_for_the_server_alone(lab: WebLab) -> None:
    link = lab.link("viewer")
    with closing(lab.browser()) as browser, closing(lab.browser()) as second:
        asked = browser.get(link)
        assert asked.status_code == 200
        assert "Log in as viewer" in asked.text
        assert browser.get(link).status_code == 200, "opening the page uses nothing up: scanners do so"
        secret = link.partition("link=")[2]
        answer = browser.post("/login", data={"link": secret})
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(f"{COOKIE}=")
        assert {"HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"} <= set(cookie.split("; "))
        assert second.post("/login", data={"link": secret}).status_code == 401
        assert second.get(link).status_code == 401
        assert browser.get("/").status_code == 200
        # Only the hash of the cookie's secret is on the disk.
        state = lab.server.settings.state_dir
        kept = b"".join(path.read_bytes() for path in state.glob("metadata.sqlite*"))
        assert browser.cookies[COOKIE].encode() not in kept and secret.encode() not in kept
        assert hashlib.sha256(browser.cookies[COOKIE].encode()).hexdigest().encode() in kept


def test_a_session_outlives_a_restart_and_an_old_page_is_told_to_reload(
    lab: WebLab, make_server: Callable[..., Server]
) -> None:
    with closing(lab.browser("viewer")) as browser:
        cookie = browser.cookies[COOKIE]
    lab.server.stop()
    again = WebLab(make_server(web="127.0.0.1:0"), lab.people)
    with closing(again.browser()) as browser:
        browser.cookies.set(COOKIE, cookie)
        assert browser.get("/campaigns/made-1").status_code == 200
        old = browser.get("/events/campaign?campaign_id=made-1&release=0.0.9-old&seen=x.1")
        assert old.headers["content-type"].startswith("text/event-stream")
        assert old.text.startswith("event: reload\n")


def test_a_form_needs_the_token_of_its_session_and_comes_from_our_own_page(lab: WebLab) -> None:
    with closing(lab.browser("operator")) as browser, closing(lab.browser("admin")) as other:
        path, csrf = "/campaigns/made-1/pause", lab.csrf(browser)
        assert re.fullmatch("[0-9a-f]{64}", csrf)
        refused = [
            browser.post(path),
            browser.post(path, data={"csrf": lab.csrf(other)}),
            browser.post(path, data={"csrf": csrf}, headers={"Origin": "http://evil.example"}),
            browser.post(path, data={"csrf": csrf}, headers={"Sec-Fetch-Site": "cross-site"}),
            browser.post(path, data={"csrf": csrf}, headers={"Sec-Fetch-Site": "same-site"}),
        ]
        assert [each.status_code for each in refused] == [403] * 5
        assert browser.get(path).status_code == 405
        assert campaign_state(lab) == (False, "running")
        assert "/campaigns/made-1/resume" not in browser.get("/campaigns/made-1").text
        done = browser.post(path, data={"csrf": csrf}, headers={"Origin": lab.base})
        assert (done.status_code, done.headers["location"]) == (303, "/campaigns/made-1")
        assert campaign_state(lab) == (True, "running")
        # Who comes back from the form sees at once what it did.
        page = browser.get("/campaigns/made-1").text
        assert "/campaigns/made-1/resume" in page
        assert 'formaction="/campaigns/made-1/pause"' not in page


def test_another_host_name_a_long_body_and_a_long_address_are_refused(lab: WebLab) -> None:
    with closing(lab.browser("viewer")) as browser:
        for host in ("evil.example", "127.0.0.1.evil.example", "", "127.0.0.1@evil.example"):
            assert browser.get("/", headers={"Host": host}).status_code in (400, 421)
        for host in ("localhost", "LOCALHOST:1", "[::1]:7180", "127.0.0.1"):
            assert browser.get("/", headers={"Host": host}).status_code == 200
        assert browser.post("/login", content=b"x" * 20_000).status_code == 413
        assert browser.post("/login", content=iter([b"link=x"])).status_code == 413
        assert browser.get("/?" + "x" * 4_000).status_code == 414


def test_every_answer_forbids_scripts_frames_and_caches(lab: WebLab) -> None:
    with closing(lab.browser("viewer")) as browser:
        for path in ("/", "/campaigns/made-1", "/runs/made-1.0000", "/login", "/campaigns/none", "/nothing"):
            headers = browser.get(path).headers
            policy = headers["content-security-policy"]
            assert "unsafe" not in policy
            assert {"default-src 'none'", "frame-ancestors 'none'", "script-src 'self'"} <= set(
                policy.split("; ")
            )
            assert headers["x-frame-options"] == "DENY"
            assert headers["cache-control"] == "no-store"
            assert headers["x-content-type-options"] == "nosniff"
        for page in ("/", "/campaigns/made-1", "/gpus"):
            html = browser.get(page).text
            assert not re.search(r"<[^>]*\s(on\w+|style)=", html)
            assert not re.search(r"<script(?! src=\"/static/)|<style", html)
        style = f"/static/{release()}/page.css"
        assert "immutable" in browser.get(style).headers["cache-control"]
        assert browser.get(style.replace(release(), "0.0.9-old")).status_code == 404


def test_foreign_text_is_shown_and_does_nothing(lab: WebLab) -> None:
    with PlayingAgent(lab.server.addresses[-1], agent_id=f"agent {HOSTILE}"[:60]) as agent:
        agent.register()
        key = agent.work().key
        agent.upload(key, [segment := made_segments((100,), "detailed")[0]])
        log = AttemptLog(command=("profile", HOSTILE), text=f"first\r\n{HOSTILE}\x1b[31mred")
        assert agent.finish(key, 1, segment.launches, log=log).published
    with closing(lab.browser("viewer")) as browser:
        pages = {path: browser.get(path).text for path in ("/", "/gpus", "/runs/" + key.run_id)}
        for path, html in pages.items():
            assert "<script>" not in html, path
            assert "<img" not in html, path
            assert "\x00" not in html, path
            assert "\u202e" not in html, path
        run = pages["/runs/" + key.run_id]
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in run
        assert "␀&lt;U+202E&gt;gnp.exe{{7*7}}&lt;U+001B&gt;[31mred" in run
        for path in (f"/campaigns/{HOSTILE[:40]}", f"/runs/{HOSTILE[:40]}", "/login?link=" + HOSTILE[:40]):
            answer = browser.get(httpx.URL(lab.base).join(httpx.URL(path=path.partition("?")[0])))
            assert answer.status_code in (200, 404)
            assert "<script>alert" not in answer.text


def test_a_download_that_broke_goes_on_where_it_ended(lab: WebLab) -> None:
    with PlayingAgent(lab.server.addresses[-1]) as agent:
        agent.register()
        key = agent.play(made_segments((1000,), "detailed"))
    path = f"/campaigns/made-1/records/{key.run_id}/0.parquet"
    with closing(lab.browser("viewer")) as browser:
        assert f'href="{path}"' in browser.get("/campaigns/made-1/records").text
        whole = browser.get(path)
        assert whole.content[:4] == whole.content[-4:] == b"PAR1"
        assert whole.headers["accept-ranges"] == "bytes"
        tag = whole.headers["etag"]
        rest = browser.get(path, headers={"Range": "bytes=100-", "If-Range": tag})
        assert (rest.status_code, rest.content) == (206, whole.content[100:])
        assert rest.headers["content-range"] == f"bytes 100-{len(whole.content) - 1}/{len(whole.content)}"
        other = browser.get(path, headers={"Range": "bytes=100-", "If-Range": '"another file"'})
        assert (other.status_code, other.content) == (200, whole.content)
        assert browser.get(path, headers={"Range": "bytes=9999999-"}).status_code == 416


def there(browser: httpx.Client, path: str) -> httpx.Response:
    """The report so far; the page's own may be under way, and the server makes one at a time."""
    answers: list[httpx.Response] = []

    def asked() -> bool:
        answers.append(browser.get(path))
        return answers[-1].status_code == 200

    eventually(asked, "the report")
    return answers[-1]


def test_the_report_is_a_page_without_an_origin_and_json_for_keeping(lab: WebLab) -> None:
    with PlayingAgent(lab.server.addresses[-1]) as agent, closing(lab.browser("viewer")) as browser:
        early = browser.get("/campaigns/made-1/report.json")
        assert early.status_code == 409
        assert "no report yet" in early.text
        agent.register()
        agent.play(made_segments((30,), "detailed", counters=2))
        assert "Report of what is there so far" in browser.get("/campaigns/made-1").text
        so_far = there(browser, "/campaigns/made-1/report.html")
        assert "made by a stand-in" in so_far.text
        assert so_far.headers["content-security-policy"].startswith("sandbox allow-scripts")
        kept = there(browser, "/campaigns/made-1/report.json")
        assert "attachment" in kept.headers["content-disposition"]
        agent.play(made_segments((100,)))
        agent.play(made_segments((70,)))
        assert [status.state for status in agent.watch("made-1")][-1] == "done"
        page = browser.get("/campaigns/made-1/report.html")
        assert "made by a stand-in" in page.text
        assert page.headers["content-security-policy"].startswith("sandbox allow-scripts")
        assert "allow-same-origin" not in page.headers["content-security-policy"]
        kept = browser.get("/campaigns/made-1/report.json")
        assert json.loads(kept.content) == {"report": "made by a stand-in"}
        assert "attachment" in kept.headers["content-disposition"]
        assert browser.get("/campaigns/made-1/report.pdf").status_code == 400
        # A report that this release cannot show costs the page nothing but its table.
        assert browser.get("/campaigns/made-1").status_code == 200


def test_what_a_browser_does_is_in_the_audit_log_as_what_a_client_does(lab: WebLab) -> None:
    with closing(lab.browser("submitter")) as owner, closing(lab.browser("viewer")) as viewer:
        owner.post("/campaigns/made-1/pause", data={"csrf": lab.csrf(owner), "workload": "training"})
        viewer.post("/campaigns/made-1/cancel", data={"csrf": lab.csrf(viewer)})
    told = {(each.name, each.call): each for each in lab.audit()}
    paused, refused = told["submitter", "Pause"], told["viewer", "CancelRuns"]
    assert (paused.how, paused.outcome) == ("web", "done")
    assert paused.subject == "campaign made-1, workload training"
    assert paused.address.startswith("web:127.0.0.1:")
    assert (refused.how, refused.outcome, refused.role) == ("web", "permission_denied", "viewer")


def test_buttons_are_there_for_those_who_may_use_them(lab: WebLab) -> None:
    for who, some in (("viewer", False), ("other submitter", False), ("submitter", True), ("owner", True)):
        with closing(lab.browser(who)) as browser:
            for path in ("/campaigns/made-1", "/campaigns/made-1/runs", "/runs/made-1.0000"):
                assert ("formaction" in browser.get(path).text) is some, (who, path)


def test_actions_on_a_run_and_a_workload_do_what_the_verbs_do(lab: WebLab) -> None:
    with closing(lab.browser("submitter")) as browser, PlayingAgent(lab.server.addresses[-1]) as owner:
        csrf = lab.csrf(browser)

        def act(name: str, **data: str) -> int:
            return browser.post(f"/campaigns/made-1/{name}", data={"csrf": csrf, **data}).status_code

        assert act("pause", run="made-1.0001") == 303
        assert owner.run("made-1.0001").run.paused
        assert act("resume", run="made-1.0001") == 303
        assert not owner.run("made-1.0001").run.paused
        assert act("retry", workload="training") == 409, "nothing has failed"
        assert act("cancel", workload="training") == 303
        assert campaign_state(lab)[1] == "cancelled"
        assert act("retry") == 303
        assert campaign_state(lab)[1] == "running"
        assert act("pause", run="made-2.0000") == 404


def events(answer: httpx.Response) -> list[tuple[str, dict[str, dict[str, str]]]]:
    """The changes that a stream tells until it ends or three came."""
    found: list[tuple[str, dict[str, dict[str, str]]]] = []
    name = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            found.append((name, json.loads(line.removeprefix("data: "))))
            return found
    return found


def told_of(answer: httpx.Response, region: str) -> dict[str, dict[str, str]]:
    """The first change of that region; results so far may come before it, at any time."""
    name = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: ") and name == "change":
            news: dict[str, dict[str, str]] = json.loads(line.removeprefix("data: "))
            if region in news.get("regions", {}):
                return news
    raise AssertionError(f"the stream ended without a change of {region}")


def stream_of(html: str) -> str:
    return re.findall(r'data-stream="([^"]+)"', html)[0].replace("&amp;", "&")


def test_a_watched_page_is_told_what_changed_and_only_that(lab: WebLab) -> None:
    with closing(lab.browser("viewer")) as browser, PlayingAgent(lab.server.addresses[-1]) as owner:
        html = browser.get("/campaigns/made-1").text
        with browser.stream("GET", stream_of(html)) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            owner.ask(RunsAction.PAUSE, "made-1")
            news = told_of(answer, "state")
        assert "paused" in news["regions"]["state"]
        assert {"noted", "now"}.isdisjoint(news["regions"])
        assert "csrf" not in json.dumps(news), "a change is the same for all who watch"
        # Who missed it is told when they come back.
        with browser.stream("GET", stream_of(html)) as answer:
            again = told_of(answer, "state")
        assert again["regions"]["state"] == news["regions"]["state"]


def test_a_stream_ends_when_its_session_does(lab: WebLab) -> None:
    with closing(lab.browser("viewer")) as browser, PlayingAgent(lab.server.addresses[-1]) as owner:
        html = browser.get("/campaigns/made-1").text
        with browser.stream("GET", stream_of(html)) as answer:
            lab.change("viewer", revoked_at_ms=1)
            lab.notice()
            owner.ask(RunsAction.PAUSE, "made-1")
            assert [name for name, _ in events(answer)] == ["over"]
        assert browser.get(stream_of(html)).status_code == 403
