"""The stand-in for Nsight Compute: held to real recordings, read back by our reader, compared to the GPU."""

from __future__ import annotations

import csv
import gzip
import io
import re
from pathlib import Path

import numpy as np
import pytest

from assay_sampling.counters.definitions import FEATURE_SETS, metric_of, registry
from assay_sampling.launches.table import Condition
from assay_sampling.readers.opening import read_launches
from assay_virtual.architectures import ARCHITECTURES
from assay_virtual.model.gpu import VirtualGPU
from assay_virtual.tools.kernel_names import function_name, mangled_name
from assay_virtual.tools.ncu.metrics import metrics_of, passes
from assay_virtual.tools.ncu.options import ncu_options
from assay_virtual.workloads.loading import load_workload
from tests.support.agent.stand_ins import PROCESS_0, PROCESS_1, Bench

GRAMMAR = re.compile(
    r'==PROF== (Connected to process \d+ \(.+\)|Profiling "[^"]+"( - \d+( \(\d+/\d+\))?)?: '
    r"0%\.\.\.\.50%\.\.\.\.100% - (1 pass|[2-9]\d* passes)|Disconnected from process \d+|Report: .+)"
)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def _page(text: str) -> list[list[str]]:
    start = text.index('"ID"')
    return list(csv.reader(io.StringIO(text[start:])))


def _metrics(names: tuple[str, ...], capability: str = "8.6") -> str:
    return ",".join(metric_of(name, capability) for name in names)


@pytest.mark.parametrize("version", ["2024.1.1.0", "2022.3.0.0"])
def test_identity_columns_and_units_row_are_those_of_the_recordings(
    bench: Bench, shared_data: Path, version: str
) -> None:
    answer = bench.ncu(
        "--csv", "--page", "raw", "--print-units", "base", "--target-processes", "all",
        "--metrics", "gpc__cycles_elapsed.avg,gpu__time_duration.sum,smsp__inst_executed.sum",
        bench.workload, ASSAY_VIRTUAL_NCU_VERSION=version,
    )  # fmt: skip
    header, units, *rows = _page(answer.output)
    assert answer.status == 0 and len(rows) == PROCESS_0 + PROCESS_1
    if version.startswith("2024"):
        with gzip.open(shared_data / "ncu" / "synthetic_v100_1000_modern_layout.csv.gz", "rt") as file:
            lines = [line for line in file if line.startswith('"')]
    else:
        with gzip.open(shared_data / "ncu" / "synthetic_v100_5000_raw_page.csv.gz", "rt") as file:
            lines = [line for line in file if line.startswith('"')]
    real_header, real_units = csv.reader(lines[:2])
    identity = [name for name in real_header if "__" not in name]
    assert header[: len(identity)] == identity
    assert header[len(identity) :] == sorted(header[len(identity) :])
    assert units[: len(identity)] == [""] * len(identity)
    real = dict(zip(real_header, real_units, strict=True))
    ours = dict(zip(header, units, strict=True))
    common = ours.keys() & real.keys() - {"launch__thread_count"}
    assert len(common) > len(identity) + 4
    assert {name: ours[name] for name in common} == {name: real[name] for name in common}


def test_log_lines_have_the_grammar_of_the_recording(bench: Bench, shared_data: Path) -> None:
    with gzip.open(shared_data / "ncu" / "synthetic_v100_1000_modern_layout.csv.gz", "rt") as file:
        real = [line.rstrip("\n") for line in file if line.startswith("==PROF==")]
    assert real and all(GRAMMAR.fullmatch(line) for line in real)
    answer = bench.ncu("-o", bench.folder / "r", "-c", "3", bench.workload)
    lines = answer.lines("==")
    assert all(GRAMMAR.fullmatch(line) for line in lines)
    assert [line.split(" (")[0] for line in lines[:3]] == [
        "==PROF== Connected to process 4200001",
        "==PROF== Connected to process 4200002",
        '==PROF== Profiling "gemm" - 0',
    ]
    assert lines[3].startswith('==PROF== Profiling "gemm" - 1 (2/3): 0%')
    assert lines[-1] == f"==PROF== Report: {bench.folder}/r.ncu-rep"


