"""The campaign file: every fault is said with its line and field, in words that say what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay_sampling.errors import CampaignError
from assay_sampling.launches.table import Condition
from assay_server.campaign_file.yaml_source import parse_yaml
from assay_server.campaigns.planning.plan import resolved_path
from assay_server.limits import CampaignFileLimits
from tests.support.server.campaign_files import load_campaign

GOOD = """\
campaign: real-recordings
synthetic: false
seed: 7
workloads:
  - name: training
    recordings:
      - device: V100
        light: v100_training.json.gz
        detailed: window.csv.gz
        condition: {cache: all, sm_percent: 50}
      - device: A100
        light: a100.sqlite
playback: recorded_time
analysis:
  reference: V100
  methods:
    - pks: {features: table2}
    - random: {launches: 100}
    - systematic
  memory_limit_bytes: 1000000
"""


def message(text: str | bytes) -> str:
    with pytest.raises(CampaignError) as caught:
        load_campaign(text, "campaign.yaml")
    assert caught.value.remedy, "whoever wrote the file must be told what to do next"
    return str(caught.value).removesuffix("; correct the file; 'assay docs campaign-file' shows every key")


def test_a_good_file_is_read_whole() -> None:
    campaign = load_campaign(GOOD, "campaign.yaml")
    assert (campaign.campaign, campaign.synthetic, campaign.seed) == ("real-recordings", False, 7)
    assert campaign.playback == "recorded_time"
    [workload] = campaign.workloads
    first, second = workload.recordings
    assert list(first.levels()) == [("detailed", "window.csv.gz"), ("light", "v100_training.json.gz")]
    assert first.condition.condition() == Condition("all", "none", 50.0)
    assert list(second.levels()) == [("light", "a100.sqlite")]
    assert second.condition.condition() == Condition("none", "none", 100.0)
    assert [(m.name, m.parameters) for m in campaign.analysis.methods] == [
        ("pks", {"features": "table2"}),
        ("random", {"launches": 100}),
        ("systematic", {}),
    ]
    assert (campaign.analysis.reference, campaign.analysis.memory_limit_bytes) == ("V100", 1_000_000)


def test_what_is_left_out_has_a_default() -> None:
    campaign = load_campaign(
        "campaign: a\nworkloads: [{name: w, recordings: [{device: V100, light: l}]}]", "c.yaml"
    )
    assert (campaign.synthetic, campaign.seed, campaign.playback) == (False, 0, "full_speed")
    assert [m.name for m in campaign.analysis.methods] == ["pks", "random", "systematic"]
    assert (campaign.analysis.reference, campaign.analysis.memory_limit_bytes) == (None, 8 << 30)


# What is replaced in the good file, by what, and the message from its line on.
FAULTS = [
    (
        "        light: v100",
        "        ligth: v100",
        "8: field workloads[0].recordings[0].ligth: unknown key; did you mean 'light'?",
    ),
    (
        "seed: 7",
        "colour: 7",
        "3: field colour: unknown key; "
        "the keys here are campaign, synthetic, project, priority, "
        "budget_gpu_hours, requires, exclusive, seed, gpus, detailed, light, conditions, repeats, bare, "
        "repeat, workloads, playback, analysis",
    ),
    ("campaign: real-recordings\n", "", "1: field campaign: this key is required"),
    ("campaign: real-recordings", "campaign: 12", "1: field campaign: 12 is not text; write it in quotes"),
    (
        "campaign: real-recordings",
        "campaign: ../../etc",
        "1: field campaign: '../../etc' is not a name made of letters, digits, '.', '_' and '-'",
    ),
    (
        "device: A100",
        "device: 3070",
        "11: field workloads[0].recordings[1].device: 3070 is not text; write it in quotes",
    ),
    ("synthetic: false", "synthetic: no way", "2: field synthetic: 'no way' is neither true nor false"),
    (
        "playback: recorded_time",
        "playback: fast",
        "13: field playback: 'fast' is not 'full_speed' or 'recorded_time'",
    ),
    ("seed: 7", "seed: 1.5", "3: field seed: 1.5 is not a whole number"),
    (
        "cache: all",
        "cache: cold",
        "10: field workloads[0].recordings[0].condition.cache: 'cold' is not 'none' or 'all'",
    ),
    (
        "sm_percent: 50",
        "sm_percent: 0",
        "10: field workloads[0].recordings[0].condition.sm_percent: 0 is not above 0.0",
    ),
    (
        "sm_percent: 50",
        "sm_percent: 101",
        "10: field workloads[0].recordings[0].condition.sm_percent: 101 is above 100.0",
    ),
    (
        "reference: V100",
        "reference: H100",
        "15: field analysis.reference: no recording has the device 'H100'; there are V100, A100",
    ),
    (
        "- systematic",
        "- sistematic",
        "19: field analysis.methods[2]: there is no method 'sistematic'; did you mean 'systematic'?",
    ),
    (
        "- systematic",
        "- [systematic]",
        "19: field analysis.methods[2]: "
        "a method is a name, or a name with parameters like 'random: {launches: 100}'",
    ),
    (
        "device: A100",
        "device: V100\n        condition: {cache: all, sm_percent: 50}",
        "11: field workloads[0].recordings[1].device: 'V100' appears twice under the same condition",
    ),
    (
        "        light: a100.sqlite\n",
        "",
        "11: field workloads[0].recordings[1]: "
        "it names no recording; give 'light', or 'detailed', or both",
    ),
    ("  - name: training", "  - name: ''", "5: field workloads[0].name: it is empty"),
    (
        "seed: 7",
        "seed: 7\nseed: 8",
        "4: the key 'seed' appears twice, first on line 3",
    ),
    (
        "seed: 7\n",
        "seed: &x 7\nplayback: *x\n",
        "4: aliases (*name) are not supported here; write out the value",
    ),
    (
        "    recordings:",
        "\trecordings:",
        "6: it is indented with a tab; indent with spaces: YAML allows no tabs",
    ),
    ("seed: 7", "seed: !!python/name:os.system x", "3: the tag "
     "'tag:yaml.org,2002:python/name:os.system' is not supported here; write the plain value"),
    ("seed: 7", "seed: .inf", "3: '.inf' cannot be read as float"),
    ("seed: 7", "seed: 7\n---\nseed: 8", "4: a second document begins; give each campaign its own file"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "expected"), FAULTS)
def test_a_fault_is_said_with_line_and_field(old: str, new: str, expected: str) -> None:
    assert GOOD.count(old) == 1
    assert message(GOOD.replace(old, new)) == f"campaign.yaml:{expected}"


def test_an_anchor_alone_is_harmless_and_a_string_without_end_is_not() -> None:
    assert load_campaign(GOOD.replace("seed: 7", "seed: &x 7"), "campaign.yaml").seed == 7
    assert message("campaign: 'x\n").startswith("campaign.yaml:1: it is not YAML here: ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", " it is empty"),
        ("# nothing\n", " it is empty"),
        (
            "- a\n- b\n",
            "1: it is not a mapping of keys to values",
        ),
        (b"campaign: a\nseed: \xff\xfe\n", "2: it is not UTF-8 text; save the file as UTF-8"),
        ("campaign: a\nworkloads: 3", "2: field workloads: 3 is not a list; begin each item with '- '"),
        ("campaign: a\nworkloads: []", "2: field workloads: it is empty"),
        (
            "campaign: a\nworkloads:\n - name: x\n   recordings: []",
            "4: field workloads[0].recordings: it is empty",
        ),
        (
            "campaign: a\nworkloads:\n- 3\n",
            "3: field workloads[0]: 3 is not a mapping of keys to values",
        ),
        (
            "campaign: \x00",
            "1: the character #x0000 does not belong in a text file; save the file as UTF-8 text",
        ),
        ("[" * 100_000, "1: it is nested more than 16 deep"),
        ("{" * 100_000, "1: a key must be a word, not a list or mapping"),
        ("x" * (1 << 20) + "x", " it is larger than 1,048,576 bytes; split it into several campaigns"),
        pytest.param("a: [" + "1," * 50_000 + "]", "1: it has more than 50,000 values", id="too many values"),
    ],
)  # fmt: skip
def test_what_is_no_campaign_at_all_is_refused(text: str | bytes, expected: str) -> None:
    assert message(text) == f"campaign.yaml:{expected}"


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("7", 7), ("-7", -7), ("+7", 7), ("010", 10), ("0o10", 8), ("0x1F", 31), ("0b1", "0b1"),
        ("1_000", "1_000"), ("1:30", "1:30"), ("1:30.5", "1:30.5"), ("-1:30", "-1:30"),
        ("1e3", 1000.0), ("1.5", 1.5), (".5", 0.5), ("5.", 5.0), ("-1.5E-3", -0.0015), (".", "."),
        ("1.2.3", "1.2.3"),
        ("true", True), ("TRUE", True), ("False", False), ("yes", "yes"), ("no", "no"), ("on", "on"),
        ("Off", "Off"), ("y", "y"), ("tRUE", "tRUE"),
        ("null", None), ("~", None), ("", None), ("none", "none"), ("'7'", "7"), ('"true"', "true"),
        ("!!str 7", "7"), ("!!int 7", 7), ("!!float 7", 7.0), ("! 7", "7"), ("2024-01-01", "2024-01-01"),
        ("=", "="), ("<<", "<<"), ("\u0661", "\u0661"),
    ],
)  # fmt: skip
def test_plain_words_are_what_the_core_schema_of_yaml_1_2_makes_of_them(word: str, value: Any) -> None:
    read = parse_yaml(f"key: {word}\n", "c.yaml").values["key"]
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # By YAML 1.1 these are numbers to the base of 60: 302 s for 900 KB, with nobody answered.
        ("seed: " + "1:" * 450_000 + "1", "1: a value has 900,001 characters; at most 65,536 are allowed"),
        ("seed: " + "1:" * 30_000 + "1\ncampaign: a", "1: field seed: '1:1:1:1:1"),
        ("seed: " + "9" * 65, "1: a number has 65 characters; at most 64 are allowed"),
        ("seed: 0x" + "f" * 65_000, "1: a number has 65,002 characters; at most 64 are allowed"),
        ("seed: " + "1" * 64 + "e" + "9" * 300, "1: a number has 365 characters"),
        ("seed: 1e999", "1: '1e999' cannot be read as float"),
        ("x" * 65_537 + ": 1", "1: a value has 65,537 characters"),
        ("seed: !!bool yes", "1: 'yes' cannot be read as bool"),
        ("seed: !!int x", "1: 'x' cannot be read as int"),
        ("seed: !" + "t" * 1000 + " 1", "1: the tag '!" + "t" * 99 + "' is not supported here"),
    ],
)
def test_no_value_holds_the_server_up(text: str, expected: str) -> None:
    assert message(text).startswith(f"campaign.yaml:{expected}")


def test_a_word_that_was_a_boolean_is_told_by_line() -> None:
    assert message(GOOD.replace("synthetic: false", "synthetic: no")).startswith(
        "campaign.yaml:2: field synthetic: 'no' is neither true nor false"
    )


def test_limits_of_files_are_values_that_may_be_others() -> None:
    small = CampaignFileLimits(campaign_file_bytes=20, campaign_file_depth=1, campaign_file_values=2)
    with pytest.raises(CampaignError, match="larger than 20 bytes"):
        parse_yaml("a: " + "x" * 20, "c", small)
    with pytest.raises(CampaignError, match="more than 1 deep"):
        parse_yaml("a: [1]", "c", small)
    with pytest.raises(CampaignError, match="more than 2 values"):
        parse_yaml("a: 1\nb: 2\nc: 3", "c", small)


def test_a_laughing_bomb_is_refused_before_it_unfolds() -> None:
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    assert message("\n".join(lines)) == (
        "campaign.yaml:2: aliases (*name) are not supported here; write out the value"
    )


def test_all_faults_are_told_at_once_in_the_order_of_lines() -> None:
    text = GOOD.replace("seed: 7", "seed: x").replace("light: a100", "lihgt: a100")
    assert message(text).splitlines() == [
        "campaign.yaml:3: field seed: 'x' is not a whole number",
        "campaign.yaml:12: field workloads[0].recordings[1].lihgt: unknown key; did you mean 'light'?",
    ]


def test_after_ten_faults_the_rest_is_counted() -> None:
    lines = message("campaign: a\nworkloads:\n" + "- 1\n" * 14).splitlines()
    assert len(lines) == 11
    assert lines[9] == "campaign.yaml:12: field workloads[9]: 1 is not a mapping of keys to values"
    assert lines[10] == "and 4 more"


@pytest.mark.parametrize("parameters", ["{launches: many}", "{lunches: 100}"])
def test_parameters_of_methods_are_checked_at_submission(parameters: str) -> None:
    told = message(GOOD.replace("{launches: 100}", parameters))
    name = parameters[1:].partition(":")[0]
    assert told.startswith(f"campaign.yaml:18: field analysis.methods[1].random.{name}: ")


def test_text_that_looks_like_something_else_stays_text() -> None:
    campaign = load_campaign(GOOD.replace("training\n", "2024-01-01\n").replace("a100.sqlite", "'1e3'"), "c")
    assert campaign.workloads[0].name == "2024-01-01"
    assert campaign.workloads[0].recordings[1].light == "1e3"


def test_a_byte_order_mark_is_no_fault() -> None:
    assert (
        load_campaign("\ufeff" + GOOD, "c").seed
        == load_campaign(b"\xef\xbb\xbf" + GOOD.encode(), "c").seed
        == 7
    )


def test_paths_start_from_the_folder_of_the_file() -> None:
    assert resolved_path("a/b.csv", "/lab/campaigns", "c.yaml") == "/lab/campaigns/a/b.csv"
    assert resolved_path("/data/b.csv", "", "c.yaml") == "/data/b.csv"
    with pytest.raises(CampaignError) as caught:
        resolved_path("b.csv", "campaigns", "c.yaml")
    assert str(caught.value) == (
        "c.yaml: the path 'b.csv' is relative, but the folder of the file was not given; "
        "give an absolute path"
    )


def test_the_documented_example_is_valid(request: pytest.FixtureRequest) -> None:
    page = (Path(request.config.rootpath) / "docs" / "campaign-file.md").read_text()
    blocks = [block.removeprefix("yaml\n") for block in page.split("```")[1::2] if block.startswith("yaml\n")]
    whole = [block for block in blocks if block.startswith("campaign:")]
    assert whole
    loaded: list[Any] = [load_campaign(block, "docs/campaign-file.md") for block in whole]
    assert loaded[0].workloads


LIVE = """\
campaign: live
synthetic: true
gpus: [V100, RTX 2060]
detailed: {first: 1000, slice_launches: 400, features: [table2, artifact12]}
conditions:
  - {cache: all}
  - {sm_percent: 50}
