"""The table of releases, and what the doctor makes of it for a tool and the GPUs of a box."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay_agent.doctor import tools as doctor_tools
from assay_agent.doctor.check import Check
from assay_agent.doctor.pins import TOOLS, Architecture, Pin, architecture_of, architectures
from assay_agent.doctor.tools import tool_checks
from assay_core.records.machine import InstalledDevice, Inventory
from assay_virtual.architectures import ARCHITECTURES


def gpu(name: str, capability: str, index: int = 0) -> InstalledDevice:
    return InstalledDevice(index, name, f"GPU-{index}", capability, 80, 1 << 34)


V100, P100, H100, B200, M40 = (
    gpu("Tesla V100", "7.0"), gpu("Tesla P100", "6.0", 1), gpu("H100", "9.0", 2), gpu("B200", "10.0", 3),
    gpu("Tesla M40", "5.2", 4),
)  # fmt: skip


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(doctor_tools, "CUDA_TOOLKITS", tmp_path)
    monkeypatch.setattr(doctor_tools, "_CUPTI_PACKAGES", ())
    (tmp_path / "bin").mkdir()
    return tmp_path


def found(
    box: Path, *devices: InstalledDevice, ncu: str = "2024.1.1.0", chips: str = "", driver: str = "570.1"
) -> dict[str, Check]:
    """The checks of tools; ``chips`` "": the tool does not know the question."""
    script = f"#!/bin/sh\n[ $1 = --list-chips ] && {{ echo '{chips}'; exit {int(not chips)}; }}\n"
    (box / "bin" / "ncu").write_text(f"{script}echo 'Version {ncu} (build 1)'\n")
    (box / "bin" / "ncu").chmod(0o755)
    inventory = Inventory("box", "0", 2, 1 << 30, devices, driver, "12.8")
    return {check.name: check for check in tool_checks(inventory, needed=True)}


def test_the_table_says_of_every_pin_where_it_comes_from() -> None:
    for architecture in architectures():
        assert architecture.compute_capabilities
        for pin in architecture.pins:
            assert pin.basis in {"documented", "seen", "inferred"}, (architecture.name, pin)
            assert pin.source
            assert pin.first or pin.last


def test_no_gpu_is_of_two_architectures() -> None:
    capabilities = [c for architecture in architectures() for c in architecture.compute_capabilities]
    chips = [c for architecture in architectures() for c in architecture.chips]
    assert len(set(capabilities)) == len(capabilities)
    assert len(set(chips)) == len(chips)


def test_the_virtual_gpus_are_in_the_table_with_their_chips() -> None:
    for kind in ARCHITECTURES.values():
        architecture = architecture_of(kind.compute_capability)
        assert architecture is not None
        assert kind.chip in architecture.chips


@pytest.mark.parametrize(
    ("capability", "tool", "last"),
    [
        ("7.0", "ncu", "2025.2"), ("7.0", "cupti", "12.9"), ("7.0", "driver", "580"), ("7.0", "nsys", ""),
        ("6.1", "ncu", "2019.5"), ("6.1", "driver", "580"), ("5.2", "ncu", "none"), ("9.0", "ncu", ""),
    ],
)  # fmt: skip
def test_the_last_release_that_measures_a_gpu(capability: str, tool: str, last: str) -> None:
    architecture = architecture_of(capability)
    assert isinstance(architecture, Architecture)
    assert tool in TOOLS
    assert architecture.pin(tool).last == last


@pytest.mark.parametrize(
    ("version", "too_old", "too_new"),
    [
        ("2022.2.9.9", True, False), ("2022.3.0.0", False, False), ("2025.2.1.3", False, False),
        ("2025.3.0.0", False, True), ("2026.1", False, True), ("2025", False, False),
    ],
)  # fmt: skip
def test_a_patch_release_is_within_its_release(version: str, too_old: bool, too_new: bool) -> None:
    pin = Pin("ncu", first="2022.3", last="2025.2")
    assert (pin.too_old(version), pin.too_new(version)) == (too_old, too_new)


def test_without_limits_every_release_does() -> None:
    assert not Pin("nsys").too_old("1.0")
    assert not Pin("nsys").too_new("9999.9")


def test_what_the_tool_lists_counts_before_the_table(box: Path) -> None:
    assert "ncu for Volta" not in found(box, V100, ncu="2026.1.0.0", chips="gv100, tu102")
    check = found(box, V100, ncu="2024.1.1.0", chips="tu102, gh100")["ncu for Volta"]
    assert check.state == "missing"
    assert check.found == "2024.1.1.0 does not list gv100, so it cannot profile Tesla V100"


def test_where_the_tool_lists_nothing_an_inferred_pin_is_a_note(box: Path) -> None:
    check = found(box, V100, ncu="2025.3.0.0")["ncu for Volta"]
    assert (check.state, check.found) == ("note", "2025.3.0.0 may no longer measure Tesla V100")
    assert check.remedy == (
        "install Nsight Compute 2025.2, the last that measures it (it came with CUDA 12.9; CUDA 13 dropped "
        "Volta; 2024.1 lists gv100), and put its folder into the PATH of this box's agent"
    )
    assert "ncu for Volta" not in found(box, V100, ncu="2025.2.1.3")


def test_a_documented_pin_is_missing(box: Path) -> None:
    check = found(box, P100, ncu="2020.1.0.0")["ncu for Pascal"]
    assert check.state == "missing"
    assert "Nsight Compute 2019.5, the last that measures it" in check.remedy


def test_a_gpu_that_no_release_measures(box: Path) -> None:
    check = found(box, M40)["ncu for Maxwell"]
    assert check.remedy == "no release of Nsight Compute measures it; light runs need Nsight Systems only"


def test_a_tool_older_than_the_gpu(box: Path) -> None:
    check = found(box, B200, H100, chips="gh100, ga100")["ncu for Blackwell"]
    assert check.state == "missing"
    assert "install Nsight Compute 2025.1 or newer" in check.remedy
    assert "ncu for Hopper" not in found(box, B200, H100, chips="gh100, ga100")


def test_one_finding_for_all_gpus_of_an_architecture(box: Path) -> None:
    checks = found(box, V100, gpu("TITAN V", "7.0", 1), P100, chips="ga100")
    assert checks["ncu for Volta"].found.endswith("cannot profile Tesla V100, TITAN V")
    assert checks["ncu for Pascal"].found.endswith("cannot profile Tesla P100")


def test_an_unknown_gpu_is_no_finding(box: Path) -> None:
    assert set(found(box, gpu("R100", "13.0"), chips="ga100")) == {"ncu", "nsys"}


def test_cupti_and_driver_are_notes(box: Path) -> None:
    toolkit = box / "cuda-13.1"
    toolkit.mkdir()
    (box / "cuda-12.9-broken").mkdir()
    (box / "cuda-12.9-broken" / "version.json").write_text("{")
    (toolkit / "version.json").write_text(json.dumps({"cuda_cupti": {"version": "13.1.75"}}))
    checks = found(box, V100, chips="gv100", driver="595.45.04")
    assert checks["CUPTI"] == Check("CUPTI", "ok", f"13.1.75 ({toolkit})")
    assert checks["cupti for Volta"].state == "note"
    assert "install CUPTI 12.9" in checks["cupti for Volta"].remedy
    assert checks["driver for Volta"].state == "note"
    assert "install NVIDIA driver 580" in checks["driver for Volta"].remedy
    assert "PATH" not in checks["driver for Volta"].remedy


def _cell(pin: Pin) -> str:
    if pin.last == "none":
        return "never"
    limits = [f"from {pin.first}"] * bool(pin.first) + [f"to {pin.last}"] * bool(pin.last)
    return (" ".join(limits) + "*" * (pin.basis == "inferred")) or "-"


def test_the_documented_table_is_the_one_in_force() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "doctor.md").read_text()
    for architecture in architectures():
        cells = [architecture.name, ", ".join(architecture.compute_capabilities)]
        cells += [_cell(architecture.pin(tool)) for tool in TOOLS]
        assert f"| {' | '.join(cells)} |" in page
