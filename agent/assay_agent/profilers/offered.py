"""Which profilers measure on a GPU of this box: those with installed tools, and those that need none."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

from assay_agent.execution.environment import MeasuredGPU
from assay_agent.execution.tool_version import ToolBox
from assay_agent.profilers.auto_light import AutoLightProfiler
from assay_agent.profilers.bare import BareProfiler
from assay_agent.profilers.cupti import CuptiProfiler
from assay_agent.profilers.kineto import KinetoProfiler
from assay_agent.profilers.ncu.profiler import NsightComputeProfiler
from assay_agent.profilers.nsys.profiler import NsightSystemsProfiler
from assay_agent.profilers.seam import Profiler
from assay_agent.tracer.build import find_tracer


def offered_profilers(gpu: MeasuredGPU, tools: ToolBox, state: Path) -> dict[str, Profiler]:
    """The profilers of a GPU by name, in the order in which they are registered.

    Bare runs need no tool, and neither do workloads that trace themselves. ``auto`` is offered if one of
    the light profilers is.
    """
    profilers: dict[str, Profiler] = {}
    light: NsightSystemsProfiler | CuptiProfiler | None = None
    if shutil.which("ncu", path=gpu.path):
        profilers[NsightComputeProfiler.name] = NsightComputeProfiler(gpu, tools, state)
    if shutil.which("nsys", path=gpu.path):
        light = profilers[NsightSystemsProfiler.name] = NsightSystemsProfiler(gpu, tools, state)
    # A virtual GPU has no CUDA to load the tracer.
    if not gpu.synthetic and find_tracer() is not None:
        profilers[CuptiProfiler.name] = cupti = CuptiProfiler(gpu, tools, state)
        light = light or cupti
    if light is not None:
        profilers[AutoLightProfiler.name] = AutoLightProfiler(light)
    profilers[KinetoProfiler.name] = KinetoProfiler(gpu, tools, state)
    profilers[BareProfiler.name] = BareProfiler(gpu, tools, state)
    return profilers


def told_missing(profilers: Collection[str]) -> str:
    """Which runs a GPU with these profilers does not take, and why, for people; "" if it takes all."""
    notes = []
    if NsightComputeProfiler.name not in profilers:
        notes.append("no detailed runs: ncu is not in the PATH")
    if AutoLightProfiler.name not in profilers:
        notes.append(
            "no light runs: nsys is not in the PATH, and the tracer is not built "
            "(python -m assay_agent.tracer.build)"
        )
    elif NsightSystemsProfiler.name not in profilers:
        notes.append("light runs by the tracer alone: nsys is not in the PATH")
    return "; ".join(notes)
