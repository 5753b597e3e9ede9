"""One contract for every profiler: virtual ones, a real one whose tool gives recorded answers, the player."""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from assay_agent.config import VirtualGPUs
from assay_agent.daemon.places import virtual_places
from assay_agent.execution.environment import MeasuredGPU
from assay_agent.execution.errors import ProfilerError
from assay_agent.execution.tool_version import ToolBox
from assay_agent.profilers.ncu.profiler import NsightComputeProfiler
from assay_agent.profilers.nsys.profiler import NsightSystemsProfiler
from assay_agent.profilers.recorded import RecordedProfiler
from assay_agent.profilers.seam import Measurement, Profiler
from assay_core.records.work import CommandSource, RecordedSource, Work
from assay_sampling.launches.table import Device, LaunchBatch, table_metadata
from assay_sampling.running.failures import FailureClass
from assay_sampling.running.validity import FLAGS
from tests.support.agent.assignments import WORK
from tests.support.agent.scripted_tools import INPUTS, NCU, NSYS
from tests.support.agent.tool_bench import WORKLOAD

pytestmark = pytest.mark.processes


@dataclass(frozen=True)
class Bench:
    """A profiler with work that it does, work of which its workload fails, and work that is not for it."""

    profiler: Profiler
    work: Work
    failing: Work
    unfit: Work
    launches: int


def box_with(tool: str, script: str, folder: Path) -> MeasuredGPU:
    """A V100 on a box whose only tool is this script."""
    tools = folder / "tools"
    tools.mkdir()
    (tools / tool).write_text(script)
    (tools / tool).chmod(0o755)
    # A UUID of its own: tests that run side by side must not wait for one GPU's lock.
    device = Device(0, "Tesla V100-SXM2-16GB", f"GPU-{uuid.uuid4()}", "7.0", 80)
    return MeasuredGPU(device, path=f"{tools}:/usr/bin:/bin")


def nsight_compute(folder: Path) -> Bench:
    gpu = box_with("ncu", NCU.format(page=INPUTS / "window.csv"), folder)
    command = CommandSource(("/bin/sh", "-c", "exit 0"), {}, str(folder), 30.0)
    counters = ("cycles_gpc_avg", "instructions", "global_load_sectors")
    work = replace(
        WORK, level="detailed", profiler="nsight_compute", command=command, launch_count=20, counters=counters
    )
    return Bench(
        NsightComputeProfiler(gpu, ToolBox(), folder / "state"),
        work,
        replace(work, command=replace(command, argv=("/bin/sh", "-c", "exit 3"))),
        replace(work, level="light", launch_count=0, counters=()),
        launches=20,
    )


def nsight_systems(folder: Path) -> Bench:
    gpu = box_with("nsys", NSYS.format(recording=INPUTS / "light.sqlite"), folder)
    command = CommandSource(("/bin/sh", "-c", "exit 0"), {}, str(folder), 30.0)
    work = replace(WORK, level="light", profiler="nsight_systems", command=command)
    return Bench(
        NsightSystemsProfiler(gpu, ToolBox(), folder / "state"),
        work,
        replace(work, command=replace(command, argv=("/bin/sh", "-c", "exit 3"))),
        replace(work, level="detailed"),
        launches=160,
    )


def virtual(folder: Path, profiler: str) -> Bench:
    (folder / "small.toml").write_text(WORKLOAD)
    [place] = virtual_places([VirtualGPUs("V100")], folder / "state")
    detailed = profiler == "nsight_compute"
    counters = ("cycles_gpc_avg",) if detailed else ()
    command = CommandSource(("small.toml",), {}, str(folder), 30.0)
    work = replace(
        WORK, level="detailed" if detailed else "light", profiler=profiler, command=command, synthetic=True,
        launch_count=20 if detailed else 0, counters=counters,
    )  # fmt: skip
    failing = replace(command, environment={"ASSAY_VIRTUAL_FAULTS": "application_failed:3"})
    unfit = replace(work, level="light" if detailed else "detailed", launch_count=0, counters=())
    launches = 20 if detailed else 60
    fails = replace(work, command=failing, launch_count=0)
    return Bench(place.profilers[profiler], work, fails, unfit, launches)