repeats: 2
workloads:
  - name: training
    command: [training.toml, --epochs, "1"]
    environment: {OMP_NUM_THREADS: "1"}
    timeout_s: 3600
  - name: old
    recordings:
      - {device: A100, light: old.sqlite}
analysis:
  reference: V100
  methods: [pks: {features: artifact12}]
"""


def test_live_and_recorded_workloads_stand_in_one_file() -> None:
    campaign = load_campaign(LIVE, "campaign.yaml")
    live, old = campaign.workloads
    assert live.command == ["training.toml", "--epochs", "1"]
    assert (live.environment, live.timeout_s, live.recordings) == ({"OMP_NUM_THREADS": "1"}, 3600.0, [])
    assert (old.command, len(old.recordings)) == (None, 1)
    assert campaign.gpus == ["V100", "RTX 2060"]
    assert [c.condition() for c in campaign.conditions] == [
        Condition("all", "none", 100.0),
        Condition("none", "none", 50.0),
    ]
    counters = campaign.detailed.counters()
    assert len(counters) == len(set(counters)) == 17
    assert {"artifact_global_loads", "local_load_sectors", "profiled_duration_ns"} <= set(counters)


# What is replaced in the live file, by what, and the message from its line on.
LIVE_FAULTS = [
    (
        "gpus: [V100, RTX 2060]\n",
        "",
        "10: field workloads[0].command: there is no GPU to run it on; give a list of kinds in 'gpus'\n"
        "campaign.yaml:17: field analysis.reference: no recording has the device 'V100'; there are A100",
    ),
    (
        "RTX 2060]",
        "NVIDIA  v100]",
        "3: field gpus[1]: 'NVIDIA  v100' is the same kind of GPU as 'V100'",
    ),
    ("RTX 2060]", '" "]', "3: field gpus[1]: ' ' is not a kind of GPU"),
    ("first: 1000", "first: 0", "4: field detailed.first: 0 is below 1"),
    ("first: 1000", "frist: 1000", "4: field detailed.frist: unknown key; did you mean 'first'?"),
    (
        "first: 1000, slice_launches: 400",
        "first: 20000000, slice_launches: 400",
        "4: field detailed.slice_launches: it makes 600,013 slices (50,000 in a run: 20,000,000 launches in "
        "slices of 400), and at most 250,000 are planned, 25,000 in a run; lower 'first', raise "
        "'slice_launches', or make several campaigns",
    ),
    (
        "[table2, artifact12]",
        "table3",
        "4: field detailed.features: there is no feature set 'table3'; "
        "there are table2, artifact12, artifact11",
    ),
    (
        "[table2, artifact12]",
        "table2",
        "19: field analysis.methods[0].pks.features: artifact12 needs artifact_global_loads, "
        "artifact_global_stores, which no detailed run collects; "
        "name it in 'detailed: {features: [..., artifact12]}'",
    ),
    (
        "{cache: all}",
        "{cache: none}",
        "6: field conditions[0]: this is the baseline, which always runs; list only other conditions",
    ),
    (
        "{cache: all}",
        "{cache: all, sm_percent: 50}",
        "6: field conditions[0]: only Nsight Compute flushes caches, and at a share of the SMs it profiles "
        "one launch of each process; write two conditions, one for each",
    ),
    (
        "{cache: all}",
        "{sm_share: partition}",
        "6: field conditions[0].sm_share: a partition holds part of the SMs; give an sm_percent below 100",
    ),
    (
        "{cache: all}",
        "{sm_percent: 50, sm_share: slice}",
        "6: field conditions[0].sm_share: 'slice' is not 'limit' or 'partition'",
    ),
    (
        "{cache: all}",
        "{sm_percent: 50.0}",
        "7: field conditions[1]: the condition cache=none clock=none sm=50% appears twice",
    ),
    (
        "{cache: all}",
        "{clock: fast}",
        "6: field conditions[0].clock: 'fast' is not 'none', 'base' or 'boost'",
    ),
    ("repeats: 2", "repeats: 0", "8: field repeats: 0 is below 1"),
    (
        "repeats: 2",
        "requires: {architecture: [[]]}",
        "8: field requires.architecture[0]: a list is not text; write it in quotes",
    ),
    (
        "repeats: 2",
        "requires: {architecture: [[9.0, 8.0]]}",
        "8: field requires.architecture[0]: a list is not text; write it in quotes",
    ),
    (
        'command: [training.toml, --epochs, "1"]',
        "command: [training.toml, --epochs, 1]",
        "11: field workloads[0].command[2]: 1 is not text; write it in quotes",
    ),
    (
        'command: [training.toml, --epochs, "1"]',
        "command: training.toml",
        "11: field workloads[0].command: 'training.toml' is not a list; begin each item with '- '",
    ),
    (
        "command: [training.toml,",
        'command: ["",',
        "11: field workloads[0].command[0]: the program's name is empty",
    ),
    (
        "--epochs",
        '"a\\0b"',
        "11: field workloads[0].command[1]: a word of a command cannot hold a null character",
    ),
    (
        'OMP_NUM_THREADS: "1"',
        "OMP_NUM_THREADS: 1",
        "12: field workloads[0].environment.OMP_NUM_THREADS: 1 is not text; write it in quotes",
    ),
    (
        'OMP_NUM_THREADS: "1"',
        '"A=B": c',
        "12: field workloads[0].environment.A=B: 'A=B' cannot be set: it is empty or has '=' or a null in it",
    ),
    ("timeout_s: 3600", "timeout_s: -1", "13: field workloads[0].timeout_s: -1 is not above 0.0"),
    (
        "    recordings:\n      - {device: A100, light: old.sqlite}\n",
        "    timeout_s: 5\n",
        "14: field workloads[1]: it has nothing to run; give a 'command' or 'recordings'\n"
        "campaign.yaml:15: field workloads[1].timeout_s: this key needs a 'command' in the workload",
    ),
    (
        "    timeout_s: 3600",
        "    recordings: [{device: A100, light: x}]",
        "13: field workloads[0].recordings: the workload also has a 'command'; split it into two workloads",
    ),
    (
        "reference: V100",
        "reference: H100",
        "18: field analysis.reference: no GPU or recording has the device 'H100'; "
        "there are V100, RTX 2060, A100",
    ),
]


@pytest.mark.parametrize(("old", "new", "expected"), LIVE_FAULTS)
def test_a_fault_about_live_runs_is_said_with_line_and_field(old: str, new: str, expected: str) -> None:
    assert LIVE.count(old) == 1
    assert message(LIVE.replace(old, new)) == f"campaign.yaml:{expected}"


def test_what_nothing_would_run_under_is_not_ignored() -> None:
    text = GOOD.replace("seed: 7", "gpus: [V100]\nrepeats: 2")
    assert message(text) == (
        "campaign.yaml:3: field gpus: no workload has a 'command', so nothing would run under it\n"
        "campaign.yaml:4: field repeats: no workload has a 'command', so nothing would run under it"
    )
