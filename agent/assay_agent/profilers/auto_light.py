"""Light runs for which the box chooses the profiler: Nsight Systems, or else our own tracer.

The two have not been shown to agree launch for launch on a GPU (docs/tracer.md), so the tracer is used only
if Nsight Systems is missing, and the run is flagged.
"""

from __future__ import annotations

import threading

from assay_agent.profilers.cupti import CuptiProfiler
from assay_agent.profilers.live import LiveMeasurement
from assay_agent.profilers.nsys.profiler import NsightSystemsProfiler
from assay_core.records.work import Work


class AutoLightProfiler:
    """``light: auto`` on one GPU; see :class:`assay_agent.profilers.seam.Profiler`."""

    name = "auto"

    def __init__(self, profiler: NsightSystemsProfiler | CuptiProfiler) -> None:
        self._profiler = profiler

    def plan(self, work: Work) -> list[str] | None:
        """The command of the chosen profiler."""
        return self._profiler.plan(work)

    def run(self, work: Work, cancelled: threading.Event) -> LiveMeasurement:
        measurement = self._profiler.run(work, cancelled)
        measurement.note(f"light: auto takes {self._profiler.name} on this box")
        if isinstance(self._profiler, CuptiProfiler):
            measurement.flag("light_by_tracer", "nsys is not in the PATH of the agent, the tracer is built")
        return measurement
