"""Light runs for which the campaign leaves the profiler to the box: Nsight Systems, and else our own tracer.

The two have not been shown to agree launch for launch on a GPU (docs/tracer.md), so the tracer stands in only
where it is all there is, and the run says so.
"""

from __future__ import annotations

import threading

from assay_agent.profilers.cupti import CuptiProfiler
from assay_agent.profilers.live import LiveMeasurement
from assay_agent.profilers.nsight_systems import NsightSystemsProfiler
from assay_agent.work import Assignment


class AutoLightProfiler:
    """``light: auto`` on one GPU; see :class:`assay_agent.profilers.base.Profiler`."""

    name = "auto"

    def __init__(self, profiler: NsightSystemsProfiler | CuptiProfiler) -> None:
        self._profiler = profiler

    def plan(self, work: Assignment) -> list[str] | None:
        """As the profiler that is taken."""
        return self._profiler.plan(work)

    def run(self, work: Assignment, cancelled: threading.Event) -> LiveMeasurement:
        measurement = self._profiler.run(work, cancelled)
        measurement.note(f"light: auto takes {self._profiler.name} on this box")
        if isinstance(self._profiler, CuptiProfiler):
            measurement.flag("light_by_tracer", "nsys is not in the PATH of the agent, the tracer is built")
        return measurement
