"""A virtual GPU: a documented model that stands in for silicon where there is none.

``load_workload(path)`` reads a workload file; ``VirtualGPU(kind).execute(workload, level=...)`` runs it.
Everything that comes out is synthetic and says so. The model is described in docs/virtual-gpu.md.
"""

from assay_agent.virtual.architectures import ARCHITECTURES, Architecture, architecture
from assay_agent.virtual.gpu import ProcessLaunches, VirtualGPU
from assay_agent.virtual.loading import load_workload
from assay_agent.virtual.timeline import CALL_DURATION_NS, NvtxRanges
from assay_agent.virtual.workload import Kernel, Workload

__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "CALL_DURATION_NS",
    "Kernel",
    "NvtxRanges",
    "ProcessLaunches",
    "VirtualGPU",
    "Workload",
    "architecture",
    "load_workload",
]
