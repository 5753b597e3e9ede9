"""Asks a tiny CUDA process in the run's environment how many SMs it has."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from assay_agent.conditions import probe
from assay_core.processes.tool_run import EndingSteps, run_tool

_SECONDS = 60.0


class ProbeError(Exception):
    """The probe could not count SMs; the text says why."""


@dataclass(frozen=True)
class ProbedGPU:
    """What a CUDA process saw. ``cuda_version`` is the driver's, such as "12.4"."""

    sm_count: int
    uuid: str
    cuda_version: str


def probe_sms(environment: Mapping[str, str], directory: Path, uuid: str, lock: int) -> ProbedGPU:
    """Run the probe; raises ProbeError, also if it sees another GPU than ``uuid``."""
    result = run_tool(
        [sys.executable, "-I", "-S", probe.__file__],
        environment=environment,
        directory=directory,
        timeout_seconds=_SECONDS,
        held=(lock,),
        ending=EndingSteps(1.0, 1.0),
    )
    try:
        answer = json.loads(result.stdout)
        if "error" in answer:
            raise ProbeError(str(answer["error"]))
        version = int(answer["cuda_version"])
        gpu = ProbedGPU(
            int(answer["sm_count"]), str(answer["uuid"]), f"{version // 1000}.{version % 1000 // 10}"
        )
    except (ValueError, KeyError, TypeError):
        lines = (result.stderr or result.stdout).strip().splitlines() or ["nothing"]
        raise ProbeError(f"{result.ending}; it says: {lines[-1][:300]}") from None
    if gpu.uuid != uuid:
        raise ProbeError(f"it sees {gpu.uuid} instead of {uuid}")
    return gpu
