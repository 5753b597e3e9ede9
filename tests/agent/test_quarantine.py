"""A GPU that was lost is out of service: on which evidence, for how long, and how a person ends it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from assay_agent.daemon.places import Place, missing_places
from assay_agent.doctor import examination as doctor
from assay_agent.doctor import probe
from assay_agent.gpus.nvml_sensors import NvmlSensors
from assay_agent.health import lost_gpu as health
from assay_agent.health.quarantine import Quarantine, Quarantined
from assay_agent.health.slot_health import SlotHealth
from assay_agent.main import app
from assay_agent.uplink.session import Session
from assay_core.records.attempt import AttemptLog
from assay_core.records.failure import Failure, failure
from assay_core.records.machine import InstalledDevice, Inventory, Slot
from assay_sampling.errors import ParameterError, RefusedError
from assay_sampling.running.failures import FailureClass
from tests.support.agent.assignments import WORK
from tests.support.agent.sensed_nvml import UUID, FakeNvml

ENTRY = Quarantined(
    gpu=UUID,
    index=1,
    name="V100",
    reason="XID 79: it fell off the bus",
    run="run c-1.0000 slice 0 attempt 1",
    since_s=1_800_000_000,
    machine={"boot_id": "b1", "driver_started": "500"},
    profilers=("nsight_compute",),
    device={"compute_capability": "7.0", "sm_count": 80, "memory_bytes": 1 << 34},
)
SLOT = Slot(
    slot_id=UUID,
    device=InstalledDevice(index=1, name="V100", uuid=UUID, sm_count=80),
    profilers=("nsight_compute",),
)
LOST = {"lost": True, "gpu": UUID, "problem": "the driver lost it (NVML error 15)"}
WHY = "the driver lost it (NVML error 15)"
RUNNER = CliRunner()


def problem(failure_class: FailureClass, cause: str = "", tool_said: str = "") -> Failure:
    return failure(failure_class, "run", cause, tool_said=tool_said)


@pytest.mark.parametrize(
    ("found", "telemetry", "expected"),
    [
        (None, None, ""),
        (None, {"lost": False, "xid_events": [13, 31, 43, 45, 94], "ecc_uncorrected": 0}, ""),
        (None, LOST, WHY),
        (problem(FailureClass.APPLICATION_FAILED), LOST, WHY),
        (None, {"xid_events": [31, 79]}, "XID 79: it fell off the bus"),
        (None, {"ecc_uncorrected": 2}, "2 uncorrectable memory errors (ECC)"),
    ],
)
def test_evidence(found: Failure | None, telemetry: Mapping[str, Any] | None, expected: str) -> None:
    assert (health.evidence_of_sensors(telemetry) or health.evidence_of_tools(found)) == expected


@pytest.mark.parametrize(
    ("failure_class", "line", "certain"),
    [
        (FailureClass.GPU_UNHEALTHY, "==ERROR== GPU is lost", True),
        (FailureClass.DRIVER_UNUSABLE, "NVRM: GPU has fallen off the bus.", True),
        # A program with a fault of its own says this too.
        (FailureClass.GPU_UNHEALTHY, "CUDA error 719 (unspecified launch failure)", False),
        (FailureClass.APPLICATION_FAILED, "GPU is lost, prints the workload", False),
    ],
)
def test_what_a_tool_says_is_evidence_and_our_own_words_are_not(
    failure_class: FailureClass, line: str, certain: bool
) -> None:
    found = problem(failure_class, f"the tool says: {line}", line)
    assert health.evidence_of_tools(found) == (found.cause if certain else "")
    assert health.evidence_of_tools(problem(failure_class, "GPU is lost, says a sentence of ours")) == ""


def sensors(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "NvmlSensors", lambda gpu: NvmlSensors(gpu, nvml))


def action(number: int) -> list[Any]:
    return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=number))]


class Quiet(FakeNvml):
    """A GPU without errors; ``pending`` says what the driver holds against it."""

    NVML_FI_DEV_GET_GPU_RECOVERY_ACTION = 230

    def __init__(self, pending: Mapping[str, Any] | None = None, **fail: int) -> None:
        super().__init__(**fail)
        self.pending = {
            "nvmlDeviceGetTotalEccErrors": 0,
            "nvmlDeviceGetRemappedRows": (0, 0, 0, 0),
            "nvmlDeviceGetRetiredPagesPendingStatus": 0,
            "nvmlDeviceGetFieldValues": action(0),
            **(pending or {}),
        }

    def _called(self, name: str, arguments: tuple[Any, ...]) -> Any:
        answer = super()._called(name, arguments)
        return self.pending.get(name, answer)


@pytest.mark.parametrize(
    ("nvml", "expected"),
    [
        (Quiet(), ""),
        (Quiet(nvmlDeviceGetRemappedRows=3, nvmlDeviceGetFieldValues=13), ""),
        (
            Quiet({"nvmlDeviceGetTotalEccErrors": 2}),
            "2 uncorrectable memory errors since the driver was loaded",
        ),
        (Quiet({"nvmlDeviceGetRemappedRows": (0, 1, 1, 0)}), "memory rows wait for a reset to be remapped"),
        (Quiet({"nvmlDeviceGetRemappedRows": (0, 1, 0, 1)}), "the remapping of faulty memory rows failed"),
        (
            Quiet({"nvmlDeviceGetRetiredPagesPendingStatus": 1}),
            "memory pages wait for a reload of the driver to be retired",
        ),
        (Quiet({"nvmlDeviceGetFieldValues": action(1)}), "the driver asks for a repair (recovery action 1)"),
        (Quiet(nvmlDeviceGetClockInfo=15), "the driver lost it (NVML error 15)"),
        (Quiet(nvmlDeviceGetClockInfo=16), "it needs a reset (NVML error 16)"),
        (Quiet(nvmlDeviceGetHandleByUUID=6), "NVML error 6: error 6"),
        (Quiet(nvmlInit=9), "the NVIDIA driver is not loaded"),
    ],
)
def test_what_nvml_has_against_a_gpu(nvml: Any, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sensors(nvml, monkeypatch)
    assert health.ask(UUID) == expected


def test_the_journal_outlives_its_writer_and_passes_over_what_it_cannot_read(tmp_path: Path) -> None:
    quarantine = Quarantine(tmp_path)
    assert quarantine.entries() == []
    quarantine.remove(UUID)
    quarantine.add(ENTRY)
    assert Quarantine(tmp_path).entries() == [ENTRY]
    assert Quarantine(tmp_path).get(UUID) == ENTRY
    assert Quarantine(tmp_path).get("GPU-other") is None
    (tmp_path / "quarantine" / "broken.json").write_text("{")
    assert Quarantine(tmp_path).entries() == [ENTRY]
    quarantine.remove(UUID)
    assert Quarantine(tmp_path).entries() == []


def test_what_tells_one_boot_from_the_next() -> None:
    now = health.machine()
    assert now["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert not health.changed(now, health.machine())
    before = {"boot_id": "b1", "driver_started": "500"}
    assert health.changed(before, {"boot_id": "b2", "driver_started": "500"})
    assert health.changed(before, {"boot_id": "b1", "driver_started": "900"})
    # In a container the threads of the driver are not to be seen: that alone says nothing.
    assert not health.changed(before, {"boot_id": "b1"})
    assert not health.changed({}, before)


def test_a_process_with_a_name_that_is_no_text_ends_no_look_at_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for process, name, began in ((7, b"pt_main_\xe2\x82", 5), (8, b"nv_queue", 900), (9, b"nv_queue", 700)):
        (tmp_path / str(process)).mkdir()
        fields = b" ".join([b"S", *[b"1"] * 18, str(began).encode(), b"0"])
        (tmp_path / str(process) / "stat").write_bytes(b"%d (%s) %s\n" % (process, name, fields))
    monkeypatch.setattr(health, "_PROC", tmp_path)
    assert health.machine()["driver_started"] == "700"


class Box:
    """A slot's health in a folder, on a machine and a driver set by hand."""

    def __init__(self, folder: Path) -> None:
        self.quarantine, self.session = Quarantine(folder), Session()
        self.machine, self.against, self.asked = {"boot_id": "b1"}, "", 0
        self.session.register()

    def ask(self, gpu: str) -> str:
        assert gpu == UUID
        self.asked += 1
        return self.against

    def health(self, *, present: bool = True, slot: Slot = SLOT) -> SlotHealth:
        return SlotHealth(
            slot, self.quarantine, self.session, present=present, ask=self.ask, machine=lambda: self.machine
        )


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def registers(box: Box) -> threading.Thread:
    """What the agent's main thread does: registers again when something was announced."""

    def run() -> None:
        until = time.monotonic() + 90
        while box.session.registered and time.monotonic() < until:
            time.sleep(0.001)
        box.session.register(box.session.announced)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def lost(box: Box, slot_health: SlotHealth, found: Failure | None = None) -> Failure | None:
    registering = registers(box)
    judged = slot_health.judged(WORK, found, AttemptLog(telemetry_json=json.dumps(LOST)))
    registering.join(90)
    return judged


