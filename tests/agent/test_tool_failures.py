"""Every fault of a tool, provoked with the stand-ins: class, message, remedy, retry."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from assay_agent.config import VirtualGPUs
from assay_agent.daemon.places import virtual_places
from assay_agent.execution.environment import MeasuredGPU
from assay_agent.execution.errors import ProfilerError
from assay_agent.execution.tool_version import ToolBox
from assay_agent.profilers import live
from assay_agent.profilers.ncu.profiler import NsightComputeProfiler
from assay_agent.profilers.nsys.profiler import NsightSystemsProfiler
from assay_agent.profilers.seam import Measurement
from assay_core.processes import tool_run
from assay_core.records.work import CommandSource
from assay_sampling.launches.table import BASELINE, Condition, Device, table_metadata
from assay_sampling.running.failures import FailureClass
from tests.support.agent.assignments import WORK
from tests.support.agent.fake_server import wait_for
from tests.support.agent.tool_bench import COMPUTE, SYSTEMS, WORKLOAD, Bench, failed
from tests.support.machine.commands import running_commands

NCU_THAT_LEAVES = """\
#!/bin/sh
case $1 in
  --version) echo Version 2024.1.1.0; exit ;;
  --help) echo "  --kill arg"; exit ;;
esac
while [ "$1" != --log-file ]; do shift; done
sleep 60 > $2.output 2>&1 &
echo "==PROF== Connected to process $! (/bin/sleep)" > $2
[ -z "@farewell@" ] || echo "==PROF== Disconnected from process $!" >> $2
echo '==PROF== Profiling "k" - 0 (1/20): 0%....50%....100% - 1 pass' >> $2
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    state = tmp_path_factory.mktemp("state")
    folder = tmp_path_factory.mktemp("workloads")
    (folder / "small.toml").write_text(WORKLOAD)
    (place,) = virtual_places([VirtualGPUs("V100")], state)
    return Bench(place, folder)


F = FailureClass
DETAILED = [
    ("permission", F.PERMISSION, "the tool says: ==ERROR== ERR_NVGPUCTRPERM"),
    ("counter_busy", F.COUNTER_BUSY, "a driver resource was unavailable"),
    ("lock_file", F.LOCK_FILE, "Failed to open/create lock file"),
    ("metric_unknown", F.METRIC_UNKNOWN, "refused gpc__cycles_elapsed.avg when it profiled"),
    ("unsupported_gpu", F.METRIC_UNKNOWN, "Unsupported GPU"),
    ("report_short", F.REPORT_SHORT, "profiled 20 launches, but its report has 14"),
    ("stopped", F.WINDOW_SHORT, "told to stop, and ended the workload, after 6 of 20 launches"),
    ("report_truncated", F.REPORT_SHORT, "Failed to load report file"),
    ("output_exists", F.LOCK_FILE, "already exists"),
    ("disk_full", F.DISK_FULL, "disk space"),
    ("nothing_profiled", F.NOTHING_PROFILED, "No kernels were profiled"),
    ("no_driver", F.DRIVER_UNUSABLE, "failed to connect to the CUDA driver"),
    ("gpu_lost", F.GPU_UNHEALTHY, "LaunchFailed"),
]
# "report_short" is not among them: nothing in a trace tells that its end is missing.
LIGHT = [
    ("report_truncated", F.REPORT_SHORT, "Exportation error"),
    ("output_exists", F.LOCK_FILE, "File exists"),
    ("disk_full", F.DISK_FULL, "No space left on device"),
    ("nothing_profiled", F.NOTHING_PROFILED, "no kernels were captured"),
    ("no_driver", F.DRIVER_UNUSABLE, "no CUDA-capable device"),
    ("gpu_lost", F.GPU_UNHEALTHY, "CUDA error 719"),
    ("application_failed:7", F.APPLICATION_FAILED, "exit status 7"),
    ("application_killed:9", F.APPLICATION_FAILED, "exit status 137"),
    ("importer_failed", F.IMPORTER_FAILED, "Importer error status"),
    ("dropped_events", F.DROPPED_EVENTS, "the profiler says"),
    ("lost_events", F.DROPPED_EVENTS, "the profiler lost kernels: 6 launch calls have no kernel in the file"),
]


def check(error: ProfilerError, failure_class: FailureClass, cause: str) -> None:
    assert error.failure_class is failure_class, str(error)
    assert cause in error.cause
    assert error.failure.retryable is failure_class.retryable
    assert error.remedy
    assert error.subject.startswith("run c-1.0000")


