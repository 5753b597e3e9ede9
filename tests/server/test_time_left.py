"""How long work takes yet: from finished slices here, elsewhere, or as plans assume; with an interval."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay_core.records.campaign import Estimate
from assay_server.app import Server
from assay_server.campaigns.analysing.job import Pages
from assay_server.campaigns.planning.forecast import Analysed, Elsewhere, estimate, estimate_of_analysis
from assay_server.campaigns.planning.plan import plan_campaign
from assay_server.store.parts.overviews import WorkloadCost
from assay_server.store.sqlite import SqliteStore
from tests.support.server.campaign_files import load_campaign
from tests.support.server.made_segments import made_segments
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import PAGE, REPORT, ROWS, StandInExecutor, eventually

LIVE = """\
campaign: lab
gpus: [V100]
detailed: {first: 1000, slice_launches: 500, sets: [features]}
workloads:
  - {name: w, command: [w.toml]}
"""


def cost(workload: str = "w", **fields: Any) -> WorkloadCost:
    return WorkloadCost(workload, **{"device_key": "v100", "level": "light", **fields})


def milliseconds(found: Estimate) -> tuple[int, int, int]:
    assert found.known
    return found.low_ms, found.remaining_ms, found.high_ms


def test_an_estimate_is_the_measured_mean_over_the_slots_of_the_busiest_kind_of_gpu() -> None:
    costs = [
        cost("w", open_slices=6, published=4, published_seconds=40.0),
        cost("v", open_slices=1, published=1, published_seconds=8.0),
        cost("w", device_key="a100", open_slices=2, published=4, published_seconds=4.0),
        cost("over", published=0),
    ]
    found = estimate(costs, {"v100": 2, "a100": 1})
    # Four slices may be off by 1 + 1 / 2, one by 2: (60 / 1.5 + 8 / 2) / 2 and (60 x 1.5 + 8 x 2) / 2.
    assert (milliseconds(found), found.assumed) == ((22_000, 34_000, 53_000), False)
    assert estimate(costs, {"v100": 2, "a100": 1}, at_least=True).at_least
    assert estimate([replace(costs[0], gpus=2)], {"v100": 2}).remaining_ms == 60_000
    assert estimate([], {}) == Estimate()
    assert estimate(costs, {"v100": 2}).missing == "no slot in service for a100"


@pytest.mark.parametrize("open_slices", [1, 10])
def test_of_what_is_known_nowhere_there_is_no_estimate(open_slices: int) -> None:
    measured = cost("w", open_slices=1, published=1, published_seconds=1.0)
    found = estimate([measured, cost("new", level="detailed", open_slices=open_slices)], {"v100": 1})
    assert found == Estimate(missing="no detailed slice of new has finished yet")


def test_the_nearest_of_what_is_known_counts() -> None:
    here = cost(open_slices=2)
    other_gpu = cost(device_key="a100", published=1, published_seconds=9.0)
    earlier = cost(published=1, published_seconds=12.0), cost(published=1, published_seconds=99.0)
    slots = {"v100": 1, "a100": 1}
    found = estimate([here, other_gpu], slots)
    assert (milliseconds(found), found.assumed) == ((6_000, 18_000, 54_000), True)
    found = estimate([here, other_gpu], slots, elsewhere=Elsewhere(earlier))
    assert (milliseconds(found), found.assumed) == ((16_000, 24_000, 36_000), True), "the newest one"
    levels = [cost(open_slices=2, level="detailed"), other_gpu]
    assert not estimate(levels, slots, elsewhere=Elsewhere(earlier)).known, "another level says nothing"


def test_plans_assume_what_nobody_has_measured() -> None:
    spec = load_campaign(LIVE, "lab.yaml")
    runs = plan_campaign(spec, "lab-1", "/data", "lab.yaml").runs
    light = estimate([cost(open_slices=1)], {"v100": 1}, elsewhere=Elsewhere(runs=runs))
    # A start of 10 s, and a program of 60 s that tracing slows down by 1.2; off by 5 at most.
    assert milliseconds(light) == (16_400, 82_000, 410_000)
    detailed = cost(level="detailed", open_slices=2, launches=500.0)
    found = estimate([detailed], {"v100": 2}, elsewhere=Elsewhere(runs=runs))
    # For each slice start and program, then 500 launches of three passes of 5 ms and a restore of 20 ms.
    assert found.remaining_ms == 70_000 + 500 * (3 * 5 + 20)
    assert found.assumed


def test_virtual_gpus_are_assumed_as_fast_as_their_model_and_not_as_a_program() -> None:
    spec = load_campaign(LIVE.replace("gpus:", "synthetic: true\ngpus:"), "lab.yaml")
    virtual = Elsewhere(runs=plan_campaign(spec, "lab-1", "/data", "lab.yaml").runs)
    costs = [cost(open_slices=1), cost(level="detailed", open_slices=2, launches=500.0)]
    found = estimate(costs, {"v100": 1}, elsewhere=virtual)
    assert found.assumed and 2_000 < found.remaining_ms < 10_000
    # A program that traces itself really runs on the box, whatever GPU is asked for.
    traced = load_campaign(
        "campaign: lab\nsynthetic: true\ngpus: [V100]\ndetailed: none\n"
        "workloads:\n  - {name: w, command: [./w], kineto: t.json}\n",
        "lab.yaml",
    )
    real = Elsewhere(runs=plan_campaign(traced, "lab-1", "/data", "lab.yaml").runs)
    assert estimate(costs[:1], {"v100": 1}, elsewhere=real).remaining_ms == 82_000


def test_an_analysis_is_expected_to_take_as_long_as_the_one_before() -> None:
    found = estimate_of_analysis(2_000, 5.0, Analysed(30.0, 1_000))
    assert milliseconds(found) == (35_000, 55_000, 85_000)
    assert milliseconds(estimate_of_analysis(1_000_000, 0.0, None)) == (7_000, 35_000, 175_000)
    assert milliseconds(estimate_of_analysis(2_000, 70.0, Analysed(30.0, 1_000))) == (0, 0, 20_000)
    late = estimate_of_analysis(2_000, 91.0, Analysed(30.0, 1_000))
    assert late == Estimate(missing="its analysis takes longer than expected")


ONE = "campaign: one\nworkloads:\n  - {name: w, recordings: [{device: V100, light: l.csv}]}\n"


def test_a_campaign_says_how_long_it_takes_before_anything_has_run_and_while_it_is_analysed(
    make_server: Callable[..., Server], short_path: Path, analysis: StandInExecutor
) -> None:
    server = make_server()
    store = SqliteStore(server.settings.state_dir / "metadata.sqlite")
    goes_on = threading.Event()

    def analysed() -> Pages:
        goes_on.wait(60)
        return REPORT, PAGE, ROWS

    with closing(store), PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        first = agent.submit(ONE)
        assert agent.status(first, runs=False).eta.assumed
        agent.play(made_segments((30,)))
        assert [status.state for status in agent.watch(first)][-1] == "done"
        with store.transaction() as write:
            ended_at_ms, launches = write.measured(first)
            assert (launches, write.measured("none-1")) == (30, (0, 0))
            [spent] = write.workload_costs(first, 0)
            one = write.campaign(first)
            assert one is not None
            write.save_campaign(replace(one, ended_at_ms=ended_at_ms + 60_000))
        analysis.outcome = analysed
        second = agent.submit(ONE)
        assert agent.status(second, runs=False).eta.remaining_ms == round(1000 * spent.published_seconds)
        agent.play(made_segments((30,)))
        eventually(lambda: agent.status(second, runs=False).state == "analysing", "the analysis")
        eta = agent.status(second, runs=False).eta
        goes_on.set()
        # As long as that of the first one, less what has passed.
        assert 0 < eta.low_ms <= 40_000 and eta.low_ms < eta.remaining_ms <= 60_000 < eta.high_ms <= 90_000
        assert [status.state for status in agent.watch(second)][-1] == "done"
        assert agent.status(second, runs=False).eta == Estimate()
