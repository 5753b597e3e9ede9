"""A run without a profiler, to measure by comparison what the others add. It gives no launches.

Its wall time, and how long the GPU was busy by the driver's own count, go into the attempt's log; the
workload must end without an error. On a modelled GPU a stand-in runs the workload.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

from assay_agent.execution.classify import refuse_killed, workload_failed
from assay_agent.execution.environment import MeasuredGPU
from assay_agent.execution.errors import ProfilerError
from assay_agent.execution.tool_version import ToolBox
from assay_agent.profilers.live import LiveMeasurement
from assay_agent.profilers.requirements import require_command, require_light_condition, require_possible
from assay_core.records.work import Work
from assay_sampling.launches.table import LaunchBatch
from assay_sampling.running.failures import FailureClass


class BareProfiler:
    """Bare runs on one GPU; see :class:`assay_agent.profilers.seam.Profiler`."""

    name = "bare"

    def __init__(self, gpu: MeasuredGPU, tools: ToolBox, state: Path) -> None:
        self._gpu, self._tools, self._state = gpu, tools, state

    def plan(self, work: Work) -> list[str] | None:
        """The workload's own command."""
        if not work.bare:
            raise ProfilerError(
                FailureClass.SERVER_REFUSED, str(work.key), "a run without a profiler measures no launches"
            )
        require_possible(work, self._gpu)
        require_light_condition(work)
        return _command(self._gpu, work)

    def run(self, work: Work, cancelled: threading.Event) -> BareMeasurement:
        self.plan(work)
        return BareMeasurement(work, self._gpu, self._tools, self._state, cancelled)


class BareMeasurement(LiveMeasurement):
    """One run of the workload by itself."""

    def batches(self) -> Iterator[LaunchBatch]:
        result = self.measure(_command(self.gpu, self.work))
        if not self.cancelled:
            refuse_killed(str(self.work.key), result)
            if result.exit_code != 0:
                output = f"{result.stdout}\n{result.stderr}"
                raise workload_failed(str(self.work.key), f"without a profiler: {result.ending}", output)
        yield from ()


def _command(gpu: MeasuredGPU, work: Work) -> list[str]:
    argv = list(require_command(work).argv)
    return argv if gpu.model is None else gpu.model.bare_command(argv)
