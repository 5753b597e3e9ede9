"""GPUs that no agent can have, and files that are not there, are told before anything waits for them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay_client.local import check_campaign
from assay_sampling.errors import MissingExtraError
from assay_sampling.running.gpu_names import GPU_NAMES, nearest
from assay_sampling.running.identity import device_key
from assay_virtual.architectures import ARCHITECTURES
from tests.support.client.scripted_server import FakeServer, Script

Assay = Callable[..., Any]
CAMPAIGNS = Path(__file__).resolve().parents[2] / "campaigns"

SYNTHETIC = """\
campaign: c
synthetic: true
gpus: [V100, RTX3070, K80]
workloads:
  - name: w
    command: [./stensil.toml]
"""
RECORDED = """\
campaign: c
workloads:
  - name: w
    recordings:
      - device: V100
        light: light.sqlite
        detailed: /nowhere/window.csv
"""


@pytest.fixture
def campaign(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "c.yaml"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize("verb", ["plan", "lab submit", "run"])
def test_a_virtual_gpu_that_is_none_is_refused_with_all_that_there_are(
    assay: Assay, campaign: Callable[[str], Path], server: FakeServer, script: Script, verb: str
) -> None:
    path = campaign(SYNTHETIC)
    (path.parent / "stensil.toml").touch()
    where = {"lab submit": ("--server", server.address), "run": ("--state", path.with_name("state"))}
    ended = assay(*verb.split(), path, *where.get(verb, ()))
    assert (ended.code, ended.stdout) == (4, "")
    assert ended.stderr == (
        f"error: {path}:3: field gpus[1]: there is no virtual GPU 'RTX3070' (did you mean 'RTX 3070'?); "
        f"{path}:3: field gpus[2]: there is no virtual GPU 'K80'; "
        "there are V100, RTX 2060, RTX 3070, A100, H100\n"
    )
    assert script.requests == []
    assert not (path.parent / "state" / "server").exists()


@pytest.mark.parametrize("kind", [*ARCHITECTURES, "virtual V100", "nvidia rtx 3070"])
def test_every_virtual_gpu_is_one(campaign: Callable[[str], Path], kind: str) -> None:
    path = campaign(SYNTHETIC.replace("V100, RTX3070, K80", kind))
    assert [f.field for f in check_campaign(path).findings] == ["workloads[0].command[0]"]


@pytest.mark.parametrize(
    ("kind", "meant"),
    [
        ("RTX3070", ["RTX 3070"]),
        ("nvidia geforce rtx-3070", ["RTX 3070"]),
        ("GTX1080Ti", ["GTX 1080 Ti"]),
        ("A100 SXM4 80GB", ["A100-SXM4-80GB"]),
        ("V100", ["V100-SXM2-16GB", "V100-SXM2-32GB", "V100-SXM3-32GB", "V100-PCIE-16GB"]),
        ("H100", ["H100 PCIe", "H100 80GB HBM3", "H100 NVL"]),
        ("V100-SMX2-16GB", ["V100-SXM2-16GB"]),
        ("Banana", []),
        (".*", []),
        ("Tesla V100-SXM2-16GB", None),
        ("rtx 3070", None),
    ],
)
def test_the_names_that_may_be_meant(kind: str, meant: list[str] | None) -> None:
    found = nearest(kind, GPU_NAMES, device_key)
    assert (found if found is None else list(found)[: len(meant or [0])]) == meant


def test_no_name_of_a_gpu_stands_twice() -> None:
    assert len({device_key(name) for name in GPU_NAMES}) == len(GPU_NAMES)


def test_a_doubtful_name_of_a_real_gpu_is_a_warning(assay: Assay, campaign: Callable[[str], Path]) -> None:
    text = (
        "campaign: c\ngpus:\n  - RTX 3070\n  - RTX3080\nworkloads:\n  - {name: w, command: [python3, w.py]}\n"
    )
    path = campaign(text)
    shown = assay("plan", path)
    assert (shown.code, shown.stderr) == (0, "")
    assert (
        "warnings (1); the campaign is valid, but\n"
        f"  {path}:4: field gpus[1]: no known GPU is called 'RTX3080' (did you mean 'RTX 3080'?), "
        "and runs wait until an agent has one; name it in full, as 'assay-agent inventory' on the box does\n"
    ) in shown.stdout
    (warning,) = json.loads(assay("plan", path, "--json").stdout)["warnings"]
    assert (warning["file"], warning["line"], warning["field"]) == (str(path), 4, "gpus[1]")


def test_files_that_are_missing_are_warned_of_by_plan_and_submit_and_refused_by_run(
    assay: Assay, campaign: Callable[[str], Path], server: FakeServer, tmp_path: Path
) -> None:
    path = campaign(RECORDED)
    (tmp_path / "light.sqlite3").touch()
    light = (
        f"{path}:6: field workloads[0].recordings[0].light: the recording {tmp_path}/light.sqlite is not on "
        "this machine (did you mean 'light.sqlite3'?)"
    )
    detailed = (
        f"{path}:7: field workloads[0].recordings[0].detailed: the recording /nowhere/window.csv is not on "
        "this machine"
    )
    for arguments in (("plan", path), ("lab", "submit", path, "--server", server.address)):
        told = assay(*arguments)
        assert (told.code, told.stderr) == (0, "")
        assert f"  {light}; correct the path" in told.stdout
        assert f"  {detailed}; correct the path" in told.stdout
    ended = assay("run", path, "--state", tmp_path / "state")
    assert (ended.code, ended.stdout) == (4, "")
    assert ended.stderr.startswith(f"error: {light}; {detailed}; correct the path")
    # Nothing had begun.
    assert not (tmp_path / "state" / "server").exists()
    document = json.loads(assay("lab", "submit", path, "--server", server.address, "--json").stdout)
    assert [warning["line"] for warning in document["warnings"]] == [6, 7]


def test_programs_with_a_slash_are_looked_for_and_others_are_the_agents(
    campaign: Callable[[str], Path], tmp_path: Path
) -> None:
    path = campaign(
        "campaign: c\ngpus: [RTX 3070]\nworkloads:\n"
        "  - {name: a, command: [./absent, ./x]}\n"
        "  - {name: b, command: [sleep, ./absent]}\n"
        "  - {name: c, command: [bin/plain]}\n"
        "  - {name: d, command: [bin/good]}\n"
    )
    (tmp_path / "bin").mkdir()
    for name, mode in (("plain", 0o644), ("good", 0o755)):
        (tmp_path / "bin" / name).touch()
        (tmp_path / "bin" / name).chmod(mode)
    documents = check_campaign(path).to_documents()
    found = [(each["line"], each["field"], each["cause"]) for each in documents]
    assert found == [
        (4, "workloads[0].command[0]", f"the program {tmp_path}/absent is not on this machine"),
        (6, "workloads[2].command[0]", f"the program {tmp_path}/bin/plain is not executable"),
    ]
    assert not os.access(tmp_path / "bin" / "plain", os.X_OK)


@pytest.mark.parametrize("name", sorted(path.stem for path in CAMPAIGNS.glob("*.yaml")))
def test_the_campaigns_to_start_from_name_gpus_that_there_are(name: str) -> None:
    found = check_campaign(CAMPAIGNS / f"{name}.yaml").findings
    assert [f for f in found if f.field.startswith("gpus")] == []
    assert (found == ()) == (name in ("virtual", "pytorch"))


def test_without_the_reader_of_yaml_a_check_names_the_extra_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "campaign.yaml"
    path.write_text(SYNTHETIC)
    monkeypatch.setitem(sys.modules, "yaml", None)  # as on a machine of a person who only submits
    with pytest.raises(MissingExtraError, match="server"):
        check_campaign(path)
