"""``detailed: none``: a campaign of light runs alone, where counters are refused or not wanted."""

from __future__ import annotations

import pytest

from assay_sampling.errors import CampaignError
from assay_sampling.launches.table import BASELINE, Condition
from assay_server.campaign_file.reading import compile_campaign, read_campaign_file
from assay_server.campaign_file.sizes import campaign_size
from assay_server.campaign_file.spec import campaign_schema
from assay_server.campaigns.planning.forecast import forecast_campaign
from assay_server.campaigns.planning.plan import Plan, plan_campaign
from tests.support.server.campaign_files import load_campaign

LIVE = """\
campaign: cloud
synthetic: true
gpus: [V100, RTX 3070]
detailed: none
workloads:
  - {name: train, command: [./train.toml]}
"""
RECORDED = """\
campaign: files
detailed: none
workloads:
  - name: train
    recordings:
      - {device: V100, light: v100.json}
      - {device: A100, light: a100.json, detailed: none}
"""


def planned(text: str) -> Plan:
    return plan_campaign(load_campaign(text, "c.yaml"), "c-1", "/base", "c.yaml")


def fault(text: str) -> str:
    with pytest.raises(CampaignError) as caught:
        load_campaign(text, "c.yaml")
    return str(caught.value)


def test_a_live_campaign_plans_light_runs_alone() -> None:
    plan = planned(LIVE)
    assert [(run.device_kind, run.level, run.profiler, run.condition) for run in plan.runs] == [
        ("V100", "light", "nsight_systems", BASELINE),
        ("RTX 3070", "light", "nsight_systems", BASELINE),
    ]
    assert len(plan.slices) == 2


def test_bare_runs_repeats_shares_and_locked_clocks_stay() -> None:
    more = "bare: true\nrepeats: 2\nconditions: [{sm_percent: 50}, {clock: base}]\n"
    runs = planned(LIVE.replace("gpus: [V100, RTX 3070]", "gpus: [V100]") + more).runs
    of_a_repeat = [
        ("bare", BASELINE, False),
        ("light", BASELINE, False),
        ("light", Condition("none", "base", 100.0), False),
        ("light", Condition("none", "none", 50.0), True),
        ("light", BASELINE, True),
    ]
    assert [(r.level, r.condition, r.under_mps) for r in runs] == of_a_repeat * 2
    assert [r.repeat for r in runs] == [0] * 5 + [1] * 5


def test_the_slices_are_counted_as_they_are_planned() -> None:
    text = LIVE + "repeats: 3\nconditions: [{sm_percent: 50}, {clock: base}]\n"
    campaign = load_campaign(text, "c.yaml")
    assert campaign_size(campaign).slices == len(planned(text).slices) == 24


def test_repeating_until_the_noise_is_small_needs_no_counters() -> None:
    plan = planned(LIVE + "repeat: {until_interval_percent: 2}\n")
    assert [run.repeat for run in plan.runs] == [0, 1, 2] * 2


@pytest.mark.parametrize("text", [LIVE, RECORDED])
def test_the_methods_are_those_that_need_no_counters(text: str) -> None:
    campaign = load_campaign(text, "c.yaml")
    names = [name for name, _ in compile_campaign(campaign).analysis.methods]
    assert names == ["stem", "stratified", "random", "systematic"]
    asked = load_campaign(text + "analysis: {methods: [random]}\n", "c.yaml")
    assert [name for name, _ in compile_campaign(asked).analysis.methods] == ["random"]


def test_recordings_are_light_ones() -> None:
    runs = planned(RECORDED).runs
    assert [(run.device_kind, run.level, str(run.recorded and run.recorded.path)) for run in runs] == [
        ("V100", "light", "/base/v100.json"), ("A100", "light", "/base/a100.json"),
    ]  # fmt: skip


def test_a_detailed_recording_beside_it_is_refused_by_line() -> None:
    text = RECORDED.replace("light: v100.json}", "light: v100.json, detailed: v100.csv}")
    told = fault(text)
    assert told.startswith("c.yaml:6: field workloads[0].recordings[0].detailed: ")
    assert "'detailed: none'" in told


@pytest.mark.parametrize(
    ("method", "place", "lacks"),
    [
        ("pks", "analysis.methods[0]", "pks"),
        ("sieve", "analysis.methods[0]", "sieve"),
        ("tbpoint", "analysis.methods[0]", "tbpoint"),
        ("first_instructions", "analysis.methods[0]", "first_instructions"),
        ("random: {estimator: ratio}", "analysis.methods[0]", "random"),
        ("stem: {cost: cycles_gpc_avg}", "analysis.methods[0]", "stem"),
    ],
)
def test_a_method_that_needs_counters_is_refused_before_anything_runs(
    method: str, place: str, lacks: str
) -> None:
    told = fault(LIVE + f"analysis:\n  methods:\n    - {method}\n")
    assert told.startswith(f"c.yaml:9: field {place}: {lacks} ")
    assert "'detailed: none'" in told
    for name in ("stem", "stratified", "random", "systematic", "single_iteration", "photon"):
        assert name in told


def test_flushed_caches_need_counters() -> None:
    told = fault(LIVE + "conditions: [{sm_percent: 50}, {cache: all}]\n")
    assert told.startswith("c.yaml:7: field conditions[1]: ")
    assert "counters" in told


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("", "nothing"), ("~", "nothing"), ("false", "false"), ("light", "'light'"), ("[]", "a list"),
        ("None", "'None'"),
    ],
)  # fmt: skip
def test_other_words_are_refused_with_the_one_that_is_meant(value: str, shown: str) -> None:
    told = fault(LIVE.replace("detailed: none", f"detailed: {value}"))
    assert told.startswith(f"c.yaml:4: field detailed: {shown} is ")
    assert "'none'" in told


def test_a_fault_inside_the_mapping_keeps_its_place() -> None:
    told = fault(LIVE.replace("detailed: none", "detailed: {first: 0}"))
    assert told.startswith("c.yaml:4: field detailed.first: 0 is below 1")


def test_editors_are_told_both_forms() -> None:
    detailed = campaign_schema()["properties"]["detailed"]
    assert detailed["anyOf"] == [{"$ref": "#/$defs/DetailedSpec"}, {"const": "none"}]


def test_the_forecast_holds_no_detailed_run_and_says_why() -> None:
    document = forecast_campaign(read_campaign_file(LIVE, "c.yaml"), "/base", {})
    assert document["light_only"] is True
    assert {run["level"] for run in document["runs"]} == {"light"}
    assert document["methods"] == ["stem", "stratified", "random", "systematic"]
    with_counters = forecast_campaign(
        read_campaign_file(LIVE.replace("detailed: none", "seed: 1"), "c.yaml"), "/base", {}
    )
    assert with_counters["light_only"] is False