def test_a_lost_gpu_is_out_of_service_before_its_failure_is_told(box: Box) -> None:
    kept = box.health()
    assert kept.takes_runs()
    told = lost(box, kept, problem(FailureClass.HANG, "it hung"))
    assert told is not None
    assert (told.failure_class, told.retryable) == (FailureClass.GPU_LOST, True)
    assert told.cause == (f"V100 {UUID} was lost ({WHY}), and is out of service; the run failed: it hung")
    assert f"assay-agent quarantine clear {UUID}" in told.remedy
    assert not kept.takes_runs()
    assert kept.slot is not None
    assert kept.slot.quarantine_reason == WHY
    [entry] = box.quarantine.entries()
    assert (entry.gpu, entry.index, entry.run, entry.machine) == (UUID, 1, str(WORK.key), {"boot_id": "b1"})
    assert box.session.announced == 1
    assert box.asked == 0, "there was no doubt"


def test_a_run_that_succeeds_on_a_gpu_that_is_lost_has_failed(box: Box) -> None:
    told = lost(box, box.health())
    assert told is not None
    assert told.failure_class is FailureClass.GPU_LOST


def test_in_doubt_the_driver_is_asked(box: Box) -> None:
    kept, doubtful = box.health(), problem(FailureClass.GPU_UNHEALTHY, "CUDA error 719")
    assert kept.judged(WORK, doubtful, AttemptLog()) is doubtful
    assert kept.takes_runs()
    assert box.asked == 1
    other = problem(FailureClass.APPLICATION_FAILED)
    assert kept.judged(WORK, other, AttemptLog()) is other
    assert box.asked == 1, "a program that fails says nothing about the GPU"
    box.against = "it needs a reset (NVML error 16)"
    registering = registers(box)
    told = kept.judged(WORK, doubtful, AttemptLog())
    registering.join(90)
    assert told is not None
    assert told.failure_class is FailureClass.GPU_LOST


