"""Runs over several GPUs on the agent: all locked, watched and recorded, each judged by its own sensors."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from assay_agent.config import VirtualGPUs
from assay_agent.daemon.places import Place, virtual_places
from assay_agent.doctor.gangs import gang_checks
from assay_agent.execution import environment
from assay_agent.execution.environment import MeasuredGPU, gang_of, tool_environment, workspace
from assay_agent.execution.errors import ProfilerError
from assay_agent.health import gang_health
from assay_agent.health.quarantine import Quarantine
from assay_agent.health.slot_health import SlotHealth
from assay_agent.profilers.gang import require_whole_gang
from assay_agent.uplink.session import Session
from assay_core.records.attempt import AttemptLog
from assay_core.records.failure import failure
from assay_core.records.machine import InstalledDevice, Inventory, Slot
from assay_core.records.work import CommandSource
from assay_sampling.launches.table import Device
from assay_sampling.running.failures import FailureClass
from tests.support.agent.assignments import WORK
from tests.support.agent.tool_bench import SYSTEMS, WORKLOAD

UUIDS = ("GPU-c", "GPU-a", "GPU-b")
LIGHT = replace(WORK, level="light", profiler=SYSTEMS, synthetic=True)
NEVER = threading.Event()


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def real_box() -> dict[str, MeasuredGPU]:
    """Three GPUs of a box, in its order."""
    box: dict[str, MeasuredGPU] = {}
    for uuid in UUIDS:
        box[uuid] = MeasuredGPU(Device(0, "V100", uuid, "7.0", 80), path="/bin", box=box)
    return box


def test_the_ordinals_of_gpus_follow_the_box_whoever_leads(tmp_path: Path) -> None:
    box = real_box()
    for leader in ("GPU-a", "GPU-c"):
        (other,) = {"GPU-a", "GPU-c"} - {leader}
        made = tool_environment(box[leader], tmp_path, tmp_path, replace(WORK, gang=(other,)))
        assert made["CUDA_VISIBLE_DEVICES"] == "GPU-c,GPU-a"
    alone = tool_environment(box["GPU-b"], tmp_path, tmp_path, WORK)
    assert alone["CUDA_VISIBLE_DEVICES"] == "GPU-b"
    with pytest.raises(ProfilerError, match="has no GPU-x"):
        gang_of(box["GPU-a"], replace(WORK, gang=("GPU-x",)))


def test_all_gpus_of_a_gang_are_locked_in_one_order_and_freed_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "_LOCK_SECONDS", 0.0)
    box = real_box()
    with workspace(box["GPU-c"], tmp_path / "s", replace(WORK, gang=("GPU-a",)), NEVER) as space:
        assert set(space.others) == {"GPU-a"} and len(set(space.locks)) == 2
        for uuid in ("GPU-a", "GPU-c"):
            with pytest.raises(ProfilerError, match=uuid), workspace(box[uuid], tmp_path / "t", WORK, NEVER):
                pass
        with workspace(box["GPU-b"], tmp_path / "t", WORK, NEVER):
            pass
    taken: list[str] = []
    real = environment.private_directory

    def noted(gpu: MeasuredGPU) -> Path:
        taken.append(gpu.device.uuid)
        return real(gpu)

    monkeypatch.setattr(environment, "private_directory", noted)
    for leader, other in (("GPU-a", "GPU-c"), ("GPU-c", "GPU-a")):
        with workspace(box[leader], tmp_path / "s", replace(WORK, gang=(other,)), NEVER):
            pass
    assert taken == ["GPU-a", "GPU-c"] * 2


@pytest.mark.parametrize(("seen", "whole"), [({0, 1, 2}, True), ({0}, False), ({0, 1, 2, 3}, False)])
def test_a_recording_of_a_gang_shows_every_gpu_of_it(seen: set[int], whole: bool) -> None:
    work = replace(LIGHT, gang=("x", "y"))
    require_whole_gang(LIGHT, {0})
    if whole:
        require_whole_gang(work, seen)
        return
    with pytest.raises(ProfilerError) as caught:
        require_whole_gang(work, seen)
    assert caught.value.failure.failure_class == FailureClass.NOTHING_PROFILED


# --- virtual GPUs


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Place]]:
    yield list(virtual_places([VirtualGPUs("V100", 3)], tmp_path_factory.mktemp("agent")))


def recorded(
    place: Place, others: tuple[str, ...], folder: Path, ranks: int = 1, said: int = 0
) -> tuple[dict[int, pa.Table], Any]:
    """The launches of each rank of a light run over several GPUs, and the measurement."""
    (folder / "small.toml").write_text(WORKLOAD.replace("seed = 3", f"seed = 3\nprocesses = {ranks}"))
    command = CommandSource(("small.toml",), {}, str(folder), 60.0, processes=said)
    work = replace(LIGHT, command=command, gang=others)
    profiler = place.profilers[SYSTEMS]
    with profiler.run(work, NEVER) as measurement:
        found = pa.Table.from_batches([batch.records for batch in measurement.batches()])
    return {
        process: found.filter(pc.equal(found["process"], process))
        for process in found["process"].unique().to_pylist()
    }, measurement


def devices(ranks: dict[int, pa.Table]) -> dict[int, list[int]]:
    return {process: table["device"].unique().to_pylist() for process, table in ranks.items()}


def test_every_gpu_of_a_gang_plays_a_rank(places: list[Place], tmp_path: Path) -> None:
    assert all(place.slot.gangs for place in places)
    uuids = [place.slot.slot_id for place in places]
    found, measurement = recorded(places[1], (uuids[0], uuids[2]), tmp_path)
    assert devices(found) == {0: [0], 1: [1], 2: [2]}
    times = [found[rank]["duration_ns"].to_pylist() for rank in range(3)]
    assert times[0] != times[1] != times[2]
    assert json.loads(measurement.log.telemetry_json)["gpu"] == uuids[1]
    assert [each["gpu"] for each in measurement.log.telemetry["gang"]] == [uuids[0], uuids[2]]
    alone, _ = recorded(places[0], (), tmp_path)
    assert alone[0]["duration_ns"].to_pylist() == times[0]


def test_a_light_run_fails_unless_every_process_that_should_launch_kernels_did(
    places: list[Place], tmp_path: Path
) -> None:
    found, _ = recorded(places[0], (), tmp_path, ranks=3, said=3)
    assert devices(found) == {0: [0], 1: [0], 2: [0]}
    with pytest.raises(
        ProfilerError, match="kernels of 3 processes were recorded, and the campaign file says 4"
    ):
        recorded(places[0], (), tmp_path, ranks=3, said=4)


def test_ranks_of_a_file_go_round_over_the_gpus_of_a_gang(places: list[Place], tmp_path: Path) -> None:
    uuids = [place.slot.slot_id for place in places]
    found, _ = recorded(places[0], (uuids[1],), tmp_path, ranks=4)
    assert devices(found) == {0: [0], 1: [1], 2: [0], 3: [1]}
    with pytest.raises(ProfilerError, match="3 ranks cannot share 2 GPUs"):
        recorded(places[0], (uuids[1],), tmp_path, ranks=3)


@pytest.mark.parametrize("profiler", ["nsight_compute", "kineto"])
def test_what_cannot_measure_several_gpus_refuses_before_anything_runs(
    places: list[Place], profiler: str, tmp_path: Path
) -> None:
    level = "detailed" if profiler == "nsight_compute" else "light"
    command = CommandSource(("small.toml",), {}, str(tmp_path), 60.0, kineto_file="trace.json")
    work = replace(LIGHT, level=level, profiler=profiler, command=command, gang=("x",))
    with pytest.raises(ProfilerError, match="measures runs on one GPU, and this one has 2"):
        places[0].profilers[profiler].plan(work)


# --- health


class Box:
    """The health of three GPUs; ``broken`` are those of which the driver says so."""

    def __init__(self, state: Path, broken: tuple[str, ...] = (), *, synthetic: bool = False) -> None:
        self.quarantine, session = Quarantine(state), Session()
        session.stop()  # nobody waits for a server
        self.healths = {
            uuid: SlotHealth(
                Slot(uuid, (), synthetic, InstalledDevice(number, "V100", uuid)),
                self.quarantine,
                session,
                ask=lambda gpu: "it fell off the bus" if gpu in broken else "",
                machine=dict,
            )
            for number, uuid in enumerate(UUIDS)
        }

    def judged(self, problem: Any, **telemetry: Any) -> Any:
        log = AttemptLog(telemetry_json=json.dumps({"gpu": UUIDS[0], **telemetry}))
        work = replace(LIGHT, gang=UUIDS[1:])
        return gang_health.judged(self.healths[UUIDS[0]], self.healths, work, problem, log)

    @property
    def out(self) -> list[str]:
        return [entry.gpu for entry in self.quarantine.entries()]


def test_the_gpu_whose_sensors_lost_it_is_out_of_service_and_no_other(tmp_path: Path) -> None:
    box = Box(tmp_path)
    others = [{"gpu": UUIDS[1]}, {"gpu": UUIDS[2], "xid_events": [79]}]
    found = box.judged(None, gang=others)
    assert found.failure_class == FailureClass.GPU_LOST and UUIDS[2] in found.cause
    assert box.out == [UUIDS[2]]
    work = replace(LIGHT, gang=UUIDS[1:])
    with pytest.raises(ProfilerError, match=f"GPU {UUIDS[2]} of the gang takes no runs"):
        gang_health.require_healthy(work, box.healths)
    gang_health.require_healthy(replace(work, gang=(UUIDS[1],)), box.healths)


def test_what_a_tool_says_of_a_lost_gpu_is_asked_of_each(tmp_path: Path) -> None:
    problem = failure(FailureClass.GPU_UNHEALTHY, "run", tool_said="GPU is lost")
    box = Box(tmp_path, broken=(UUIDS[1],))
    assert box.judged(problem, gang=[{"gpu": uuid} for uuid in UUIDS[1:]]).failure_class == "gpu_lost"
    assert box.out == [UUIDS[1]]
    sound = Box(tmp_path / "sound")
    assert sound.judged(problem) is problem and sound.out == []


def test_a_run_on_one_gpu_is_judged_as_before(tmp_path: Path) -> None:
    box = Box(tmp_path)
    problem = failure(FailureClass.GPU_UNHEALTHY, "run", tool_said="GPU is lost")
    found = gang_health.judged(box.healths[UUIDS[0]], box.healths, LIGHT, problem, AttemptLog())
    assert found is not None and found.failure_class == FailureClass.GPU_LOST and box.out == [UUIDS[0]]


# --- the doctor


def test_the_doctor_says_how_many_gpus_a_run_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"GPU-1": "H100", "GPU-2": "H100", "GPU-3": "L4", "MIG-4": "A100", "MIG-5": "A100"}
    devices = [InstalledDevice(number, name, uuid) for number, (uuid, name) in enumerate(names.items())]
    away = InstalledDevice(5, "H100", "GPU-6", problem="it fell off the bus")
    inventory = Inventory(devices=(*devices, away))
    for program, state in (("/bin/nsys", "ok"), (None, "note")):
        monkeypatch.setattr("shutil.which", lambda name, found=program: found)
        [check] = gang_checks(inventory)
        assert (check.name, check.state) == ("gangs of H100", state) and "2 GPUs" in check.found
