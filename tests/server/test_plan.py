"""From campaign to runs: order, identifiers, levels, marks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.work import CommandSource, RecordedSource
from assay_sampling.counters.definitions import COST_COUNTERS, features_of
from assay_sampling.errors import CampaignError
from assay_sampling.launches.table import BASELINE, Condition
from assay_sampling.running.identity import device_key
from assay_server.campaign_file.reading import compile_campaign
from assay_server.campaign_file.sizes import campaign_size
from assay_server.campaigns.planning.plan import next_number, plan_campaign
from tests.support.server.campaign_files import load_campaign

TEXT = """\
campaign: lab
synthetic: true
seed: 3
workloads:
  - name: b
    recordings:
      - {device: V100, light: b.sqlite, detailed: b.csv, condition: {clock: base}}
      - {device: A100, light: /elsewhere/b.json}
  - name: a
    recordings:
      - {device: A100, detailed: a.csv}
playback: recorded_time
analysis: {methods: [random: {launches: 5}]}
"""


def test_runs_stand_in_the_order_of_the_file_detailed_first() -> None:
    plan = plan_campaign(load_campaign(TEXT, "c.yaml"), "lab-1", "/base", "c.yaml")
    assert [
        (r.run_id, r.ordinal, r.workload, r.device_kind, r.level, str(r.recorded and r.recorded.path))
        for r in plan.runs
    ] == [
        ("lab-1.0000", 0, "b", "V100", "detailed", "/base/b.csv"),
        ("lab-1.0001", 1, "b", "V100", "light", "/base/b.sqlite"),
        ("lab-1.0002", 2, "b", "A100", "light", "/elsewhere/b.json"),
        ("lab-1.0003", 3, "a", "A100", "detailed", "/base/a.csv"),
    ]
    assert [r.condition for r in plan.runs] == [Condition("none", "base", 100.0)] * 2 + [BASELINE] * 2
    # No recording says its condition: what the file leaves out is assumed, and is marked so.
    said = "the campaign file does not say: "
    partly, wholly = (
        (ValidityFlag("condition_assumed", said + names),)
        for names in ("cache, sm_percent", "cache, clock, sm_percent")
    )
    assert [r.flags for r in plan.runs] == [partly] * 2 + [wholly] * 2
    assert {
        (r.synthetic, r.recorded and r.recorded.recorded_time, r.profiler, r.repeat) for r in plan.runs
    } == {(True, True, "recorded", 0)}
    assert [(s.run_id, s.index, s.launch_skip, s.launch_count) for s in plan.slices] == [
        (r.run_id, 0, 0, 0) for r in plan.runs
    ]


def test_the_analysis_is_told_what_the_file_says() -> None:
    settings = compile_campaign(load_campaign(TEXT, "c.yaml")).analysis
    assert (settings.seed, settings.methods, settings.reference, settings.memory_limit_bytes) == (
        3,
        (("random", {"launches": 5}),),
        None,
        8 << 30,
    )


LIVE = """\
campaign: live
synthetic: true
gpus: [NVIDIA GeForce RTX 3070, V100]
detailed: {first: 1000, sets: features, slice_launches: 400}
conditions:
  - {sm_percent: 50}
  - {cache: all}
  - {sm_percent: 25}
repeats: 2
workloads:
  - name: old
    recordings: [{device: A100, light: old.sqlite}]
  - name: training
    command: [sub/training.toml, --epochs, "1"]
    environment: {A: b}
    timeout_s: 60
