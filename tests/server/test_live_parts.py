"""Parts of the live page alone: shared drawings, links by the clock, words, places, and its own TLS."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from assay_core.identity.roles import Role
from assay_core.records.campaign import CampaignState
from assay_sampling.errors import ParameterError
from assay_server.access.caller import Caller
from assay_server.app import Server
from assay_server.places import web_place
from assay_server.store.sqlite import SqliteStore
from assay_server.web.auth.guarding import host_of
from assay_server.web.auth.sessions import csrf_token
from assay_server.web.live import LivePages
from assay_server.web.views.region import Drawing, Region, difference
from assay_server.web.views.results import results_of
from assay_server.web.views.templating import amount, span
from tests.support.identity.tls_lab import authority_of
from tests.support.server.made_reports import HOSTILE, made_report, made_rows
from tests.support.server.web_lab import web_lab

VERA = Caller("vera-id", "vera", Role.VIEWER, serial="5")


def drawing(**rows: str) -> Drawing:
    return Drawing("page", "page.html", {"rows": Region(rows), "still": Region({"": "<p>still</p>"})})


def test_forms_of_two_sessions_have_different_tokens() -> None:
    assert csrf_token("one") != csrf_token("two")
    assert csrf_token("one") == csrf_token("one")


def test_fifty_who_watch_one_page_share_its_drawings_and_get_only_what_changed() -> None:
    async def watched() -> tuple[int, list[list[bytes]]]:
        pages, state = LivePages("1", rest_seconds=0.01), {"a": "<tr>1</tr>", "b": "<tr>2</tr>"}
        version = 0

        async def draw() -> Drawing:
            return drawing(**state)

        _, number = await pages.current("page", draw, lambda: version)
        streams = [pages.events("page", draw, lambda: version, number) for _ in range(50)]
        for stream in streams:
            assert (await anext(stream)).startswith(b"retry")
        waiting = [asyncio.ensure_future(anext(stream)) for stream in streams]
        await asyncio.sleep(0)
        state["b"] = "<tr>3</tr>"
        version += 1
        told = [await each for each in waiting]
        for stream in streams:
            await stream.aclose()
        return pages.drawn, [told]

    drawn, [told] = asyncio.run(watched())
    assert drawn < 10
    assert len(set(told)) == 1
    data = json.loads(told[0].split(b"data: ")[1])
    assert data == {"release": "1", "pieces": {"b": "<tr>3</tr>"}}


def test_who_comes_from_another_process_or_too_late_gets_everything() -> None:
    async def first(seen: str) -> dict[str, object]:
        pages = LivePages("1", rest_seconds=0.01)

        async def draw() -> Drawing:
            return drawing(a="<tr></tr>")

        stream = pages.events("page", draw, lambda: 0, seen)
        await anext(stream)
        told = await anext(stream)
        await stream.aclose()
        found: dict[str, object] = json.loads(told.split(b"data: ")[1])
        return found

    for seen in ("", "0000.1", "x", "0000.-1", "1.1.1", "\u0661.\u0661"):
        assert asyncio.run(first(seen))["regions"] == {"rows": "<tr></tr>", "still": "<p>still</p>"}


def test_a_row_more_replaces_its_region_and_a_changed_row_only_itself() -> None:
    one = drawing(a="1", b="2")
    assert difference(one, drawing(a="1", b="2")) == {}
    assert difference(one, drawing(a="1", b="3")) == {"pieces": {"b": "3"}}
    assert difference(one, drawing(a="1", b="2", c="3")) == {"regions": {"rows": "123"}}
    assert difference(one, drawing(b="2", a="1")) == {"regions": {"rows": "21"}}


def test_words_for_numbers() -> None:
    assert [span(ms) for ms in (0, 59_400, 60_000, 754_000, 3_600_000, 100_000_000)] == [
        "0 s", "59 s", "1 min", "12 min", "1 h", "1 d 3 h"
    ]  # fmt: skip
    assert [amount(number) for number in (0, 12_345, 3_210_000)] == ["0", "12,345", "3.21 M"]


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("a:1", "a"),
        ("A", "a"),
        ("[::1]:5", "::1"),
        ("[::1]", "::1"),
        ("", ""),
        ("a:b:c", "a:b"),
        ("[::1", "::1"),
    ],
)
def test_the_host_of_a_header(header: str, host: str) -> None:
    assert host_of(header) == host


@pytest.mark.parametrize(
    ("address", "names", "why"),
    [
        ("0.0.0.0:7180", (), "under which name"),
        ("[::]:7180", (), "under which name"),
        ("unix:/tmp/x", (), "Unix socket"),
        ("localhost", (), "not an address"),
        ("lab:7180", ("https://lab",), "not the name of a host"),
        ("lab:7180", ("a b",), "not the name of a host"),
        ("lab:7180", ("*",), "not the name of a host"),
    ],
)
def test_a_place_that_cannot_be(address: str, names: tuple[str, ...], why: str) -> None:
    with pytest.raises(ParameterError, match=why):
        web_place(address, names, None, None)


def test_other_machines_reach_the_page_only_over_tls() -> None:
    for address in ("0.0.0.0:7180", "lab:7180", "10.0.0.1:7180", "localhost.evil.example:7180"):
        place = web_place(address, ("lab",), None, None)
        assert place is not None
        assert place.tls
        assert place.names[0] == "lab"
    here = web_place("127.0.0.1:7180", (), None, None)
    assert here is not None
    assert not here.tls
    with pytest.raises(ParameterError, match="only one of the two files"):
        web_place("lab:7180", (), Path("c.pem"), None)


def test_the_lab_s_authority_certifies_the_page_and_its_cookie_is_for_tls_alone(
    make_server: Callable[..., Server], short_path: Path
) -> None:
    listen = ("127.0.0.1:0", f"unix:{short_path}/server.sock")
    server = make_server(listen=listen, web="0.0.0.0:0", web_names=("localhost", "127.0.0.1"))
    assert server.page is not None
    base = server.page.base
    assert base.startswith("https://localhost:")
    trusted = ssl.create_default_context(cadata=authority_of(server).pem.decode())
    secret, _ = server.page.sessions.new_link(Caller("owner", "owner", Role.ADMIN), 1 << 60)
    for host in ("localhost", "127.0.0.1"):
        with httpx.Client(
            base_url=base.replace("localhost", host), verify=trusted, trust_env=False
        ) as client:
            page = client.get("/login")
            assert page.status_code == 200
            assert "max-age" in page.headers["strict-transport-security"]
            answer = client.post("/login", data={"link": secret})
            if host == "localhost":
                cookie = answer.headers["set-cookie"]
                assert cookie.startswith("__Host-assay-session=")
                assert "Secure" in cookie.split("; ")
                assert client.get("/").status_code == 200
    with httpx.Client(trust_env=False) as stranger, pytest.raises(httpx.ConnectError):
        stranger.get(base)


def test_a_server_without_authority_serves_no_other_machine(make_server: Callable[..., Server]) -> None:
    with pytest.raises(ParameterError, match="needs TLS"):
        make_server(web="0.0.0.0:0", web_names=("lab",))


def test_a_report_is_had_in_every_form(make_server: Callable[..., Server], short_path: Path) -> None:
    lab = web_lab(make_server, short_path)
    store = SqliteStore(lab.server.settings.state_dir / "metadata.sqlite")
    with store.transaction() as transaction:
        campaign = transaction.campaign("made-1")
        assert campaign is not None
        transaction.save_campaign(replace(campaign, state=CampaignState.DONE, has_report=True))
    store.close()
    folder = lab.server.settings.state_dir / "reports" / "made-1"
    folder.mkdir(parents=True)
    # Longer than what this process should ever read at once.
    report = made_report(workloads=3, kernel=HOSTILE)
    report["versions"]["padding"] = "x" * (17 << 20)
    (folder / "report.json").write_text(json.dumps(report))
    (folder / "report.parquet").write_bytes(made_rows(made_report(workloads=3, kernel=HOSTILE)))
    with closing(lab.browser("viewer")) as browser:
        page = browser.get("/campaigns/made-1").text
        assert re.findall(r">(workload-\d+)</a></th>", page)[:3] == ["workload-000"] * 3
        begins = {"json": b"{", "csv": b"", "parquet": b"PAR1", "md": b"#", "tex": b""}
        for form, begin in begins.items():
            assert f'href="/campaigns/made-1/report.{form}"' in page
            answer = browser.get(f"/campaigns/made-1/report.{form}")
            assert answer.status_code == 200, answer.text
            assert answer.content.startswith(begin)
            assert f"made-1.{form}" in answer.headers["content-disposition"]
        assert browser.get("/campaigns/made-1/report.exe").status_code == 400
    with closing(lab.browser("viewer elsewhere")) as stranger:
        assert stranger.get("/campaigns/made-1/report.csv").status_code == 404


def test_results_have_the_interval_as_differences_and_the_reason_of_a_refusal() -> None:
    report = made_report(workloads=40)
    found = results_of(made_rows(report))
    # Of each workload and GPU the first method that has numbers: one is refused for all methods.
    assert [(each.workload, each.device, each.method) for each in found.rows] == [
        (row["workload"], row["device"], "pks") for row in report["summary"]
    ]
    assert len(found.every) == len(report["rows"]) == 360
    refused = [each for each in found.rows if each.refused]
    assert [(each.workload, each.device) for each in refused] == [
        ("workload-016", "RTX 2060"), ("workload-033", "RTX 2060")
    ]  # fmt: skip
    assert "only 98.11 % of the launches match" in refused[0].refused
    drawn = next(each for each in found.every if each.method == "random")
    assert (drawn.low_percent, drawn.high_percent) == (pytest.approx(-3.0), pytest.approx(3.0))
    assert found.rows[0].low_percent is None
    assert found.verdict == "Do not trust this report: none of its rows has a verdict."


def test_a_method_with_numbers_goes_before_one_that_was_refused() -> None:
    report = made_report(workloads=17)
    rows = [
        row for row in report["rows"] if row["workload"] == "workload-016" and row["device"] == "RTX 2060"
    ]
    rows[2] |= {"status": "ok", "error_percent": 1.5, "reason": ""}
    [cell] = results_of(made_rows({**report, "rows": rows})).rows
    assert (cell.method, cell.error_percent, cell.refused) == (rows[2]["method"], 1.5, "")
