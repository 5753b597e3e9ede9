"""Lists what an agent on this box would offer: GPUs, profilers, conditions, and what may run. Only reads.

The doctor says what is missing, this says what there is. A condition that is offered is still verified before
each run (docs/hardware.md says what was proved on which GPU).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay_agent.conditions.mps_control import PROGRAM as MPS_PROGRAM
from assay_agent.config import VirtualGPUs
from assay_agent.doctor.tools import PROGRAMS
from assay_agent.execution.errors import ProfilerError
from assay_agent.execution.tool_version import ToolBox, ToolVersion
from assay_agent.gpus.inventory import read_inventory
from assay_agent.gpus.model import gpu_models
from assay_agent.health.quarantine import Quarantine
from assay_agent.policy.file import read_policy
from assay_agent.policy.gate import Gate
from assay_agent.tracer.build import find_tracer, why_unavailable
from assay_core.files.free_space import free_space
from assay_core.records.machine import InstalledDevice

_HELP = {"ncu": ("--help",), "nsys": ("profile", "--help")}


@dataclass(frozen=True)
class _Tool:
    """A profiler of this box; ``problem`` says why it cannot be used, "" if it can."""

    version: ToolVersion | None = None
    path: str = ""
    problem: str = ""

    @property
    def usable(self) -> bool:
        return not self.problem

    def to_dict(self) -> dict[str, Any]:
        version = self.version.version if self.version is not None else ""
        return {"usable": self.usable, "version": version, "path": self.path, "problem": self.problem}


def probe_box(
    state: Path, virtual: Sequence[VirtualGPUs] = (), policy_file: Path | None = None
) -> dict[str, Any]:
    """Look at this box; the document of ``assay-agent probe --json`` (docs/agent.md).

    Args:
        state: the folder of the agent's state, for its free space.
        virtual: virtual GPUs that would be offered too.
        policy_file: the policy in force; None: none.

    Raises InputError for an invalid policy file. What cannot be examined is named in the document.
    """
    inventory = read_inventory()
    tools: dict[str, _Tool] = {name: _tool(name) for name in PROGRAMS}
    tools["cupti"] = _tracer()
    mps = shutil.which(MPS_PROGRAM) or ""
    gpus = [_installed(device, tools, mps) for device in inventory.devices]
    out = {entry.gpu: entry.reason for entry in Quarantine(state).entries()}
    for gpu in gpus:
        if gpu["uuid"] in out:
            gpu["takes_no_runs"] = f"out of service: {out[gpu['uuid']]}"
    policy = read_policy(policy_file) if policy_file is not None else None
    gate = Gate(policy, server_is_ours=True)
    return {
        "host": inventory.host,
        "driver_version": inventory.driver_version,
        "no_gpu_reason": inventory.no_device_reason,
        "gpus": gpus + [gpu for group in virtual for gpu in _virtual(group)],
        "tools": {name: tool.to_dict() for name, tool in tools.items()},
        "mps_program": mps,
        "policy": {
            "file": str(policy_file) if policy_file is not None else None,
            "in_words": gate.describe(),
            "wrong_user": gate.wrong_user(),
        },
        "state_free_bytes": free_space(state).free_bytes,
    }


def describe_probe(document: Mapping[str, Any]) -> str:
    """The document as text."""
    lines = [f"host     {document['host']}", f"driver   {document['driver_version'] or '-'}"]
    for name, tool in document["tools"].items():
        lines.append(f"{name:<9}{tool['version']} {tool['path'] or tool['problem']}".rstrip())
    lines += [line for gpu in document["gpus"] for line in _gpu_lines(gpu)]
    if not document["gpus"]:
        lines.append(f"no GPU   {document['no_gpu_reason']}")
    lines.append(f"policy   {document['policy']['in_words']}")
    if document["policy"]["wrong_user"]:
        lines.append(f"         {document['policy']['wrong_user']}")
    return "\n".join(lines)


def _gpu_lines(gpu: Mapping[str, Any]) -> Iterable[str]:
    where = "virtual, synthetic" if gpu["synthetic"] else f"GPU {gpu['index']}"
    yield f"{gpu['name']} ({where}, compute capability {gpu['compute_capability']}, {gpu['uuid']})"
    if gpu["takes_no_runs"]:
        yield f"         takes no runs: {gpu['takes_no_runs']}"
    for level, profilers in gpu["levels"].items():
        yield f"         {level}: {', '.join(profilers) or 'no profiler, so no such runs'}"
    for name, condition in gpu["conditions"].items():
        yield f"         {name}: {'offered' if condition['offered'] else 'not offered'}, {condition['why']}"


def _installed(device: InstalledDevice, tools: Mapping[str, _Tool], mps: str) -> dict[str, Any]:
    light = [name for name in ("nsys", "cupti") if tools[name].usable]
    detailed = [name for name in ("ncu",) if tools[name].usable]
    return {
        "name": device.name,
        "uuid": device.uuid,
        "index": device.index,
        "compute_capability": device.compute_capability,
        "sm_count": device.sm_count,
        "synthetic": False,
        "takes_no_runs": device.problem or device.left_out,
        "levels": {"detailed": detailed, "light": light},
        "conditions": _conditions(tools["ncu"], bool(light), mps),
    }


def _conditions(ncu: _Tool, light: bool, mps: str) -> dict[str, dict[str, Any]]:
    if light and mps:
        share = "light runs under a private MPS daemon, each share probed before the run"
    else:
        share = "no profiler for it" if mps else f"{MPS_PROGRAM} is not in the PATH"
    flushed = "detailed runs, by ncu" if ncu.usable else "only ncu flushes caches between launches"
    clocks = "detailed runs by ncu, light runs if the driver lets this user lock clocks"
    return {
        "cache_all": _answer(ncu.usable, flushed),
        "clock_base_boost": _answer(ncu.usable or light, clocks if ncu.usable or light else "no profiler"),
        "sm_percent": _answer(light and bool(mps), share),
    }


def _answer(offered: bool, why: str) -> dict[str, Any]:
    return {"offered": offered, "why": why}


def _virtual(group: VirtualGPUs) -> list[dict[str, Any]]:
    models = gpu_models()
    modelled = _answer(True, "the model has it")
    gpus = []
    for number in range(group.count):
        device = models.gpu(group.kind, number).device
        gpus.append(
            {
                "name": device.name,
                "uuid": device.uuid,
                "index": number,
                "compute_capability": device.compute_capability,
                "sm_count": device.sm_count,
                "synthetic": True,
                "takes_no_runs": "",
                "levels": {"detailed": ["ncu"], "light": ["nsys"]},
                "conditions": dict.fromkeys(("cache_all", "clock_base_boost", "sm_percent"), modelled),
            }
        )
    return gpus


def _tool(program: str) -> _Tool:
    path = shutil.which(program)
    if path is None:
        return _Tool(problem=f"{program} is not in the PATH")
    with tempfile.TemporaryDirectory(prefix="assay-probe-") as home:
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": home,
            "TMPDIR": home,
            "LC_ALL": "C",
            "NV_COMPUTE_PROFILER_DISABLE_STOCK_FILE_DEPLOYMENT": "1",
        }
        try:
            return _Tool(ToolBox().tool(program, _HELP[program], environment, Path(home)), path)
        except (ProfilerError, OSError) as error:
            return _Tool(path=path, problem=str(error))


def _tracer() -> _Tool:
    path = find_tracer()
    if path is None:
        why = why_unavailable() or "it is not built"
        return _Tool(problem=f"{why}; python -m assay_agent.tracer.build")
    return _Tool(path=str(path))
