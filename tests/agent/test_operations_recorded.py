"""Runs of ``unit: operation``: the options that the tools get, and the flags of runs that lack operations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from assay_agent.config import VirtualGPUs
from assay_agent.daemon.places import virtual_places
from assay_agent.execution.tool_version import ToolVersion, parse_options
from assay_agent.profilers.attempt_notes import OperationsSeen
from assay_agent.profilers.ncu.command import MetricPlan, profile_command
from assay_agent.profilers.nsys.command import trace_command
from assay_core.records.work import CommandSource, Work
from assay_sampling.launches.table import has_operations
from assay_sampling.notes.registry import make_note
from assay_sampling.nsight.tool import tool_of_release
from assay_virtual.tools.nsys.options import options_help, profile_options
from tests.support.agent.assignments import WORK
from tests.support.agent.tool_bench import COMPUTE, SYSTEMS, WORKLOAD, Bench

ASKED = CommandSource(("./train",), operations=True)
METRICS = MetricPlan((("cycles_gpc_avg", "gpc__cycles_elapsed.avg"),))


def test_the_wish_goes_over_the_wire() -> None:
    assert CommandSource.from_proto(ASKED.to_proto()) == ASKED
    assert not CommandSource.from_proto(CommandSource(("./train",)).to_proto()).operations


@pytest.mark.parametrize(
    ("release", "annotated"), [("2022.4", []), ("2023.4", []), ("2025.1", ["--pytorch=autograd-shapes-nvtx"])]
)
def test_nsys_records_libraries_and_the_operators_that_its_release_can_announce(
    release: str, annotated: list[str]
) -> None:
    light = replace(WORK, level="light", command=ASKED)
    words = trace_command(tool_of_release("nsys", release), light, Path("trace"))
    assert words[:4] == ["nsys", "profile", "--trace=cuda,nvtx,cublas,cudnn", *annotated, "--sample=none"][:4]
    plain = trace_command(
        tool_of_release("nsys", release), replace(light, command=WORK.command), Path("trace")
    )
    assert "--trace=cuda,nvtx" in plain
    assert not [word for word in plain if "pytorch" in word]


@pytest.mark.parametrize("version", ["2023.4.4.54", "2025.3.2.474"])
def test_the_help_of_the_stand_in_tells_whether_pytorch_can_be_announced(version: str) -> None:
    options = parse_options(options_help("profile", profile_options(version)))
    words = trace_command(ToolVersion("nsys", version, options), replace(WORK, command=ASKED), Path("trace"))
    assert ("--pytorch=autograd-shapes-nvtx" in words) == version.startswith("2025")


def test_ncu_records_ranges_and_renames_nothing() -> None:
    tool = tool_of_release("ncu", "2024.1")
    words = profile_command(tool, replace(WORK, command=ASKED), METRICS, Path("r.ncu-rep"), Path("log"))
    assert "--nvtx" in words
    assert not [word for word in words if "rename" in word and word != "--rename-kernels"]
    assert "--nvtx" not in profile_command(tool, WORK, METRICS, Path("r.ncu-rep"), Path("log"))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    (tmp_path / "small.toml").write_text(WORKLOAD)
    (place,) = virtual_places([VirtualGPUs("V100")], tmp_path / "state")
    return Bench(place, tmp_path)


def asked(bench: Bench, profiler: str) -> Work:
    work = bench.work(profiler)
    assert work.command is not None
    return replace(work, command=replace(work.command, operations=True))


@pytest.mark.processes
@pytest.mark.parametrize("profiler", [SYSTEMS, COMPUTE])
def test_a_run_without_ranges_is_flagged_if_it_was_asked_for_operations(bench: Bench, profiler: str) -> None:
    table, measurement = bench.measure(asked(bench, profiler))
    assert "operations_missing" in [flag.name for flag in measurement.flags]
    assert table.num_rows
    _, measurement = bench.measure(bench.work(profiler))
    assert "operations_missing" not in [flag.name for flag in measurement.flags]


@pytest.mark.processes
@pytest.mark.parametrize("profiler", [SYSTEMS, COMPUTE])
def test_a_run_with_ranges_is_recorded_with_its_operations(bench: Bench, profiler: str) -> None:
    text = WORKLOAD.replace("repeat = 60", 'repeat = 60\nnvtx = "step"')
    (bench.folder / "small.toml").write_text(text)
    table, measurement = bench.measure(asked(bench, profiler))
    assert has_operations(table.schema)
    named = [flag.name for flag in measurement.flags if flag.name.startswith("operations")]
    # Nsight Compute cannot tell one step from the next: the range has no serial number.
    assert named == ([] if profiler == SYSTEMS else ["operations_doubtful"])
    calls = len(set(table["call"].to_pylist()))
    assert calls == (60 if profiler == SYSTEMS else 1)


def test_doubts_of_the_reader_are_a_flag() -> None:
    seen = OperationsSeen(replace(WORK, command=ASKED))
    notes = [make_note("operations_cross", launches=3, operation="aten::mm"), make_note("short_names")]
    assert [name for name, _ in seen.flags(notes)] == ["operations_missing", "operations_doubtful"]
    assert not list(OperationsSeen(WORK).flags(notes))
