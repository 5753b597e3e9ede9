"""A run without a profiler: what the others add to it is told by comparison. It gives no launches.

Its wall time, and how long the GPU was busy by the driver's own count, go into the attempt's log; the
workload must end without an error. On a virtual GPU the stand-in ``assay-virtual`` runs the workload.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

from assay_agent.profilers.base import ProfilerError
from assay_agent.profilers.classify import refuse_killed, workload_failed
from assay_agent.profilers.environment import MeasuredGPU, require_light_condition, require_possible
from assay_agent.profilers.live import LiveMeasurement
from assay_agent.profilers.ncu_command import require_command
from assay_agent.profilers.tool_version import ToolBox
from assay_agent.work import Assignment
from assay_sampling.failures import FailureClass
from assay_sampling.launch_table import LaunchBatch

_VIRTUAL_PROGRAM = "assay-virtual"


class BareProfiler:
    """Bare runs on one GPU; see :class:`assay_agent.profilers.base.Profiler`."""

    name = "bare"

    def __init__(self, gpu: MeasuredGPU, tools: ToolBox, state: Path) -> None:
        self._gpu, self._tools, self._state = gpu, tools, state

    def plan(self, work: Assignment) -> list[str] | None:
        """The workload's own command."""
        if not work.bare:
            raise ProfilerError(
                FailureClass.SERVER_REFUSED, str(work.key), "a run without a profiler measures no launches"
            )
        require_possible(work, self._gpu)
        require_light_condition(work)
        argv = list(require_command(work).argv)
        return [_VIRTUAL_PROGRAM, *argv] if self._gpu.synthetic else argv

    def run(self, work: Assignment, cancelled: threading.Event) -> BareMeasurement:
        self.plan(work)
        return BareMeasurement(work, self._gpu, self._tools, self._state, cancelled)


class BareMeasurement(LiveMeasurement):
    """One run of the workload by itself."""

    def batches(self) -> Iterator[LaunchBatch]:
        command = list(require_command(self.work).argv)
        result = self.measure([_VIRTUAL_PROGRAM, *command] if self.gpu.synthetic else command)
        if not self.cancelled:
            refuse_killed(str(self.work.key), result)
            if result.exit_code != 0:
                output = f"{result.stdout}\n{result.stderr}"
                raise workload_failed(str(self.work.key), f"without a profiler: {result.ending}", output)
        yield from ()
