"""One contract for all that reads a GPU's sensors: NVML with recorded answers, and the virtual GPU's."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace

import pytest

from assay_agent.gpus.event_reasons import reason_names
from assay_agent.gpus.nvml_sensors import NvmlSensors
from assay_agent.gpus.sensors import GpuLostError, GpuSensors, SensorsUnavailableError
from assay_virtual.sensors import VirtualSensors
from tests.support.agent.sensed_nvml import UUID, FakeNvml

_NO_SUCH_GPU, _GPU_IS_LOST = 6, 15
_ASKED = ("nvmlDeviceGetClockInfo", "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetComputeRunningProcesses")


@dataclass(frozen=True)
class Made:
    """Sensors of each kind of GPU that the contract tells apart, opened anew by each call."""

    sound: Callable[[], GpuSensors]
    with_xid_79: Callable[[], GpuSensors]
    missing: Callable[[], GpuSensors]
    lost_after_a_reading: Callable[[], GpuSensors]
    synthetic: bool


def _nvml_lost_after_a_reading() -> GpuSensors:
    nvml = FakeNvml()
    sensors = NvmlSensors(UUID, nvml)
    sensors.read()
    nvml.fail.update(dict.fromkeys(_ASKED, _GPU_IS_LOST))
    return sensors


def _virtual_lost_after_a_reading() -> GpuSensors:
    sensors = VirtualSensors(UUID, 1530.0, ("gpu_lost",))
    sensors.read()
    return sensors


def _quiet_nvml() -> FakeNvml:
    nvml = FakeNvml()
    nvml.xids.clear()
    return nvml


SENSORS = {
    "nvml": Made(
        lambda: NvmlSensors(UUID, _quiet_nvml()),
        lambda: NvmlSensors(UUID, FakeNvml()),
        lambda: NvmlSensors(UUID, FakeNvml(nvmlDeviceGetHandleByUUID=_NO_SUCH_GPU)),
        _nvml_lost_after_a_reading,
        synthetic=False,
    ),
    "virtual": Made(
        lambda: VirtualSensors(UUID, 1530.0),
        lambda: VirtualSensors(UUID, 1530.0, ("xid_error",)),
        lambda: VirtualSensors(UUID, 1530.0, ("sensors_missing",)),
        _virtual_lost_after_a_reading,
        synthetic=True,
    ),
}


@pytest.fixture(params=SENSORS)
def made(request: pytest.FixtureRequest) -> Made:
    return SENSORS[request.param]


def test_readings_are_finite_and_in_the_units_of_their_names(made: Made) -> None:
    sensors = made.sound()
    for reading in (sensors.read(), sensors.read()):
        told = replace(reading, event_reasons=None)
        assert all(value is None or math.isfinite(value) for value in astuple(told))
        assert reading.sm_clock_mhz is not None and 100 < reading.sm_clock_mhz < 4000
        assert reading.memory_clock_mhz is not None and 100 < reading.memory_clock_mhz < 20_000
        assert reading.temperature_celsius is not None and 0 < reading.temperature_celsius < 120
        assert reading.power_watts is not None and 1 < reading.power_watts < 2000
        assert reading.busy_percent is not None and 0 <= reading.busy_percent <= 100
        assert reading.event_reasons is not None
        assert all(reason_names(1 << bit) for bit in range(64) if reading.event_reasons >> bit & 1)
    sensors.close()


def test_totals_of_memory_errors_never_fall(made: Made) -> None:
    sensors = made.sound()
    before, after = sensors.state(), sensors.state()
    for earlier, later in (
        (before.ecc_corrected, after.ecc_corrected),
        (before.ecc_uncorrected, after.ecc_uncorrected),
    ):
        assert earlier is not None and later is not None and 0 <= earlier <= later


def test_processes_are_told_in_order_and_once(made: Made) -> None:
    processes = made.sound().process_ids()
    assert processes is not None and list(processes) == sorted(set(processes))


def test_an_xid_is_told_once(made: Made) -> None:
    sensors = made.with_xid_79()
    sensors.read()
    told = [number for _ in range(4) for number in sensors.xid_events()]
    assert told.count(79) == 1
    assert sensors.xid_events() == ()


def test_a_gpu_without_an_xid_tells_none(made: Made) -> None:
    assert made.sound().xid_events() == ()


def test_a_gpu_that_is_not_there_cannot_be_opened(made: Made) -> None:
    with pytest.raises(SensorsUnavailableError) as caught:
        made.missing()
    assert UUID in caught.value.subject


@pytest.mark.parametrize("ask", [lambda s: s.read(), lambda s: s.state(), lambda s: s.process_ids()])
def test_a_lost_gpu_says_so_to_every_question_and_still_closes(
    made: Made, ask: Callable[[GpuSensors], object]
) -> None:
    sensors = made.lost_after_a_reading()
    with pytest.raises(GpuLostError):
        ask(sensors)
    sensors.close()


def test_what_is_made_up_is_marked(made: Made) -> None:
    assert made.sound().synthetic is made.synthetic