def test_memory_that_runs_out_is_the_boxs_fault_only_next_to_a_foreign_process(box: Box) -> None:
    kept, own = box.health(), problem(FailureClass.GPU_MEMORY, "it ended", "CUDA out of memory")
    alone = AttemptLog(telemetry_json=json.dumps({"gpu": UUID, "foreign_processes": []}))
    shared = AttemptLog(telemetry_json=json.dumps({"gpu": UUID, "foreign_processes": ["77 python"]}))
    assert kept.judged(WORK, own, AttemptLog()) is own
    assert kept.judged(WORK, own, alone) is own
    told = kept.judged(WORK, own, shared)
    assert told is not None
    assert (told.failure_class, told.retryable) == (FailureClass.GPU_BUSY, True)
    assert told.cause == f"another process was on V100 {UUID} (77 python); the run failed: it ended"
    other = problem(FailureClass.APPLICATION_FAILED, "KeyError")
    assert kept.judged(WORK, other, shared) is other
    assert kept.judged(WORK, None, shared) is None
    assert kept.takes_runs()


def test_a_restart_of_the_agent_changes_nothing_a_reboot_or_a_reload_does(box: Box) -> None:
    lost(box, box.health())
    again = box.health()
    assert again.reason == WHY
    assert not again.takes_runs()
    assert box.asked == 0, "a GPU that merely answers again is not trusted"
    # A reboot is not enough where the driver still has something against it.
    box.machine, box.against = {"boot_id": "b2"}, "the driver lost it"
    objected = box.health()
    asked = box.asked
    assert not objected.takes_runs()
    assert box.asked == asked, "a driver that objects is not asked all the time"
    box.against = ""
    assert box.health().takes_runs()
    assert box.quarantine.entries() == []


def test_a_person_clears_it_while_the_agent_runs(box: Box) -> None:
    kept = box.health()
    lost(box, kept)
    announced = box.session.announced
    box.quarantine.remove(UUID)
    assert kept.takes_runs()
    assert kept.slot is not None
    assert kept.slot.quarantine_reason == ""
    assert box.session.announced == announced + 1, "the server hears of it"


