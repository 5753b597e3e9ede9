"""Command lines of Nsight Compute over its generations: nothing unknown, nothing left to a default."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from assay_agent.execution.errors import ProfilerError
from assay_agent.execution.tool_version import ToolVersion, parse_options, parse_version
from assay_agent.profilers.ncu.command import (
    ONE_PASS_COUNTERS,
    MetricPlan,
    import_command,
    plan_metrics,
    profile_command,
)
from assay_sampling.counters.definitions import FEATURE_SETS
from assay_sampling.launches.table import BASELINE
from assay_sampling.running.failures import FailureClass
from assay_virtual.tools.ncu.options import ncu_help
from tests.support.agent.assignments import WORK

METRICS = MetricPlan(
    (("instructions", "smsp__inst_executed.sum"), ("cycles_gpc_avg", "gpc__cycles_elapsed.avg"))
)
COMMON = [
    "metrics", "launch-skip", "launch-count", "kill", "log-file", "null-stdin", "force-overwrite", "export",
    "csv", "page", "print-units", "import", "print-kernel-base", "print-fp", "cache-control", "replay-mode",
    "target-processes", "apply-rules", "import-source", "check-exit-code",
]  # fmt: skip
SINCE_2023 = ["config-file", "graph-profiling", "disable-extra-suffixes"]
SINCE_2026 = ["pipeline-boost-state", "import-sass", "rename-kernels"]
OLD_CLOCKS = frozenset({"base", "none", "reset"})
NEW_CLOCKS = OLD_CLOCKS | {"boost", "force-boost"}


def tool(version: str, names: list[str], clocks: frozenset[str]) -> ToolVersion:
    options = {f"--{name}": frozenset[str]() for name in names}
    return ToolVersion("/opt/ncu", version, {**options, "--clock-control": clocks})


TOOLS = {
    "2022.3": tool("2022.3.0.0", COMMON, OLD_CLOCKS),
    "2024.1": tool("2024.1.1.0", COMMON + SINCE_2023, OLD_CLOCKS),
    "2026.1": tool("2026.1.0.0", COMMON + SINCE_2023 + SINCE_2026, NEW_CLOCKS),
    "2026.3": tool("2026.3.1.0", COMMON + SINCE_2023 + SINCE_2026, NEW_CLOCKS),
}
NEW_FIRST = ["--config-file", "off", "--target-processes", "all", "--replay-mode", "kernel",
             "--graph-profiling", "node"]  # fmt: skip
TAIL = ["--log-file", "/j/log", "--null-stdin", "-f", "-o", "/j/r.ncu-rep", "./train", "--epochs", "1"]
PAIR = ["--metrics", "smsp__inst_executed.sum,gpc__cycles_elapsed.avg"]
BASE = ["--cache-control", "none", "--clock-control", "none"]
EXPECTED = {
    "2022.3": [
        "--target-processes", "all", "--replay-mode", "kernel", *BASE, "--apply-rules", "no",
        "--import-source", "no", "--check-exit-code", "yes", *PAIR, *TAIL,
    ],
    "2024.1": [
        *NEW_FIRST, *BASE, "--apply-rules", "no", "--import-source", "no", "--disable-extra-suffixes",
        "--check-exit-code", "yes", *PAIR, *TAIL,
    ],
    "2026.1": [
        *NEW_FIRST, *BASE, "--pipeline-boost-state", "stable", "--rename-kernels", "off",
        "--apply-rules", "no", "--import-source", "no", "--import-sass", "no", "--disable-extra-suffixes",
        "--check-exit-code", "yes", *PAIR, *TAIL,
    ],
}  # fmt: skip
EXPECTED["2026.3"] = EXPECTED["2026.1"]


def command(version: str, **changes: object) -> list[str]:
    work = replace(WORK, **changes)  # type: ignore[arg-type]
    return profile_command(TOOLS[version], work, METRICS, Path("/j/r.ncu-rep"), Path("/j/log"))


@pytest.mark.parametrize("version", EXPECTED)
def test_the_whole_command_of_each_generation(version: str) -> None:
    assert command(version) == ["/opt/ncu", *EXPECTED[version]]


@pytest.mark.parametrize("version", EXPECTED)
def test_no_generation_gets_an_option_that_it_does_not_know(version: str) -> None:
    argv = command(version, launch_skip=5, launch_count=7)
    given = {text for text in argv[: argv.index("./train")] if text.startswith("--")}
    assert given <= set(TOOLS[version].options)
    # The same over the help of the stand-in, which lists what the real release lists.
    real = parse_options(ncu_help(TOOLS[version].version))
    assert given <= set(real)
    assert all(
        option in real for option in import_command(replace_options(version), Path("r")) if option[:2] == "--"
    )


def replace_options(version: str) -> ToolVersion:
    return ToolVersion("ncu", version, parse_options(ncu_help(TOOLS[version].version)))


@pytest.mark.parametrize("version", EXPECTED)
def test_help_of_the_stand_in_gives_the_same_command(version: str) -> None:
    listed = replace(TOOLS[version], options=parse_options(ncu_help(TOOLS[version].version)))
    argv = profile_command(listed, WORK, METRICS, Path("/j/r.ncu-rep"), Path("/j/log"))
    assert argv == ["/opt/ncu", *EXPECTED[version]]


def test_a_slice_skips_counts_and_ends_the_workload_after_it() -> None:
    argv = command("2024.1", launch_skip=1000, launch_count=500)
    start = argv.index("--launch-skip")
    assert argv[start : start + 6] == ["--launch-skip", "1000", "--launch-count", "500", "--kill", "yes"]
    assert "--launch-skip" not in command("2024.1", launch_count=500)
    open_ended = command("2024.1", launch_skip=1000)
    assert "--launch-count" not in open_ended
    assert "--kill" not in open_ended


@pytest.mark.parametrize(("cache", "clock"), [("all", "base"), ("none", "boost"), (None, None)])
def test_conditions_become_options(cache: str | None, clock: str | None) -> None:
    argv = command("2026.1", condition=replace(BASELINE, cache=cache, clock=clock))
    assert argv[argv.index("--cache-control") + 1] == (cache or "none")
    assert argv[argv.index("--clock-control") + 1] == (clock or "none")


def test_a_clock_that_the_release_cannot_lock_is_refused() -> None:
    with pytest.raises(ProfilerError, match=r"Nsight Compute 2024\.1\.1\.0 .* cannot lock the boost clock"):
        command("2024.1", condition=replace(BASELINE, clock="boost"))


def test_the_report_is_imported_as_raw_page_in_base_units() -> None:
    assert import_command(TOOLS["2026.3"], Path("/j/r.ncu-rep")) == [
        "/opt/ncu", "--config-file", "off", "--import", "/j/r.ncu-rep", "--csv", "--page", "raw",
        "--print-units", "base", "--print-kernel-base", "demangled", "--rename-kernels", "off", "--print-fp",
    ]  # fmt: skip


@pytest.mark.parametrize("counters", [(), ("instructions",), ("cycles_gpc_avg", "instructions")])
def test_what_fits_one_pass_is_collected_in_one_pass_together(counters: tuple[str, ...]) -> None:
    plan = plan_metrics(replace(WORK, counters=counters), "7.0", "2024.1.1.0")
    assert tuple(counter for counter, _ in plan.metrics) == ONE_PASS_COUNTERS
    assert plan.names == (
        "gpc__cycles_elapsed.avg", "gpc__cycles_elapsed.max", "smsp__inst_executed.sum",
        "gpu__time_duration.sum", "gpc__cycles_elapsed.avg.per_second",
    )  # fmt: skip


def test_features_are_collected_as_asked() -> None:
    asked = (*FEATURE_SETS["table2"], "cycles_gpc_avg")
    plan = plan_metrics(replace(WORK, counters=asked), "8.0", "2024.1.1.0")
    assert tuple(counter for counter, _ in plan.metrics) == asked
    assert plan.missing == ()


def test_metrics_follow_the_chip_and_what_it_lacks_is_left_out() -> None:
    asked = replace(WORK, counters=("dram_read_bytes", "tensor_memory_instructions"))
    volta = plan_metrics(asked, "7.0", "2024.1.1.0")
    assert volta == MetricPlan(
        (("dram_read_bytes", "dram__bytes_read.sum"),), ("tensor_memory_instructions",)
    )
    blackwell = plan_metrics(asked, "12.0", "2026.1.0.0")
    assert blackwell.names == ("dram__bytes_op_read.sum", "smsp__sass_inst_executed_op_tma.sum")


def test_a_run_of_which_nothing_can_be_collected_fails() -> None:
    with pytest.raises(ProfilerError) as caught:
        plan_metrics(replace(WORK, counters=("tensor_memory_instructions",)), "7.0", "2024.1.1.0")
    assert caught.value.failure_class is FailureClass.METRIC_UNKNOWN
    with pytest.raises(ProfilerError, match="there is no counter 'speed'"):
        plan_metrics(replace(WORK, counters=("speed",)), "7.0", "2024.1.1.0")


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVIDIA (R) Nsight Compute Command Line Profiler\nVersion 2022.3.0.0 (build 31729285)",
            "2022.3.0.0",
        ),
        ("Version 2026.3.1.0 (build 1) (public-release)\n", "2026.3.1.0"),
        ("NVIDIA Nsight Systems version 2023.4.4.54-234433681190v0\n", "2023.4.4.54"),
        ("NVIDIA Nsight Systems version: 2021.5.2.53-28d0e6e\n", "2021.5.2.53"),
        ("bash: ncu: command not found", ""),
    ],
)
def test_versions_are_read_from_what_the_tools_print(text: str, version: str) -> None:
    assert parse_version(text) == version


def test_options_are_read_from_help_in_both_layouts() -> None:
    ncu = (
        "General Options:\n"
        "  -h [ --help ]                         Print this help message.\n"
        "  --clock-control arg (=base)           Control the behavior of the GPU clocks during profiling.\n"
        "                                        Allowed values:\n"
        "                                          base\n"
        "                                          none\n"
        "                                        See also --cache-control in the documentation.\n"
        "  -o [ --export ] arg                   Set the output file.\n"
    )
    options = parse_options(ncu)
    assert set(options) == {"--help", "--clock-control", "--export"}
    assert {"base", "none"} <= options["--clock-control"]
    assert "boost" not in options["--clock-control"]
    nsys = (
        "\t-b, --backtrace=\n\n\t   Possible values are 'auto'.\n\n\t--cpuctxsw=\n\n\t   Default is none.\n"
    )
    assert set(parse_options(nsys)) == {"--backtrace", "--cpuctxsw"}


def test_releases_are_compared_as_numbers() -> None:
    old = ToolVersion("ncu", "2022.10.1")
    assert old.at_least(2022, 9)
    assert not old.at_least(2023, 1)