@pytest.mark.parametrize("kind", list(ARCHITECTURES))
def test_reader_gets_the_values_of_the_virtual_gpu(bench: Bench, kind: str) -> None:
    bench.kind = kind
    gpu = VirtualGPU(kind, seed=3)
    capability = gpu.architecture.compute_capability
    names = ("cycles_gpc_max", "profiled_duration_ns", "clock_gpc_hz", "l2_hit_percent", "dram_bytes",
             *(name for name in FEATURE_SETS["table2"] if name != "thread_blocks"))  # fmt: skip
    report, page = bench.folder / "r.ncu-rep", bench.folder / "page.csv"
    ran = bench.ncu("--cache-control", "none", "--clock-control", "none", "-f", "-o", report,
                    "--metrics", _metrics(names, capability), bench.workload)  # fmt: skip
    assert ran.status == 0
    shown = bench.ncu("--import", report, "--csv", "--page", "raw", "--print-units", "base",
                      "--log-file", page)  # fmt: skip
    assert (shown.status, shown.output) == (0, "")
    launches = read_launches(page)
    truth = gpu.execute(
        load_workload(bench.workload),
        level="detailed",
        condition=Condition(cache="none", clock="none", sm_percent=100.0),
    )
    table = launches.table
    for part in truth:
        mine = table.filter(np.asarray(table["process"]) == part.process)
        for name in names:
            measured = mine[name].to_numpy()
            assert np.allclose(measured, np.round(part.counters[name], 2), rtol=0, atol=1e-6), name
        assert mine["grid_x"].to_pylist() == part.grid[:, 0].tolist()
        assert mine["stream"].to_pylist() == part.stream.tolist()
        kernels = [launches.names[identifier] for identifier in mine["kernel_id"].to_pylist()]
        assert kernels == [part.kernels[k].name for k in part.kernel.tolist()]
        shared = [k.static_shared_bytes + k.dynamic_shared_bytes for k in part.kernels]
        assert mine["shared_memory_bytes"].to_pylist() == [shared[k] for k in part.kernel.tolist()]
    assert launches.metadata.devices[0].name == f"virtual {kind}"


def test_scaled_units_are_read_to_the_same_values(bench: Bench) -> None:
    metrics = "gpu__time_duration.sum,gpc__cycles_elapsed.avg.per_second,dram__bytes.sum"
    pages = []
    for units in ("base", "auto"):
        page = bench.folder / f"{units}.csv"
        bench.ncu("--csv", "--page", "raw", "--print-units", units, "--metrics", metrics, "--log-file", page,
                  bench.workload)  # fmt: skip
        pages.append(read_launches(page).table)
    for name, error in (("profiled_duration_ns", 1e-3), ("clock_gpc_hz", 500), ("dram_bytes", 1)):
        assert np.allclose(pages[0][name].to_numpy(), pages[1][name].to_numpy(), rtol=0, atol=error)
    text = (bench.folder / "auto.csv").read_text()
    assert '"usecond"' in text and '"cycle/nsecond"' in text and '"Mbyte"' in text


def test_conditions_reach_the_gpu(bench: Bench) -> None:
    def cycles(*options: str, **more: str) -> np.ndarray:
        page = bench.folder / "page.csv"
        arguments = (
            "--csv",
            "--page",
            "raw",
            "--print-units",
            "base",
            "--metrics",
            "gpc__cycles_elapsed.max",
        )
        answer = bench.ncu(*options, *arguments, "--log-file", page, bench.workload, **more)
        assert answer.status == 0
        return np.asarray(read_launches(page).table["cycles_gpc_max"].to_numpy())

    gpu, workload = VirtualGPU("RTX 3070", seed=3), load_workload(bench.workload)
    for options, more, condition in (
        ((), {}, Condition("all", "base", 100.0)),
        (("--cache-control", "none"), {}, Condition("none", "base", 100.0)),
        (("--clock-control", "none"), {}, Condition("all", "none", 100.0)),
        ((), {"ASSAY_VIRTUAL_NCU_VERSION": "2026.1.0.0"}, Condition("all", "boost", 100.0)),
    ):
        parts = gpu.execute(workload, level="detailed", condition=condition)
        truth = np.concatenate([part.counters["cycles_gpc_max"] for part in parts])
        assert sorted(cycles(*options, **more).tolist()) == sorted(truth.tolist())


