"""Repeat until the noise is small: how many more are planned, and that the campaign runs again for them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_core.records.campaign import CampaignState, RunState
from assay_core.records.work import CommandSource
from assay_report.model.compared import NoiseEntry
from assay_report.reading import parse_report
from assay_sampling.errors import CampaignError, StorageError
from assay_sampling.launches.table import BASELINE, Condition
from assay_server.analysis.comparisons.whole_runs import interval_percent
from assay_server.campaign_file.compiled import RepeatRule
from assay_server.campaign_file.reading import compile_campaign
from assay_server.campaigns.planning.plan import plan_campaign
from assay_server.campaigns.planning.repeats import further_runs, repeats_wanted
from assay_server.store.model import Campaign, Run
from tests.support.server.analysis_lab import Lab
from tests.support.server.campaign_files import load_campaign
from tests.support.server.desk import Desk
from tests.support.server.server_support import eventually

TEXT = """\
campaign: live
gpus: [V100]
repeat: {until_interval_percent: 2, at_most: 10}
detailed: {first: 10, slice_launches: 10}
workloads:
  - name: w
    command: [app]
"""
SPEC = RepeatRule(until_interval_percent=2.0, at_most=10)
W = ("w", "V100")
REPORT = Path(__file__).parent / "report" / "fixtures" / "report.json"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    lab.analyses.close()
    lab.close()


def noise(interval: float | None, repeats: int = 3, **changes: Any) -> list[NoiseEntry]:
    entry = {
        "workload": "w", "device": "V100", "level": "light", "condition": BASELINE.to_dict(),
        "under_mps": False, "repeats": repeats, "interval_percent": interval,
    }  # fmt: skip
    return [NoiseEntry.model_validate({**entry, **changes})]


def report(found: list[NoiseEntry]) -> bytes:
    """A report that differs from a stored one only in its noise."""
    document = parse_report(REPORT.read_bytes()).to_document()
    return json.dumps({**document, "noise": [entry.model_dump(mode="json") for entry in found]}).encode()


def test_the_interval_is_students() -> None:
    # t(0.975, 4) = 2.7764451..., so 5 repeats that deviate by 1 % are known to 1.2417 %.
    assert interval_percent(1.0, 5) == pytest.approx(2.7764451051977987 / 5**0.5, rel=1e-9)
    assert interval_percent(1.0, 2) == pytest.approx(12.706204736432095 / 2**0.5, rel=1e-9)


@pytest.mark.parametrize(
    ("entries", "wanted"),
    [
        (noise(2.0), {}),
        (noise(2.1), {W: 4}),
        (noise(2.4, 5), {W: 8}),
        (noise(50.0), {W: 6}),
        (noise(50.0, 6), {W: 10}),
        (noise(50.0, 10), {}),
        (noise(None), {}),
        (noise(9.0, level="detailed"), {}),
        (noise(9.0, under_mps=True), {}),
        (noise(9.0, condition=Condition("none", "none", 50.0).to_dict()), {}),
        ([], {}),
    ],
)
def test_more_repeats_where_the_interval_is_too_wide(entries: list[NoiseEntry], wanted: Any) -> None:
    assert repeats_wanted(entries, SPEC) == wanted


@given(st.floats(0, 1e6), st.integers(2, 30), st.floats(0.01, 100), st.integers(3, 20))
def test_every_round_adds_something_and_the_cap_holds(
    interval: float, repeats: int, limit: float, at_most: int
) -> None:
    found = repeats_wanted(
        noise(interval, repeats), RepeatRule(until_interval_percent=limit, at_most=at_most)
    )
    for number in found.values():
        assert repeats < number <= min(at_most, 2 * repeats)
    assert bool(found) == (interval > limit and repeats < at_most)


def test_three_light_runs_are_planned_and_one_of_everything_else() -> None:
    plan = plan_campaign(load_campaign(TEXT + "bare: true\n", "c.yaml"), "live-1", "/data", "c.yaml")
    found = [(run.level, run.repeat) for run in plan.runs]
    assert found.count(("bare", 0)) == 1
    assert [repeat for level, repeat in found if level == "light"] == [0, 1, 2]
    assert all(repeat == 0 for level, repeat in found if level == "detailed")
    assert {run.profiler for run in plan.runs if run.level == "bare"} == {"bare"}


def test_further_runs_are_numbered_behind_all_others() -> None:
    plan = plan_campaign(load_campaign(TEXT, "c.yaml"), "live-1", "/data", "c.yaml")
    made = further_runs(plan.runs, {W: 5, ("w", "A100"): 9})
    last = plan.runs[-1].ordinal
    assert [(run.repeat, run.ordinal) for run in made] == [(3, last + 1), (4, last + 2)]
    assert [run.run_id for run in made] == [f"live-1.{last + 1:04d}", f"live-1.{last + 2:04d}"]
    assert {(run.level, run.state) for run in made} == {("light", RunState.WAITING)}
    assert further_runs(plan.runs, {W: 3}) == []


def analysing(desk: Desk) -> None:
    with desk.store.transaction() as store:
        campaign = store.campaign("made-1")
        assert isinstance(campaign, Campaign)
        store.save_campaign(replace(campaign, state=CampaignState.ANALYSING))
        for run in store.runs("made-1"):
            store.save_run(replace(run, state=RunState.DONE, command=CommandSource(("app",))))


def test_an_analysed_campaign_runs_again_for_its_repeats() -> None:
    desk = Desk()
    desk.register()
    analysing(desk)
    with desk.store.snapshot() as read:
        light = next(run for run in read.runs("made-1") if run.level == "light")
        before = len(read.runs("made-1"))
    key = (light.workload, light.device_kind)
    assert desk.do(lambda s: s.repeat("made-1", {key: 3}))
    assert desk.effects.work
    with desk.store.snapshot() as read:
        campaign, runs = read.campaign("made-1"), read.runs("made-1")
    assert campaign is not None
    assert campaign.state is CampaignState.RUNNING
    assert [run.repeat for run in runs[before:]] == [1, 2]
    # It is leased as any other run, and nothing more is planned while it runs.
    assert desk.must_lease().run_id == runs[before].run_id
    assert not desk.do(lambda s: s.repeat("made-1", {key: 5}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("at_most: 10", "at_most: 2"), "at_most: 2 is below 3"),
        (("until_interval_percent: 2", "until_interval_percent: 0"), "0 is not above 0"),
        (("until_interval_percent: 2, ", ""), "until_interval_percent: this key is required"),
        (("at_most", "at_least"), "did you mean 'at_most'"),
    ],
)
def test_what_cannot_be_meant_is_refused(change: tuple[str, str], said: str) -> None:
    with pytest.raises(CampaignError, match=said):
        load_campaign(TEXT.replace(*change), "c.yaml")


def end_runs_that_may_be_repeated(lab: Lab) -> None:
    lab.end_runs()
    with lab.coordinator.schedule() as schedule:
        campaign = schedule.store.campaign("made-1")
        assert campaign is not None
        compiled = compile_campaign(load_campaign(TEXT, "c.yaml"))
        schedule.store.save_campaign(replace(campaign, compiled=compiled))


def end_runs(lab: Lab, runs: Iterable[Run]) -> None:
    with lab.coordinator.schedule() as schedule:
        for run in runs:
            schedule.store.save_run(replace(run, state=RunState.DONE))
        schedule.advance("made-1")


def test_a_noisy_report_sends_the_campaign_back_and_the_last_one_ends_it(lab: Lab) -> None:
    end_runs_that_may_be_repeated(lab)
    lab.futures[0].set_result((report(noise(9.0)), b"<p>", b"rows"))
    assert lab.campaign().state is CampaignState.RUNNING
    with lab.coordinator.snapshot() as store:
        more = [run for run in store.runs("made-1") if run.state is RunState.WAITING]
    assert [run.repeat for run in more] == [1, 2, 3, 4, 5]
    end_runs(lab, more)
    [second] = lab.executors[0].requests[1:]
    assert len(second.runs) == 2 + len(more)
    lab.futures[1].set_result((report(noise(1.0, 6)), b"<p>", b"rows"))
    assert (lab.campaign().state, lab.campaign().has_report) == (CampaignState.DONE, True)


def test_what_storage_refused_before_a_round_does_not_count_against_the_next_one(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay_server.campaigns.analysing.analyses._DISK_TRIES", 1)
    monkeypatch.setattr("assay_server.campaigns.analysing.analyses._DISK_PAUSE_SECONDS", 0.01)
    refused = StorageError("records/x", "the disk refused", "check it")
    end_runs_that_may_be_repeated(lab)
    lab.futures[0].set_exception(refused)
    eventually(lambda: len(lab.futures) == 2, "the second try")
    lab.futures[1].set_result((report(noise(9.0)), b"<p>", b"rows"))
    eventually(lambda: lab.campaign().state is CampaignState.RUNNING, "the second round")
    with lab.coordinator.snapshot() as store:
        more = [run for run in store.runs("made-1") if run.state is RunState.WAITING]
    end_runs(lab, more)
    lab.futures[2].set_exception(refused)
    assert lab.campaign().state is CampaignState.ANALYSING
