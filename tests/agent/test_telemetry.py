"""Watching a GPU: typed errors of NVML, bounded samples, the thermal gate, whose a process is."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_agent.gpus.event_reasons import reason_names
from assay_agent.gpus.nvml_sensors import NvmlSensors
from assay_agent.gpus.processes import Clients, Owner, ProcessOwners
from assay_agent.gpus.sensors import (
    GpuLostError,
    GpuState,
    Reading,
    SensorError,
    SensorPermissionError,
    SensorsUnavailableError,
)
from assay_agent.gpus.telemetry_settings import TelemetrySettings
from assay_agent.telemetry.summary import MOST_POINTS, DecimatedSeries, TelemetrySummary
from assay_agent.telemetry.thermal_gate import GatePassage, pass_gate
from assay_sampling.errors import ParameterError
from tests.support.agent.named_processes import running
from tests.support.agent.sensed_nvml import UUID, FakeNvml


def test_a_gpu_that_tells_everything() -> None:
    nvml = FakeNvml()
    sensors = NvmlSensors(UUID, nvml)
    assert sensors.read() == Reading(1410.0, 1593.0, 61.0, 250.5, 97.0, 0x24)
    assert sensors.state() == GpuState(5, 2, compute_mode=3, mig_mode=1, persistence=False)
    assert sensors.process_ids() == (7, 9)
    assert sensors.graphics_process_ids() == (9,)
    assert sensors.xid_events() == (79, 31)
    assert sensors.xid_events() == ()
    sensors.close()
    assert nvml.calls[-2:] == ["nvmlEventSetFree", "nvmlShutdown"]


@pytest.mark.parametrize("code", [3, 6, 13, 25, 26, 4])
def test_what_a_gpu_or_driver_lacks_is_none_and_not_an_error(code: int) -> None:
    names = (
        "nvmlDeviceGetClockInfo", "nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature",
        "nvmlDeviceGetPowerUsage", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetMigMode",
        "nvmlDeviceGetComputeMode", "nvmlDeviceGetPersistenceMode", "nvmlDeviceGetComputeRunningProcesses",
        "nvmlDeviceGetGraphicsRunningProcesses",
        "nvmlDeviceRegisterEvents",
    )  # fmt: skip
    sensors = NvmlSensors(UUID, FakeNvml(**dict.fromkeys(names, code)))
    assert sensors.read() == Reading()
    assert sensors.state() == GpuState()
    assert sensors.process_ids() is None
    assert sensors.graphics_process_ids() is None
    assert sensors.xid_events() == ()


def test_an_old_driver_is_asked_by_the_old_names() -> None:
    nvml = FakeNvml(nvmlDeviceGetTemperatureV=13, nvmlDeviceGetCurrentClocksEventReasons=13)
    sensors = NvmlSensors(UUID, nvml)
    for _ in range(2):
        reading = sensors.read()
        assert (reading.temperature_celsius, reading.event_reasons) == (60.0, 0x4)
    # A function that the driver does not have is looked for once.
    assert nvml.calls.count("nvmlDeviceGetTemperatureV") == 1


@pytest.mark.parametrize(
    ("function", "code", "error", "cause"),
    [
        ("nvmlInit", 12, SensorsUnavailableError, "no NVIDIA driver library"),
        ("nvmlInit", 9, SensorsUnavailableError, "the NVIDIA driver is not loaded"),
        ("nvmlInit", 18, SensorsUnavailableError, "upgraded without being loaded again"),
        ("nvmlDeviceGetHandleByUUID", 6, SensorsUnavailableError, "NVML error 6"),
        ("nvmlDeviceGetHandleByUUID", 4, SensorPermissionError, "may not read"),
        ("nvmlDeviceGetHandleByUUID", 15, GpuLostError, "the driver lost it"),
        ("nvmlDeviceRegisterEvents", 16, GpuLostError, "it needs a reset"),
    ],
)
def test_a_gpu_that_cannot_be_opened(function: str, code: int, error: type[SensorError], cause: str) -> None:
    nvml = FakeNvml(**{function: code})
    with pytest.raises(error, match=cause) as caught:
        NvmlSensors(UUID, nvml)
    assert UUID in caught.value.subject
    assert ("nvmlShutdown" in nvml.calls) == (function != "nvmlInit")


@pytest.mark.parametrize("code", [15, 16])
def test_a_gpu_that_is_lost_in_the_middle(code: int) -> None:
    nvml = FakeNvml()
    sensors = NvmlSensors(UUID, nvml)
    nvml.fail = dict.fromkeys(("nvmlDeviceGetClockInfo", "nvmlEventSetWait_v2"), code)
    for ask in (sensors.read, sensors.xid_events):
        with pytest.raises(GpuLostError):
            ask()


def test_the_real_module_without_a_driver_is_a_typed_error() -> None:
    pynvml = pytest.importorskip("pynvml")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        with pytest.raises(SensorsUnavailableError):
            NvmlSensors(UUID)
    else:
        pynvml.nvmlShutdown()
        pytest.skip("this box has a driver")


def test_the_names_used_exist_in_the_real_module() -> None:
    """Fails where nvidia-ml-py drops a call that the sensors rely on."""
    pynvml = pytest.importorskip("pynvml")
    source = Path(sys.modules[NvmlSensors.__module__].__file__ or "").read_text()
    names = set(re.findall(r"\bnvml(?:Device|Event|System|Init|Shutdown)\w*|\bNVML_[A-Z_]+", source))
    assert len(names) > 20
    assert [name for name in sorted(names) if not hasattr(pynvml, name)] == []


@given(count=st.integers(0, 5000), most=st.integers(2, 40))
def test_a_series_keeps_every_nth_sample_and_never_more_than_its_limit(count: int, most: int) -> None:
    series = DecimatedSeries(most)
    for number in range(count):
        series.add(float(number), Reading(sm_clock_mhz=float(number)))
        assert len(series.points) <= most
    kept = [int(at) for at, _ in series.points]
    assert kept == list(range(0, count, series.stride))
    assert series.stride & (series.stride - 1) == 0


def test_a_week_of_samples_stays_small() -> None:
    summary = TelemetrySummary(UUID, "NVML")
    reading = Reading(1410.0, 1593.0, 61.0, 250.5, 100.0, 0x24)
    for number in range(100_000):
        summary.add(number * 0.25, reading, 0.25)
    assert len(summary.series.points) <= MOST_POINTS
    document = summary.to_dict()
    assert len(json.dumps(document)) < 64 << 10
    assert document["samples"] == 100_000
    assert document["busy_seconds"] == 25_000.0
    assert document["event_reason_samples"] == {"software_power_cap": 100_000, "software_thermal": 100_000}


def test_a_sampler_counts_busy_time_to_the_end() -> None:
    summary = TelemetrySummary(UUID, "NVML")
    summary.add(0.0, Reading(busy_percent=50.0), 0.0)
    summary.add(2.0, Reading(busy_percent=100.0), 2.0)
    summary.add_busy(Reading(busy_percent=100.0), 0.5)
    summary.add_busy(Reading(busy_percent=100.0), -1.0)
    assert summary.busy_seconds == 2.5


def test_a_summary_holds_exact_statistics() -> None:
    summary = TelemetrySummary(
        UUID, "NVML", before=GpuState(ecc_corrected=4), after=GpuState(ecc_corrected=9)
    )
    for at, (clock, busy) in enumerate([(1000.0, 0.0), (1500.0, 50.0), (1100.0, 100.0)]):
        summary.add(at, Reading(sm_clock_mhz=clock, busy_percent=busy, event_reasons=at), 1.0)
    document = summary.to_dict()
    assert document["sm_clock_mhz"] == {"least": 1000.0, "greatest": 1500.0, "mean": 1200.0}
    assert document["temperature_celsius"] is None
    assert document["busy_seconds"] == 1.5
    assert document["ecc_corrected"] == 5
    assert document["ecc_uncorrected"] == 0
    assert document["event_reasons"] == ["idle", "application_clocks"]
    assert summary.busy_clocks_mhz() == [1100.0]
    assert reason_names(0x800) == ["0x800"]


class Cooling:
    """A GPU that falls by a degree a second, and a clock that goes as it is waited."""

    def __init__(self, start: float) -> None:
        self.now, self.start = 0.0, start

    def temperature(self) -> float:
        return self.start - self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def passage(self, **settings: float) -> GatePassage:
        return pass_gate(
            self.temperature,
            TelemetrySettings(**settings),
            threading.Event(),
            clock=lambda: self.now,
            pause=self.wait,
        )


def test_the_gate_has_hysteresis() -> None:
    gate = {"pause_at_celsius": 85.0, "resume_below_celsius": 75.0}
    # Between the two temperatures a run begins, unless the GPU was hotter before.
    assert Cooling(84.9).passage(**gate) == GatePassage(0.0, 84.9)
    assert Cooling(85.0).passage(**gate) == GatePassage(10.5, 74.5)


def test_the_gate_gives_up() -> None:
    found = Cooling(90.0).passage(pause_at_celsius=85, resume_below_celsius=75, longest_wait_seconds=3)
    assert found == GatePassage(3.0, 87.0, still_hot=True)
    assert Cooling(90.0).passage(pause_at_celsius=0) == GatePassage(0.0, 90.0)


def test_the_gate_lets_a_cancelled_run_go_and_one_without_a_sensor() -> None:
    cancelled = threading.Event()
    cancelled.set()
    assert not pass_gate(lambda: 99.0, TelemetrySettings(), cancelled).still_hot
    assert pass_gate(lambda: None, TelemetrySettings(), threading.Event()) == GatePassage()


@pytest.mark.parametrize(
    "wrong",
    [
        {"interval_seconds": 0}, {"slow_interval_seconds": -1}, {"longest_wait_seconds": -1},
        {"pause_at_celsius": 70, "resume_below_celsius": 70}, {"resume_below_celsius": 0},
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ParameterError):
        TelemetrySettings(**wrong)


def test_whose_a_process_is(tmp_path: Path) -> None:
    owners = ProcessOwners(tmp_path)
    assert owners.owner(os.getpid()) is Owner.OURS
    child = subprocess.Popen(
        ["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    with child:
        assert child.stdout is not None
        assert owners.owner(int(child.stdout.readline())) is Owner.OURS
        os.killpg(child.pid, signal.SIGKILL)
    assert owners.owner(os.getppid()) is Owner.FOREIGN
    assert owners.owner(1 << 30) is Owner.UNKNOWN


@pytest.mark.processes
def test_an_mps_server_below_our_folder_is_ours_and_another_is_not(tmp_path: Path) -> None:
    ours = tmp_path / "gpu"
    program = tmp_path / "nvidia-cuda-mps-server"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    owners = ProcessOwners(ours)
    # A server is no child of the agent: the shell that starts it ends, and another process takes it over.
    for pipe, owner in ((ours / "mps", Owner.OURS), (tmp_path / "gpu-of-another", Owner.FOREIGN)):
        started = subprocess.run(
            ["setsid", "sh", "-c", '"$0" 60 >/dev/null 2>&1 & echo $!', program],
            env={"PATH": os.defpath, "CUDA_MPS_PIPE_DIRECTORY": str(pipe)},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        server = int(started.stdout)
        try:
            await_name(owners, server, "nvidia-cuda-mps")
            assert owners.owner(server) is owner
        finally:
            os.kill(server, signal.SIGKILL)


def await_name(owners: ProcessOwners, process_id: int, name: str) -> None:
    """Wait until a process that was just started has become its program."""
    for _ in range(1000):
        if owners.name(process_id).startswith(name):
            return
        time.sleep(0.01)
    raise AssertionError(owners.name(process_id))


@pytest.mark.processes
def test_a_desktop_is_a_graphics_client_with_the_name_of_one(tmp_path: Path) -> None:
    owners = ProcessOwners(tmp_path)
    for name, is_desktop in (("gnome-shell", True), ("kwin_wayland", True), ("blender", False)):
        with running(tmp_path / name) as process_id:
            await_name(owners, process_id, name)
            both = Clients((process_id,), (process_id,))
            expected = ({}, {process_id: name}) if is_desktop else ({process_id: name}, {})
            assert owners.others(both) == expected
            # It computes, and draws nothing: no desktop does that, whatever its name.
            assert owners.others(Clients((process_id,), ())) == ({process_id: name}, {})
            assert owners.others(Clients((), (process_id,))) == ({}, {})
    gone = 1 << 30
    assert owners.others(Clients((gone, os.getpid()), (gone,))) == ({gone: ""}, {})
    assert owners.others(Clients((gone,), ()), known_only=True) == ({}, {})


def test_without_psutil_no_process_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    owners = ProcessOwners(tmp_path)
    assert owners.owner(os.getppid()) is Owner.UNKNOWN
    assert owners.name(os.getppid()) == ""