def test_a_client_of_mps_contributes_one_launch(bench: Bench) -> None:
    """As NVIDIA says of kernel replay under MPS: each client contributes a single kernel launch."""
    answer = bench.ncu("-c", "12", bench.workload, ASSAY_VIRTUAL_SM_PERCENT="50")
    assert (answer.status, len(answer.lines("==PROF== Profiling"))) == (0, 2)  # of two processes
    # Nothing tells it from a workload that ends after its first launch.
    assert len(answer.lines("==PROF== Disconnected")) == 2


def test_slices_are_parts_of_the_whole_run(bench: Bench) -> None:
    def page(*options: str) -> list[list[str]]:
        answer = bench.ncu(*options, "--target-processes", "application-only", "--csv", "--page", "raw",
                           "--print-units", "base", bench.workload)  # fmt: skip
        return _page(answer.output)[2:]

    whole = page()
    assert len(whole) == PROCESS_0
    parts = [page("-s", str(start), "-c", "10") for start in (0, 10, 20)]
    assert [len(part) for part in parts] == [10, 10, 7]
    assert [row[0] for row in parts[1]] == [str(number) for number in range(10)]
    assert [row[1:] for part in parts for row in part] == [row[1:] for row in whole]


def test_filters_count_only_what_matches(bench: Bench) -> None:
    def profiled(*options: str) -> list[str]:
        answer = bench.ncu(*options, "--target-processes", "application-only", "-f", "-o",
                           bench.folder / "f", bench.workload)  # fmt: skip
        return [line.split('"')[1] for line in answer.lines("==PROF== Profiling")]

    assert profiled("-k", "gemm") == ["gemm"] * 5
    assert profiled("-k", "regex:^vector", "-s", "2", "-c", "3") == ["vector_add"] * 3
    assert profiled("-k", "regex:ns::F", "--kernel-name-base", "demangled") == ["gemm"] * 5
    assert profiled("-k", "nothing") == []
    assert profiled("--kernel-id", "::gemm:2") == ["gemm"]
    assert profiled("--kernel-id", ":13:vector_add:") == ["vector_add"] * 10
    assert len(profiled("--launch-skip-before-match", "20")) == PROCESS_0 - 20


def test_launches_of_processes_come_in_turn(bench: Bench) -> None:
    answer = bench.ncu("--csv", "--page", "raw", "-c", "5", "-s", "1", bench.workload)
    assert [row[1] for row in _page(answer.output)[2:]] == [
        "4200002", "4200001", "4200002", "4200001", "4200002",
    ]  # fmt: skip


def test_default_processes_changed_between_versions(bench: Bench) -> None:
    old = bench.ncu("--csv", "--page", "raw", bench.workload, ASSAY_VIRTUAL_NCU_VERSION="2022.3.0.0")
    new = bench.ncu("--csv", "--page", "raw", bench.workload)
    assert len(_page(old.output)) - 2 == PROCESS_0
    assert len(_page(new.output)) - 2 == PROCESS_0 + PROCESS_1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--bogus", "x"], "unrecognised option '--bogus'. Use --help for further details."),
        (["-z"], "unrecognised option '-z'. Use --help for further details."),
        (["--metrics"],
         "the required argument for option '--metrics' is missing. Use --help for further details."),
        (["--cache-control", "flush", "x"],
         "the argument for option '--cache-control' is invalid. Use --help for further details."),
        (["--launch-count", "x", "y"],
         "the argument ('x') for option '--launch-count' is invalid. Use --help for further details."),
        (["-c", "1", "-c", "2", "x"],
         "option '--launch-count' cannot be specified more than once. Use --help for further details."),
        (["--kill", "maybe", "x"],
         "the argument ('maybe') for option '--kill' is invalid. Valid choices are 'on|off', 'yes|no', '1|0' "
         "and 'true|false'. Use --help for further details."),
        (["--csv"], "Missing executable to launch."),
        (["/x"],
         "'/x' does not exist or is not an executable. Please make sure to specify the absolute path to '/x' "
         "if the executable is not in the local directory."),
        (["--import", "nosuch.ncu-rep"], "Could not open report file 'nosuch.ncu-rep'."),
        (["--query-metrics", "--chips", "nosuch"], "Invalid chip nosuch"),
        (["--log-file", "/nosuch/x.log", "x"], "'/nosuch/x.log' cannot be used as the output log file"),
    ],
)  # fmt: skip
def test_complaints_are_the_real_ones(bench: Bench, arguments: list[str], complaint: str) -> None:
    # As Nsight Compute 2024.1.1 said them, on its standard output.
    answer = bench.ncu(*arguments)
    assert (answer.status, answer.output, answer.errors) == (1, f"==ERROR== {complaint}\n", "")


