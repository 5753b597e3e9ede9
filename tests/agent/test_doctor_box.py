"""The doctor's look at the box, on made-up /proc and /sys: what is found, and who needs it."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from assay_agent.conditions import mps_daemons
from assay_agent.doctor import box as doctor_box
from assay_agent.doctor.box import box_checks
from assay_agent.doctor.check import Check
from assay_agent.guards import dcgm_processes
from assay_agent.guards.dcgm_processes import DcgmProcess
from assay_core.records.machine import InstalledDevice, Inventory

V100 = InstalledDevice(0, "Tesla V100", "GPU-0", "7.0", 80, 1 << 34)
EQUIPPED = Inventory("box", "0", 2, 1 << 30, (V100,), "595.45.04", "13.1")


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An equipped box, on which nothing else runs."""
    for folder in ("proc/net", "proc/driver/nvidia", "proc/1", "pci", "bin", "tmp"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/params").write_text("RmProfilingAdminOnly: 0\n")
    (tmp_path / "proc/1/comm").write_text("init\n")
    (tmp_path / "bin/nvidia-cuda-mps-control").write_text("#!/bin/sh\n")
    (tmp_path / "bin/nvidia-cuda-mps-control").chmod(0o755)
    monkeypatch.setattr(doctor_box, "PROC", tmp_path / "proc")
    monkeypatch.setattr(mps_daemons, "PROC", tmp_path / "proc")
    monkeypatch.setattr(doctor_box, "PCI_DEVICES", tmp_path / "pci")
    monkeypatch.setattr(doctor_box, "clock_synchronised", lambda: True)
    monkeypatch.setattr(doctor_box, "dcgm_processes", list)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    add_pci(tmp_path, "0000:3b:00.0")
    return tmp_path


def add_pci(box: Path, address: str, vendor: str = "0x10de", kind: str = "0x030200") -> None:
    folder = box / "pci" / address
    folder.mkdir()
    for name, text in {"vendor": vendor, "class": kind, "device": "0x1db6"}.items():
        (folder / name).write_text(text + "\n")


def look(box: Path, *, needed: bool = True) -> dict[str, Check]:
    return {check.name: check for check in box_checks(EQUIPPED, box / "state", needed)}


def test_a_quiet_box_has_no_finding(box: Path) -> None:
    found = look(box)
    assert {check.state for check in found.values()} == {"ok"}
    assert list(found) == [
        "performance counters", "lock file", "MPS", "DCGM", "disk", "disk of temporary files", "state folder",
        "clock",
    ]  # fmt: skip


def test_a_gpu_that_the_driver_does_not_show(box: Path) -> None:
    add_pci(box, "0000:5e:00.0", kind="0x030000")
    add_pci(box, "0000:00:02.0", vendor="0x8086", kind="0x030000")  # another maker's
    add_pci(box, "0000:3b:00.1", kind="0x040300")  # the sound of a graphics card
    check = look(box)["GPUs on the PCI bus"]
    assert check.state == "missing"
    assert check.found == (
        "2 of NVIDIA: 0000:3b:00.0 (0x1db6), 0000:5e:00.0 (0x1db6); 595.45.04 drives 1 of them"
    )
    assert "R580 is the last for Maxwell, Pascal and Volta" in check.remedy
    assert look(box, needed=False)["GPUs on the PCI bus"].state == "note"


def test_a_box_without_a_pci_bus(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_box, "PCI_DEVICES", box / "nowhere")
    assert "GPUs on the PCI bus" not in look(box)


@pytest.mark.parametrize(
    ("name", "embedded", "remedy"),
    [
        ("nv-hostengine", False, "before detailed runs: dcgmi profile --pause"),
        ("dcgm-exporter", True, "DCGM is inside dcgm-exporter, where dcgmi profile --pause may not reach it"),
    ],
)
def test_dcgm_is_a_note_with_the_way_to_pause_it(
    box: Path, monkeypatch: pytest.MonkeyPatch, name: str, embedded: bool, remedy: str
) -> None:
    monkeypatch.setattr(doctor_box, "dcgm_processes", lambda: [DcgmProcess(77, name, embedded)])
    check = look(box)["DCGM"]
    assert (check.state, check.found.partition(" runs")[0]) == ("note", f"{name} (process 77)")
    assert check.remedy.startswith(remedy)


def test_without_psutil_the_doctor_says_that_it_did_not_look(
    box: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_box, "dcgm_processes", dcgm_processes.dcgm_processes)
    monkeypatch.setitem(sys.modules, "psutil", None)
    check = look(box)["DCGM"]
    assert check.state == "note"
    assert "psutil" in check.found


def test_an_mps_daemon_is_found_by_its_sockets(box: Path) -> None:
    (box / "proc/net/unix").write_text(
        "Num       RefCount Protocol Flags    Type St Inode Path\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 11 /tmp/nvidia-mps/control\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 12 /tmp/nvidia-mps/control_privileged\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 13 /run/with space/control_privileged\n"
        "0000000000000000: 00000003 00000000 00000000 0001 03 14\n"
        "0000000000000000: 00000003 00000000 00000000 0001 03 15 @abstract\n"
    )
    assert mps_daemons.mps_daemons() == [Path("/run/with space"), Path("/tmp/nvidia-mps")]
    check = look(box)["MPS"]
    assert check.state == "note"
    assert check.found.startswith("a daemon lives at /run/with space, /tmp/nvidia-mps;")


def test_a_real_listening_socket_is_found_and_a_closed_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("control_privileged")
        listening.listen()
        assert Path() in mps_daemons.mps_daemons()
    assert Path() not in mps_daemons.mps_daemons()


def test_no_mps_program(box: Path) -> None:
    (box / "bin/nvidia-cuda-mps-control").unlink()
    assert look(box)["MPS"].state == "note"


def test_a_lock_file_that_somebody_holds(box: Path) -> None:
    path = box / "tmp/nsight-compute-lock"
    path.touch()
    assert look(box)["lock file"].state == "ok"
    status = path.stat()
    where = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    (box / "proc/locks").write_text(
        f"1: POSIX  ADVISORY  WRITE 11 {where}:{status.st_ino + 1} 0 EOF\n"
        f"2: POSIX  ADVISORY  WRITE 4711 {where}:{status.st_ino} 0 EOF\n"
        f"2: -> POSIX  ADVISORY  WRITE 4712 {where}:{status.st_ino} 0 EOF\n"
    )
    check = look(box)["lock file"]
    assert check.state == "note"
    assert check.found.startswith(f"process 4711 holds {path}")
    assert "profile by hand while no agent takes runs" in check.remedy


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_lock_file_that_is_closed_to_this_user(box: Path) -> None:
    path = box / "tmp/nsight-compute-lock"
    path.touch(mode=0o400)
    assert look(box)["lock file"].found == f"{path} belongs to user {os.geteuid()}"


@pytest.mark.parametrize(
    ("text", "administrator", "state"),
    [
        ("RmProfilingAdminOnly: 0\n", False, "ok"), ("RmProfilingAdminOnly: 1\n", True, "ok"),
        ("RmProfilingAdminOnly: 1\n", False, "missing"), ("Other: 1\n", False, "note"),
    ],
)  # fmt: skip
def test_who_may_read_counters(
    box: Path, monkeypatch: pytest.MonkeyPatch, text: str, administrator: bool, state: str
) -> None:
    monkeypatch.setattr(doctor_box, "_is_administrator", lambda: administrator)
    (box / "proc/driver/nvidia/params").write_text(text)
    check = look(box)["performance counters"]
    assert check.state == state
    assert ("NVreg_RestrictProfilingToAdminUsers=0" in check.remedy) == (state == "missing")


@pytest.mark.parametrize(
    ("capabilities", "state"), [("0000000000000000", "missing"), ("00000000a80425fb", "missing"),
                                ("000001ffffffffff", "ok")],
)  # fmt: skip
def test_root_of_a_container_is_no_administrator_of_the_driver(
    box: Path, monkeypatch: pytest.MonkeyPatch, capabilities: str, state: str
) -> None:
    """What counts is CAP_SYS_ADMIN, which Docker does not give; the second set is what it gives."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (box / "proc/self").mkdir()
    (box / "proc/self/status").write_text(f"Name:\tpython\nCapEff:\t{capabilities}\n")
    (box / "proc/driver/nvidia/params").write_text("RmProfilingAdminOnly: 1\n")
    assert look(box)["performance counters"].state == state


@pytest.mark.parametrize("mark", ["file", "environment", "kubernetes", "none"])
def test_where_counters_are_refused_light_runs_are_named(
    box: Path, monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    monkeypatch.setattr(doctor_box, "_is_administrator", lambda: False)
    monkeypatch.setattr(doctor_box, "CONTAINER_MARKS", (box / "dockerenv",))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    (box / "proc/driver/nvidia/params").write_text("RmProfilingAdminOnly: 1\n")
    if mark == "file":
        (box / "dockerenv").touch()
    if mark == "environment":
        (box / "proc/1/environ").write_text("HOME=/\0container=podman\0")
    if mark == "kubernetes":
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    check = look(box)["performance counters"]
    assert "ERR_NVGPUCTRPERM" in check.found
    assert ("this is a container" in check.found) == (mark != "none")
    assert ("run the agent as root" in check.remedy) == (mark == "none")
    assert check.remedy.endswith(
        "or measure without counters: 'detailed: none' in the campaign file ('assay docs light-only' says "
        "what can be had)"
    )


def test_where_nobody_can_tell_the_way_to_try_it_names_light_runs_too(box: Path) -> None:
    (box / "proc/driver/nvidia/params").unlink()
    check = look(box)["performance counters"]
    assert check.state == "note"
    assert "ncu -c 1 PROGRAM" in check.remedy
    assert "'detailed: none'" in check.remedy


@pytest.mark.parametrize(
    ("now", "synchronised", "state", "words"),
    [
        (1_795_000_000.0, True, "ok", "2026-11-18 11:06:40 UTC, synchronised"),
        (1_795_000_000.0, None, "ok", "no answer"),
        (1_795_000_000.0, False, "note", "does not know it to be synchronised"),
        (86_400.0, True, "note", "it says 1970-01-02 00:00:00 UTC, which is impossible"),
    ],
)
def test_the_clock_of_the_box(  # noqa: PLR0917
    box: Path, monkeypatch: pytest.MonkeyPatch, now: float, synchronised: bool | None, state: str, words: str
) -> None:
    monkeypatch.setattr(doctor_box.time, "time", lambda: now)
    monkeypatch.setattr(doctor_box, "clock_synchronised", lambda: synchronised)
    check = look(box)["clock"]
    assert check.state == state
    assert words in check.found


def test_the_kernel_is_asked_without_setting_anything() -> None:
    assert doctor_box.clock_synchronised() in {True, False, None}
