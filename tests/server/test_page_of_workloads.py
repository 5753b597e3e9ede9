"""Workloads on a campaign's page: filtered, ordered and paged by its address, with a verdict for each GPU."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from assay_core.records.campaign import CampaignState
from assay_core.records.validity_flag import ValidityFlag
from assay_sampling.running.identity import Condition
from assay_server.app import Server
from assay_server.store.sqlite import SqliteStore
from assay_server.web.views.filters import Filter
from assay_server.web.views.results import results_of
from tests.support.server.made_reports import GPUS, made_report, made_rows
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.web_lab import WebLab, web_lab

_WORKLOADS = 40
CAMPAIGN = "campaign: large\nsynthetic: true\nworkloads:\n" + "".join(
    f"  - name: workload-{number:03d}\n    recordings:\n"
    + "".join(f"      - {{device: {gpu}, light: light.sqlite}}\n" for gpu in GPUS)
    for number in range(_WORKLOADS)
)


@pytest.fixture(scope="module")
def report() -> bytes:
    """Every 13th workload is 114 % off on the RTX 2060, and every 17th is refused there."""
    made = made_report(_WORKLOADS)
    for row in made["rows"]:
        level = "do_not" if row.get("error_percent", 0.0) > 3 else "trust"
        row["verdict"] = {"level": level, "reasons": [{"code": "total_error", "numbers": {}}]}
    return made_rows(made)


@pytest.fixture
def lab(make_server: Callable[..., Server], short_path: Path, report: bytes) -> WebLab:
    """A campaign that has ended, with that report."""
    lab = web_lab(make_server, short_path)
    with PlayingAgent(lab.server.addresses[-1]) as owner:
        owner.submit(CAMPAIGN)
    state = lab.server.settings.state_dir
    store = SqliteStore(state / "metadata.sqlite")
    with store.transaction() as write:
        campaign = write.campaign("large-1")
        assert campaign is not None
        write.save_campaign(replace(campaign, state=CampaignState.DONE, has_report=True))
    store.close()
    (state / "reports" / "large-1").mkdir(parents=True)
    (state / "reports" / "large-1" / "report.json").write_text(json.dumps(made_report(1)))
    (state / "reports" / "large-1" / "report.parquet").write_bytes(report)
    return lab


def rows(html: str) -> list[tuple[str, str]]:
    """Workload and GPU of each row."""
    table = html.partition('<tbody data-region="workloads">')[2].partition("</tbody>")[0]
    return re.findall(r"<th scope=\"row\"><a [^>]*>([^<]+)</a></th>\s*<td>([^<]+?)(?: <span|</td>)", table)


def counted(html: str) -> str:
    """What the page says of the list."""
    return html.partition('<p class="facts" role="status">')[2].partition("\n")[0].partition("<")[0].strip()


def test_the_address_says_which_workloads_are_shown(lab: WebLab) -> None:
    path = "/campaigns/large-1"
    with closing(lab.browser("owner")) as browser:
        whole = browser.get(path).text
        assert rows(whole)[:4] == [
            ("workload-000", "V100"), ("workload-000", "RTX 2060"), ("workload-000", "RTX 3070"),
            ("workload-001", "V100"),
        ]  # fmt: skip
        assert (len(rows(whole)), counted(whole)) == (100, "1 to 100 of 120")
        later = browser.get(re.findall(r'<a href="([^"]+)">Later ones</a>', whole)[0]).text
        assert (len(rows(later)), counted(later)) == (20, "101 to 120 of 120")
        assert '<a href="/campaigns/large-1">Earlier ones</a>' in later
        refused = browser.get(path, params={"state": "refused"}).text
        assert rows(refused) == [("workload-016", "RTX 2060"), ("workload-033", "RTX 2060")]
        assert counted(refused) == "1 to 2 of 2, out of 120"
        assert "only 98.11 % of the launches match" in refused
        worst = browser.get(path, params={"gpu": "RTX 2060", "sort": "error"}).text
        assert rows(worst)[:3] == [(f"workload-{each:03d}", "RTX 2060") for each in (12, 25, 38)]
        assert {gpu for _, gpu in rows(worst)} == {"RTX 2060"}
        flagged = browser.get(
            path, params={"flag": "concurrent_launches", "q": "LOAD-02", "gpu": "V100"}
        ).text
        assert rows(flagged) == [("workload-021", "V100")]
        one = browser.get(path, params={"q": "workload-000", "gpu": "V100", "method": "every"}).text
        assert rows(one) == [("workload-000", "V100")] * 3
        none = browser.get(path, params={"q": "<script>"}).text
        assert counted(none) == "None of 120 matches."
        assert "<script>" not in none.replace('<script src="/static', "")
        # Who watches a filtered page hears of its rows.
        stream = re.findall(r'data-stream="([^"]+)"', refused)[0]
        assert "state=refused" in stream


def test_the_form_holds_what_is_asked_for_and_needs_no_script(lab: WebLab) -> None:
    with closing(lab.browser("viewer")) as browser, closing(lab.browser("owner")) as owner:
        assert browser.get("/campaigns/large-1").status_code == 404, "a campaign of nobody in that project"
        html = owner.get("/campaigns/large-1", params={"q": "01", "gpu": "RTX 3070"}).text
        form = html.partition('<form method="get" action="/campaigns/large-1"')[2].partition("</form>")[0]
        assert 'name="q" value="01"' in form
        selected = re.findall(r'<option value="([^"]+)" selected>([^<]+)<', form)
        assert selected == [("RTX 3070", "RTX 3070")]
        assert re.findall(r'<select name="([^"]+)"', form) == ["gpu", "state", "flag", "method", "sort"]


def test_the_verdict_comes_first_and_by_gpu(lab: WebLab, report: bytes) -> None:
    with closing(lab.browser("owner")) as browser:
        html = browser.get("/campaigns/large-1").text
    order = [html.index(f'<h2 id="h-{each}">') for each in ("verdict", "workloads", "file")]
    assert order == sorted(order)
    section = html.partition('<section aria-labelledby="h-verdict">')[2].partition("</section>")[0]
    assert f"<strong>{results_of(report).verdict}</strong>" in section
    rtx = section.partition('<th scope="row">RTX 2060</th>')[2].partition("</tr>")[0]
    found = results_of(report).rows
    here = [each for each in found if each.device == "RTX 2060"]
    off = sum(each.is_off for each in here)
    assert re.findall(r">(\d+ [a-z ]+)</a>", rtx) == [f"{38 - off} trust", f"{off} do not trust", "2 refused"]
    assert 'href="/campaigns/large-1?gpu=RTX+2060&amp;state=refused"' in rtx
    assert '114.0 % <span class="faint">workload-012 (pks)</span>' in rtx


def test_where_a_selection_was_made_other_gpus_say_whether_to_trust_it() -> None:
    made = made_report(13)
    for row in made["rows"]:
        row["verdict"] = {"level": "do_not", "reasons": [{"code": "nothing_expected", "numbers": {}}]}
    levels = {(each.workload, each.device): each.level for each in results_of(made_rows(made)).rows}
    assert levels["workload-000", "RTX 2060"] == "do_not"
    within = [each for each in results_of(made_rows(made)).rows if each.device == "V100" and not each.is_off]
    assert {each.level for each in within} == {"selected_here"}
    alone = [row for row in made["rows"] if row["device"] == "V100"]
    assert {each.level for each in results_of(made_rows({**made, "rows": alone})).rows} == {"do_not"}


def test_runs_are_searched_and_filtered_and_show_their_condition(lab: WebLab) -> None:
    store = SqliteStore(lab.server.settings.state_dir / "metadata.sqlite")
    with store.transaction() as write:
        found = write.runs("large-1")
        flushed = Condition("all", "base", 50.0)
        write.save_run(replace(found[7], condition=flushed, flags=(ValidityFlag("power_capped", ""),)))
        write.save_run(replace(found[8], condition=Condition("none", "none", 100.0), flags=()))
    store.close()

    def runs(html: str) -> list[str]:
        return re.findall(r'<th scope="row"><a href="/runs/[^"]+">([^<]+)</a></th>', html)

    with closing(lab.browser("owner")) as browser:
        path = "/campaigns/large-1/runs"
        whole = browser.get(path).text
        assert (len(runs(whole)), counted(whole)) == (100, "1 to 100 of 120")
        assert "flushed caches, clock base, 50 % of the SMs" in whole
        assert "free clocks, caches as they are" in whole
        later = browser.get(path, params={"gpu": "V100", "from": "39"}).text
        assert (runs(later), counted(later)) == (["large-1.0117"], "40 to 40 of 40, out of 120")
        assert runs(browser.get(path, params={"flag": "power_capped"}).text) == ["large-1.0007"]
        assert runs(browser.get(path, params={"q": "load-002", "gpu": "RTX 3070"}).text) == ["large-1.0008"]
        assert runs(browser.get(path, params={"state": "failed"}).text) == []
        assert "flushed caches, clock base" in browser.get("/runs/large-1.0007").text


def test_campaigns_of_one_name_have_a_history_with_their_results(lab: WebLab) -> None:
    with PlayingAgent(lab.server.addresses[-1]) as owner:
        owner.submit(
            "campaign: large\nworkloads:\n  - {name: w, recordings: [{device: V100, light: l.csv}]}\n"
        )

    def campaigns(html: str) -> list[str]:
        return re.findall(r'<th scope="row"><a href="/campaigns/[^"]+">([^<]+)</a></th>', html)

    with closing(lab.browser("owner")) as browser, closing(lab.browser("viewer")) as viewer:
        assert campaigns(browser.get("/").text) == ["large-2", "large-1", "made-1"]
        assert campaigns(browser.get("/", params={"q": "GE-2"}).text) == ["large-2"]
        assert campaigns(browser.get("/", params={"state": "done"}).text) == ["large-1"]
        assert campaigns(viewer.get("/", params={"name": "large"}).text) == [], "of nobody in that project"
        page = browser.get("/campaigns/large-1").text
        history = browser.get(re.findall(r'<a href="([^"]+)">history of large</a>', page)[0]).text
    assert "<h1>History of large</h1>" in history
    assert campaigns(history) == ["large-2", "large-1"]
    newer, older = re.findall(r"<tr id=.*?</tr>", history, re.DOTALL)
    assert "no report" in newer
    assert re.findall(r"<strong>([^<]+)</strong>", older) == ["V100", "RTX 2060", "RTX 3070"]
    assert "114.0 % workload-012" in older
    assert 'href="/campaigns/large-1?gpu=RTX+2060&amp;state=refused"' in older


def test_an_address_gives_the_filter_that_made_it() -> None:
    asked = Filter(search="a & b", device="RTX 2060", state="refused", sort="error")
    assert asked.address("/c", 100) == "/c?q=a+%26+b&gpu=RTX+2060&state=refused&sort=error&from=100"
    assert Filter.of(asked.query) == asked
    assert Filter().address("/c") == "/c"
    assert Filter.of({"q": "x" * 999}).search == "x" * 200