def test_options_differ_by_version(bench: Bench) -> None:
    old, new = ({option.name for option in ncu_options(v)} for v in ("2022.3.0.0", "2024.1.1.0"))
    assert old - new == {"details-all", "sampling-interval", "sampling-max-passes", "sampling-buffer-size"}
    assert {"config-file", "graph-profiling", "disable-extra-suffixes", "print-details", "verbose",
            "warp-sampling-interval", "range-filter", "preload-library",
            "print-metric-name"} <= new - old  # fmt: skip
    answer = bench.ncu("--config-file", "off", bench.workload, ASSAY_VIRTUAL_NCU_VERSION="2022.3.0.0")
    # Versions until 2022 complain on standard error, with another status.
    complaint = "unrecognised option '--config-file'\n\nUse --help for further details.\n"
    assert (answer.status, answer.output, answer.errors) == (255, "", complaint)
    for version in ("2022.3.0.0", "2024.1.1.0", "2026.1.0.0"):
        shown = bench.ncu("--help", ASSAY_VIRTUAL_NCU_VERSION=version).output
        listed = set(re.findall(r"^  (?:-\w \[ )?--([a-z0-9-]+)", shown, re.MULTILINE))
        assert listed == {option.name for option in ncu_options(version)}


def test_config_file_is_read_unless_it_is_turned_off(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bench.folder)
    Path("config.ncu-cfg").write_text("[Launch-and-attach]\n-c = 2 ;surprise\n--csv\n--page=raw\n[Import]\n")

    def rows(*options: str) -> int:
        answer = bench.ncu(*options, "--csv", "--page", "raw", bench.workload)
        return len(_page(answer.output)) - 2

    assert rows() == 2
    assert rows("-c", "3") == 3
    assert rows("--config-file", "off") == PROCESS_0 + PROCESS_1
    Path("config.ncu-cfg").rename("elsewhere")
    assert rows("--config-file-path", "elsewhere") == 2


def test_whole_graphs_are_refused(bench: Bench) -> None:
    answer = bench.ncu("--graph-profiling", "graph", bench.workload)
    assert len(answer.lines("==ERROR== Driver does not support graph-based profiling")) == 1
    assert answer.status != 0


def test_long_names_may_be_shortened_and_joined_to_their_value(bench: Bench) -> None:
    answer = bench.ncu("--launch-cou=2", "-s3", "--csv", "--page=raw", bench.workload, "--csv", "-c", "9")
    assert len(_page(answer.output)) - 2 == 2
    ambiguous = bench.ncu("--print", bench.workload)
    assert "is ambiguous and matches" in ambiguous.output


def test_metrics_missing_on_import_have_no_column_and_no_error(bench: Bench) -> None:
    report = bench.folder / "r.ncu-rep"
    bench.ncu("-o", report, "-c", "1", bench.workload)
    answer = bench.ncu("--import", report, "--csv", "--page", "raw", "--metrics",
                       "nosuch.sum,launch__grid_size,gpc__cycles_elapsed.max",
                       "--print-units", "base")  # fmt: skip
    assert answer.status == 0
    assert _page(answer.output)[0][-2:] == ["gpc__cycles_elapsed.max", "launch__grid_size"]
    assert _page(answer.output)[1][-2:] == ["cycle", ""]


