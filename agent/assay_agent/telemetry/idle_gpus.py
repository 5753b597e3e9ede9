"""What the sensors of a box's GPUs say, for its heartbeats: a running measurement is never disturbed for it.

While a run measures on a GPU, its own telemetry samples there, and the newest sample is told. Idle GPUs are
asked once a heartbeat, and only while no GPU of the box measures: the driver's lock is one for all.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assay_agent.execution.environment import MeasuredGPU
from assay_agent.gpus.nvml_sensors import NvmlSensors
from assay_agent.gpus.sensors import GpuSensors, SensorError
from assay_core.records.machine import GpuSample

_log = logging.getLogger(__name__)

_FRESH_SECONDS = 60.0
_PATIENCE_SECONDS = 0.2  # a driver that hangs must not delay a heartbeat
_AGAIN_SECONDS = 600.0

OpenSensors = Callable[[str], GpuSensors]


@dataclass(frozen=True)
class SlotGpu:
    """A GPU of a slot; ``out_of_service`` says why it takes no runs, "" if it does."""

    slot_id: str
    gpu: MeasuredGPU
    out_of_service: Callable[[], str]


class BoxSensors:
    """The sensors of all GPUs of an agent.

    Args:
        gpus: of its slots.
        measuring: whether a run is under way on any of them.
        open_sensors: of a real GPU, by its UUID; only tests replace it.
        monotonic: seconds of a clock that never goes back.
        patience_seconds: how long a heartbeat waits for the driver.
    """

    def __init__(
        self,
        gpus: Sequence[SlotGpu],
        measuring: Callable[[], bool],
        open_sensors: OpenSensors = NvmlSensors,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        patience_seconds: float = _PATIENCE_SECONDS,
    ) -> None:
        self._gpus = gpus
        self._patience_seconds = patience_seconds
        self._measuring = measuring
        self._open = open_sensors
        self._monotonic = monotonic
        self._not_before: dict[str, float] = {}
        self._looking: threading.Thread | None = None

    def samples(self) -> tuple[GpuSample, ...]:
        """What is known, at most a minute old; asks idle GPUs first, and waits a moment."""
        if self._gpus and not self._measuring() and (self._looking is None or not self._looking.is_alive()):
            self._looking = threading.Thread(target=self._look, name="assay-idle-gpus", daemon=True)
            self._looking.start()
            self._looking.join(self._patience_seconds)
        return tuple(sample for each in self._gpus if (sample := _sample(each)) is not None)

    def _look(self) -> None:
        for each in self._gpus:
            if self._measuring():
                return
            if each.out_of_service():  # a lost GPU may hang the driver
                continue
            if each.gpu.model is not None:
                each.gpu.latest.note(each.gpu.model.idle_reading())
            elif self._monotonic() >= self._not_before.get(each.slot_id, 0.0):
                self._ask(each)

    def _ask(self, each: SlotGpu) -> None:
        try:
            sensors = self._open(each.gpu.device.uuid)
            try:
                each.gpu.latest.note(sensors.read())
                # Without persistence mode the driver loads a GPU to answer, and unloads it again.
                asleep = sensors.state().persistence is False
            finally:
                sensors.close()
        except SensorError as error:
            asleep = True
            _log.info("the sensors of GPU %s are not read while it is idle: %s", each.gpu.device.uuid, error)
        except Exception:  # noqa: BLE001 - no fault of the sensors may end an agent
            asleep = True
            _log.exception("the sensors of GPU %s failed unexpectedly", each.gpu.device.uuid)
        if asleep:
            self._not_before[each.slot_id] = self._monotonic() + _AGAIN_SECONDS


def _sample(each: SlotGpu) -> GpuSample | None:
    newest = each.gpu.latest.newest()
    if newest is None or newest[0] > _FRESH_SECONDS:
        return None
    age_seconds, reading = newest
    return GpuSample(
        each.slot_id,
        round(1000 * age_seconds),
        reading.temperature_celsius,
        reading.power_watts,
        reading.busy_percent,
        reading.sm_clock_mhz,
    )
