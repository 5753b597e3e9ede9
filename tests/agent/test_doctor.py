"""The doctor names what is missing, for whom, with a remedy; it never raises for what it finds."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from assay_agent.conditions import mps_daemons
from assay_agent.doctor import box as doctor_box
from assay_agent.doctor import examination as doctor
from assay_agent.doctor import tools as doctor_tools
from assay_agent.doctor.examination import Check, examine, require_nothing_missing
from assay_core.records.machine import InstalledDevice, Inventory
from assay_sampling.errors import NotReadyError, ParameterError
from assay_sampling.installation import install_command

BARE = Inventory("box", "0", 2, 1 << 30, no_device_reason="no NVIDIA driver library on this box")
V100 = InstalledDevice(0, "Tesla V100", "GPU-0", "7.0", 80, 1 << 34)
EQUIPPED = Inventory("box", "0", 2, 1 << 30, (V100,), "570.86.15", "12.8")
REFUSING = "unix:/nonexistent/socket"


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A box without GPU, driver and tools, of an ordinary user."""
    monkeypatch.setattr(doctor, "read_inventory", lambda: BARE)
    (tmp_path / "proc" / "net").mkdir(parents=True)
    (tmp_path / "proc" / "driver" / "nvidia").mkdir(parents=True)
    monkeypatch.setattr(doctor_box, "PROC", tmp_path / "proc")
    monkeypatch.setattr(mps_daemons, "PROC", tmp_path / "proc")
    monkeypatch.setattr(doctor_box, "PCI_DEVICES", tmp_path / "pci")
    monkeypatch.setattr(doctor_box, "_is_administrator", lambda: False)
    monkeypatch.setattr(doctor_box, "clock_synchronised", lambda: True)
    monkeypatch.setattr(doctor_tools, "CUDA_TOOLKITS", tmp_path / "cuda")
    monkeypatch.setattr(doctor_tools, "_CUPTI_PACKAGES", ())
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "bin").mkdir()
    return tmp_path


def equip(
    box: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    ncu: str = "2024.1.1.0",
    chips: str = "gv100, tu102",
    restricted: int = 0,
) -> None:
    monkeypatch.setattr(doctor, "read_inventory", lambda: EQUIPPED)
    (box / "proc/driver/nvidia/params").write_text(
        f"ResmanDebugLevel: 1\nRmProfilingAdminOnly: {restricted}\n"
    )
    for name, text in {
        "ncu": f"Version {ncu} (build 1)",
        "nsys": "NVIDIA Nsight Systems version 2023.4.4",
    }.items():
        tool = box / "bin" / name
        tool.write_text(f"#!/bin/sh\n[ $1 = --list-chips ] && echo '{chips}' || echo '{text}'\n")
        tool.chmod(0o755)


def states(need: str, state: Path, server: str = REFUSING) -> dict[str, str]:
    return {check.name: check.state for check in examine(need, state, server)}


def missing(need: str, state: Path, server: str = REFUSING) -> list[str]:
    return [name for name, found in states(need, state, server).items() if found == "missing"]


def test_a_box_without_a_gpu_lists_exactly_what_is_missing(box: Path) -> None:
    assert missing("agent", box) == ["NVIDIA driver", "GPUs", "ncu", "nsys", "performance counters", "server"]
    assert missing("all", box) == missing("agent", box)
    assert missing("client", box) == []
    assert missing("server", box) == []


def test_what_is_not_ok_has_a_remedy(box: Path) -> None:
    for check in examine("all", box, REFUSING):
        assert bool(check.remedy) == (check.state != "ok"), check


def test_an_equipped_box_is_ready(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    equip(box, monkeypatch)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        found = {check.name: check for check in examine("agent", box, address)}
    assert {name for name, check in found.items() if check.state == "missing"} == set()
    assert found["ncu"].found == f"2024.1.1.0 ({box / 'bin' / 'ncu'})"
    assert found["nsys"].found.startswith("2023.4.4 ")
    assert found["GPU 0"].found == "Tesla V100, compute capability 7.0, GPU-0"
    require_nothing_missing(list(found.values()), "agent")


def test_counters_for_administrators_only(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    equip(box, monkeypatch, restricted=1)
    assert states("agent", box)["performance counters"] == "missing"
    monkeypatch.setattr(doctor_box, "_is_administrator", lambda: True)
    assert states("agent", box)["performance counters"] == "ok"


def test_a_release_that_dropped_the_gpu_is_named(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    equip(box, monkeypatch, ncu="2026.1.0.0", chips="tu102, ga100, gh100")
    found = {check.name: check for check in examine("agent", box, REFUSING)}["ncu for Volta"]
    assert found.state == "missing"
    assert found.found == "2026.1.0.0 does not list gv100, so it cannot profile Tesla V100"
    assert found.remedy.startswith("install Nsight Compute 2025.2, the last that measures it")
    assert states("client", box)["ncu for Volta"] == "note"


def test_a_gpu_that_cannot_be_asked_and_a_broken_tool(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    equip(box, monkeypatch)
    lost = InstalledDevice(0, "", "", "", 0, 0, problem="GPU is lost")
    monkeypatch.setattr(doctor, "read_inventory", lambda: Inventory("b", "0", 1, 1, (lost,), "570", "12.8"))
    (box / "bin" / "ncu").write_text("#!/bin/sh\nexit 3\n")
    assert missing("agent", box) == ["GPU 0", "ncu", "server"]


def test_an_extra_that_is_not_installed(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_EXTRAS", {"server": (("no_such_module",), ("server",))})
    found = {check.name: check for check in examine("server", box, REFUSING)}["extra server"]
    assert found == Check(
        "extra server", "missing", "no Python module no_such_module", install_command("server")
    )
    assert states("client", box)["extra server"] == "note"


def test_a_full_disk_and_a_state_that_is_a_file(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_box, "DEFAULT_FLOOR_BYTES", 1 << 62)
    (box / "file").touch()
    assert missing("client", box / "file" / "state") == ["disk", "state folder"]
    assert "disk of temporary files" in missing("agent", box)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_state_folder_that_is_closed(box: Path) -> None:
    (box / "closed").mkdir(mode=0o500)
    assert missing("client", box / "closed" / "state") == ["state folder"]


def test_nothing_is_written(box: Path) -> None:
    before = sorted(box.rglob("*"))
    examine("all", box / "state", REFUSING)
    assert sorted(box.rglob("*")) == before


@pytest.mark.parametrize("address", ["nonsense", "host:port", "127.0.0.1:99999", "unix:", "127.0.0.1:1"])
def test_any_address_is_a_finding(box: Path, address: str) -> None:
    assert "server" in missing("agent", box, address)


def test_an_unknown_need_is_refused(box: Path) -> None:
    with pytest.raises(ParameterError, match="use client, agent, server, all"):
        examine("nobody", box)


def test_what_is_missing_is_named_in_the_error(box: Path) -> None:
    with pytest.raises(NotReadyError, match=r"6 of 20 checks .* agent needs: NVIDIA driver, GPUs, ncu"):
        require_nothing_missing(examine("agent", box, REFUSING), "agent")


@pytest.mark.processes
def test_the_agents_own_verb_ends_with_the_code(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("assay-agent")
    command = [program, "doctor", "--json", "--state", tmp_path, "--server", REFUSING]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 10
    document = json.loads(ended.stdout)
    named = [check["name"] for check in document["checks"] if check["state"] == "missing"]
    assert "server" in named
    assert (document["missing"], document["ready"], document["for"]) == (named, False, "agent")
    assert ended.stderr.startswith("assay-agent: this machine: ")
