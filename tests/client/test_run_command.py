"""``assay run -- COMMAND``: the campaign that a command becomes, what the box lacks, and what is shown."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay_client.local_box import command_box, counter_seconds
from assay_client.one_box.command import (
    CommandBox,
    CommandOptions,
    command_environment,
    command_source,
    name_of,
)
from assay_client.one_box.measured import measured_command
from assay_client.remote.outcome import Outcome
from assay_core.records.machine import InstalledDevice, Inventory
from assay_sampling.errors import NotReadyError, ParameterError
from assay_sampling.launches.table import (
    BASELINE,
)
from assay_server.campaign_file.reading import read_campaign_file
from tests.support.small_recordings import recording

Assay = Callable[..., Any]
V100 = CommandBox(("Tesla V100-SXM2-16GB",))
TINY = """\
workload = "tiny"
seed = 5
[buffers]
x = "8 MiB"
[kernels.scale]
name = "void scale<float>(float*, int)"
block = 128
instructions = 4000
global_loads = 4
reads = { x = 1.0 }
[[phases]]
repeat = 30
steps = [{ kernel = "scale", grid = 64 }]
"""


def campaign(command: list[str], box: CommandBox = V100, **options: Any) -> dict[str, Any]:
    source = command_source(command, Path("/work"), box, CommandOptions(**options))
    read_campaign_file(source.text, "command")  # it is valid
    document: dict[str, Any] = json.loads(source.text)
    return document


def test_a_command_is_a_campaign_of_both_levels_within_its_budget() -> None:
    assert campaign(["./hotspot", "1024"]) == {
        "campaign": "hotspot",
        "synthetic": False,
        "gpus": ["Tesla V100-SXM2-16GB"],
        "light": "auto",
        "detailed": {"first": "auto", "time_budget_s": 900.0},
        "workloads": [{"name": "hotspot", "command": ["./hotspot", "1024"], "light_limit_s": 600}],
        "analysis": {"methods": ["pks", "stem", "balanced"]},
    }


def test_flushed_caches_share_the_budget_and_a_share_of_the_sms_is_a_condition() -> None:
    asked = campaign(["./hotspot"], budget_seconds=90.0, flush=True, sm_share=50.0)
    assert asked["detailed"]["time_budget_s"] == 30.0
    assert asked["conditions"] == [{"cache": "all"}, {"sm_percent": 50.0}]


def test_without_nsight_compute_there_are_light_runs_alone() -> None:
    asked = campaign(["./hotspot"], dataclasses.replace(V100, counters=False), flush=True)
    assert asked["detailed"] == "none"
    assert asked["analysis"] == {"methods": ["stem", "balanced"]}
    assert "conditions" not in asked


@pytest.mark.parametrize(
    ("command", "unit", "operations", "recorded"),
    [
        (["python3", "train.py"], "auto", True, True),
        (["./train.py"], "auto", True, True),
        (["./hotspot"], "auto", True, False),
        (["./hotspot"], "operation", True, True),
        (["python3", "train.py"], "launch", True, False),
        (["python3", "train.py"], "auto", False, False),
    ],
)
def test_operations_are_recorded_where_they_can_be_had(
    command: list[str], unit: str, *, operations: bool, recorded: bool
) -> None:
    [workload] = campaign(command, dataclasses.replace(V100, operations=operations), unit=unit)["workloads"]
    assert workload.get("unit") == ("operation" if recorded else None)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "-u", "src/train.py", "--lr", "1"], "train"),
        (["/usr/bin/python3.11", "-m", "vllm.bench"], "bench"),
        (["torchrun", "--nproc-per-node=1", "a b.py"], "a-b"),
        (["./hotspot.x", "1"], "hotspot"),
        (["virtual/decoder.toml"], "decoder"),
        (["./..."], "command"),
        (["./" + "x" * 300], "x" * 60),
    ],
)
def test_a_command_is_named_by_its_script_module_or_program(command: list[str], name: str) -> None:
    assert name_of(command) == name
    campaign(command)


def test_a_command_keeps_what_it_needs_of_its_persons_environment_and_no_secret(tmp_path: Path) -> None:
    (tmp_path / ".cache" / "huggingface").mkdir(parents=True)
    own = {
        "PYTHONPATH": "src",
        "HF_HUB_TOKEN": "s",
        "OMP_NUM_THREADS": "4",
        "HOME": "/h",
        "MY": "1",
        "TF_KEY": "k",
    }
    assert command_environment(["MY", "OTHER=a=b"], own, tmp_path) == {
        "PYTHONPATH": "src",
        "OMP_NUM_THREADS": "4",
        "HF_HOME": str(tmp_path / ".cache" / "huggingface"),
        "MY": "1",
        "OTHER": "a=b",
    }
    assert command_environment([], {"HF_HOME": "/data"}, tmp_path) == {"HF_HOME": "/data"}
    with pytest.raises(ParameterError, match="GONE is not set here"):
        command_environment(["GONE"], own, None)
    with pytest.raises(ParameterError, match="'=1' has no name"):
        command_environment(["=1"], own, None)


def box_with(
    monkeypatch: pytest.MonkeyPatch, *devices: InstalledDevice, tools: tuple[str, ...] = (), reason: str = ""
) -> None:
    from assay_agent.gpus import inventory  # noqa: PLC0415
    from assay_agent.tracer import build  # noqa: PLC0415

    found = Inventory("box", "1", 2, 1 << 30, devices=devices, no_device_reason=reason)
    monkeypatch.setattr(inventory, "read_inventory", lambda: found)
    monkeypatch.setattr(build, "find_tracer", lambda: Path("tracer.so") if "tracer" in tools else None)
    monkeypatch.setattr("shutil.which", lambda name: f"/opt/{name}" if name in tools else None)


GPU = InstalledDevice(0, name="Tesla V100-SXM2-16GB", uuid="GPU-1")


@pytest.mark.parametrize(
    ("tools", "counters", "operations", "said"),
    [
        (("ncu", "nsys"), True, True, []),
        (("nsys",), False, True, ["ncu (Nsight Compute) is not in the PATH"]),
        (("ncu", "tracer"), True, False, ["nsys (Nsight Systems) is not in the PATH"]),
    ],
)
def test_what_a_box_lacks_is_said_and_done_without(
    monkeypatch: pytest.MonkeyPatch,
    tools: tuple[str, ...],
    said: list[str],
    *,
    counters: bool,
    operations: bool,
) -> None:
    box_with(monkeypatch, GPU, tools=tools)
    sentences: list[str] = []
    expected = CommandBox((GPU.name,), counters=counters, operations=operations)
    assert command_box((), sentences.append) == expected
    assert [each.partition(":")[0] for each in sentences] == said


@pytest.mark.parametrize(
    ("devices", "tools", "cause"),
    [
        ((), ("ncu", "nsys"), "it has no GPU to measure on: no NVIDIA driver library on this box"),
        (
            (dataclasses.replace(GPU, left_out="it is partitioned (MIG)"),),
            ("ncu", "nsys"),
            "it has no GPU to measure on: it is partitioned (MIG)",
        ),
        ((GPU,), ("ncu",), "nsys (Nsight Systems) is not in the PATH, and the tracer is not built"),
    ],
    ids=["no driver", "MIG", "no light runs"],
)
def test_a_box_that_cannot_measure_is_refused_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, devices: tuple[InstalledDevice, ...], tools: tuple[str, ...], cause: str
) -> None:
    box_with(monkeypatch, *devices, tools=tools, reason="no NVIDIA driver library on this box")
    with pytest.raises(NotReadyError) as caught:
        command_box((), print)
    assert caught.value.cause == cause
    assert caught.value.remedy


def test_virtual_gpus_are_synthetic() -> None:
    assert command_box(["v100", "V100:2", "RTX 3070"], print) == CommandBox(
        ("V100", "RTX 3070"), synthetic=True
    )


def test_counters_cost_more_with_more_slices_and_longer_programs() -> None:
    one = counter_seconds(10_000, 20.0, [1, 1])
    assert counter_seconds(10_000, 20.0, [2, 2]) == pytest.approx(2 * one)
    assert counter_seconds(10_000, 40.0, [1, 1]) > one
    assert counter_seconds(0, 0.0, [1]) > 0


def test_the_recordings_of_a_command_are_those_of_the_baseline(tmp_path: Path) -> None:
    baseline = BASELINE.to_dict()
    runs = [
        ("detailed", baseline),
        ("detailed", baseline),
        ("light", baseline),
        ("detailed", {**baseline, "cache": "all"}),
        ("light", {**baseline, "sm_percent": 50.0}),
        ("light", baseline),  # at 100 %, under the same MPS daemon as the share
    ]
    status = {
        "runs": [
            {"run_id": f"c-1.{number}", "level": level, "state": "done", "condition": condition}
            for number, (level, condition) in enumerate(runs)
        ]
    }
    light = recording(tmp_path / "light.parquet", ["a"], duration_ns=[1])
    published = {"c-1.1": [tmp_path / "features"], "c-1.2": [light]}
    measured = measured_command(Outcome(status, None, {}), published.__getitem__, private=False)
    assert (measured.light, measured.detailed) == ((light,), (tmp_path / "features",))
    assert measured.top is not None and measured.selection is None


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train.py", "--epochs"], "--epochs"),
        (["python", "train.py"], "a command comes after two dashes: assay run -- python train.py"),
        (["--flush", "c.yaml"], "--flush: it is for a command after --; write it into c.yaml"),
        (["--"], "COMMAND"),
        (["c.yaml", "--", "ls"], "a command is the program and its arguments after --"),
        (["--budget", "30", "--", "ls"], "--budget: '30' has no unit"),
        (["--budget", "0s", "--", "ls"], "--budget: 0s is not a time"),
        (["--sm-share", "100", "--", "ls"], "--sm-share: 100 is not between 0 and 100"),
        (["--unit", "grid", "--", "ls"], "--unit: there is no unit 'grid'"),
        (["-e", "NOT_SET_HERE", "--", "ls"], "--environment: NOT_SET_HERE is not set here"),
        (["--virtual", "V100", "--", "nothere.toml"], "nothere.toml: there is no such workload file"),
        (["--virtual", "V100X", "--", "./program"], "V100X"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_meant_is_a_usage_error(
    assay: Assay, tmp_path: Path, words: list[str], expected: str
) -> None:
    ended = assay("run", "--state", tmp_path / "state", *words)
    assert ended.code == 2, ended.stderr
    assert expected in ended.stderr


@pytest.mark.processes
def test_a_command_on_a_virtual_gpu_ends_with_its_time_selection_files_and_the_next_command(
    assay_process: Assay, tmp_path: Path
) -> None:
    slow = TINY.replace("repeat = 30", "repeat = 60")  # its last launches come after 30 s
    (tmp_path / "tiny.toml").write_text(f"launch_interval_ns = 1_000_000_000\n{slow}")
    out = tmp_path / "out"
    words = ["run", "--virtual", "V100", "--state", tmp_path / "state", "-o", out]
    ended = assay_process(*words, "--light-limit", "30s", "--", "tiny.toml", cwd=tmp_path)
    assert ended.code == 0, ended.stderr
    launches = next(line.split()[2] for line in ended.stderr.splitlines() if line.startswith("light run: "))
    assert 15 < int(launches) < 31
    assert "kept to 30m (--budget)" in ended.stderr
    lines = ended.stdout.splitlines()
    assert f"The kernels with the most time, of {launches} launches" in lines
    window = f"launches 1 to {launches}, the first 30 s of the program, which was ended then"
    # The report's first sentence, and the note.
    assert any(line.endswith(f"; it stands only for {window}.") for line in lines)
    assert json.loads((out / "selection.json").read_text())["verdict"]["windows"] == [window]
    notes = json.loads((out / "selection.json").read_text())["profile"]["notes"]
    assert [note["window"] for note in notes if note["code"] == "light_window"] == [window]
    assert any(line.split()[0] == "100.0" and "void scale<float>" in line for line in lines if line)
    assert "synthetic: no silicon produced these data" in lines
    assert f"selection: {out / 'selection.json'}" in lines
    light = next(line.removeprefix("light run: ") for line in lines if line.startswith("light run: "))
    assert f"or: assay export {out / 'selection.json'} --to nvbit -o tracing" in lines
    scored = assay_process("evaluate", out / "selection.json", light, "--json")
    assert scored.code == 0, scored.stderr