def test_a_gpu_whose_entry_cannot_be_read_stays_out_of_service_until_it_is_gone(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = box.health()
    lost(box, kept)
    [file] = (box.quarantine._folder).iterdir()
    file.write_text("{")
    assert not kept.takes_runs()
    again = box.health()
    assert not again.takes_runs()
    assert "cannot be read" in again.reason
    monkeypatch.setattr(health, "ask", lambda gpu: "")
    done = RUNNER.invoke(app, ["quarantine", "clear", UUID, "--state", str(file.parents[1])])
    assert done.exit_code == 0, done.output
    assert again.takes_runs()
    file.symlink_to(file.parent / "nowhere")
    assert not box.health().takes_runs()
    box.quarantine.remove(UUID)
    assert box.health().takes_runs()


def test_a_gpu_whose_entry_cannot_be_written_stays_out_as_long_as_the_agent_lives(
    box: Box, tmp_path: Path
) -> None:
    (tmp_path / "quarantine").write_text("no folder")
    kept = box.health()
    lost(box, kept)
    assert not kept.takes_runs()


def test_a_gpu_that_is_gone_is_told_to_the_server_until_it_is_cleared(box: Box) -> None:
    box.quarantine.add(ENTRY)
    inventory = Inventory("box", "1", 1, 1, devices=(), driver_version="", cuda_driver_version="")
    [place] = missing_places(box.quarantine.entries(), inventory, [])
    assert place.profilers == {}
    assert (place.slot.slot_id, place.slot.device.name, place.slot.device.sm_count) == (UUID, "V100", 80)
    assert list(place.slot.profilers) == ["nsight_compute"]
    assert list(missing_places([ENTRY], inventory, [Place(place.slot, {})])) == []
    hidden = InstalledDevice(1, "V100", UUID, "7.0", 80, 1, left_out="not this agent's")
    assert list(missing_places([ENTRY], Inventory("b", "1", 1, 1, devices=(hidden,)), [])) == []
    ghost = box.health(present=False, slot=place.slot)
    assert ghost.slot is not None
    assert ghost.slot.quarantine_reason == ENTRY.reason
    box.machine = {"boot_id": "b2"}
    assert not ghost.takes_runs(), "it is still not there"
    assert box.quarantine.entries() == [ENTRY], "and a reboot that did not bring it back is no repair"
    box.quarantine.remove(UUID)
    assert not ghost.takes_runs()
    assert ghost.slot is None


def test_an_announcement_during_a_registration_is_not_lost() -> None:
    session = Session()
    announced = session.announced
    session.announce()
    session.register(announced)
    assert not session.registered
    session.register(session.announced)
    assert session.registered


def invoke(*arguments: str) -> Any:
    return RUNNER.invoke(app, ["quarantine", *arguments])


def test_the_verb_lists_and_clears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = ("--state", str(tmp_path))
    assert invoke("list", *state).stdout == "no GPU is out of service\n"
    assert json.loads(invoke("list", "--json", *state).stdout) == {"quarantined": []}
    Quarantine(tmp_path).add(ENTRY)
    listed = invoke("list", *state).stdout
    assert f"  1  {UUID}  V100, since 2027-01-15T08:00:00Z: XID 79: it fell off the bus" in listed
    assert f"lost in {ENTRY.run}; reset or replace it, then: assay-agent quarantine clear {UUID}" in listed
    [entry] = json.loads(invoke("list", "--json", *state).stdout)["quarantined"]
    assert (entry["gpu"], entry["index"], entry["reason"]) == (UUID, 1, ENTRY.reason)
    assert isinstance(invoke("clear", "0", *state).exception, ParameterError)
    sensors(Quiet(nvmlDeviceGetClockInfo=15), monkeypatch)
    refused = invoke("clear", "1", *state).exception
    assert isinstance(refused, RefusedError)
    assert "the driver lost it" in refused.cause
    assert Quarantine(tmp_path).entries() == [ENTRY]
    assert invoke("clear", "1", "--force", *state).exit_code == 0
    Quarantine(tmp_path).add(ENTRY)
    sensors(Quiet(), monkeypatch)
    cleared = invoke("clear", UUID[:12], "--json", *state)
    assert json.loads(cleared.stdout)["cleared"]["gpu"] == UUID
    assert Quarantine(tmp_path).entries() == []


def test_doctor_and_probe_name_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Quarantine(tmp_path).add(ENTRY)
    checks = {check.name: check for check in doctor.examine("agent", tmp_path)}
    check = checks[f"quarantine {UUID}"]
    assert (check.state, ENTRY.reason in check.found) == ("note", True)
    assert f"assay-agent quarantine clear {UUID}" in check.remedy
    gpus = (InstalledDevice(1, "V100", UUID, "7.0", 80, 1), InstalledDevice(2, "V100", "GPU-2", "7.0", 80, 1))
    monkeypatch.setattr(probe, "read_inventory", lambda: Inventory("box", "1", 1, 1, devices=gpus))
    lost, other = probe.probe_box(tmp_path)["gpus"]
    assert lost["takes_no_runs"] == f"out of service: {ENTRY.reason}"
    assert "out of service" not in other["takes_no_runs"]


def test_two_that_are_called_alike_are_told_apart_by_the_whole_uuid(tmp_path: Path) -> None:
    other = f"{UUID[:-1]}6"
    for gpu in (UUID, other):
        Quarantine(tmp_path).add(Quarantined(gpu, 0, "virtual V100", "lost", "run", 1, synthetic=True))
    for ambiguous in ("0", "GPU-"):
        refused = invoke("clear", ambiguous, "--state", str(tmp_path)).exception
        assert isinstance(refused, ParameterError)
        assert "it matches 2 GPUs out of service" in refused.cause
    assert invoke("clear", other, "--state", str(tmp_path)).exit_code == 0
    assert [entry.gpu for entry in Quarantine(tmp_path).entries()] == [UUID]