def recorded(folder: Path) -> Bench:
    shutil.copy(INPUTS / "cut.json", folder / "cut.json")
    work = replace(
        WORK, level="light", profiler="recorded", command=None,
        recorded=RecordedSource(INPUTS / "light.json", recorded_time=False),
    )  # fmt: skip
    failing = replace(work, recorded=RecordedSource(folder / "cut.json", recorded_time=False))
    return Bench(RecordedProfiler(), work, failing, replace(work, recorded=None), launches=160)


BENCHES: dict[str, Callable[[Path], Bench]] = {
    "nsight_compute, recorded answers": nsight_compute,
    "nsight_systems, recorded answers": nsight_systems,
    "nsight_systems, virtual": lambda folder: virtual(folder, "nsight_systems"),
    "nsight_compute, virtual": lambda folder: virtual(folder, "nsight_compute"),
    "recorded": recorded,
}


@pytest.fixture(params=BENCHES)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return BENCHES[request.param](tmp_path)


def measured(
    bench: Bench, work: Work, cancelled: threading.Event | None = None
) -> tuple[list[LaunchBatch], Measurement]:
    with bench.profiler.run(work, cancelled or threading.Event()) as measurement:
        batches = list(measurement.batches())
    return batches, measurement


def test_planning_changes_nothing_and_gives_the_command_that_is_kept_in_the_log(bench: Bench) -> None:
    planned = bench.profiler.plan(bench.work)
    assert planned == bench.profiler.plan(bench.work)
    _, measurement = measured(bench, bench.work)
    assert (planned is None) == (bench.work.command is None)
    assert bool(measurement.log.command) == (planned is not None)
    if planned is not None:
        # The tool comes before the workload, whose words are last.
        assert measurement.log.command[-1].endswith(planned[-1])


def test_launches_are_all_there_in_order_under_one_schema(bench: Bench) -> None:
    batches, _ = measured(bench, bench.work)
    assert len({batch.records.schema.to_string() for batch in batches}) == 1
    ordinals = [value for batch in batches for value in batch.records["launch"].to_pylist()]
    assert ordinals == list(range(bench.launches))
    told = {identifier for batch in batches for identifier in batch.new_names}
    used = {value for batch in batches for value in batch.records["kernel_id"].to_pylist()}
    assert used <= told


def test_tables_carry_the_mark_of_what_was_measured(bench: Bench) -> None:
    batches, _ = measured(bench, bench.work)
    assert table_metadata(batches[0].records.schema).synthetic is bench.work.synthetic


def test_flags_are_those_of_the_registry(bench: Bench) -> None:
    _, measurement = measured(bench, bench.work)
    assert {flag.name for flag in measurement.flags} <= set(FLAGS)


def test_work_of_another_kind_is_refused_before_anything_runs(bench: Bench) -> None:
    for ask in (bench.profiler.plan, lambda work: bench.profiler.run(work, threading.Event())):
        with pytest.raises(ProfilerError):
            ask(bench.unfit)


def test_a_failure_has_a_class_of_the_registry_a_subject_and_a_cause(bench: Bench) -> None:
    with pytest.raises(ProfilerError) as caught:
        measured(bench, bench.failing)
    assert caught.value.failure_class in (FailureClass.APPLICATION_FAILED, FailureClass.INPUT_UNREADABLE)
    assert caught.value.subject and caught.value.cause


def test_a_cancelled_run_ends_after_the_batch_at_hand_and_without_an_error(bench: Bench) -> None:
    cancelled = threading.Event()
    cancelled.set()
    batches, _ = measured(bench, bench.work, cancelled)
    assert len(batches) <= 1