@pytest.mark.processes
@pytest.mark.parametrize(("fault", "failure_class", "cause"), DETAILED)
def test_faults_of_nsight_compute(fault: str, failure_class: FailureClass, cause: str, bench: Bench) -> None:
    check(failed(bench, bench.work(COMPUTE, fault)), failure_class, cause)


@pytest.mark.processes
@pytest.mark.parametrize(("fault", "failure_class", "cause"), LIGHT)
def test_faults_of_nsight_systems(fault: str, failure_class: FailureClass, cause: str, bench: Bench) -> None:
    check(failed(bench, bench.work(SYSTEMS, fault)), failure_class, cause)


@pytest.mark.processes
def test_a_light_run_has_no_window_that_could_cut_its_end_off(bench: Bench) -> None:
    """What a file of unknown origin may lack, because its window ended, our own whole run lost."""
    slow = WORKLOAD.replace("repeat = 60", "repeat = 600").replace("4096", "1")
    (bench.folder / "long.toml").write_text(f"launch_interval_ns = 1000000\n{slow}")
    command = CommandSource(("long.toml",), {"ASSAY_VIRTUAL_FAULTS": "lost_end"}, str(bench.folder), 30.0)
    error = failed(bench, bench.work(SYSTEMS, command=command))
    check(error, F.DROPPED_EVENTS, "ended before the kernels of its last launch call ran")


@pytest.mark.processes
@pytest.mark.parametrize(("fault", "code"), [("application_failed:7", 7), ("application_killed:11", 11)])
def test_a_workload_that_fails_before_the_end_of_its_slice(fault: str, code: int, bench: Bench) -> None:
    error = failed(bench, bench.work(COMPUTE, fault, launch_count=0))
    check(error, F.APPLICATION_FAILED, f"The application returned an error code ({code})")
    assert "the last words of its output" in error.cause


@pytest.mark.processes
def test_the_last_words_are_the_workloads_not_those_of_nsys(bench: Bench) -> None:
    command = CommandSource(("/bin/sh", "-c", "echo no such data set; exit 7"), {}, str(bench.folder), 30.0)
    error = failed(bench, bench.work(SYSTEMS, command=command))
    check(error, F.APPLICATION_FAILED, "the last words of its output: no such data set")


@pytest.mark.processes
@pytest.mark.parametrize("profiler", [COMPUTE, SYSTEMS])
def test_a_hang_ends_with_the_time_limit(
    profiler: str, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = tool_run.EndingSteps(0.5, 0.5)
    monkeypatch.setattr(live, "run_tool", lambda *a, **more: tool_run.run_tool(*a, **more, ending=steps))
    work = bench.work(profiler, "hang:stubborn")
    assert work.command is not None
    error = failed(bench, replace(work, command=replace(work.command, timeout_s=3.0)))
    check(error, F.HANG, "after its time limit of 3 s")
    if profiler == COMPUTE:
        assert "is taking more time than expected" in error.cause


@pytest.mark.processes
@pytest.mark.parametrize(
    ("profiler", "victim"),
    [
        (COMPUTE, "assay_virtual.tools"),
        (SYSTEMS, "assay_virtual.tools"),
        (COMPUTE, "supervisor.py"),
    ],
)
def test_a_tool_that_somebody_kills_says_nothing_of_the_workload_and_is_tried_again(
    profiler: str, victim: str, bench: Bench
) -> None:
    errors: list[ProfilerError] = []
    work = bench.work(profiler, "hang")
    thread = threading.Thread(target=lambda: errors.append(failed(bench, work)))
    thread.start()
    jobs = str(live_jobs(bench))
    wait_for(lambda: processes_naming(jobs, victim))
    os.kill(processes_naming(jobs, victim)[0], signal.SIGKILL)
    thread.join(20)
    assert not thread.is_alive()
    check(errors[0], F.REPORT_SHORT, "was killed")
    assert errors[0].failure.retryable


def processes_naming(*texts: str) -> list[int]:
    return [
        process for process, command in running_commands() if all(text.encode() in command for text in texts)
    ]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("left", "failure_class", "cause"),
    [
        ('touch "$stem.qdstrm"', F.IMPORTER_FAILED, "only the raw file trace.qdstrm is there"),
        ('touch "$stem.nsys-rep"', F.REPORT_SHORT, "wrote no report trace.nsys-rep"),
        (
            'echo x > "$stem.nsys-rep"; touch -d 2020-01-01 "$stem.nsys-rep"',
            F.REPORT_SHORT,
            "wrote no report",
        ),
        ("true", F.REPORT_SHORT, "wrote no report trace.nsys-rep"),
    ],
)
def test_status_0_of_nsys_without_a_word_and_without_its_report(
    left: str, failure_class: FailureClass, cause: str, bench: Bench, tmp_path: Path
) -> None:
    nsys = tmp_path / "nsys"
    nsys.write_text(
        "#!/bin/sh\ncase $1 in --version) echo NVIDIA Nsight Systems version 2023.4.4.54; exit ;; esac\n"
        'for word; do case $word in --help) printf "\\t--output=\\n"; exit ;; '
        f"--output=*) stem=${{word#--output=}} ;; esac; done\n{left}\nexit 0\n"
    )
    nsys.chmod(0o755)
    light: Any = bench.place.profilers[SYSTEMS]
    gpu = replace(light._gpu, path=f"{tmp_path}:/usr/bin:/bin", scope=str(tmp_path))
    with (
        pytest.raises(ProfilerError) as caught,
        NsightSystemsProfiler(gpu, ToolBox(), tmp_path).run(bench.work(SYSTEMS), threading.Event()) as run,
    ):
        list(run.batches())
    check(caught.value, failure_class, cause)