def test_existing_report_is_kept_without_force(bench: Bench) -> None:
    report = bench.folder / "r.ncu-rep"
    report.write_text("mine")
    answer = bench.ncu("-o", bench.folder / "r", bench.workload)
    assert answer.output == "==ERROR== File r.ncu-rep already exists. Use '-f' for overwriting the file.\n"
    assert (answer.status, report.read_text()) == (1, "mine")
    assert bench.ncu("-f", "-o", bench.folder / "r", "-c", "1", bench.workload).status == 0
    assert bench.ncu("--import", report).status == 0


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.9999])
def test_a_cut_report_is_refused(bench: Bench, share: float) -> None:
    report = bench.folder / "r.ncu-rep"
    bench.ncu("-o", report, bench.workload)
    content = report.read_bytes()
    report.write_bytes(content[: int(share * len(content))])
    answer = bench.ncu("--import", report)
    assert answer.output == f"==ERROR== Failed to load report file '{report}'.\n"
    assert answer.status == 1


def test_ranges_come_out_as_the_real_column(bench: Bench) -> None:
    page = bench.folder / "page.csv"
    bench.ncu("--nvtx", "--csv", "--page", "raw", "--log-file", page,
              "--target-processes", "application-only", bench.workload)  # fmt: skip
    launches = read_launches(page)
    paths = [None if i is None else launches.names[i] for i in launches.table["nvtx_id"].to_pylist()]
    assert paths == ["step"] * 15 + [None] * 12


def test_listed_metrics_are_those_that_can_be_collected(bench: Bench) -> None:
    listing = bench.ncu("--query-metrics", "--chips", "gh100,gv100", "--csv")
    header, *rows = csv.reader(io.StringIO(listing.output))
    assert header == ["Metric name", "Metric type", "Metric unit", "Metric description", "gh100", "gv100"]
    present = {row[0]: row[4:] for row in rows}
    assert present["smsp__inst_executed"] == ["1", "1"]
    assert present["smsp__sass_inst_executed_op_tma"] == ["1", ""]
    assert bench.ncu("--list-chips").output == "ga100, ga104, gh100, gv100, tu106\n"


@pytest.mark.parametrize(
    ("counters", "expected"),
    [
        (("cycles_gpc_max", "profiled_duration_ns"), 1),
        (("cycles_gpc_max", "instructions"), 1),
        (("cycles_gpc_avg", "cycles_sys_avg", "cycles_sm_active_avg", "profiled_duration_ns",
          "instructions"), 1),
        (("global_load_sectors", "global_store_sectors", "local_load_sectors"), 2),
        (tuple(n for n in FEATURE_SETS["table2"] if n != "global_atomic_instructions"), 2),
        (FEATURE_SETS["table2"], 3),
        (tuple(n for n in registry() if n.endswith("_sass")), 1),
        (("cycles_gpc_max", "profiled_duration_ns", "instructions", "threads_per_instruction",
          "occupancy_percent", "l1_hit_percent", "l2_hit_percent", "dram_bytes",
          "dram_throughput_percent"), 2),
        (("thread_blocks",), 1),
    ],
)  # fmt: skip
def test_passes_are_those_of_the_table(counters: tuple[str, ...], expected: int) -> None:
    assert passes(registry()[name] for name in counters) == expected


def test_metrics_of_a_chip_exclude_what_it_lacks() -> None:
    assert "smsp__sass_inst_executed_op_ldgsts.sum" not in metrics_of(ARCHITECTURES["V100"], "2024.1")
    assert "smsp__sass_inst_executed_op_ldgsts.sum" in metrics_of(ARCHITECTURES["A100"], "2024.1")


@pytest.mark.parametrize(
    ("demangled", "function"),
    [
        ("vector_add", "vector_add"),
        ("daxpy_kernel(int, double *)", "daxpy_kernel"),
        ("void at::native::f<4, at::G<float>, a::B<char*, 1>>(int, T2)", "f"),
        ("void (anonymous namespace)::softmax<float, (int)9>(float*)", "softmax"),
        ("Kernel2(bool*, bool*, int)", "Kernel2"),
    ],
)
def test_function_names(demangled: str, function: str) -> None:
    assert function_name(demangled) == function
    assert re.fullmatch(r"\w+", mangled_name(demangled))


def test_mangled_names_tell_template_instances_apart() -> None:
    assert mangled_name("void f<1>(int)") != mangled_name("void f<2>(int)")
