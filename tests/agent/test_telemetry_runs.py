"""Whole runs on a virtual GPU: its sensors, the flags that they set, and runs without a profiler."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay_agent.config import VirtualGPUs
from assay_agent.daemon.places import virtual_places
from assay_agent.execution.errors import ProfilerError
from assay_agent.gpus.event_reasons import EventReason
from assay_agent.gpus.processes import process_name
from assay_agent.gpus.sensors import GpuLostError, GpuState, Reading, SensorsUnavailableError
from assay_agent.gpus.telemetry_settings import TelemetrySettings
from assay_agent.guards import dcgm
from assay_agent.guards.dcgm_processes import DcgmProcess
from assay_agent.profilers.seam import Measurement
from assay_agent.telemetry.rules import share_flag, telemetry_flags
from assay_agent.telemetry.summary import TelemetrySummary
from assay_agent.telemetry.watch import GpuWatch
from assay_core.records.attempt import AttemptKey
from assay_core.records.work import CommandSource
from assay_sampling.errors import ParameterError
from assay_sampling.running.failures import FailureClass
from assay_sampling.running.validity import FLAGS
from assay_virtual.sensors import FAULTS, VARIABLE, VirtualSensors
from tests.support.agent.assignments import WORK
from tests.support.agent.named_processes import running
from tests.support.agent.tool_bench import COMPUTE, SYSTEMS, WORKLOAD, Bench

QUICK = TelemetrySettings(
    interval_seconds=0.02, slow_interval_seconds=0.05, longest_wait_seconds=0.2, minimum_free_bytes=0
)
# Flags by the fault of the sensors that provokes them.
OF_FAULT = {fault: fault for fault in FAULTS} | {
    "sensors_missing": "telemetry_missing", "hot": "started_hot", "settings_changed": "gpu_settings_changed",
}  # fmt: skip


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("workloads")
    (folder / "small.toml").write_text(WORKLOAD)
    [place] = virtual_places([VirtualGPUs("V100")], tmp_path_factory.mktemp("state"), telemetry=QUICK)
    return Bench(place, folder)


def with_faults(bench: Bench, *faults: str, **changes: Any) -> Any:
    work = bench.work(SYSTEMS, **changes)
    assert work.command is not None
    variables = {VARIABLE: ",".join(faults)} if faults else {}
    return replace(work, command=replace(work.command, environment=variables))


def names(measurement: Measurement) -> set[str]:
    return {flag.name for flag in measurement.flags}


@pytest.mark.processes
def test_a_run_keeps_what_its_sensors_told_and_says_that_it_is_synthetic(bench: Bench) -> None:
    table, measurement = bench.measure(with_faults(bench))
    assert table.num_rows == 60
    assert measurement.flags == ()
    log = measurement.log
    seen = log.telemetry
    assert seen is not None
    assert (seen["source"], seen["synthetic"], seen["problem"]) == ("virtual sensors", True, "")
    assert seen["gpu"] == bench.place.slot.device.uuid
    assert seen["samples"] >= 2
    assert seen["sm_clock_mhz"]["mean"] == pytest.approx(1530, rel=0.002)
    assert seen["thermal_gate"] == {"waited_seconds": 0.0, "began_celsius": 38.0, "started_hot": False}
    assert len(seen["series"]["seconds"]) == len(seen["series"]["sm_clock_mhz"])
    assert log.wall_seconds > 0
    assert seen["seconds"] == pytest.approx(log.wall_seconds, rel=0.5)


@pytest.mark.processes
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_every_fault_of_the_sensors_sets_its_flag_and_no_other(fault: str, bench: Bench) -> None:
    _, measurement = bench.measure(replace(with_faults(bench, fault), profiler="bare", level="bare"))
    assert names(measurement) == {OF_FAULT[fault]}
    [flag] = measurement.flags
    assert flag.invalidates is FLAGS[flag.name].invalidates
    assert flag.detail


@pytest.mark.processes
def test_a_bare_run_gives_no_launches_and_its_wall_time(bench: Bench) -> None:
    work = replace(bench.work(SYSTEMS), profiler="bare", level="bare")
    assert bench.place.profilers["bare"].plan(work) == ["assay-virtual", "small.toml"]
    table, measurement = bench.measure(work)
    assert table.num_rows == 0
    assert measurement.log.wall_seconds > 0
    assert measurement.log.telemetry is not None
    assert "process 0 made 60 launches" in measurement.log.text
    with pytest.raises(ProfilerError) as caught:
        bench.measure(replace(bench.work(SYSTEMS, "application_failed:7"), profiler="bare", level="bare"))
    assert caught.value.failure_class is FailureClass.APPLICATION_FAILED
    assert "exit status 7" in caught.value.cause
    with pytest.raises(ProfilerError, match="measures no launches"):
        bench.place.profilers["bare"].plan(bench.work(SYSTEMS))


def test_a_switch_that_does_not_exist_is_refused(bench: Bench) -> None:
    with pytest.raises(ParameterError, match="no switch 'nonsense'"):
        VirtualSensors("GPU-x", 1000.0, ["nonsense"])


def summary(**changes: Any) -> TelemetrySummary:
    made = TelemetrySummary("GPU-x", "NVML", **changes)
    for number in range(20):
        made.add(number * 0.25, Reading(1400.0, 1593.0, 60.0, 200.0, 90.0, 0), 0.25)
    return made


def flagged(found: TelemetrySummary) -> dict[str, str]:
    return {flag.name: flag.detail for flag in telemetry_flags(found)}


def test_a_quiet_run_has_no_flag() -> None:
    assert flagged(summary()) == {}


@pytest.mark.parametrize(
    ("bits", "expected"),
    [
        (0x1, set()), (0x2, set()), (0x100, set()),
        (0x4, {"power_capped"}),
        (0x8, {"throttled_hardware"}),
        (0x10, {"clock_limited"}), (0x200, {"clock_limited"}), (0x400, {"clock_limited"}),
        (0x20, {"throttled_thermal"}), (0x40, {"throttled_thermal"}), (0x48, {"throttled_thermal"}),
        (0x80, {"throttled_power"}), (0x88, {"throttled_power"}),
        (0xE8, {"throttled_thermal", "throttled_power"}),
    ],
)  # fmt: skip
def test_each_event_reason(bits: int, expected: set[str]) -> None:
    found = summary()
    found.add(5.0, Reading(1400.0, 1593.0, 60.0, 200.0, 90.0, bits), 0.25)
    assert set(flagged(found)) == expected
    # What the notes reject invalidates, and nothing else does.
    assert any(FLAGS[name].invalidates for name in expected) is bool(bits & 0xE8)


def test_details_say_how_often_what_and_where() -> None:
    found = summary(before=GpuState(ecc_uncorrected=1, compute_mode=0), after=GpuState(3, 3, compute_mode=3))
    found.add(5.0, Reading(1400.0, None, 60.0, None, 90.0, int(EventReason.SOFTWARE_THERMAL)), 0.25)
    found.add_others({4711: "python"}, {})
    found.add_xid_events([79, 79, 31])
    assert flagged(found) == {
        "throttled_thermal": "software_thermal in 1 of 21 samples",
        "ecc_error": "2 errors during the run",
        "gpu_settings_changed": "compute mode was 0 and is 3",
        "foreign_process": "process 4711 python",
        "xid_error": "XID 79, 31",
    }


def test_a_clock_that_varies_counts_only_while_the_gpu_is_busy() -> None:
    found = summary()
    for number in range(20):
        found.add(5 + number, Reading(300.0, None, 60.0, None, 0.0, int(EventReason.IDLE)), 1.0)
    assert flagged(found) == {}
    for number in range(20):
        found.add(30 + number, Reading(1300.0, None, 60.0, None, 90.0, 0), 1.0)
    assert flagged(found) == {
        "clock_varied": "1,300 to 1,400 MHz in 90 % of the busy samples, 7.4 % of the mean"
    }


def test_a_gpu_that_does_not_tell_all_is_not_taken_for_a_quiet_one() -> None:
    silent = TelemetrySummary("GPU-x", "NVML")
    assert flagged(silent) == {"telemetry_missing": "no sample was taken"}
    silent.add(0.0, Reading(temperature_celsius=50.0), 0.1)
    assert flagged(silent) == {"telemetry_missing": "the GPU does not report its sm_clock_mhz, event_reasons"}


@pytest.mark.parametrize(
    ("asked", "seen", "flag"), [(50.0, 80, True), (50.0, 40, False), (100.0, 80, False), (None, 80, False),
                                (50.0, None, False), (50.0, 10, True), (50.0, 60, True)],
)  # fmt: skip
def test_a_share_that_is_not_in_force(asked: float | None, seen: int | None, flag: bool) -> None:
    found = share_flag(asked, seen, 80)
    assert (found is not None) is flag
    if found is not None:
        assert (found.name, found.invalidates) == ("sm_share_not_in_force", True)
        assert found.detail == f"50 % was asked for, but {seen} of 80 SMs are seen"


class BreakingSensors(VirtualSensors):
    """Sensors whose reading fails after a while."""

    def __init__(self, error: BaseException) -> None:
        super().__init__("GPU-x", 1000.0)
        self.error, self.closed = error, False

    def read(self) -> Reading:
        if self._readings >= 2:
            raise self.error
        return super().read()

    def close(self) -> None:
        self.closed = True


class SensorsWithALateStranger(VirtualSensors):
    """Another process is on the GPU from a moment on."""

    late = False

    def process_ids(self) -> tuple[int, ...]:
        return (1,) if self.late else ()


class SensorsOfADesktop(VirtualSensors):
    """A desktop has a compute and a graphics context, as ``nvidia-smi`` writes C+G."""

    def __init__(self, desktop: int) -> None:
        super().__init__("GPU-x", 1000.0)
        self._desktop = desktop

    def process_ids(self) -> tuple[int, ...]:
        return (self._desktop,)

    def graphics_process_ids(self) -> tuple[int, ...]:
        return (self._desktop,)


@pytest.mark.processes
def test_a_desktop_is_named_and_leaves_the_run_valid(bench: Bench, tmp_path: Path) -> None:
    gpu = replace(bench.place.profilers[SYSTEMS]._gpu, telemetry=QUICK)  # type: ignore[attr-defined]
    work = replace(WORK, key=AttemptKey("r", 0, 1, 1), command=CommandSource(("x",), {}))
    with running(tmp_path / "gnome-shell") as process_id:
        until = time.monotonic() + 60
        while process_name(process_id) != "gnome-shell" and time.monotonic() < until:
            time.sleep(0.01)
        sensors = SensorsOfADesktop(process_id)
        watch = GpuWatch(gpu, work, tmp_path, threading.Event(), lambda gpu, work: sensors)
        began = time.monotonic()
        with watch, watch.measuring():
            while watch.summary.samples < 3:
                pass
        assert time.monotonic() - began < 60
    (flag,) = watch.flags
    assert (flag.name, flag.invalidates) == ("desktop_on_gpu", False)
    assert flag.detail == f"process {process_id} gnome-shell"
    told = watch.to_dict()
    assert told["desktop_processes"] == [f"{process_id} gnome-shell"] and told["foreign_processes"] == []


def test_a_stranger_that_is_seen_only_after_the_run_counts(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay_agent.telemetry.watch._GONE_SECONDS", 0.1)
    gpu = bench.place.profilers[SYSTEMS]._gpu  # type: ignore[attr-defined]
    gpu = replace(gpu, telemetry=replace(QUICK, slow_interval_seconds=600.0))
    sensors = SensorsWithALateStranger("GPU-x", 1000.0)
    work = replace(WORK, key=AttemptKey("r", 0, 1, 1), command=CommandSource(("x",), {}))
    watch = GpuWatch(gpu, work, tmp_path, threading.Event(), lambda gpu, work: sensors)
    with watch, watch.measuring():
        while not watch.summary.samples or watch.summary.after is None:
            pass
        sensors.late = True
    (flag,) = watch.flags
    assert (flag.name, flag.invalidates, flag.detail.split()[1]) == ("foreign_process", True, "1")


@pytest.mark.parametrize(
    ("error", "flag"),
    [
        (GpuLostError("GPU-x", "the driver lost it"), "gpu_lost"),
        (SensorsUnavailableError("GPU-x", "the driver went away"), "telemetry_missing"),
        (ZeroDivisionError("a fault of ours"), "telemetry_missing"),
    ],
)
def test_sensors_that_fail_never_fail_the_run(
    error: BaseException, flag: str, bench: Bench, tmp_path: Path
) -> None:
    gpu = bench.place.profilers[SYSTEMS]._gpu  # type: ignore[attr-defined]
    sensors = BreakingSensors(error)
    work = replace(WORK, key=AttemptKey("r", 0, 1, 1), command=CommandSource(("x",), {}))
    watch = GpuWatch(gpu, work, tmp_path, threading.Event(), lambda gpu, work: sensors)
    with watch, watch.measuring():
        while not watch.summary.problem:
            pass
    assert {found.name for found in watch.flags} == {flag}
    assert sensors.closed


@pytest.mark.processes
def test_a_run_over_its_memory_limit_ends_and_says_so(bench: Bench) -> None:
    work = bench.work(SYSTEMS)
    assert work.command is not None
    small = replace(work, command=replace(work.command, memory_limit_bytes=1 << 20))
    with pytest.raises(ProfilerError, match="its limit is 1 MiB; it was ended") as caught:
        bench.measure(
            replace(
                small,
                profiler="bare",
                level="bare",
                command=replace(small.command, environment={"ASSAY_VIRTUAL_FAULTS": "hang"}),
            )
        )
    assert caught.value.failure_class is FailureClass.MEMORY_LIMIT


def test_a_pause_of_dcgm_that_is_refused_flags_a_detailed_run(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    virtual = bench.place.profilers[SYSTEMS]._gpu  # type: ignore[attr-defined]
    gpu = replace(virtual, model=None, path="/nowhere")
    private = tmp_path / "assay" / "gpu"
    private.mkdir(parents=True)
    monkeypatch.setattr(
        dcgm.DcgmPause.__init__, "__defaults__", (lambda: [DcgmProcess(7, "nv-hostengine", embedded=False)],)
    )
    work = replace(WORK, level="detailed")
    with GpuWatch(gpu, work, private, threading.Event(), lambda gpu, work: VirtualSensors("x", 1.0)) as watch:
        assert "dcgm_not_paused" in {flag.name for flag in watch.flags}
    with GpuWatch(
        gpu,
        replace(work, level="light"),
        private,
        threading.Event(),
        lambda gpu, work: VirtualSensors("x", 1.0),
    ) as watch:
        assert "dcgm_not_paused" not in {flag.name for flag in watch.flags}


@pytest.mark.processes
def test_a_slice_of_a_workload_of_two_processes_is_flagged(bench: Bench) -> None:
    (bench.folder / "two.toml").write_text(WORKLOAD.replace("seed = 3\n", "seed = 3\nprocesses = 2\n"))
    work = bench.work(COMPUTE, launch_skip=10)
    assert work.command is not None
    _, measurement = bench.measure(replace(work, command=replace(work.command, argv=("two.toml",))))
    assert "processes_interleaved" in names(measurement)