@pytest.mark.processes
def test_a_cancelled_run_ends_at_once_and_says_nothing(bench: Bench) -> None:
    cancelled = threading.Event()
    results: list[tuple[pa.Table, Measurement]] = []
    work = bench.work(COMPUTE, "hang")
    thread = threading.Thread(target=lambda: results.append(bench.measure(work, cancelled)))
    thread.start()
    log = live_log(bench)
    wait_for(lambda: log() and "Profiling" in log())
    cancelled.set()
    thread.join(20)
    assert not thread.is_alive()
    assert results[0][0].num_rows == 0


def live_jobs(bench: Bench) -> Path:
    profilers = bench.place.profilers.values()
    (gpu_tools,) = {str(p._state) for p in profilers if hasattr(p, "_state")}
    return Path(gpu_tools) / "jobs"


def live_log(bench: Bench) -> Callable[[], str]:
    path = live_jobs(bench) / "c-1.0000-0-1" / "ncu.log"
    return lambda: path.read_text() if path.exists() else ""


@pytest.mark.processes
def test_flags_of_a_detailed_run(bench: Bench) -> None:
    condition = replace(BASELINE, clock="base")
    work = bench.work(COMPUTE, "clock_unlocked,counters_nan", condition=condition, launch_count=100)
    table, measurement = bench.measure(work)
    flags = {flag.name: flag.detail for flag in measurement.flags}
    assert set(flags) == {"clock_unlocked", "counters_nan", "slice_short"}
    assert "lock GPU clock" in flags["clock_unlocked"]
    assert "cycles_gpc_avg: 20 of 60 launches" in flags["counters_nan"]
    assert flags["slice_short"] == "the workload ended after 60 of 100 launches"
    assert table["launch"].to_pylist() == list(range(60))


@pytest.mark.processes
def test_a_slice_is_numbered_marked_and_labelled(bench: Bench) -> None:
    counters = ("instructions", "tensor_memory_instructions")
    condition = Condition("all", "none", 100.0)
    work = bench.work(COMPUTE, launch_skip=30, launch_count=10, counters=counters, condition=condition)
    table, measurement = bench.measure(work)
    assert table["launch"].to_pylist() == list(range(30, 40))
    metadata = table_metadata(table.schema)
    assert (metadata.synthetic, metadata.level, metadata.condition) == (True, "detailed", condition)
    assert metadata.tool_version == "2024.1.1.0"
    assert metadata.devices == (Device(0, "virtual V100", "GPU-virtual-V100-0", "7.0", 80),)
    assert [flag.name for flag in measurement.flags] == ["metrics_missing"]
    assert "small.toml" in measurement.log.command
    assert measurement.log.text.count("==PROF== Profiling") == 2


@pytest.mark.processes
def test_processes_that_connect_and_launch_nothing_interleave_nothing(bench: Bench) -> None:
    """ncu says "Connected" for every process that asks for a GPU, whether it launches or not."""
    (bench.folder / "small.toml").write_text(WORKLOAD.replace("seed = 3", "seed = 3\nhelpers = 2"))
    try:
        table, measurement = bench.measure(bench.work(COMPUTE, launch_skip=30, launch_count=10))
    finally:
        (bench.folder / "small.toml").write_text(WORKLOAD)
    assert measurement.log.text.count("==PROF== Connected") == 6  # of two profiles
    assert table["launch"].to_pylist() == list(range(30, 40))
    assert set(table["process"].to_pylist()) == {0}
    assert measurement.flags == ()


