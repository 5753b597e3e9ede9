"""Our profilers with NVIDIA's own tools: commands they accept, reports they read, how failures come out.

Without a GPU nothing can be profiled: so programs without CUDA run under the tools, and what a GPU would
have given is a real report of another box, which the tool under test imports.
"""

from __future__ import annotations

import os
import shlex
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay_agent.doctor.tools import tool_checks
from assay_agent.execution import environment
from assay_agent.execution.environment import MeasuredGPU
from assay_agent.execution.errors import ProfilerError
from assay_agent.execution.tool_version import ToolBox
from assay_agent.profilers.ncu import command as ncu_command
from assay_agent.profilers.ncu import profiling_lock
from assay_agent.profilers.ncu.profiler import NsightComputeProfiler
from assay_agent.profilers.nsys import command as nsys_command
from assay_agent.profilers.nsys.profiler import NsightSystemsProfiler
from assay_agent.profilers.seam import Profiler
from assay_core.processes import tool_run
from assay_core.records.machine import InstalledDevice, Inventory
from assay_core.records.work import CommandSource
from assay_sampling.counters.definitions import FEATURE_SETS, metric_of, registry
from assay_sampling.errors import CounterUnavailableError
from assay_sampling.launches.table import Condition, Device
from assay_sampling.running.failures import FailureClass
from tests.support.agent.assignments import WORK
from tests.support.agent.nvidia_tools import RealTools, processes_of

pytestmark = pytest.mark.processes

CHIPS = {"7.0": "gv100", "7.5": "tu102", "8.0": "ga100", "8.6": "ga102", "8.9": "ad102", "9.0": "gh100"}
VERSIONS = {"bookworm": ("2022.3.0.0", "2022.4.2.1"), "trixie": ("2024.1.1.0", "2023.4.4.54")}
# Counters that the reports of the RTX 3070 hold.
MEASURED = ("cycles_gpc_max", "clock_gpc_hz", "profiled_duration_ns", "occupancy_percent")
# There is no NVIDIA driver on the box, so nothing says at what clocks and temperature it measured.
NO_DRIVER = ["telemetry_missing"]
# Every run of the box is flagged while a daemon of the tests of MPS lives: not at the same time.
NO_MPS_DAEMON = pytest.mark.xdist_group("mps_daemons")
REPLAYER = """\
#!/bin/sh
# The real ncu, but for profiling, which needs a GPU: the report of another box takes its place.
case " $* " in
  *" --import "*|*" --version "*|*" --help "*|*" --list-chips "*|*" --query-metrics "*) exec {real} "$@" ;;
esac
while [ $# -gt 0 ]; do case "$1" in --log-file) log=$2 ;; -o) report=$2 ;; esac; shift; done
cp {folder}/report "$report"
cp {folder}/log "$log"
"""


