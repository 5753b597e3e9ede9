"""Samples of a box's GPUs for its heartbeats: who is asked, and when nobody is."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

from assay_agent.config import VirtualGPUs
from assay_agent.daemon.places import virtual_places
from assay_agent.execution.environment import MeasuredGPU
from assay_agent.gpus.sensors import GpuState, Reading, SensorsUnavailableError
from assay_agent.telemetry.idle_gpus import BoxSensors, SlotGpu
from assay_sampling.launches.table import Device
from assay_virtual.sensors import IDLE

WARM = Reading(1530.0, 877.0, 61.5, 210.0, 99.0, 0)


@dataclass
class Driver:
    """Sensors that count what they are asked; ``holds``: they answer when it is set."""

    asked: list[str] = field(default_factory=list)
    closed: int = 0
    persistence: bool = True
    broken: bool = False
    holds: threading.Event | None = None
    reading: threading.Event = field(default_factory=threading.Event)
    synthetic: bool = False

    def opened(self, uuid: str) -> Driver:
        self.asked.append(uuid)
        if self.broken:
            raise SensorsUnavailableError(f"GPU {uuid}", "the driver is not loaded")
        return self

    def read(self) -> Reading:
        self.reading.set()
        if self.holds is not None:
            self.holds.wait(60)
        return WARM

    def state(self) -> GpuState:
        return GpuState(persistence=self.persistence)

    def process_ids(self) -> tuple[int, ...]:
        return ()

    def xid_events(self) -> tuple[int, ...]:
        return ()

    def close(self) -> None:
        self.closed += 1


@dataclass
class Box:
    """Two real GPUs; ``now`` is the clock."""

    driver: Driver = field(default_factory=Driver)
    now: float = 0.0
    measuring: bool = False
    lost: str = ""

    def __post_init__(self) -> None:
        gpus = [MeasuredGPU(Device(index=0, name="V100", uuid=f"GPU-{at}"), path="") for at in range(2)]
        reasons = (lambda: self.lost, lambda: "")
        slots = [SlotGpu(gpu.device.uuid, gpu, why) for gpu, why in zip(gpus, reasons, strict=True)]
        self.gpus = gpus
        patience = 60.0 if self.driver.holds is None else 0.01
        self.sensors = BoxSensors(
            slots, lambda: self.measuring, self.driver.opened, lambda: self.now, patience_seconds=patience
        )


def test_idle_gpus_are_asked_once_a_heartbeat_and_released() -> None:
    box = Box()
    told = box.sensors.samples()
    assert [(each.slot_id, each.temperature_celsius, each.power_watts) for each in told] == [
        ("GPU-0", 61.5, 210.0),
        ("GPU-1", 61.5, 210.0),
    ]
    assert [each.busy_percent for each in told] == [99.0, 99.0]
    assert box.driver.asked == ["GPU-0", "GPU-1"]
    assert box.driver.closed == 2, "a handle that stays open keeps an admin from resetting the GPU"


def test_nobody_asks_the_driver_while_a_gpu_of_the_box_measures() -> None:
    box = Box(measuring=True)
    assert box.sensors.samples() == ()
    box.gpus[1].latest.note(WARM)  # as the telemetry of its run does
    assert [each.slot_id for each in box.sensors.samples()] == ["GPU-1"]
    assert box.driver.asked == []


def test_a_gpu_without_persistence_mode_is_left_asleep_for_ten_minutes() -> None:
    box = Box(Driver(persistence=False))
    for moment, asked in ((0.0, 2), (5.0, 2), (599.0, 2), (600.0, 4)):
        box.now = moment
        assert len(box.sensors.samples()) == 2
        assert len(box.driver.asked) == asked


def test_a_lost_gpu_is_not_asked() -> None:
    box = Box(lost="lost: XID 79")
    assert [each.slot_id for each in box.sensors.samples()] == ["GPU-1"]
    assert box.driver.asked == ["GPU-1"]


def test_a_driver_that_fails_never_ends_an_agent() -> None:
    box = Box(Driver(broken=True))
    assert box.sensors.samples() == ()
    assert box.sensors.samples() == ()
    assert box.driver.asked == ["GPU-0", "GPU-1"], "not again with the next heartbeat"


def test_a_driver_that_hangs_delays_no_heartbeat_and_is_not_asked_twice() -> None:
    holds = threading.Event()
    box = Box(Driver(holds=holds))
    try:
        assert box.sensors.samples() == ()
        assert box.driver.reading.wait(60)
        assert box.sensors.samples() == ()
        assert box.driver.asked == ["GPU-0"]
    finally:
        holds.set()


def test_a_virtual_gpu_tells_what_its_model_says_of_an_idle_one(tmp_path: Path) -> None:
    [place] = virtual_places([VirtualGPUs(kind="V100", count=1)], tmp_path)
    assert place.gpu is not None
    [told] = BoxSensors(
        [SlotGpu("slot", place.gpu, lambda: "")], lambda: False, patience_seconds=60
    ).samples()
    assert (told.temperature_celsius, told.busy_percent) == (IDLE.temperature_celsius, 0.0)
    assert place.slot.synthetic
