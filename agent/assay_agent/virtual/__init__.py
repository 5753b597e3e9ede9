"""A virtual GPU: a documented model that stands in for silicon where there is none.

``load_workload(path)`` reads a workload file; ``VirtualGPU(kind).execute(workload, level=...)`` runs it.
Everything that comes out is synthetic and says so. The model is described in docs/virtual-gpu.md.

Names are loaded when they are first used: the stand-in tools are started often, and seldom need them all.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_MODULES = {
    "ARCHITECTURES": "architectures",
    "Architecture": "architectures",
    "CALL_DURATION_NS": "timeline",
    "Kernel": "workload",
    "NvtxRanges": "timeline",
    "ProcessLaunches": "gpu",
    "VirtualGPU": "gpu",
    "Workload": "workload",
    "architecture": "architectures",
    "load_workload": "loading",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