@pytest.fixture(autouse=True)
def private(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Short patience with what hangs, and the tools' temporary files in the test's folder."""
    steps = tool_run.EndingSteps(1.0, 1.0)
    monkeypatch.setitem(tool_run.run_tool.__kwdefaults__, "ending", steps)
    monkeypatch.setattr(environment.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(profiling_lock, "BOX_FOLDER", tmp_path)


def gpu(nvidia: RealTools, *, driver: bool = True, path: Path | None = None) -> MeasuredGPU:
    """A GPU that is not there; with ``driver``, its library is."""
    variables = {"LD_LIBRARY_PATH": str(nvidia.generation.driver)} if driver else {}
    programs = f"{path or nvidia.generation.folder / 'bin'}:/usr/bin:/bin"
    return MeasuredGPU(Device(0, "RTX 3070", "GPU-none", "8.6", 46), programs, variables, "test")


def measure(
    profiler: type[NsightComputeProfiler | NsightSystemsProfiler],
    where: MeasuredGPU,
    folder: Path,
    *argv: str,
    seconds: float = 60.0,
    **changes: Any,
) -> tuple[list[dict[str, Any]], Any]:
    """The launches as rows, and the measurement; raises ProfilerError."""
    command = CommandSource(argv, {}, str(folder), seconds)
    level = "detailed" if profiler is NsightComputeProfiler else "light"
    work = replace(WORK, level=level, command=command, **changes)
    made: Profiler = profiler(where, ToolBox(), folder / "state")
    with made.run(work, threading.Event()) as measurement:
        rows = [row for batch in measurement.batches() for row in batch.records.to_pylist()]
    return rows, measurement


def failure(*arguments: Any, **more: Any) -> ProfilerError:
    with pytest.raises(ProfilerError) as caught:
        measure(*arguments, **more)
    return caught.value


def test_versions_and_options_are_understood(nvidia: RealTools, tmp_path: Path) -> None:
    box, variables = ToolBox(), nvidia.environment()
    ncu = box.tool("ncu", ("--help",), variables, tmp_path)
    nsys = box.tool("nsys", ("profile", "--help"), variables, tmp_path)
    if nvidia.generation.name in VERSIONS:
        assert (ncu.version, nsys.version) == VERSIONS[nvidia.generation.name]
    assert ncu.has("--metrics")
    assert ncu.has("--log-file")
    assert ncu.offers("--clock-control", "base")
    assert not ncu.offers("--clock-control", "boost")
    assert ncu.has("--config-file") == ncu.at_least(2023, 1)
    assert nsys.has("--cuda-graph-trace")
    assert nsys_command.report_suffix(nsys) == ".nsys-rep"


@pytest.mark.parametrize("features", [(), *FEATURE_SETS.values()], ids=["one pass", *FEATURE_SETS])
@pytest.mark.parametrize("cache", ["none", "all"])
def test_ncu_accepts_every_command(
    nvidia: RealTools, tmp_path: Path, features: tuple[str, ...], cache: Any
) -> None:
    """An option that it does not know would be another failure than that nothing was profiled."""
    condition = Condition(cache=cache, clock="base")
    error = failure(
        NsightComputeProfiler, gpu(nvidia), tmp_path, "/bin/true",
        counters=features, condition=condition, launch_count=5,
    )  # fmt: skip
    assert error.failure_class is FailureClass.NOTHING_PROFILED
    assert "No kernels were profiled" in error.cause


@NO_MPS_DAEMON
def test_a_slice_behind_the_end_is_empty(nvidia: RealTools, tmp_path: Path) -> None:
    where = gpu(nvidia)
    rows, measurement = measure(NsightComputeProfiler, where, tmp_path, "/bin/true", launch_skip=7)
    assert rows == []
    assert [flag.name for flag in measurement.flags] == ["slice_empty", *NO_DRIVER]


def test_a_tool_that_was_told_to_stop_has_not_seen_the_end_of_the_workload(
    nvidia: RealTools, tmp_path: Path
) -> None:
    """The shell around it ends in order, so that nothing but the tool's word tells of it; the run before it,
    which would fill the compile cache, ends at once."""
    first = f"[ -e {tmp_path}/warmed ] || {{ : > {tmp_path}/warmed; exit 0; }}"
    client = "import ctypes, time; ctypes.CDLL('libcuda.so.1').cuInit(0); time.sleep(60)"
    threading.Thread(target=lambda: _interrupt(tmp_path), daemon=True).start()
    error = failure(
        NsightComputeProfiler, gpu(nvidia), tmp_path,
        "/bin/sh", "-c", f'{first}; trap "" TERM INT; {sys.executable} -c "{client}"; exit 0',
        launch_skip=7, launch_count=5,
    )  # fmt: skip
    assert error.failure_class is FailureClass.WINDOW_SHORT
    assert error.cause == "Nsight Compute was told to stop, and ended the workload, after 0 of 5 launches"


def _interrupt(folder: Path) -> None:
    """Tell the ncu of the test in this folder to stop, once a process is connected to it."""
    until = time.monotonic() + 30
    while time.monotonic() < until and not any(
        "Connected" in log.read_text() for log in folder.glob("state/jobs/*/ncu.log")
    ):
        time.sleep(0.05)
    for process, command in processes_of(folder).items():
        if "ncu" in command.split()[0] and "--log-file" in command:
            os.kill(process, signal.SIGINT)


@pytest.mark.parametrize(("capability", "chip"), CHIPS.items())
def test_every_metric_of_the_registry_is_listed_for_the_chip(
    nvidia: RealTools, capability: str, chip: str
) -> None:
    """What is listed without counting (launch__*) and the artifact's unlisted names are left out."""
    listed, version = nvidia.metric_names(chip), nvidia.ncu_version
    assert len(listed) > 1000
    lacking, counted = [], 0
    for counter in registry().values():
        try:
            metric = metric_of(counter.name, capability, version)
        except CounterUnavailableError:
            continue
        if not metric.startswith(("launch__", "profiler__", "sass__")):
            counted += 1
            if metric.partition(".")[0] not in listed:
                lacking.append(f"{counter.name}: {metric}")
    assert counted > 30
    assert lacking == []


def test_the_doctor_asks_the_tool_which_gpus_it_profiles(
    nvidia: RealTools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(nvidia.generation.folder / "bin"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    there = {
        "P100": "6.0",
        "V100": "7.0",
        "T4": "7.5",
        "A100": "8.0",
        "L40": "8.9",
        "H100": "9.0",
        "B200": "10.0",
    }
    devices = tuple(InstalledDevice(0, name, "", capability, 1, 1) for name, capability in there.items())
    inventory = Inventory("box", "0", 1, 1, devices, "", "")
    found = {check.name: check for check in tool_checks(inventory, needed=True)}
    assert {name for name, check in found.items() if check.state == "missing"} == {
        "ncu for Pascal", "ncu for Blackwell"
    }  # fmt: skip
    assert "install Nsight Compute 2019.5" in found["ncu for Pascal"].remedy
    assert "install Nsight Compute 2025.1 or newer" in found["ncu for Blackwell"].remedy
    assert (found["ncu"].state, found["nsys"].state) == ("ok", "ok")
    assert list((tmp_path / "home").iterdir()) == []


# What ncu and nsys call the end, and the workload's last words or the remedy.
ENDINGS = [
    (("/bin/sh", "-c", "echo hello; exit 7"), ("(7)", "status 7"), "hello"),
    (("/bin/sh", "-c", "echo hello; kill -9 $$"), ("(9)", "status 137"), "hello"),
    (("/bin/no-such-program",), ("not", "not|No"), "correct the command in the campaign"),
]


@pytest.mark.parametrize("profiler", [NsightComputeProfiler, NsightSystemsProfiler])
@pytest.mark.parametrize(("argv", "ends", "words"), ENDINGS, ids=["status", "signal", "absent"])
def test_the_workloads_own_failures(  # noqa: PLR0917
    nvidia: RealTools, tmp_path: Path, profiler: Any, argv: Any, ends: tuple[str, str], words: str
) -> None:
    error = failure(profiler, gpu(nvidia), tmp_path, *argv)
    assert error.failure_class is FailureClass.APPLICATION_FAILED
    end = ends[profiler is NsightSystemsProfiler]
    assert any(text in error.cause for text in end.split("|"))
    assert words in str(error)
    assert "nsys-rep" not in str(error)


def test_a_box_without_the_drivers_library(nvidia: RealTools, tmp_path: Path) -> None:
    """The tool says so past its log file, and says at the same time that the program failed."""
    error = failure(NsightComputeProfiler, gpu(nvidia, driver=False), tmp_path, "/bin/true")
    assert error.failure_class is FailureClass.DRIVER_UNUSABLE
    assert "failed to connect to the CUDA driver" in error.cause
    assert "load the driver" in error.remedy


@pytest.mark.parametrize("profiler", [NsightComputeProfiler, NsightSystemsProfiler])
def test_what_hangs_is_ended_with_all_its_processes(nvidia: RealTools, tmp_path: Path, profiler: Any) -> None:
    tree = ("/bin/sh", "-c", "setsid sleep 600 & trap '' TERM INT; sleep 600")
    error = failure(profiler, gpu(nvidia), tmp_path, *tree, seconds=4.0)
    assert error.failure_class is FailureClass.HANG
    assert "No kernels" not in error.cause


def test_nsys_status_0_without_a_kernel_is_no_success(nvidia: RealTools, tmp_path: Path) -> None:
    error = failure(NsightSystemsProfiler, gpu(nvidia), tmp_path, "/bin/true")
    assert error.failure_class is FailureClass.NOTHING_PROFILED
    assert "no kernels were captured" in error.cause


def test_an_nsys_export_has_the_tables_that_the_stand_ins_write(nvidia: RealTools, tmp_path: Path) -> None:
    tool = ToolBox().tool("nsys", ("profile", "--help"), nvidia.environment(), tmp_path)
    work = replace(WORK, level="light", command=CommandSource(("/bin/true",), {}))
    report, database = tmp_path / "trace.nsys-rep", tmp_path / "trace.sqlite"
    traced = nvidia.run(Path(tool.program), *nsys_command.trace_command(tool, work, tmp_path / "trace")[1:])
    assert (traced.status, report.is_file()) == (0, True)
    export = nsys_command.export_command(tool, report, database)
    assert nvidia.run(Path(tool.program), *export[1:]).status == 0
    with sqlite3.connect(database) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    connection.close()
    assert {"StringIds", "TARGET_INFO_SESSION_START_TIME"} <= tables
    assert "CUPTI_ACTIVITY_KIND_KERNEL" not in tables  # empty tables are absent
    meta = {"EXPORT_META_DATA"} if tool.version < "2023" else {"META_DATA_EXPORT", "META_DATA_CAPTURE"}
    assert meta <= tables


@pytest.fixture
def replayed(nvidia: RealTools, tmp_path: Path, shared_data: Path) -> Iterator[MeasuredGPU]:
    """A GPU whose ncu gives the report of an RTX 3070, read by the real ncu."""
    folder = tmp_path / "replayer"
    folder.mkdir()
    (folder / "report").write_bytes((shared_data / "ncu" / "rtx3070_daxpy_3_kernels.ncu-rep").read_bytes())
    names = ("init_data_kernel", "daxpy_kernel", "check_results_kernel")
    lines = [f'==PROF== Profiling "{n}" - {i}: 0%....100% - 12 passes' for i, n in enumerate(names)]
    (folder / "log").write_text("\n".join(["==PROF== Connected to process 129325 (/x)", *lines, ""]))
    text = REPLAYER.format(real=shlex.quote(str(nvidia.generation.ncu)), folder=shlex.quote(str(folder)))
    (folder / "ncu").write_text(text)
    (folder / "ncu").chmod(0o755)
    yield gpu(nvidia, path=folder)


@NO_MPS_DAEMON
def test_a_real_report_becomes_launches(nvidia: RealTools, replayed: MeasuredGPU, tmp_path: Path) -> None:
    rows, measurement = measure(NsightComputeProfiler, replayed, tmp_path, "/x", counters=MEASURED)
    assert [row["cycles_gpc_max"] for row in rows] == [124056, 379490, 122573]
    assert [row["profiled_duration_ns"] for row in rows] == [84480, 249216, 88512]
    assert [row["occupancy_percent"] for row in rows] == [79.18, 77.2, 85.59]
    assert [row["clock_gpc_hz"] for row in rows] == [1464107875.63, 1520091005.39, 1380321312.36]
    assert [row["launch"] for row in rows] == [0, 1, 2]
    assert {row["grid_x"] for row in rows} == {16384}
    assert {row["block_x"] for row in rows} == {256}
    assert [row["registers_per_thread"] for row in rows] == [16, 16, 32]
    assert [flag.name for flag in measurement.flags] == NO_DRIVER


def test_a_slice_of_a_real_report_is_numbered_from_its_start(
    nvidia: RealTools, replayed: MeasuredGPU, tmp_path: Path
) -> None:
    rows, _ = measure(
        NsightComputeProfiler, replayed, tmp_path, "/x", counters=MEASURED, launch_skip=40, launch_count=3
    )
    assert [row["launch"] for row in rows] == [40, 41, 42]


def test_a_metric_that_the_report_lacks_is_left_out_and_named(
    nvidia: RealTools, replayed: MeasuredGPU, tmp_path: Path
) -> None:
    rows, measurement = measure(
        NsightComputeProfiler, replayed, tmp_path, "/x", counters=("dram_bytes", *MEASURED)
    )
    assert [row["cycles_gpc_max"] for row in rows] == [124056, 379490, 122573]
    assert not any("dram_bytes" in row for row in rows)
    (flag,) = (flag for flag in measurement.flags if flag.name == "metrics_missing")
    metric = metric_of("dram_bytes", "8.6", nvidia.ncu_version)
    assert flag.detail.endswith(
        f"has no metric of chip ga102 for dram_bytes; it refused {metric} when it profiled"
    )


def test_where_the_report_lacks_all_cycles_the_run_fails(
    nvidia: RealTools, replayed: MeasuredGPU, tmp_path: Path
) -> None:
    asked = ("cycles_gpc_avg", "clock_gpc_hz")
    error = failure(NsightComputeProfiler, replayed, tmp_path, "/x", counters=(*asked, "dram_bytes"))
    assert error.failure_class is FailureClass.METRIC_UNKNOWN
    assert "gpc__cycles_elapsed.avg" in error.cause


def test_a_report_with_fewer_launches_than_the_log_is_short(
    nvidia: RealTools, replayed: MeasuredGPU, tmp_path: Path
) -> None:
    log = tmp_path / "replayer" / "log"
    log.write_text(log.read_text() + '==PROF== Profiling "daxpy_kernel" - 3: 0%....100% - 12 passes\n')
    error = failure(NsightComputeProfiler, replayed, tmp_path, "/x", counters=MEASURED)
    assert error.failure_class is FailureClass.REPORT_SHORT
    assert "profiled 4 launches, but its report has 3" in error.cause


@pytest.mark.parametrize("kept", [0.0, 0.4, 0.99, "garbage"])
def test_a_damaged_report_is_never_read_in_part(
    nvidia: RealTools, replayed: MeasuredGPU, tmp_path: Path, kept: Any
) -> None:
    report = tmp_path / "replayer" / "report"
    whole = report.read_bytes()
    report.write_bytes(b"garbage" * 99 if kept == "garbage" else whole[: int(len(whole) * kept)])
    error = failure(NsightComputeProfiler, replayed, tmp_path, "/x", counters=MEASURED)
    assert error.failure_class is FailureClass.REPORT_SHORT
    assert "Failed to load report file" in error.cause


def test_both_reports_read_alike_whatever_the_tools_release(
    nvidia: RealTools, tmp_path: Path, shared_data: Path
) -> None:
    from assay_sampling.readers.base import ReadOptions  # noqa: PLC0415
    from assay_sampling.readers.opening import open_recording  # noqa: PLC0415

    tool = ToolBox().tool("ncu", ("--help",), nvidia.environment(), tmp_path)
    report = shared_data / "ncu" / "rtx3070_vectoradd_1_kernel.ncu-rep"
    command = ncu_command.import_command(tool, report)
    page = tmp_path / "page.csv"
    page.write_text(nvidia.run(Path(command[0]), *command[1:]).output)
    with open_recording(page, ReadOptions()) as recording:
        (batch,) = recording.batches()
    (row,) = batch.records.to_pylist()
    assert list(batch.new_names.values()) == ["VecAdd_kernel"]
    shape = {name: row[name] for name in ("grid_x", "block_x", "registers_per_thread", "stream")}
    assert shape == {"grid_x": 196, "block_x": 256, "registers_per_thread": 16, "stream": 7}
    assert (row["cycles_gpc_max"], row["profiled_duration_ns"], row["replay_passes"]) == (4587, 3232, 9)
