"""What a measurement uses of this package: the gate before it, samples while it goes on, flags after it."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from assay_agent.profilers.environment import MeasuredGPU
from assay_agent.telemetry.dcgm import DcgmPause
from assay_agent.telemetry.nvml_sensors import NvmlSensors
from assay_agent.telemetry.processes import Owner, ProcessOwners
from assay_agent.telemetry.rules import telemetry_flags
from assay_agent.telemetry.sampler import Sampler
from assay_agent.telemetry.sensors import GpuLostError, GpuSensors, SensorError
from assay_agent.telemetry.summary import TelemetrySummary
from assay_agent.telemetry.thermal_gate import pass_gate
from assay_agent.work import Assignment, ValidityFlag

# The driver lists a process for a moment after its end.
_GONE_SECONDS = 2.0
_LOOK_SECONDS = 0.1

OpenSensors = Callable[[MeasuredGPU, Assignment], GpuSensors]


def open_sensors(gpu: MeasuredGPU, work: Assignment) -> GpuSensors:
    """The sensors of a slot's GPU; raises SensorError where there is no way to them."""
    if not gpu.synthetic:
        return NvmlSensors(gpu.device.uuid)
    from assay_agent.telemetry import virtual_sensors  # noqa: PLC0415 - on virtual GPUs only
    from assay_agent.virtual.architectures import architecture  # noqa: PLC0415
    from assay_agent.virtual.tools.environment import lost_by_switch  # noqa: PLC0415

    kind = json.loads(gpu.variables["ASSAY_VIRTUAL_GPU"])["architecture"]
    given = work.command.environment if work.command is not None else {}
    faults = virtual_sensors.parse_faults(given.get(virtual_sensors.VARIABLE, ""))
    if lost_by_switch(given, gpu.device.uuid):
        faults += ("gpu_lost",)
    return virtual_sensors.VirtualSensors(gpu.device.uuid, architecture(kind).boost_clock_hz / 1e6, faults)


class GpuWatch:
    """One attempt's watch over its GPU. Sensors that fail never fail the attempt: they become a flag.

    Args:
        gpu: the GPU of the slot.
        work: the attempt.
        directory: private to this GPU; MPS daemons with their pipes below it are ours.
        cancelled: ends the wait at the thermal gate.
        sensors: opens the sensors; only tests give another way.
    """

    def __init__(
        self,
        gpu: MeasuredGPU,
        work: Assignment,
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
        """What the rules say; complete once the last command was measured."""
        found = tuple(telemetry_flags(self.summary))
        if self._dcgm_problem:
            found += (ValidityFlag.of_kind("dcgm_not_paused", self._dcgm_problem),)
        return found

    def to_dict(self) -> dict[str, Any]:
        """The summary as plain values, for the attempt's log."""
        return self.summary.to_dict()

    def __enter__(self) -> Self:
        with self._told():
            self._sensors = self._open(self._gpu, self._work)
            self.summary.before = self._sensors.state()
            self._note_others(self._sensors)
        if self._work.level == "detailed" and not self._gpu.synthetic:
            self._stack.enter_context(self._dcgm.held(self._holder, self._note_dcgm))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        if self._sensors is not None:
            self._sensors.close()

    def _note_dcgm(self, problem: str) -> None:
        self._dcgm_problem = problem

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """Around the command that measures: waits until the GPU is cool, then samples until it is over."""
        sensors = self._sensors
        if sensors is None or self.summary.problem:
            yield
            return
        with self._told():
            self._pass_gate(sensors)
        with Sampler(sensors, self.summary, self._owners, self._gpu.telemetry):
            yield
        if not self.summary.problem:
            with self._told():
                self._look_afterwards(sensors)

    def _pass_gate(self, sensors: GpuSensors) -> None:
        passage = pass_gate(lambda: sensors.read().temperature_celsius, self._gpu.telemetry, self._cancelled)
        self.summary.waited_seconds += passage.waited_seconds
        self.summary.began_celsius = passage.began_celsius
        self.summary.started_hot = self.summary.started_hot or passage.still_hot

    def _look_afterwards(self, sensors: GpuSensors) -> None:
        self.summary.add_xid_events(sensors.xid_events())
        until = time.monotonic() + _GONE_SECONDS
        while self._others(sensors) and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)
        self._note_others(sensors)
        self.summary.after = sensors.state()

    def _others(self, sensors: GpuSensors) -> list[int]:
        """Processes on the GPU while nothing of ours runs there but MPS."""
        # A container cannot look our own MPS server up where the driver numbers it as the host does.
        passed = {Owner.OURS, Owner.UNKNOWN} if self._under_mps else {Owner.OURS}
        return [pid for pid in sensors.process_ids() or () if self._owners.owner(pid) not in passed]

    def _note_others(self, sensors: GpuSensors) -> None:
        for process_id in self._others(sensors):
            self.summary.add_foreign(process_id, self._owners.name(process_id))

    @property
    def _under_mps(self) -> bool:
        share = self._work.condition.sm_percent
        return self._work.under_mps or (share is not None and share < 100)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """A problem of the sensors goes into the summary."""
        try:
            yield
        except GpuLostError as error:
            self.summary.lost, self.summary.problem = True, str(error)
        except SensorError as error:
            self.summary.problem = str(error)
