"""What the proof runs on: the first GPU of this box that takes runs, or a virtual one."""

from __future__ import annotations

import datetime
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay_agent.doctor.probe import probe_box
from tests.gpu import plan

# Where NVIDIA's installers put programs without putting the folder into the PATH; the newest release first.
TOOL_FOLDERS = (
    "/usr/local/cuda/bin",
    "/usr/local/cuda-*/bin",
    "/opt/nvidia/nsight-compute/*",
    "/opt/nvidia/nsight-systems/*/bin",
    "/usr/local/nvidia/bin",
)
_PROGRAMS = ("ncu", "nsys", "nvcc", "nvidia-smi", "nvidia-cuda-mps-control")


class CannotRunError(Exception):
    """There is nothing to run on; the text says what is missing."""


def with_tool_folders(path: str, folders: Sequence[str] = TOOL_FOLDERS) -> str:
    """A PATH with the folders of those programs that it lacks, behind its own: nothing in it is replaced."""
    for program in _PROGRAMS:
        if shutil.which(program, path=path):
            continue
        found = (folder for pattern in folders for folder in _newest_first(pattern))
        folder = next((f for f in found if shutil.which(program, path=str(f))), None)
        if folder is not None:
            path = f"{path}{os.pathsep}{folder}"
    return path


def _newest_first(pattern: str) -> list[Path]:
    return sorted(Path("/").glob(pattern.lstrip("/")), key=_release, reverse=True)


def _release(folder: Path) -> list[int]:
    """The numbers in a path, so that 2025.10 is newer than 2025.9."""
    digits = "".join(c if c.isdigit() else " " for c in str(folder))
    return [int(number) for number in digits.split()]


def virtual_box(kind: str, light: str) -> tuple[plan.Box, dict[str, Any]]:
    """A virtual GPU, and the facts that go with its results."""
    return plan.Box(kind, synthetic=True, light=(light,)), facts_of(f"virtual {kind}", "", {}, synthetic=True)


def real_box(light_asked: str) -> tuple[plan.Box, dict[str, Any]]:
    """The first GPU of this box that takes runs; raises CannotRunError with what is missing."""
    found = probe_box(Path())
    if not found["gpus"]:
        raise CannotRunError(f"no GPU: {found['no_gpu_reason']}")
    gpu = next((gpu for gpu in found["gpus"] if not gpu["takes_no_runs"]), None)
    if gpu is None:
        raise CannotRunError("; ".join(f"{gpu['name']}: {gpu['takes_no_runs']}" for gpu in found["gpus"]))
    levels = gpu["levels"]
    # PyTorch's own profiler is there with PyTorch, whatever else the box lacks.
    light = (light_asked,) if light_asked else tuple(levels["light"]) or (plan.KINETO,)
    for level, there in (("detailed", levels["detailed"]), ("light", light)):
        if not there:
            problems = [
                f"{name}: {tool['problem']}" for name, tool in found["tools"].items() if tool["problem"]
            ]
            raise CannotRunError(f"no profiler for the {level} level ({'; '.join(problems)})")
    shares = gpu["conditions"]["sm_percent"]["offered"]
    capability = gpu["compute_capability"]
    box = plan.Box(gpu["name"], synthetic=False, light=light, shares=shares, compute_capability=capability)
    tools = {name: tool["version"] for name, tool in found["tools"].items() if tool["usable"]}
    facts = facts_of(gpu["name"], found["driver_version"], tools, synthetic=False)
    return box, {**facts, "compute_capability": capability, "mps_program": found["mps_program"]}


def facts_of(gpu: str, driver: str, tools: Mapping[str, str], *, synthetic: bool) -> dict[str, Any]:
    """What a reader of the results must know of where they were made."""
    return {
        "gpu": gpu,
        "synthetic": synthetic,
        "driver_version": driver,
        "tools": dict(tools),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "nvcc": shutil.which("nvcc") or "",
    }