@pytest.mark.processes
def test_a_slice_behind_the_end_is_empty_and_no_failure(bench: Bench) -> None:
    table, measurement = bench.measure(bench.work(COMPUTE, launch_skip=60))
    assert table.num_rows == 0
    assert [flag.name for flag in measurement.flags] == ["slice_empty"]


@pytest.mark.processes
def test_a_tool_that_was_told_to_stop_has_not_seen_the_end_of_the_workload(bench: Bench) -> None:
    """It is no empty slice behind the end: the tool was stopped while it still skipped launches."""
    error = failed(bench, bench.work(COMPUTE, "stopped", launch_skip=57, launch_count=3))
    check(error, F.WINDOW_SHORT, "told to stop, and ended the workload, after 1 of 3 launches")
    error = failed(bench, bench.work(COMPUTE, "stopped", launch_skip=60, launch_count=3))
    check(error, F.WINDOW_SHORT, "after 0 of 3 launches")


@pytest.mark.processes
@pytest.mark.parametrize(
    ("farewell", "failure_class", "cause"),
    [
        ("", F.WINDOW_SHORT, "of the workload still ran, after 1 of 20 launches"),
        # The process had said all it had to say, and only took long to end.
        ("said", F.REPORT_SHORT, "wrote no report"),
    ],
)
def test_a_tool_that_ends_before_its_workload_has_no_whole_window(
    bench: Bench, tmp_path: Path, farewell: str, failure_class: F, cause: str
) -> None:
    """It says nothing of it, and leaves a process that it was connected to."""
    ncu = tmp_path / "ncu"
    ncu.write_text(NCU_THAT_LEAVES.replace("@farewell@", farewell))
    ncu.chmod(0o755)
    compute: Any = bench.place.profilers[COMPUTE]
    gpu = replace(compute._gpu, path=f"{tmp_path}:/usr/bin:/bin", scope=str(tmp_path))
    with (
        pytest.raises(ProfilerError) as caught,
        NsightComputeProfiler(gpu, ToolBox(), tmp_path).run(bench.work(COMPUTE), threading.Event()) as run,
    ):
        list(run.batches())
    check(caught.value, failure_class, cause)


@pytest.mark.processes
def test_half_of_the_sms_is_in_force_on_a_virtual_gpu(bench: Bench) -> None:
    whole, _ = bench.measure(bench.work(SYSTEMS, under_mps=True))
    half, measurement = bench.measure(bench.work(SYSTEMS, condition=replace(BASELINE, sm_percent=50.0)))
    assert measurement.log.environment["ASSAY_VIRTUAL_SM_PERCENT"] == "50"
    assert table_metadata(half.schema).condition.sm_percent == 50.0
    assert sum(half["duration_ns"].to_pylist()) > sum(whole["duration_ns"].to_pylist())


@pytest.mark.processes
@pytest.mark.parametrize("changes", [{"condition": replace(BASELINE, sm_percent=50.0)}, {"under_mps": True}])
def test_counters_at_a_share_of_the_sms_are_refused(changes: dict[str, Any], bench: Bench) -> None:
    """Nsight Compute gives one launch of a client of MPS: it would be published as a workload of one."""
    error = failed(bench, bench.work(COMPUTE, launch_count=120, **changes))
    assert error.failure_class is F.SERVER_REFUSED
    assert "one launch of each process" in error.cause
    assert "light run" in error.remedy


def real_gpu() -> MeasuredGPU:
    return MeasuredGPU(Device(0, "Tesla V100", "GPU-1", "7.0", 80), path="/usr/bin")


@pytest.mark.parametrize(
    ("changes", "failure_class", "cause"),
    [
        ({"condition": replace(BASELINE, cache="all")}, F.SERVER_REFUSED, "caches are flushed .* only under"),
        ({"synthetic": True}, F.SERVER_REFUSED, "GPU Tesla V100 is real, .* must be synthetic"),
        ({"launch_skip": 1}, F.SERVER_REFUSED, "no windows of launches"),
        ({"command": None}, F.SERVER_REFUSED, "no command"),
    ],
)
def test_what_a_real_gpu_cannot_do_truthfully_is_refused(
    changes: dict[str, Any], failure_class: FailureClass, cause: str, tmp_path: Path
) -> None:
    profiler = NsightSystemsProfiler(real_gpu(), ToolBox(), tmp_path)
    work = replace(WORK, level="light", profiler=SYSTEMS, **changes)
    with pytest.raises(ProfilerError, match=cause) as caught:
        profiler.plan(work)
    assert caught.value.failure_class is failure_class


