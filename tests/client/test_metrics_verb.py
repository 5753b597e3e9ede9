"""``assay metrics``: what to measure for a method, as the very command lines that the agent gives."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay_agent.profilers.ncu.command import MetricPlan, import_command, profile_command
from assay_agent.profilers.nsys.command import export_command, trace_command
from assay_core.records.attempt import AttemptKey
from assay_core.records.work import CommandSource, Work
from assay_sampling.counters.definitions import FEATURE_SETS
from assay_sampling.errors import ParameterError
from assay_sampling.launches.table import BASELINE
from assay_sampling.methods.registry import methods_without_counters, samplers
from assay_sampling.nsight.measuring import measuring
from assay_sampling.nsight.tool import tool_of_release
from assay_sampling.running.gpu_names import COMPUTE_CAPABILITIES, GPU_NAMES, compute_capability_of
from tests.support.named_gpus import gpus_of_the_docs

Assay = Callable[..., Any]
METHODS = list(samplers())
WITH_COUNTERS = ["pks", "first_instructions", "tbpoint", "sieve"]
RELEASES = ["", "2022.3", "2024.1.1", "2026.1"]
WORK = Work(
    key=AttemptKey("c-1.0000", 0, 1, 1),
    campaign_id="c-1",
    workload="w",
    device_kind="V100",
    level="detailed",
    condition=BASELINE,
    profiler="nsight_compute",
    command=CommandSource(("./workload",), {}),
)


def asked(assay: Assay, *arguments: object) -> dict[str, Any]:
    ended = assay("metrics", *arguments, "--json")
    assert ended.code == 0, ended.stderr
    document: dict[str, Any] = json.loads(ended.stdout)
    return document


def test_metrics_that_are_not_ours_are_collected_under_their_own_names(assay: Assay) -> None:
    own = "lts__t_sectors.sum"
    document = asked(assay, "pks", "--param", f"features=instructions,{own}")
    assert {"name": own, "metric": own} in [
        {key: each[key] for key in ("name", "metric")} for each in document["counters"]
    ]
    assert own in document["commands"][0]["argv"][document["commands"][0]["argv"].index("--metrics") + 1]
    assert "there is no counter 'lts_sectors'" in refused(assay, "pks", "--param", "features=lts_sectors")


def refused(assay: Assay, *arguments: object) -> str:
    ended = assay("metrics", *arguments)
    assert ended.code == 2
    assert ended.stdout == ""
    return str(ended.stderr)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("method", WITH_COUNTERS)
def test_the_lines_are_those_of_the_agent(method: str, release: str) -> None:
    found = measuring(method, {}, compute_capability="7.0", tool_version=release)
    ncu, nsys = tool_of_release("ncu", release), tool_of_release("nsys")
    report = Path("counters.ncu-rep")
    agents = profile_command(ncu, WORK, MetricPlan(found.counters), report, Path("log"))
    at = agents.index("--log-file")
    profile, page, trace, export, _ = found.commands
    assert list(profile.argv) == agents[:at] + agents[at + 2 :]  # people see what the tool says
    assert list(page.argv) == import_command(ncu, report)
    assert page.output == "counters.csv"
    assert list(trace.argv) == trace_command(nsys, replace(WORK, level="light"), Path("light"))
    assert list(export.argv) == export_command(nsys, Path("light.nsys-rep"), Path("light.sqlite"))


def test_pks_on_a_v100(assay: Assay) -> None:
    document = asked(assay, "pks", "--gpu", "V100", "--tool-version", "2024.1", "--first", 1000, "--skip", 20)
    assert (document["compute_capability"], document["passes"]) == ("7.0", 3)
    names = [counter["name"] for counter in document["counters"]]
    assert names[:12] == list(FEATURE_SETS["table2"])
    assert names[12:] == ["cycles_gpc_avg", "cycles_gpc_max", "profiled_duration_ns"]
    profile = document["commands"][0]["argv"]
    at = profile.index("--metrics")
    assert profile[at + 1].split(",") == [counter["metric"] for counter in document["counters"]]
    for words in (
        ["--cache-control", "none"], ["--clock-control", "none"], ["--config-file", "off"],
        ["--launch-skip", "20", "--launch-count", "1000", "--kill", "yes"],
    ):  # fmt: skip
        place = profile.index(words[0])
        assert profile[place : place + len(words)] == words
    page = document["commands"][1]["argv"]
    assert page[page.index("--page") + 1] == "raw"
    assert page[page.index("--print-units") + 1] == "base"
    assert document["commands"][-1]["argv"][-2:] == ["--launch-offset", "20"]


@pytest.mark.parametrize("method", METHODS)
def test_a_method_without_counters_needs_nsys_alone_and_says_so(assay: Assay, method: str) -> None:
    document = asked(assay, method, "--gpu", "A100")
    programs = [command["argv"][0] for command in document["commands"]]
    if method in methods_without_counters():
        assert programs == ["nsys", "nsys", "assay"]
        assert document["counters"] == []
        assert f"{method} needs no counters: a light run is enough" in document["notes"][0]["text"]
    else:
        assert programs == ["ncu", "ncu", "nsys", "nsys", "assay"]
        assert method in WITH_COUNTERS


@pytest.mark.parametrize("method", METHODS)
def test_what_is_printed_is_a_shell_script_with_the_words_of_the_document(assay: Assay, method: str) -> None:
    workload = ("--", "./my program", "--name=it's", "$HOME")
    text = assay("metrics", method, "--gpu", "RTX 3070", *workload).stdout
    document = json.loads(assay("metrics", method, "--gpu", "RTX 3070", "--json", *workload).stdout)
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert len(lines) == len(document["commands"])
    for line, command in zip(lines, document["commands"], strict=True):
        words = shlex.split(line)
        output = [">", command["output"]] if command["output"] else []
        assert words == [*command["argv"], *output]
    assert document["commands"][-1]["argv"][:3] == ["assay", "select", method]


def test_a_file_that_no_profiler_makes_has_its_place_in_the_selection(assay: Assay) -> None:
    document = asked(assay, "photon")
    assert document["commands"][-1]["argv"][-2:] == ["--param", "bbv=blocks.csv"]
    assert any(note["code"] == "basic_blocks_needed" for note in document["notes"])
    given = asked(assay, "photon", "-p", "bbv=my vectors.csv")["commands"][-1]["argv"]
    assert given[-2:] == ["--param", "bbv=my vectors.csv"]


def test_parameters_decide_what_is_needed(assay: Assay) -> None:
    twelve = asked(assay, "pks", "-p", "features=artifact12")
    assert "artifact_global_loads" in [counter["name"] for counter in twelve["counters"]]
    assert any("sass__inst_executed_global_loads" in note.get("metrics", ()) for note in twelve["notes"])
    assert "features=artifact12" in twelve["commands"][-1]["argv"]
    ratio = asked(assay, "stratified", "-p", "estimator=ratio")
    assert "instructions" in [counter["name"] for counter in ratio["counters"]]
    assert asked(assay, "stratified")["counters"] == []
    assert "no parameter 'epsilon'" in refused(assay, "pks", "-p", "epsilon=1")


def test_without_a_release_what_later_ones_need_is_said(assay: Assay) -> None:
    notes = " ".join(note["text"] for note in asked(assay, "pks")["notes"])
    for option in ("--config-file", "--rename-kernels", "from 2023.1 on", "from 2026.1 on"):
        assert option in notes
    assert "--rename-kernels" not in str(asked(assay, "pks", "--tool-version", "2026.1")["notes"])


def test_without_a_release_the_options_are_those_of_the_first_that_knows_the_gpu(assay: Assay) -> None:
    new = {"--config-file", "--graph-profiling", "--disable-extra-suffixes"}
    old = asked(assay, "pks", "--gpu", "A100")
    assert not new & set(old["commands"][0]["argv"])
    blackwell = asked(assay, "pks", "--gpu", "B200")
    assert new <= set(blackwell["commands"][0]["argv"])
    assert (
        blackwell["commands"] == asked(assay, "pks", "--gpu", "B200", "--tool-version", "2025.1")["commands"]
    )
    assert blackwell["tool_version"] is None
    [note] = [note for note in blackwell["notes"] if note["code"] == "options_of_every_release"]
    assert note["oldest"] == "2025.1"
    assert note["later"] == ["--pipeline-boost-state, --rename-kernels, --import-sass from 2026.1 on"]
    assert "--rename-kernels off" in note["text"] and "names" in note["text"]


def test_names_are_never_shortened_by_a_release_that_would(assay: Assay) -> None:
    for gpu in ("B200", "A100"):
        profile, page, *_ = asked(assay, "pks", "--gpu", gpu, "--tool-version", "2026.1")["commands"]
        for argv in (profile["argv"], page["argv"]):
            assert argv[argv.index("--rename-kernels") + 1] == "off"


@pytest.mark.parametrize(
    ("gpu", "release", "remedy"),
    [
        ("B200", "2022.3", "install Nsight Compute 2025.1 or newer"),
        ("RTX 5090", "2024.3", "install Nsight Compute 2025.1 or newer"),
        ("V100", "2026.1", "install Nsight Compute 2025.2, the last that measures it"),
    ],
)
def test_a_release_that_does_not_know_the_gpu_is_refused(
    assay: Assay, gpu: str, release: str, remedy: str
) -> None:
    told = refused(assay, "pks", "--gpu", gpu, "--tool-version", release)
    assert f"--tool-version: Nsight Compute {release} does not measure" in told and remedy in told
    assert asked(assay, "stem", "--gpu", gpu, "--tool-version", release)["counters"] == []


def test_the_last_release_for_a_gpu_is_noted(assay: Assay) -> None:
    assert asked(assay, "pks", "--gpu", "V100")["notes"][-1]["last"] == "2025.2"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["pkz"], "metrics: there is no method 'pkz'; did you mean pks?"),
        (["nothing at all"], "use one of pks, random"),
        (["pks", "--gpu", "V10"], "did you mean V100, V100S or Quadro GV100?"),
        (["pks", "--gpu", "2080"], "did you mean RTX 2080, RTX 2080 SUPER"),
        (["pks", "--gpu", "Radeon VII"], "nvidia-smi --query-gpu=compute_cap"),
        (["pks", "--gpu", ""], "no known GPU is called ''"),
        (
            ["pks", "--gpu", "P100"],
            "7.0 and later, not 6.0; measure light runs, and use a method that",
        ),
        (["pks", "--tool-version", "new"], "'new' is not a release of Nsight Compute"),
        (["pks", "--tool-version", "2019.5"], "use release 2022.3 or a later one"),
        (["sieve", "--first", "5"], "sieve needs the counters of every launch"),
        (["stem", "--skip", "5"], "stem needs no counters, and the light level is always of every launch"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(assay: Assay, arguments: list[str], told: str) -> None:
    assert told in refused(assay, *arguments)


def test_a_light_method_goes_with_any_gpu_and_release(assay: Assay) -> None:
    assert asked(assay, "stem", "--gpu", "P100")["compute_capability"] == "6.0"


def test_every_known_gpu_has_one_compute_capability() -> None:
    assert {compute_capability_of(name) for name in GPU_NAMES} <= set(COMPUTE_CAPABILITIES)
    known = {
        "Tesla V100-SXM2-16GB": "7.0", "NVIDIA A100-PG509-200": "8.0", "virtual RTX 2060": "7.5",
        "NVIDIA GeForce RTX 3070": "8.6", "A10": "8.6", "A100": "8.0", "L4": "8.9", "H100": "9.0",
        "T4": "7.5", "RTX 5000 Ada Generation": "8.9", "Quadro RTX 5000": "7.5", "RTX 5090": "12.0",
        "B200": "10.0",
        "GB200": "10.0", "GB10": "12.1", "RTX A5000": "8.6", "TITAN V": "7.0", "GTX 1660 Ti": "7.5",
        "P4": "6.1", "Orin (nvgpu)": "8.7", "sm_70": "7.0", "8.6": "8.6", "100": "10.0", "sm_103": "10.3",
    }  # fmt: skip
    assert {name: compute_capability_of(name) for name in known} == known


@pytest.mark.parametrize("wrong", ["A1", "V1000", "RTX 30700", "RTX 2050", "9.9", "-1", "\n", "GB100"])
def test_a_name_that_is_only_like_one_is_no_gpu(wrong: str) -> None:
    with pytest.raises(ParameterError):
        compute_capability_of(wrong)


@pytest.mark.parametrize("gpu", gpus_of_the_docs())
def test_every_gpu_that_the_docs_name_is_known(gpu: str) -> None:
    assert compute_capability_of(gpu) in COMPUTE_CAPABILITIES


def test_the_unit_operation_adds_what_records_operations(assay: Assay) -> None:
    document = asked(assay, "pks", "--gpu", "A100", "--tool-version", "2024.1", "--unit", "operation")
    profile, _, trace, _, selection = (command["argv"] for command in document["commands"])
    assert "--nvtx" in profile
    assert "--trace=cuda,nvtx,cublas,cudnn" in trace
    assert selection[-2:] == ["--unit", "operation"]
    notes = {note["code"]: note["text"] for note in document["notes"]}
    assert "Nsight Systems from 2025.1 on" in notes["operators_of_pytorch"]
    assert "emit_nvtx" in notes["ranges_for_counters"]
    without = asked(assay, "pks", "--gpu", "A100", "--tool-version", "2024.1")
    assert not {"operators_of_pytorch", "ranges_for_counters"} & {note["code"] for note in without["notes"]}
    assert not [word for command in without["commands"] for word in command["argv"] if "operation" in word]
