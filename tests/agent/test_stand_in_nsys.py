"""The stand-in for Nsight Systems: schema held to a real recording, read back by our reader, its traps."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from assay_sampling.errors import InputError
from assay_sampling.readers.inspection.recording import inspect_recording
from assay_sampling.readers.opening import read_launches
from assay_virtual.model.gpu import VirtualGPU
from assay_virtual.tools.nsys.options import profile_options
from assay_virtual.tools.nsys.schema import GENERATION_2023, columns_of
from assay_virtual.workloads.loading import load_workload
from tests.support.agent.stand_ins import PROCESS_0, PROCESS_1, Answer, Bench

RECIPE = ("-t", "cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--cuda-graph-trace=node",
          "--cuda-flush-interval=10000", "--cuda-memory-usage=false", "-f", "true")  # fmt: skip


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def _captured(bench: Bench, *options: str, faults: str = "", **more: str) -> Path:
    """Profile and export as the agent does; the path of the database."""
    report, database = bench.folder / "a.nsys-rep", bench.folder / "a.sqlite"
    bench.nsys("profile", *RECIPE, *options, "-o", bench.folder / "a", bench.workload, faults=faults, **more)
    exported = bench.nsys(
        "export", "-t", "sqlite", "-f", "true", "-q", "true", "-o", database, report, **more
    )
    assert (exported.status, exported.output, exported.errors) == (0, "", "")
    return database


def _columns(path: Path) -> dict[str, list[tuple[str, str, int, int]]]:
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")]
    found = {
        name: [(r[1], r[2], r[3], r[5]) for r in connection.execute(f'PRAGMA table_info("{name}")')]
        for name in names
    }
    connection.close()
    return found


def test_tables_of_2021_are_those_of_the_real_recording(bench: Bench, shared_data: Path) -> None:
    ours = _columns(_captured(bench, ASSAY_VIRTUAL_NSYS_VERSION="2021.5.2.53"))
    real = _columns(shared_data / "nsys" / "a100_nerf_1106_kernels.sqlite")
    assert ours.keys() <= real.keys()
    assert {"CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "StringIds",
            "TARGET_INFO_GPU", "PROCESSES", "ANALYSIS_DETAILS", "EXPORT_META_DATA",
            "TARGET_INFO_SESSION_START_TIME"} <= ours.keys()  # fmt: skip
    assert ours == {name: real[name] for name in ours}


def test_rows_look_like_those_of_the_real_recording(bench: Bench, shared_data: Path) -> None:
    ours = sqlite3.connect(_captured(bench, ASSAY_VIRTUAL_NSYS_VERSION="2021.5.2.53"))
    real = sqlite3.connect(f"file:{shared_data}/nsys/a100_nerf_1106_kernels.sqlite?mode=ro", uri=True)
    query = (
        "SELECT DISTINCT s.value, r.eventClass, k.globalPid & 0xFFFFFF, (k.globalPid >> 48), k.launchType, "
        "(r.globalTid & 0xFFFFFF) = ((k.globalPid >> 24) & 0xFFFFFF) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN "
        "CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId JOIN StringIds s "
        "ON s.id = r.nameId WHERE k.graphNodeId IS NULL"
    )
    assert ours.execute(query).fetchall() == real.execute(query).fetchall()
    version = "SELECT value FROM EXPORT_META_DATA WHERE name = 'EXPORT_SCHEMA_VERSION'"
    assert ours.execute(version).fetchone() == real.execute(version).fetchone() == ("2.7.0",)
    kinds = "SELECT DISTINCT eventType FROM NVTX_EVENTS WHERE eventType = 59"
    assert ours.execute(kinds).fetchall() == real.execute(kinds).fetchall()
    ours.close()
    real.close()


def test_tables_of_2023_have_their_own_names(bench: Bench) -> None:
    database = _captured(bench)
    tables = _columns(database)
    assert {"META_DATA_EXPORT", "META_DATA_CAPTURE"} <= tables.keys()
    assert "EXPORT_META_DATA" not in tables
    names = [column[0] for column in tables["CUPTI_ACTIVITY_KIND_KERNEL"]]
    assert names == list(columns_of("CUPTI_ACTIVITY_KIND_KERNEL", GENERATION_2023))
    assert names[3:6] == ["contextId", "greenContextId", "streamId"]  # as nsys 2023.4.4 exports it
    connection = sqlite3.connect(database)
    meta = dict(connection.execute("SELECT name, value FROM META_DATA_EXPORT"))
    assert meta["EXPORT_SCHEMA_VERSION"] == "3.7.2" and meta["ASSAY_SYNTHETIC"] == "true"
    assert meta["EXPORT_PRODUCT_NAME"].startswith("assay virtual")
    processes = connection.execute("SELECT name FROM PROCESSES").fetchall()
    assert processes == [("assay virtual mixed",)] * 2
    connection.close()


@pytest.mark.parametrize("version", ["2021.5.2.53", "2023.4.4.54"])
def test_reader_gets_the_launches_of_the_virtual_gpu(bench: Bench, version: str) -> None:
    launches = read_launches(_captured(bench, ASSAY_VIRTUAL_NSYS_VERSION=version))
    gpu = VirtualGPU("RTX 3070", seed=3)
    parts = gpu.execute(load_workload(bench.workload), level="light")
    assert launches.table.num_rows == PROCESS_0 + PROCESS_1
    for part in parts:
        mine = launches.table.filter(np.asarray(launches.table["process"]) == part.process)
        assert mine["launch"].to_pylist() == list(range(len(part)))
        assert mine["start_ns"].to_pylist() == part.start_ns.tolist()
        assert mine["duration_ns"].to_pylist() == part.duration_ns.tolist()
        assert [
            [mine[f"grid_{axis}"][i].as_py() for axis in "xyz"] for i in range(len(part))
        ] == part.grid.tolist()
        assert [
            -1 if g is None else g for g in mine["graph_launch"].to_pylist()
        ] == part.graph_launch.tolist()
        assert [-1 if g is None else g for g in mine["graph_node"].to_pylist()] == part.graph_node.tolist()
        names = [launches.names[i] for i in mine["kernel_id"].to_pylist()]
        assert names == [part.kernels[k].name for k in part.kernel.tolist()]
        paths = [None if i is None else launches.names[i] for i in mine["nvtx_id"].to_pylist()]
        assert paths == [None if i < 0 else part.texts[i] for i in part.nvtx.tolist()]
    device = launches.metadata.devices[0]
    assert (device.name, device.sm_count, device.compute_capability) == ("virtual RTX 3070", 46, "8.6")
    assert launches.metadata.tool_version == version


def test_the_share_of_sms_reaches_the_gpu(bench: Bench) -> None:
    whole = read_launches(_captured(bench)).table["duration_ns"].to_numpy().sum()
    half = (
        read_launches(_captured(bench, ASSAY_VIRTUAL_SM_PERCENT="50")).table["duration_ns"].to_numpy().sum()
    )
    assert half > whole


def test_graphs_are_hidden_where_traced_whole(bench: Bench) -> None:
    bench.nsys("profile", "-t", "cuda", "-f", "true", "-o", bench.folder / "g", bench.workload)
    database = bench.folder / "g.sqlite"
    bench.nsys("export", "-t", "sqlite", "-o", database, bench.folder / "g.nsys-rep")
    connection = sqlite3.connect(database)
    assert connection.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE").fetchone() == (3,)
    connection.close()
    document = inspect_recording(database)
    assert document["launches"] == 15 + 15
    assert any("graph launches were traced as a whole" in note["text"] for note in document["notes"])


def test_ranges_need_their_trace(bench: Bench) -> None:
    bench.nsys("profile", "-t", "cuda", "-o", bench.folder / "n", bench.workload)
    bench.nsys("export", "-t", "sqlite", "-o", bench.folder / "n.sqlite", bench.folder / "n.nsys-rep")
    assert "NVTX_EVENTS" not in _columns(bench.folder / "n.sqlite")


def test_existing_report_is_kept_with_status_0(bench: Bench) -> None:
    report = bench.folder / "a.nsys-rep"
    report.write_text("mine")
    answer = bench.nsys("profile", "-o", bench.folder / "a", bench.workload)
    assert (answer.status, report.read_text()) == (0, "mine")
    assert f"Failed to create '{report}': File exists." in answer.errors
    other = re.search(r"Generated:\n    (.+)\n", answer.output)
    assert other is not None and Path(other[1]).name.startswith("nsys-report-") and Path(other[1]).exists()


def test_export_needs_force_for_an_existing_file(bench: Bench) -> None:
    database = _captured(bench)
    answer = bench.nsys("export", "-t", "sqlite", "-o", database, bench.folder / "a.nsys-rep")
    assert answer.status == 1
    assert answer.errors.startswith(f"Exportation error: File already exists: '{database}'.\n")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.3, 0.5, 0.8, 0.99])
def test_a_cut_report_is_refused(bench: Bench, share: float) -> None:
    bench.nsys("profile", "-o", bench.folder / "a", bench.workload)
    report = bench.folder / "a.nsys-rep"
    report.write_bytes(report.read_bytes()[: int(share * report.stat().st_size)])
    answer = bench.nsys("export", "-t", "sqlite", "-o", bench.folder / "x.sqlite", report)
    assert answer.status == 1 and answer.errors.startswith("Exportation error: ")
    assert not (bench.folder / "x.sqlite").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["profile", "--bogus", "x"], "unrecognised option '--bogus'\n\nusage: nsys profile"),
        (["profile", "--sample=wrong", "x"],
         "Illegal --sample argument: wrong.\n"
         "Possible --sample values are 'process-tree', 'system-wide', and 'none'."),
        (["profile", "-t", "bogus", "x"], "Illegal --trace argument 'bogus'\nPossible --trace values are"),
        (["profile", "--cuda-graph-trace=foo", "x"], "Illegal --cuda-graph-trace argument: foo\n"),
        (["profile", "-f", "maybe", "x"],
         "Illegal --force-overwrite option-argument 'maybe'.\n"
         "Possible --force-overwrite option-arguments are 'true' and 'false'."),
        (["profile", "--cuda-flush-interval=x", "x"],
         "the argument ('x') for option '--cuda-flush-interval' is invalid\n\nusage: nsys profile"),
        (["profile", "-o", "a", "-o", "b", "x"], "option '--output' cannot be specified more than once\n"),
        (["profile"], "ERROR: The collection must include one or more system-wide settings"),
        (["profile", "/x"], "Executable not found in current directory or standard search paths\n"),
        (["export", "-t", "jsonlines", "x"], "Unsupported export type option: 'jsonlines'.\n\nusage: nsys"),
        (["export"], "Missing required option '--type'.\n"),
        (["export", "-t", "sqlite", "nosuch.nsys-rep"],
         "Exportation error: File not found: 'nosuch.nsys-rep'.\n"),
        (["bogus"], "Unknown command: bogus\n"),
    ],
)  # fmt: skip
def test_complaints_are_the_real_ones(bench: Bench, arguments: list[str], complaint: str) -> None:
    # As Nsight Systems 2023.4.4 said them, on its standard error.
    answer = bench.nsys(*arguments)
    assert answer.status == 1
    assert answer.errors.startswith(complaint)


def test_options_differ_by_version(bench: Bench) -> None:
    old, new = ({option.name for option in profile_options(v)} for v in ("2022.4.2.1", "2023.4.4.54"))
    assert old - new == {"event-sampling-frequency"}
    assert {
        "python-sampling",
        "start-later",
        "flush-on-cudaprofilerstop",
        "event-sampling-interval",
    } <= new - old
    answer = bench.nsys(
        "profile", "--start-later=true", bench.workload, ASSAY_VIRTUAL_NSYS_VERSION="2022.4.2.1"
    )
    assert answer.errors.startswith("unrecognised option '--start-later=true'")


def test_version(bench: Bench) -> None:
    answer: Answer = bench.nsys("--version", ASSAY_VIRTUAL_NSYS_VERSION="2021.5.2.53")
    assert answer.output.startswith("NVIDIA Nsight Systems version 2021.5.2.53-")


def test_status_is_the_programs(bench: Bench) -> None:
    assert bench.nsys("profile", "-o", bench.folder / "a", "false").status == 1
    answer = bench.nsys("profile", "-f", "true", "-o", bench.folder / "a", bench.workload,
                        faults="application_failed:7")  # fmt: skip
    assert answer.status == 7
    bench.nsys("export", "-t", "sqlite", "-o", bench.folder / "a.sqlite", bench.folder / "a.nsys-rep")
    assert inspect_recording(bench.folder / "a.sqlite")["launches"] == PROCESS_0 // 2 + PROCESS_1 // 2


def test_a_program_without_kernels_leaves_no_table(bench: Bench) -> None:
    bench.nsys("profile", "-o", bench.folder / "a", bench.workload, faults="nothing_profiled")
    bench.nsys("export", "-t", "sqlite", "-o", bench.folder / "a.sqlite", bench.folder / "a.nsys-rep")
    with pytest.raises(InputError, match="no kernels were captured"):
        read_launches(bench.folder / "a.sqlite")
