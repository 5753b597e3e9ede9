"""The agent of a rehearsal: light runs on its virtual GPUs are made by the tracer, as where nsys is missing.

python -m tests.gpu.rehearsal.agent run --virtual V100 ...
"""

from __future__ import annotations

from pathlib import Path

from assay_agent import main as assay_agent
from assay_agent.daemon import places
from assay_agent.execution.environment import MeasuredGPU
from assay_agent.execution.tool_version import ToolBox
from assay_agent.profilers.auto_light import AutoLightProfiler
from assay_agent.profilers.cupti import CuptiProfiler
from assay_agent.profilers.nsys.profiler import NsightSystemsProfiler
from assay_agent.profilers.offered import offered_profilers
from assay_agent.profilers.seam import Profiler


def by_the_tracer(gpu: MeasuredGPU, tools: ToolBox, state: Path) -> dict[str, Profiler]:
    """What a GPU is offered with, the tracer in place of Nsight Systems."""
    found = offered_profilers(gpu, tools, state)
    found.pop(NsightSystemsProfiler.name, None)
    cupti = CuptiProfiler(gpu, tools, state)
    return {**found, cupti.name: cupti, AutoLightProfiler.name: AutoLightProfiler(cupti)}


if __name__ == "__main__":
    places.offered_profilers = by_the_tracer
    assay_agent.main()