def test_a_measured_run_never_goes_to_a_virtual_gpu(bench: Bench) -> None:
    error = failed(bench, bench.work(COMPUTE, synthetic=False))
    assert error.failure_class is F.SERVER_REFUSED
    assert "is virtual, but the campaign's data must be measured" in error.cause


def test_the_clocks_of_a_light_run_on_a_virtual_gpu_are_locked_or_flagged(bench: Bench) -> None:
    """A locked clock of 1,312 MHz is slower than a free one of 1,530 MHz; one that is refused is free."""
    totals = {}
    for clock, fault, flags in (
        ("none", "", []),
        ("base", "", []),
        ("base", "clock_unlocked", ["clock_unlocked"]),
    ):
        table, measurement = bench.measure(
            bench.work(SYSTEMS, fault, condition=replace(BASELINE, clock=clock))
        )
        assert [flag.name for flag in measurement.flags if "clock" in flag.name] == flags
        if clock == "base":
            assert f"clock_locked={int(not flags)}" in measurement.log.text
        totals[clock, fault] = float(table["duration_ns"].to_numpy().sum())
    assert totals["base", ""] > 1.05 * totals["none", ""]
    assert totals["base", "clock_unlocked"] == totals["none", ""]


@pytest.mark.parametrize(
    "name", ["CUDA_VISIBLE_DEVICES", "HOME", "CUDA_INJECTION64_PATH", "ASSAY_VIRTUAL_GPU"]
)
def test_a_campaign_may_not_set_what_is_the_agents(name: str, bench: Bench) -> None:
    work = bench.work(COMPUTE)
    assert work.command is not None
    error = failed(bench, replace(work, command=replace(work.command, environment={name: "x"})))
    check(error, F.SERVER_REFUSED, f"sets {name}, which belongs to the agent")


def test_a_folder_that_is_not_there_is_named(bench: Bench) -> None:
    work = bench.work(COMPUTE)
    assert work.command is not None
    error = failed(bench, replace(work, command=replace(work.command, working_directory="/no/such/folder")))
    assert (error.failure_class, error.subject) == (F.INPUT_UNREADABLE, "/no/such/folder")


@pytest.mark.processes
@pytest.mark.parametrize("profiler", [COMPUTE, SYSTEMS])
def test_a_command_that_is_not_there_is_the_workloads_failure(profiler: str, bench: Bench) -> None:
    work = bench.work(profiler)
    assert work.command is not None
    error = failed(bench, replace(work, command=replace(work.command, argv=("nothing.toml",))))
    assert error.failure_class is F.APPLICATION_FAILED


def test_secrets_of_the_agent_go_nowhere_and_those_of_the_campaign_are_hidden(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUD_PASSWORD", "hunter2")
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "/lib/photon.so")
    work = bench.work(SYSTEMS)
    assert work.command is not None
    work = replace(work, command=replace(work.command, environment={"HF_TOKEN": "hunter2", "BATCH": "64"}))
    _, measurement = bench.measure(work)
    environment = measurement.log.environment
    assert (environment["HF_TOKEN"], environment["BATCH"]) == ("(hidden)", "64")
    assert not {"CLOUD_PASSWORD", "CUDA_INJECTION64_PATH"} & set(environment)
    assert "hunter2" not in measurement.log.text


def test_nothing_is_left_of_an_attempt(bench: Bench) -> None:
    profiler: Any = bench.place.profilers[COMPUTE]
    with profiler.run(bench.work(COMPUTE), threading.Event()) as measurement:
        space = measurement.space
        assert [f.stat().st_mode & 0o777 for f in (space.home, space.temporary)] == [0o700, 0o700]
        assert len(str(space.temporary)) < 60
    assert not any(folder.exists() for folder in (space.home, space.temporary, space.job))


def test_two_attempts_on_one_gpu_exclude_each_other(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay_agent.execution.environment._LOCK_SECONDS", 0.2)
    profiler: Any = bench.place.profilers[COMPUTE]
    with profiler.run(bench.work(COMPUTE), threading.Event()):
        error = failed(bench, bench.work(SYSTEMS))
    assert error.failure_class is F.LOCK_FILE
    assert "GPU-virtual-V100-0" in error.subject
