"""What measurements use of this package: the gate before, samples during, flags after a measurement."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from assay_agent.execution.environment import MeasuredGPU
from assay_agent.gpus.nvml_sensors import NvmlSensors
from assay_agent.gpus.processes import ProcessOwners
from assay_agent.gpus.sensors import GpuLostError, GpuSensors, SensorError, clients_of
from assay_agent.guards.dcgm import DcgmPause
from assay_agent.telemetry.rules import telemetry_flags
from assay_agent.telemetry.sampler import Sampler
from assay_agent.telemetry.summary import TelemetrySummary
from assay_agent.telemetry.thermal_gate import pass_gate
from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.work import Work

# The driver still lists a process for a moment after its end.
_GONE_SECONDS = 2.0
_LOOK_SECONDS = 0.1

OpenSensors = Callable[[MeasuredGPU, Work], GpuSensors]


def open_sensors(gpu: MeasuredGPU, work: Work) -> GpuSensors:
    """The sensors of a slot's GPU; raises SensorError if they cannot be opened."""
    if gpu.model is None:
        return NvmlSensors(gpu.device.uuid)
    return gpu.model.open_sensors(work.command.environment if work.command is not None else {})


class GpuWatch:
    """One attempt's watch over its GPU. Sensors that fail never fail the attempt: they become a flag.

    Args:
        gpu: the GPU of the slot.
        work: the attempt.
        directory: private to this GPU; MPS daemons with their pipes below it are ours.
        cancelled: ends the wait at the thermal gate.
        sensors: opens the sensors; only tests replace it.
    """

    def __init__(
        self,
        gpu: MeasuredGPU,
        work: Work,
        directory: Path,
        cancelled: threading.Event,
        sensors: OpenSensors = open_sensors,
    ) -> None:
        self._gpu, self._work, self._cancelled = gpu, work, cancelled
        self._open, self._owners = sensors, ProcessOwners(directory)
        self._sensors: GpuSensors | None = None
        self._stack = contextlib.ExitStack()
        self._dcgm_problem = ""
        self._dcgm = DcgmPause(directory.parent / "dcgm", gpu.path)
        self._holder = directory.name
        source = "virtual sensors" if gpu.synthetic else "NVML"
        self.summary = TelemetrySummary(gpu.device.uuid, source, synthetic=gpu.synthetic)

    @property
    def flags(self) -> tuple[ValidityFlag, ...]:
        """The flags that the rules set; complete once the last command was measured."""
        all_flags = tuple(telemetry_flags(self.summary))
        if self._dcgm_problem:
            all_flags += (ValidityFlag.of_kind("dcgm_not_paused", self._dcgm_problem),)
        return all_flags

    def to_dict(self) -> dict[str, Any]:
        """The summary as plain values, for the attempt's log."""
        return self.summary.to_dict()

    def __enter__(self) -> Self:
        with self._recording_problems():
            self._sensors = self._open(self._gpu, self._work)
            self.summary.before = self._sensors.state()
            self._note_others(self._sensors)
        if self._work.level == "detailed" and not self._gpu.synthetic:
            self._stack.enter_context(self._dcgm.hold(self._holder, self._note_dcgm))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        if self._sensors is not None:
            self._sensors.close()

    def begin_again(self) -> None:
        """Forget what was sampled: the run that has ended does not count. What failed stays."""
        sensors = self._sensors
        if sensors is None or self.summary.problem:
            return
        self.summary = TelemetrySummary(self.summary.gpu, self.summary.source, synthetic=self._gpu.synthetic)
        with self._recording_problems():
            self.summary.before = sensors.state()
            self._note_others(sensors)

    def _note_dcgm(self, problem: str) -> None:
        self._dcgm_problem = problem

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """Around the command that measures: waits until the GPU is cool, then samples until it is over."""
        sensors = self._sensors
        if sensors is None or self.summary.problem:
            yield
            return
        with self._recording_problems():
            self._pass_gate(sensors)
        with Sampler(sensors, self.summary, self._owners, self._gpu.telemetry, self._gpu.latest):
            yield
        if not self.summary.problem:
            with self._recording_problems():
                self._look_afterwards(sensors)

    def _pass_gate(self, sensors: GpuSensors) -> None:
        passage = pass_gate(lambda: sensors.read().temperature_celsius, self._gpu.telemetry, self._cancelled)
        self.summary.waited_seconds += passage.waited_seconds
        self.summary.began_celsius = passage.began_celsius
        self.summary.started_hot = self.summary.started_hot or passage.still_hot

    def _look_afterwards(self, sensors: GpuSensors) -> None:
        self.summary.add_xid_events(sensors.xid_events())
        until = time.monotonic() + _GONE_SECONDS
        while self._others(sensors)[0] and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)
        self._note_others(sensors)
        self.summary.after = sensors.state()

    def _others(self, sensors: GpuSensors) -> tuple[dict[int, str], dict[int, str]]:
        """Foreign processes and desktops on the GPU while of ours only MPS runs there."""
        # In a container our own MPS server cannot be looked up if the driver uses the host's process numbers.
        return self._owners.others(clients_of(sensors), known_only=self._under_mps)

    def _note_others(self, sensors: GpuSensors) -> None:
        self.summary.add_others(*self._others(sensors))

    @property
    def _under_mps(self) -> bool:
        share = self._work.condition.sm_percent
        return self._work.under_mps or (share is not None and share < 100)

    @contextlib.contextmanager
    def _recording_problems(self) -> Iterator[None]:
        """Record a problem of the sensors in the summary."""
        try:
            yield
        except GpuLostError as error:
            self.summary.lost, self.summary.problem = True, error.cause
        except SensorError as error:
            self.summary.problem = str(error)
