"""The doctor's look at profilers: which are installed, their releases, and if they measure this box's GPUs.

Source: docs/doctor.md; docs/nvidia-tools.md, "Releases"; for releases the table ``pins.toml``.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from assay_agent.doctor.check import Check, finding
from assay_agent.doctor.pins import Architecture, Pin, Tool, architecture_of
from assay_agent.execution.tool_version import parse_version
from assay_core.records.machine import Inventory
from assay_sampling.nsight.commands import ANNOTATES_PYTORCH
from assay_sampling.nsight.tool import ToolVersion, options_since

CUDA_TOOLKITS = Path("/usr/local")
_TOOL_SECONDS = 30.0
_CHIPS = re.compile(r"\b(?:g[a-z]|tu|ad)\d[0-9a-z]{1,3}\b")
_CUPTI_PACKAGES = ("nvidia-cuda-cupti", "nvidia-cuda-cupti-cu13", "nvidia-cuda-cupti-cu12")
PROGRAMS: dict[Tool, tuple[str, str]] = {
    "ncu": ("Nsight Compute", "counters (the detailed level)"),
    "nsys": ("Nsight Systems", "all launches with their times (the light level)"),
}


@dataclass(frozen=True)
class FoundTool:
    """A tool of this box; ``chips``: what it lists as supported, empty if it lists nothing."""

    tool: Tool
    version: str
    where: str
    chips: frozenset[str] = frozenset()


def tool_checks(inventory: Inventory, needed: bool) -> Iterator[Check]:
    """Findings for each profiler, and for each that cannot measure a GPU of this box."""
    tools: list[FoundTool] = []
    for program in PROGRAMS:
        check, tool = _program(program, needed)
        yield check
        if tool is not None:
            tools.append(tool)
            yield from _operations(tool)
    if inventory.driver_version:
        tools.append(FoundTool("driver", inventory.driver_version, "loaded"))
    cupti = _cupti()
    if cupti is not None:
        yield Check("CUPTI", "ok", f"{cupti.version} ({cupti.where})")
        tools.append(cupti)
    for tool in tools:
        # A GPU that NVML lists has a driver, and CUPTI comes with the profilers: only these can be missing.
        yield from _unsupported(tool, inventory, needed and tool.tool in PROGRAMS)


def _program(program: Tool, needed: bool) -> tuple[Check, FoundTool | None]:
    product, measures = PROGRAMS[program]
    path = shutil.which(program)
    if path is None:
        remedy = f"install NVIDIA {product} and put its folder into the PATH; it measures {measures}"
        return finding(program, needed, "not in the PATH", remedy), None
    remedy = f"install NVIDIA {product} again"
    try:
        code, text = _answer(path, "--version")
    except (OSError, subprocess.TimeoutExpired) as error:
        what = f"{path} does not say its version ({type(error).__name__})"
        return finding(program, needed, what, remedy), None
    version = parse_version(text)
    if not version:
        what = f"{path} does not say its version (exit code {code})"
        return finding(program, needed, what, remedy), None
    chips = _chips(path) if program == "ncu" else frozenset[str]()
    return Check(program, "ok", f"{version} ({path})"), FoundTool(program, version, path, chips)


def _operations(tool: FoundTool) -> Iterator[Check]:
    """A note where the tool cannot record PyTorch's operators: only ``unit: operation`` needs it."""
    first = options_since("nsys")[ANNOTATES_PYTORCH]
    year, release = map(int, first.split("."))
    if tool.tool == "nsys" and not ToolVersion("nsys", tool.version).at_least(year, release):
        yield Check(
            "nsys for operators",
            "note",
            f"{tool.version} cannot announce PyTorch's operators by itself ({ANNOTATES_PYTORCH})",
            f"for campaigns with 'unit: operation' install Nsight Systems {first} or later, or run the "
            "workload in torch.autograd.profiler.emit_nvtx(record_shapes=True)",
        )


def _chips(path: str) -> frozenset[str]:
    try:
        code, text = _answer(path, "--list-chips")
    except (OSError, subprocess.TimeoutExpired):
        return frozenset()
    return frozenset(_CHIPS.findall(text)) if code == 0 else frozenset()


def _answer(path: str, question: str) -> tuple[int, str]:
    ended = subprocess.run(
        [path, question],
        env={**os.environ, "LC_ALL": "C", "NV_COMPUTE_PROFILER_DISABLE_STOCK_FILE_DEPLOYMENT": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_TOOL_SECONDS,
        check=False,
    )
    return ended.returncode, ended.stdout


def _unsupported(tool: FoundTool, inventory: Inventory, needed: bool) -> Iterator[Check]:
    """One finding for each architecture of this box that the tool does not measure."""
    by_architecture: dict[str, tuple[Architecture, list[str]]] = {}
    for device in inventory.devices:
        architecture = architecture_of(device.compute_capability)
        if architecture is not None:
            by_architecture.setdefault(architecture.name, (architecture, []))[1].append(device.name)
    for architecture, names in by_architecture.values():
        pin = architecture.pin(tool.tool)
        verdict = _verdict(tool, architecture, pin)
        if verdict is None:
            continue
        certain, why = verdict
        remedy = pin.remedy(tool.version)
        if tool.tool in PROGRAMS and pin.last != "none":
            remedy += ", and put its folder into the PATH of this box's agent"
        what = f"{tool.version} {why} {', '.join(dict.fromkeys(names))}"
        yield finding(f"{tool.tool} for {architecture.name}", needed and certain, what, remedy)


def _verdict(tool: FoundTool, architecture: Architecture, pin: Pin) -> tuple[bool, str] | None:
    """Whether it is certain, and why the tool does not measure the architecture; None if it does."""
    if tool.chips and architecture.chips:
        # The tool's own list decides; the table only says what to install instead.
        listed = not tool.chips.isdisjoint(architecture.chips)
        return None if listed else (True, f"does not list {architecture.chips[0]}, so it cannot profile")
    if pin.too_new(tool.version):
        return pin.certain, "no longer measures" if pin.certain else "may no longer measure"
    if pin.too_old(tool.version):
        return pin.certain, "does not yet measure" if pin.certain else "may not yet measure"
    return None


def _cupti() -> FoundTool | None:
    """CUPTI of this Python environment, else of a CUDA toolkit; None if neither has it."""
    for package in _CUPTI_PACKAGES:
        try:
            return FoundTool("cupti", importlib.metadata.version(package), f"Python package {package}")
        except importlib.metadata.PackageNotFoundError:
            continue
    for path in sorted(CUDA_TOOLKITS.glob("cuda*/version.json")):
        try:
            version = str(json.loads(path.read_text())["cuda_cupti"]["version"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        return FoundTool("cupti", version, str(path.parent))
    return None
