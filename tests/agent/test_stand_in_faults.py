"""Fault switches: each does exactly what the real tool does, as the table of failure classes has it."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

from assay_sampling.errors import ParameterError
from assay_sampling.readers.inspection.recording import inspect_recording
from assay_sampling.readers.opening import read_launches
from assay_virtual.tools.faults import FAULTS, parse_faults
from assay_virtual.tools.scripts import write_tool_scripts
from tests.support.agent.stand_ins import PROCESS_0, PROCESS_1, Bench

NOTHING = "==WARNING== No kernels were profiled."


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize(
    ("fault", "status", "complaint", "nothing"),
    [
        ("permission", 1, "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", True),
        ("counter_busy", 9, "==ERROR== Profiling failed because a driver resource was unavailable.", True),
        ("lock_file", 9, "==ERROR== Failed to open/create lock file ", True),
        ("metric_unknown", 9, "==ERROR== Failed to find metric gpc__cycles_elapsed.max", True),
        ("metric_unknown:a.sum+smsp__inst_executed.sum", 9, "==ERROR== Failed to find metric smsp__i", True),
        ("unsupported_gpu", 9, "==ERROR== Unsupported GPU", True),
        ("no_driver", 1, "==ERROR== Nsight Compute failed to connect to the CUDA driver (stub", True),
        ("application_failed:7", 7, "==ERROR== The application returned an error code (7).", False),
        ("application_failed", 1, "==ERROR== The application returned an error code (1).", False),
        ("application_killed:9", 9, "==ERROR== The application returned an error code (9).", False),
        ("application_killed:11", 11, "==ERROR== The application returned an error code (11).", False),
        ("nothing_profiled", 0, NOTHING, True),
        ("gpu_lost", 1, "==ERROR== LaunchFailed", False),
        ("clock_unlocked", 0, "==WARNING== Failed to lock GPU clock frequencies! Try locking", False),
        ("disk_full", 1, "==ERROR== Unable to write to file r.ncu-rep. Please verify", False),
        ("output_exists", 1, "==ERROR== File r.ncu-rep already exists. Use '-f' for overwriting", False),
    ],
)  # fmt: skip
def test_faults_of_nsight_compute(
    bench: Bench, fault: str, status: int, complaint: str, nothing: bool
) -> None:
    report = bench.folder / "r.ncu-rep"
    answer = bench.ncu("-f", "-o", report, "--metrics", "smsp__inst_executed.sum,gpc__cycles_elapsed.max",
                       bench.workload, faults=fault)  # fmt: skip
    assert answer.status == status
    assert len(answer.lines(complaint)) == 1
    assert (NOTHING in answer.output) == nothing
    assert report.exists() == (not nothing and fault not in ("disk_full", "output_exists"))


def test_shut_down_program_looks_killed(bench: Bench) -> None:
    # The trap: its error code is not the program's own failure.
    answer = bench.ncu("--metrics", "nosuch.sum", bench.workload)
    assert [line for line in answer.lines("==") if "Connected" not in line and "Disc" not in line] == [
        "==ERROR== Failed to find metric nosuch.sum",
        '==ERROR== Failed to profile "gemm" in process 4200001',
        "==PROF== Trying to shutdown target application",
        "==ERROR== The application returned an error code (9).",
        NOTHING,
    ]
    assert answer.status == 9


def test_failed_program_leaves_the_launches_until_then(bench: Bench) -> None:
    report = bench.folder / "r.ncu-rep"
    answer = bench.ncu("-o", report, bench.workload, faults="application_failed:7")
    assert len(answer.lines("==PROF== Profiling")) == PROCESS_0 // 2 + PROCESS_1 // 2
    unchecked = bench.ncu("-f", "-o", report, "--check-exit-code", "no", bench.workload,
                          faults="application_failed:7")  # fmt: skip
    assert unchecked.status == 0 and not unchecked.lines("==ERROR==")


def test_kill_ends_the_program_before_it_fails(bench: Bench) -> None:
    answer = bench.ncu("-c", "3", "--kill", "yes", "-o", bench.folder / "r", bench.workload,
                       faults="application_failed:7")  # fmt: skip
    assert answer.status == 0 and len(answer.lines("==PROF== Profiling")) == 3


@pytest.mark.parametrize(("fault", "rows"), [("report_short", None), ("report_truncated", 0)])
def test_reports_that_lack_launches(bench: Bench, fault: str, rows: int | None) -> None:
    report, page = bench.folder / "r.ncu-rep", bench.folder / "page.csv"
    answer = bench.ncu("-o", report, bench.workload, faults=fault)
    announced = len(answer.lines("==PROF== Profiling"))
    assert (answer.status, announced) == (0, PROCESS_0 + PROCESS_1)
    shown = bench.ncu("--import", report, "--csv", "--page", "raw", "--log-file", page)
    if rows == 0:
        assert shown.status == 1
        assert page.read_text() == f"==ERROR== Failed to load report file '{report}'.\n"
    else:
        assert read_launches(page).table.num_rows == announced - announced // 3


def test_missing_values_are_read_as_nulls(bench: Bench) -> None:
    page = bench.folder / "page.csv"
    bench.ncu("--csv", "--page", "raw", "--log-file", page, bench.workload, faults="counters_nan")
    assert '"n/a"' in page.read_text()
    total = PROCESS_0 + PROCESS_1
    assert inspect_recording(page)["null_counters"]["cycles_gpc_max"] == total // 3


def test_unlocked_clocks_run_free(bench: Bench) -> None:
    def clocks(faults: str) -> list[float]:
        page = bench.folder / "page.csv"
        bench.ncu("--csv", "--page", "raw", "--print-units", "base", "--log-file", page, "--metrics",
                  "gpc__cycles_elapsed.avg.per_second", bench.workload, faults=faults)  # fmt: skip
        return list(read_launches(page).table["clock_gpc_hz"].to_pylist())

    assert max(clocks("")) < 1.55e9 < min(clocks("clock_unlocked"))  # base 1.5 GHz, boost 1.725 GHz


def test_disk_full_where_state_must_be_saved(bench: Bench) -> None:
    metrics = ",".join(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st"))
    answer = bench.ncu("-o", bench.folder / "r", "--metrics", metrics, bench.workload, faults="disk_full")
    assert len(answer.lines("==ERROR== Insufficient memory and disk space to save context state!")) == 1


def test_lock_file_is_a_real_file(bench: Bench) -> None:
    assert bench.ncu("-c", "1", bench.workload).status == 0
    assert (bench.folder / "nsight-compute-lock").exists()
    missing = bench.ncu("-c", "1", bench.workload, TMPDIR=str(bench.folder / "nowhere"))
    expected = f"==ERROR== Failed to open/create lock file {bench.folder}/nowhere/nsight-compute-lock. "
    assert len(missing.lines(expected)) == 1


@pytest.mark.parametrize("fault", ["importer_failed", "disk_full"])
def test_failed_importer_leaves_the_raw_file_and_status_0(bench: Bench, fault: str) -> None:
    answer = bench.nsys("profile", "-f", "true", "-o", bench.folder / "a", bench.workload, faults=fault)
    assert answer.status == 0 and "Importer error status: " in answer.errors
    assert (bench.folder / "a.qdstrm").exists() and not (bench.folder / "a.nsys-rep").exists()
    assert ("No space left on device" in answer.errors) == (fault == "disk_full")


def _database(bench: Bench, fault: str) -> Path:
    report, database = bench.folder / "a.nsys-rep", bench.folder / "a.sqlite"
    bench.nsys("profile", "-f", "true", "--cuda-graph-trace=node", "-o", report, bench.workload, faults=fault)
    assert bench.nsys("export", "-t", "sqlite", "-f", "true", "-o", database, report).status == 0
    return database


def test_dropped_events_are_fewer_than_calls_and_diagnosed(bench: Bench) -> None:
    database = _database(bench, "dropped_events")
    document = inspect_recording(database)
    dropped = (PROCESS_0 + PROCESS_1) // 10
    assert document["launches"] == PROCESS_0 + PROCESS_1 - dropped
    assert any(f"{dropped} CUDA events were dropped" in note["text"] for note in document["notes"])
    connection = sqlite3.connect(database)
    calls = connection.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME").fetchone()[0]
    connection.close()
    assert calls == 15 + 3 + 15


def test_short_report_of_nsight_systems(bench: Bench) -> None:
    total = PROCESS_0 + PROCESS_1
    assert inspect_recording(_database(bench, "report_short"))["launches"] == total - total // 3


def test_lost_gpu_and_missing_driver_of_nsight_systems(bench: Bench) -> None:
    lost = bench.nsys("profile", "-o", bench.folder / "l", bench.workload, faults="gpu_lost")
    assert lost.status == 1 and "CUDA error 719" in lost.errors
    none = bench.nsys("profile", "-o", bench.folder / "n", bench.workload, faults="no_driver")
    assert none.status == 1 and "CUDA error 100" in none.errors


@pytest.mark.parametrize(
    "text", ["nosuch", "application_failed:x", "application_killed:99", "hang:soft", "permission:1"]
)
def test_unknown_switches_are_refused(bench: Bench, text: str) -> None:
    with pytest.raises(ParameterError, match="ASSAY_VIRTUAL_FAULTS"):
        parse_faults(text)
    assert bench.ncu(bench.workload, faults=text).status == 1


def test_switches_of_a_file_are_read_by_every_run(bench: Bench) -> None:
    switches = bench.folder / "switches"
    switches.write_text("application_failed:7\n")
    assert bench.ncu("-c", "1", bench.workload, faults=f"@{switches}").status == 7
    switches.write_text("")
    assert bench.ncu("-c", "1", bench.workload, faults=f"@{switches}").status == 0
    switches.unlink()
    assert "cannot be read" in bench.ncu(bench.workload, faults=f"@{switches}").output


def test_every_switch_is_known_by_its_name() -> None:
    assert parse_faults(", ".join(FAULTS)).on.keys() == FAULTS.keys()


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tool_scripts(tmp_path_factory.mktemp("tools") / "bin")


def _start(tools: Path, bench: Bench, faults: str, *command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [tools / command[0], *command[1:], bench.workload],
        env={"PATH": os.environ["PATH"], **bench.environment(faults)},
        cwd=bench.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.processes
def test_scripts_run_as_the_tools(tools: Path, bench: Bench) -> None:
    for command, expected in (
        (("ncu", "-c", "1", "--csv", "--page", "raw"), '"0","4200001","assay virtual mixed"'),
        (("nsys", "profile", "-o", "a"), "Generated:"),
        (("assay-virtual",), f"process 0 made {PROCESS_0} launches"),
    ):
        process = _start(tools, bench, "", *command)
        output, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "") and expected in output


@pytest.mark.processes
def test_killed_program_without_a_tool_dies_of_the_signal(tools: Path, bench: Bench) -> None:
    process = _start(tools, bench, "application_killed:9", "assay-virtual")
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL


@pytest.mark.processes
@pytest.mark.parametrize(("argument", "number"), [("", signal.SIGINT), (":stubborn", signal.SIGKILL)])
def test_hang_lasts_until_a_signal(tools: Path, bench: Bench, argument: str, number: int) -> None:
    process = _start(tools, bench, f"hang{argument}", "ncu", "--csv")
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or not lines[-1].startswith("==WARNING== Launching the workload is taking more time"):
        lines.append(process.stdout.readline())
        assert lines[-1], "it ended before it hung"
    if argument:
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(number)
    process.wait(timeout=60)
    for channel in (process.stdout, process.stderr):
        assert channel is not None
        channel.close()
    assert process.returncode == -number


@pytest.mark.parametrize("value", ["", "{", "[]", '{"architecture": 3}', '{"architecture": "Z80"}'])
def test_environment_without_a_gpu_is_refused(bench: Bench, value: str) -> None:
    answer = bench.ncu(bench.workload, ASSAY_VIRTUAL_GPU=value)
    assert answer.status == 1 and answer.output.startswith("==ERROR== ")


def test_uuid_of_the_environment_is_the_devices(bench: Bench) -> None:
    described = json.dumps({"architecture": "A100", "seed": 0, "index": 2, "uuid": "GPU-virtual-A100-2"})
    bench.nsys("profile", "-o", bench.folder / "a", bench.workload, ASSAY_VIRTUAL_GPU=described)
    bench.nsys("export", "-t", "sqlite", "-o", bench.folder / "a.sqlite", bench.folder / "a.nsys-rep")
    device = read_launches(bench.folder / "a.sqlite").metadata.devices[0]
    assert (device.index, device.uuid) == (0, "virtual-A100-2")
