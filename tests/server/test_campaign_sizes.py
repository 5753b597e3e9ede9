"""Campaigns that make too much are refused before they are planned; real ones are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_sampling.errors import CampaignError
from assay_server.campaign_file.compiled import Slicing
from assay_server.campaign_file.sizes import campaign_size
from assay_server.campaign_file.slices import SliceCost, most_windows, planned_windows
from assay_server.campaigns.planning.plan import plan_campaign
from tests.support.server.campaign_files import load_campaign

ONE = "campaign: c\ngpus: [V100]\n{0}\nworkloads: [{{name: w, command: [train]}}]\n"

SHARES = "[{sm_percent: 5}, {sm_percent: 2}]"


def cause(text: str) -> str:
    with pytest.raises(CampaignError) as caught:
        load_campaign(text, "c.yaml")
    return f"{caught.value.subject}: {caught.value.cause}"


def test_slices_of_one_launch_are_refused_before_any_is_made() -> None:
    assert cause(ONE.format("detailed: {first: 1099511627776, slice_launches: 1}")) == (
        "c.yaml:3: field detailed.slice_launches: it makes 2,199,023,255,553 slices (1,099,511,627,776 in a "
        "run: 1,099,511,627,776 launches in slices of 1), and at most 250,000 are planned, 25,000 in a run; "
        "lower 'first', raise 'slice_launches', or make several campaigns"
    )


def test_a_million_launches_in_slices_of_a_hundred_are_planned() -> None:
    campaign = load_campaign(ONE.format("detailed: {first: 1000000, slice_launches: 100}"), "c.yaml")
    slices = plan_campaign(campaign, "c-1", "/base", "c.yaml").slices
    assert len(slices) == campaign_size(campaign).slices == 2 * 10_000 + 1
    assert (slices[9_999].launch_skip, slices[9_999].launch_count) == (999_900, 100)


def workloads(number: int, more: str) -> str:
    lines = "".join(f"  - {{name: w{n}, command: [train]}}\n" for n in range(number))
    return f"campaign: c\ngpus: [{', '.join(f'G{n}' for n in range(25))}]\n{more}\nworkloads:\n{lines}"


@pytest.mark.parametrize(
    ("number", "more", "slices"),
    [
        (4_000, "detailed: none", 100_000),
        pytest.param(1_000, "bare: true", 25_000 * (2 * 2 + 2), marks=pytest.mark.campaigns),
    ],
)
def test_a_campaign_of_a_hundred_thousand_runs_is_planned(number: int, more: str, slices: int) -> None:
    campaign = load_campaign(workloads(number, more), "c.yaml")
    plan = plan_campaign(campaign, "c-1", "/base", "c.yaml")
    assert len(plan.runs) == campaign_size(campaign).runs == 100_000
    assert len(plan.slices) == campaign_size(campaign).slices == slices


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            workloads(4_001, "detailed: none"),
            "c.yaml:4: field workloads: 4,001 workloads, 25 GPUs make 100,025 runs, and a campaign has at "
            "most 100,000; lower them, or make several campaigns",
        ),
        (
            workloads(1, f"detailed: none\nrepeats: 1000\nconditions: {SHARES}\nbare: true"),
            "c.yaml:4: field repeats: 25 GPUs, 1,000 repeats, 3 runs of conditions make 125,000 runs, and a "
            "campaign has at most 100,000; lower them, or make several campaigns",
        ),
        # Repeats that noise may still ask for count, too.
        (
            workloads(5, "detailed: none\nrepeat: {until_interval_percent: 1, at_most: 1000}"),
            "c.yaml:4: field repeat.at_most: 5 workloads, 25 GPUs, 1,000 repeats at most make 125,000 runs, "
            "and a campaign has at most 100,000; lower them, or make several campaigns",
        ),
        (
            ONE.format("detailed: {first: 25001, slice_launches: 1, sets: cycles}"),
            "c.yaml:3: field detailed.slice_launches: it makes 25,002 slices (25,001 in a run: 25,001 "
            "launches in slices of 1), and at most 250,000 are planned, 25,000 in a run; lower 'first', "
            "raise 'slice_launches', or make several campaigns",
        ),
        (
            workloads(300, "detailed: {first: 20000}"),
            "c.yaml:3: field detailed: it makes 607,500 slices (40 in a run), and at most 250,000 are "
            "planned, 25,000 in a run; lower 'first', raise 'slice_launches', or make several campaigns",
        ),
        (
            ONE.format("detailed: {first: auto}\nrepeats: 1000"),
            "c.yaml:3: field detailed: a light run could give 2,000 detailed runs up to 200 slices each, "
            "400,000 in all, and at most 250,000 are planned; lower 'repeats', name fewer conditions, or "
            "write a number in 'first'",
        ),
        (
            workloads(1, "detailed: none\nrepeats: 1000").replace("train", "x" * 30_000),
            "c.yaml:6: field workloads[0].command: its command takes 30,085 bytes with its environment in "
            "each of its runs; 25 GPUs, 1,000 repeats make 752,125,000 bytes, and at most 268,435,456 are "
            "stored; put long arguments into a file that the command reads, or make several campaigns",
        ),
    ],
    ids=["workloads", "repeats", "later repeats", "of a run", "by cost", "by a light run", "bytes"],
)  # fmt: skip
def test_what_numbers_multiply_to_is_bounded(text: str, expected: str) -> None:
    assert cause(text) == expected


@given(
    st.integers(1, 1 << 40), st.integers(0, 1 << 40),
    st.floats(0, 100), st.floats(0, 10), st.floats(0, 100),
)  # fmt: skip
def test_no_cost_makes_more_slices_than_foreseen(
    first: int, slice_launches: int, start: float, skip: float, launch: float
) -> None:
    slicing = Slicing(first, slice_launches)
    foreseen = most_windows(slicing)
    if foreseen > 10_000:
        return
    made = len(planned_windows(slicing, SliceCost(start, skip, launch)))
    assert made == foreseen if slice_launches else made <= foreseen <= 200


def test_recordings_count_a_run_for_each_level() -> None:
    text = (
        "campaign: c\nworkloads: [{name: w, recordings: [{device: A, light: /a, detailed: /b}, "
        "{device: B, light: /c}]}]"
    )
    campaign = load_campaign(text, "c.yaml")
    assert (
        campaign_size(campaign).runs,
        campaign_size(campaign).slices,
        campaign_size(campaign).command_bytes,
    ) == (3, 3, 0)
    assert campaign_size(campaign).light_slices == 0
