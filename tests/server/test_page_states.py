"""States on the live page: runs to come are no failure, a refusal has a badge, a large error stands out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from assay_core.records.campaign import RunState
from assay_core.records.lab import SlotHealth
from assay_server.app import Server
from assay_server.store.parts.runs import RunsAlike
from assay_server.web.views.cells import STANDINGS, Standing, by_gpu, cells_of, method_of
from assay_server.web.views.filters import NO_FILTER, Filter
from assay_server.web.views.results import Result, Results
from assay_server.web.views.templating import rendered
from tests.support.server.web_lab import WebLab, web_lab

NO_COUNTERS = "10 counters were not measured; record both again"


def shown(name: str, *results: Result, running: int = 0, so_far: bool = False, ran_then: bool = False) -> str:
    """The row of a workload with these results; so many runs still run, or ran when these were made."""
    then = {(name, "V100")} if ran_then else set[tuple[str, str]]()
    alike = [RunsAlike(name, "V100", RunState.DONE, 3), RunsAlike(name, "V100", RunState.RUNNING, running)]
    [cell] = cells_of(
        alike, Results(results, every=results), ended=not so_far, so_far=then if so_far else None
    )
    return rendered(
        "row_cell.html.j2",
        row="w-1",
        cell=cell,
        total=3 + running,
        ended=3,
        states=[],
        words=STANDINGS,
        goal=3.0,
        has_buttons=False,
        c=SimpleNamespace(campaign_id="made-1", ended=not so_far),
        acts=False,
        so_far=None,
    )


def result(error_percent: float | None = None, refused: str = "", level: str = "") -> Result:
    return Result("w", "V100", "", "pks", error_percent, 2.0, 10, refused=refused, level=level)


def test_an_error_above_the_goal_never_looks_like_one_within_it() -> None:
    over = '<span class="badge failed">over 3 %</span>'
    cells = {error: shown("w", result(error)) for error in (0.15, 119.0, -119.0, 3.0)}
    assert "0.15 %" in cells[0.15] and over not in cells[0.15]
    assert over not in cells[3.0]
    assert f"119.0 % {over}" in cells[119.0] and f"-119.0 % {over}" in cells[-119.0]


@pytest.mark.parametrize(
    ("level", "badge"),
    [
        ("trust", '<span class="badge trust">trust</span>'),
        ("total_only", '<span class="badge total_only">trust the total only</span>'),
        ("do_not", '<span class="badge do_not">do not trust</span>'),
        ("", '<span class="badge no_verdict">no verdict</span>'),
    ],
)
def test_the_verdict_of_a_result_is_its_badge(level: str, badge: str) -> None:
    assert badge in shown("w", result(0.15, level=level))


def test_what_lacks_runs_that_are_to_come_waits_and_what_lacks_none_is_refused() -> None:
    refused = result(refused=NO_COUNTERS)
    early, late = shown("w", refused, running=1, so_far=True), shown("w", refused, so_far=True)
    assert '<span class="badge to_come">to come</span>' in early
    assert NO_COUNTERS not in early
    assert '<span class="badge refused">refused</span>' in late and NO_COUNTERS in late
    assert '<span class="badge refused">refused</span>' in shown("w", refused)
    stale = shown("w", refused, so_far=True, ran_then=True)
    assert '<span class="badge to_come">to come</span>' in stale and NO_COUNTERS not in stale


def test_an_error_of_a_part_of_the_runs_is_shown_and_is_no_verdict() -> None:
    partial = shown("w", result(91.6, level="do_not"), running=1, so_far=True)
    assert '<span class="badge to_come">to come</span>' in partial and "91.6 %" in partial
    assert "over 3 %" not in partial and "do not trust" not in partial


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


def test_so_far_a_workload_counts_once_and_is_listed_with_every_method() -> None:
    rows = tuple(replace(result(5.0, level="do_not"), method=method) for method in ("pks", "random"))
    results = Results(rows[:1], every=rows)
    alike = [RunsAlike("w", "V100", RunState.RUNNING, 1), RunsAlike("v", "V100", RunState.DONE, 1)]
    known = partial(cells_of, alike, results, ended=False, so_far=frozenset())
    [gpu] = by_gpu(known())
    assert dict(gpu.standings) == {Standing.TO_COME: 1, Standing.NO_RESULT: 1}
    assert gpu.mean_error_percent is None, "an error of a part of the runs is none of the GPU's"
    method = method_of(NO_FILTER, results, so_far=True)
    assert [each.result and each.result.method for each in known(method=method)] == ["pks", "random", None]
    assert method_of(NO_FILTER, results, so_far=False) == ""
    assert method_of(Filter(method="random"), results, so_far=True) == "random"