"""

FLUSHED, HALF, QUARTER = (
    Condition(c, "none", p) for c, p in (("all", 100.0), ("none", 50.0), ("none", 25.0))
)


def test_a_live_workload_is_run_at_both_levels_and_under_every_condition() -> None:
    plan = plan_campaign(load_campaign(LIVE, "c.yaml"), "live-1", "/base", "c.yaml")
    assert [run.run_id for run in plan.runs] == [f"live-1.{i:04d}" for i in range(25)]
    assert [run.ordinal for run in plan.runs] == list(range(25))
    assert (plan.runs[0].recorded, plan.runs[0].device_key, plan.runs[0].command) == (
        RecordedSource(Path("/base/old.sqlite")), "", None,
    )  # fmt: skip
    first = [
        (r.level, r.profiler, r.condition, r.under_mps, len([s for s in plan.slices if s.run_id == r.run_id]))
        for r in plan.runs[1:7]
    ]
    assert first == [
        ("detailed", "nsight_compute", BASELINE, False, 3),
        ("light", "nsight_systems", BASELINE, False, 1),
        ("detailed", "nsight_compute", FLUSHED, False, 3),
        ("light", "nsight_systems", HALF, True, 1),
        ("light", "nsight_systems", QUARTER, True, 1),
        ("light", "nsight_systems", BASELINE, True, 1),
    ]
    live = plan.runs[1:]
    assert [(r.device_kind, r.device_key, r.repeat) for r in live[::6]] == [
        ("NVIDIA GeForce RTX 3070", "rtx 3070", 0),
        ("NVIDIA GeForce RTX 3070", "rtx 3070", 1),
        ("V100", "v100", 0),
        ("V100", "v100", 1),
    ]
    assert {r.synthetic for r in plan.runs} == {True}


def test_what_a_live_run_is_told_to_execute_and_collect() -> None:
    plan = plan_campaign(load_campaign(LIVE, "c.yaml"), "live-1", "/base", "c.yaml")
    detailed, light, flushed = plan.runs[1:4]
    command = CommandSource(("/base/sub/training.toml", "--epochs", "1"), {"A": "b"}, "/base", 60.0)
    assert {id(r.command) for r in plan.runs[1:7]} == {id(detailed.command)} and detailed.command == command
    assert detailed.counters == (
        *features_of("table2"), "cycles_gpc_avg", "cycles_gpc_max", "profiled_duration_ns",
    )  # fmt: skip
    assert light.counters == ()
    assert flushed.counters == ("cycles_gpc_avg", "cycles_gpc_max", "profiled_duration_ns", "instructions")
    windows = [(s.index, s.launch_skip, s.launch_count) for s in plan.slices if s.run_id == detailed.run_id]
    assert windows == [(0, 0, 400), (1, 400, 400), (2, 800, 200)]


BASE = Condition("none", "base", 100.0)
FLUSHED_BASE, HALF_BASE = Condition("all", "base", 100.0), Condition("none", "base", 50.0)


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        # A locked clock: its cycles in one pass, and its times.
        ("[{clock: base}]", [("detailed", BASE, False), ("light", BASE, False)]),
        # Flushed caches and shares of the SMs, with what they are compared with under the same clock.
        ("[{clock: base, cache: all}]", [("detailed", FLUSHED_BASE, False), ("detailed", BASE, False)]),
        ("[{clock: base, sm_percent: 50}]", [("light", HALF_BASE, True), ("light", BASE, True)]),
        (
            "[{clock: base, cache: all}, {clock: base}, {sm_percent: 50}, {clock: base, sm_percent: 50}]",
            [
                ("detailed", FLUSHED_BASE, False),
                ("detailed", BASE, False),
                ("light", BASE, False),
                ("light", HALF, True),
                ("light", HALF_BASE, True),
                ("light", BASELINE, True),
                ("light", BASE, True),
            ],
        ),
        (  # two kinds of share, and what both are compared with
            "[{sm_percent: 50}, {sm_percent: 50, sm_share: partition}]",
            [
                ("light", HALF, True),
                ("light", replace(HALF, sm_share="partition"), True),
                ("light", BASELINE, True),
            ],
        ),
    ],
)
def test_runs_under_locked_clocks(conditions: str, expected: list[tuple[str, Condition, bool]]) -> None:
    text = f"campaign: a\ngpus: [V100]\nconditions: {conditions}\nworkloads: [{{name: w, command: [train]}}]"
    campaign = load_campaign(text, "c.yaml")
    plan = plan_campaign(campaign, "a-1", "/base", "c.yaml")
    free = [run for run in plan.runs if run.condition == BASELINE and not run.under_mps]
    beside = plan.runs[len(free) :]
    assert [(r.level, r.condition, r.under_mps) for r in beside] == expected
    for run in beside:
        assert set(run.counters) == (set(COST_COUNTERS) if run.level == "detailed" else set())
    assert (len(plan.runs), len(plan.slices)) == (
        campaign_size(campaign).runs,
        campaign_size(campaign).slices,
    )


def test_without_conditions_there_is_the_baseline_alone() -> None:
    text = "campaign: a\ngpus: [V100]\nworkloads: [{name: w, command: [train]}]"
    plan = plan_campaign(load_campaign(text, "c.yaml"), "a-1", "/base", "c.yaml")
    # True cycles apart, unless the file says otherwise: counters of several passes disturb them.
    assert [(r.level, r.condition, r.under_mps, len(r.counters)) for r in plan.runs] == [
        ("detailed", BASELINE, False, 4),
        ("detailed", BASELINE, False, 15),
        ("light", BASELINE, False, 0),
    ]
    windows = [(0, 500), (500, 500)]
    assert [(s.launch_skip, s.launch_count) for s in plan.slices] == [*windows, *windows, (0, 0)]
    assert plan.runs[0].command == CommandSource(("train",), {}, "/base")


def test_a_command_needs_a_folder_to_run_in() -> None:
    text = "campaign: a\ngpus: [V100]\nworkloads: [{name: w, command: [train]}]"
    with pytest.raises(CampaignError, match="'w' runs its command in the file's folder"):
        plan_campaign(load_campaign(text, "c.yaml"), "a-1", "", "c.yaml")


CONDITIONS = [
    "{cache: all}", "{sm_percent: 50}", "{sm_percent: 10}", "{clock: base}", "{clock: boost}",
    "{cache: all, clock: base}", "{clock: base, sm_percent: 50}",
]  # fmt: skip


@given(
    st.integers(1, 300), st.integers(1, 300), st.integers(1, 3),
    st.lists(st.sampled_from(CONDITIONS), unique=True),
)  # fmt: skip
def test_slices_cover_the_window_once_and_as_many_as_foreseen(
    first: int, step: int, repeats: int, conditions: list[str]
) -> None:
    text = (
        f"campaign: a\ngpus: [V100, A100]\ndetailed: {{first: {first}, slice_launches: {step}}}\n"
        f"repeats: {repeats}\nconditions: [{', '.join(conditions)}]\n"
        "workloads: [{name: w, command: [train]}]"
    )
    campaign = load_campaign(text, "c.yaml")
    plan = plan_campaign(campaign, "a-1", "/base", "c.yaml")
    assert (len(plan.runs), len(plan.slices)) == (
        campaign_size(campaign).runs,
        campaign_size(campaign).slices,
    )
    for run in plan.runs:
        pieces = [s for s in plan.slices if s.run_id == run.run_id]
        if run.level == "detailed":
            ends = [s.launch_skip + s.launch_count for s in pieces]
            assert [0, *ends[:-1]] == [s.launch_skip for s in pieces] and ends[-1] == first


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("V100", "virtual V100", True),
        ("rtx 3070", "NVIDIA GeForce RTX 3070", True),
        ("Tesla V100-SXM2-16GB", "NVIDIA Tesla  V100-SXM2-16GB", True),
        ("V100", "Tesla V100-SXM2-16GB", False),
        ("RTX 3070", "NVIDIA GeForce RTX 3070 Ti", False),
    ],
)
def test_two_names_of_one_kind_of_gpu_have_one_key(one: str, other: str, same: bool) -> None:
    assert (device_key(one) == device_key(other)) is same


@given(st.lists(st.integers(1, 20), max_size=20))
def test_a_campaign_takes_the_smallest_free_number(taken: list[int]) -> None:
    number = next_number(taken)
    assert number not in taken and number >= 1
    assert set(range(1, number)) <= set(taken)


def test_true_cycles_are_a_run_of_their_own_before_the_features() -> None:
    text = LIVE.replace("sets: features", "sets: [features, cycles]")
    campaign = load_campaign(text, "c.yaml")
    plan = plan_campaign(campaign, "live-1", "/base", "c.yaml")
    cycles = ("cycles_gpc_avg", "cycles_gpc_max", "profiled_duration_ns", "instructions")
    assert [(r.level, r.counters == cycles, r.condition) for r in plan.runs[1:5]] == [
        ("detailed", True, BASELINE),
        ("detailed", False, BASELINE),
        ("light", False, BASELINE),
        ("detailed", True, FLUSHED),
    ]
    assert len(plan.slices) == campaign_size(campaign).slices
    alone = load_campaign(LIVE.replace("sets: features, slice_launches: 400", "sets: cycles"), "c.yaml")
    runs = plan_campaign(alone, "live-1", "/base", "c.yaml").runs
    assert [run.counters for run in runs if run.level == "detailed"] == [cycles] * 8


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("first: none", "detailed.first: 'none' is not a whole number"),
        ("sets: [cycles, cycles]", "detailed.sets: 'cycles' appears twice"),
        ("sets: [stalls]", "detailed.sets[0]: 'stalls' is not 'cycles' or 'features'"),
        ("time_budget_s: 0", "detailed.time_budget_s: 0 is not above 0"),
        ("slice_launches: auto", "detailed.slice_launches: 'auto' is not a whole number"),
    ],
)
def test_what_a_window_cannot_be_is_said_with_its_field(given: str, told: str) -> None:
    text = LIVE.replace("first: 1000, sets: features, slice_launches: 400", given)
    with pytest.raises(CampaignError) as caught:
        load_campaign(text, "c.yaml")
    assert f"c.yaml:4: field {told}" in str(caught.value)


def test_features_that_only_a_run_of_cycles_is_planned_for_are_a_fault() -> None:
    methods = "\nanalysis: {methods: [pks: {features: table2}]}\n"
    text = LIVE.replace("sets: features, slice_launches: 400", "sets: cycles") + methods
    with pytest.raises(CampaignError, match="which no detailed run collects"):
        load_campaign(text, "c.yaml")


def test_slices_that_a_light_run_decides_are_not_planned_before_it() -> None:
    text = LIVE.replace("first: 1000, sets: features, slice_launches: 400", "first: auto, sets: features")
    plan = plan_campaign(load_campaign(text, "c.yaml"), "live-1", "/base", "c.yaml")
    assert {run.level for run in plan.runs} >= {"detailed", "light"}
    detailed = {run.run_id for run in plan.runs if run.level == "detailed"}
    assert not [piece for piece in plan.slices if piece.run_id in detailed]
    assert all(any(s.run_id == run.run_id for s in plan.slices) for run in plan.runs if run.level == "light")


@pytest.mark.parametrize(("given", "asked"), [("first: auto", 1.0), ("first: auto, unseen_percent: 0", 0.0)])
def test_the_share_that_may_stay_unseen_is_compiled(given: str, asked: float) -> None:
    text = LIVE.replace("first: 1000, sets: features, slice_launches: 400", f"{given}, sets: features")
    slicing = compile_campaign(load_campaign(text, "c.yaml")).slicing
    assert slicing is not None and slicing.by_light
    assert slicing.unseen_percent == asked
    fixed = compile_campaign(load_campaign(LIVE, "c.yaml")).slicing
    assert fixed is not None and not fixed.by_light and fixed.unseen_percent is None


def test_a_fixed_window_keeps_no_share_of_unseen_time() -> None:
    text = LIVE.replace("first: 1000,", "first: 1000, unseen_percent: 5,")
    with pytest.raises(
        CampaignError, match=r"detailed\.unseen_percent: the window is fixed at its first 1,000"
    ):
        load_campaign(text, "c.yaml")


def test_the_unit_of_a_workload_goes_to_its_runs_and_into_the_compiled_file() -> None:
    text = LIVE + "    unit: operation\n  - {name: launches, command: [sub/training.toml]}\n"
    campaign = load_campaign(text, "c.yaml")
    runs = plan_campaign(campaign, "live-1", "/base", "c.yaml").runs
    asked = {run.workload: run.command.operations for run in runs if run.command is not None}
    assert asked == {"training": True, "launches": False}
    assert compile_campaign(campaign).analysis.by_operation == ("training",)


def test_a_recorded_workload_has_a_unit_too() -> None:
    text = LIVE.replace("- name: old", "- name: old\n    unit: operation")
    assert compile_campaign(load_campaign(text, "c.yaml")).analysis.by_operation == ("old",)


def test_another_unit_is_refused() -> None:
    with pytest.raises(CampaignError, match="unit"):
        load_campaign(LIVE + "    unit: kernel\n", "c.yaml")


def test_the_tracer_is_refused_for_operations() -> None:
    text = LIVE.replace("synthetic: true", "light: cupti") + "    unit: operation\n"
    with pytest.raises(CampaignError, match="'light: cupti' records no operations; write 'light: nsys'"):
        load_campaign(text, "c.yaml")
    load_campaign(text.replace("light: cupti", "light: nsys"), "c.yaml")
    load_campaign(text + "    kineto: trace.json\n", "c.yaml")
