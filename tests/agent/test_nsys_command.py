"""Command lines of Nsight Systems over its generations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from assay_agent.execution.tool_version import ToolVersion, parse_options
from assay_agent.profilers.nsys.command import export_command, report_suffix, trace_command
from assay_virtual.tools.nsys.options import options_help, profile_options
from tests.support.agent.assignments import WORK

LIGHT = replace(WORK, level="light", profiler="nsight_systems")
STEM = Path("/j/trace")
OLD = frozenset({"--trace", "--sample", "--force-overwrite", "--output", "--cuda-memory-usage", "--stats",
                 "--cuda-flush-interval"})  # fmt: skip
ALWAYS = ["/opt/nsys", "profile", "--trace=cuda,nvtx", "--sample=none"]
END = ["--force-overwrite=true", "--output=/j/trace", "./train", "--epochs", "1"]
FULL = [*ALWAYS, "--cpuctxsw=none", "--cuda-graph-trace=node", "--cuda-memory-usage=false",
        "--cuda-flush-interval=10000", "--stats=false", *END]  # fmt: skip
NEWEST = [*FULL[:7], "--cuda-event-trace=false", *FULL[7:]]


def tool(version: str, names: frozenset[str]) -> ToolVersion:
    return ToolVersion("/opt/nsys", version, dict.fromkeys(names, frozenset()))


@pytest.mark.parametrize(
    ("version", "names", "expected", "suffix"),
    [
        (
            "2021.2.4.12",
            OLD,
            [*ALWAYS, "--cuda-memory-usage=false", "--cuda-flush-interval=10000", "--stats=false", *END],
            ".qdrep",
        ),
        ("2021.5.2.53", OLD | {"--cpuctxsw", "--cuda-graph-trace"}, FULL, ".nsys-rep"),
        ("2023.4.4.54", OLD | {"--cpuctxsw", "--cuda-graph-trace"}, FULL, ".nsys-rep"),
        (
            "2025.3.2.474",
            OLD | {"--cpuctxsw", "--cuda-graph-trace", "--cuda-event-trace"},
            NEWEST,
            ".nsys-rep",
        ),
    ],
)
def test_the_whole_command_of_each_generation(
    version: str, names: frozenset[str], expected: list[str], suffix: str
) -> None:
    assert trace_command(tool(version, names), LIGHT, STEM) == expected
    assert report_suffix(tool(version, names)) == suffix


@pytest.mark.parametrize("version", ["2022.4.2.1", "2023.4.4.54"])
def test_the_help_of_the_stand_in_gives_the_full_command(version: str) -> None:
    options = parse_options(options_help("profile", profile_options(version)))
    assert trace_command(ToolVersion("/opt/nsys", version, options), LIGHT, STEM) == FULL


def test_the_report_is_exported_quietly_over_whatever_is_there() -> None:
    assert export_command(tool("2023.4.4.54", OLD), Path("/j/trace.nsys-rep"), Path("/j/trace.sqlite")) == [
        "/opt/nsys", "export", "-t", "sqlite", "-f", "true", "-q", "true", "-o", "/j/trace.sqlite",
        "/j/trace.nsys-rep",
    ]  # fmt: skip
