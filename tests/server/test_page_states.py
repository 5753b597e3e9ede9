"""States on the live page: runs to come are no failure, a refusal has a badge, a large error stands out."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from assay_core.records.lab import SlotHealth
from assay_server.app import Server
from assay_server.web.views.results import Result, Results
from assay_server.web.views.so_far import SoFar
from assay_server.web.views.templating import rendered
from tests.support.server.web_lab import WebLab, web_lab

NO_COUNTERS = "10 counters were not measured; record both again"


def result(workload: str, error_percent: float | None = None, refused: str = "") -> Result:
    return Result(workload, "V100", "", "pks", error_percent, 2.0, 10, refused=refused)


def table(*rows: Result, open_cells: frozenset[tuple[str, str]] = frozenset()) -> dict[str, str]:
    """The cells behind the method of each workload in the table of results so far."""
    results = Results(rows)
    html = rendered(
        "part_results.html.j2",
        c=SimpleNamespace(campaign_id="made-1", ended=False, state="running", runs_done=1),
        campaign=SimpleNamespace(has_report=False),
        acts=False,
        results=results,
        so_far=SoFar(results),
        open_cells=open_cells,
        goal=3.0,
    )
    cells = re.findall(r'<th scope="row">(\w+)</th>.*?<td>pks</td>\n(.*?)</tr>', html, re.DOTALL)
    return dict(cells)


def test_errors_within_and_far_above_the_goal_do_not_look_alike() -> None:
    shown = table(result("good", 0.15), result("bad", 119.0), result("low", -119.0), result("edge", 3.0))
    over = '<span class="badge failed">over 3 %</span>'
    assert "0.15 %" in shown["good"] and over not in shown["good"]
    assert over not in shown["edge"]
    assert f"119.0 % {over}" in shown["bad"] and f"-119.0 % {over}" in shown["low"]


def test_what_lacks_runs_that_are_to_come_waits_and_what_lacks_none_is_refused() -> None:
    rows = result("early", refused=NO_COUNTERS), result("late", refused=NO_COUNTERS)
    shown = table(*rows, open_cells=frozenset({("early", "V100")}))
    assert '<span class="badge waiting">waiting</span>' in shown["early"]
    assert NO_COUNTERS not in shown["early"]
    assert '<span class="badge flag">refused</span>' in shown["late"] and NO_COUNTERS in shown["late"]


@pytest.mark.parametrize(("leased_at_ms", "badge"), [(0, "badge away"), (5, "badge lost")])
def test_a_gpu_is_lost_only_if_it_was_measuring(leased_at_ms: int, badge: str) -> None:
    slot = SimpleNamespace(
        slot=SimpleNamespace(slot_id="0", device=None, synthetic=True),
        health=SlotHealth.LOST,
        why="its agent gives no sign of life",
        rest_remaining_ms=0,
        sample=None,
        run_id="",
        leased_at_ms=leased_at_ms,
    )
    assert badge in rendered("row_slot.html.j2", a=SimpleNamespace(name="box"), s=slot, row="s-1")


@pytest.fixture
def lab(make_server: Callable[..., Server], short_path: Path) -> WebLab:
    return web_lab(make_server, short_path)


def test_where_there_is_nothing_the_page_says_where_to_go(lab: WebLab) -> None:
    with closing(lab.browser("viewer")) as browser:
        for path in ("/nothing", "/campaigns", "/campaigns/none-7", "/runs/none-7.0000"):
            answer = browser.get(path)
            assert answer.status_code == 404
            assert "<h1>There is nothing here</h1>" in answer.text, path
            for link in ("/", "/gpus", "/queue"):
                assert f'<a href="{link}">' in answer.text.partition("<h1>")[2], path
