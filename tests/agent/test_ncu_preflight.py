"""What the box's own tool lists decides which metrics are asked for; nothing goes missing without a word."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from assay_agent.config import VirtualGPUs
from assay_agent.daemon.places import installed_places, virtual_places
from assay_agent.doctor.pins import architecture_of
from assay_agent.execution.errors import ProfilerError
from assay_agent.execution.tool_version import ToolVersion
from assay_agent.profilers.live import LiveMeasurement
from assay_agent.profilers.ncu.command import plan_metrics
from assay_agent.profilers.ncu.preflight import CHIPS, Listing, listing_of, missing_text, parse_listing
from assay_core.processes.tool_run import ToolResult
from assay_core.records.machine import InstalledDevice, Inventory
from assay_sampling.counters.definitions import FEATURE_SETS
from assay_sampling.launches.table import TableMetadata, launch_schema, table_metadata
from assay_sampling.running.failures import FailureClass
from assay_virtual.architectures import ARCHITECTURES
from tests.support.agent.assignments import WORK
from tests.support.agent.tool_bench import COMPUTE, WORKLOAD, Bench

PAGE = (
    '"Metric name","Metric type","Metric unit","Metric description","ga104"\n'
    '"gpc__cycles_elapsed","Counter","cycle","# of cycles, ""elapsed""","1"\n'
    '"smsp__inst_executed","Counter","inst","# of warp instructions","1"\n'
    '"smsp__sass_inst_executed_op_tma","Counter","inst","# of bulk copies",""\n'
)


class Tool:
    """A tool that answers from texts, and counts how often it is asked."""

    def __init__(self, folder: Path, chips: str = "ga100, ga104, gv100", page: str = PAGE) -> None:
        self.folder, self.chips, self.page, self.code = folder, chips, page, 0
        self.asked: list[list[str]] = []
        program = folder / "ncu"
        program.write_text("one release")
        self.version = ToolVersion(str(program), "2024.1.1.0")

    def ask(self, argv: list[str], output: Path | None) -> ToolResult:
        self.asked.append(argv[1:])
        if output is not None:
            output.write_text(self.page)
        return ToolResult(tuple(argv), self.code, None, self.chips, "", 0.1)

    def listing(self, capability: str = "8.6") -> Listing:
        return listing_of(
            self.version, capability, {}, state=self.folder / "state", scratch=self.folder, ask=self.ask
        )


def test_the_tool_is_asked_for_the_first_chip_of_the_capability_that_it_knows(tmp_path: Path) -> None:
    tool = Tool(tmp_path)
    listing = tool.listing()
    assert (listing.chip, listing.names) == (
        "ga104", frozenset(["gpc__cycles_elapsed", "smsp__inst_executed"]),
    )  # fmt: skip
    assert tool.asked == [["--list-chips"], ["--query-metrics", "--chips", "ga104", "--csv"]]


def test_the_answer_is_kept_until_the_tools_file_changes_and_for_each_chip(tmp_path: Path) -> None:
    tool = Tool(tmp_path)
    first = tool.listing()
    assert tool.listing() == first and len(tool.asked) == 2
    assert tool.listing("8.0").names is None  # the page above is of another chip
    assert len(tool.asked) == 4
    (tmp_path / "ncu").write_text("another release of other size")
    assert tool.listing() == first and len(tool.asked) == 6
    [kept] = [path for path in (tmp_path / "state" / "ncu-metrics").iterdir() if path.stat().st_mtime][:1]
    for path in (tmp_path / "state" / "ncu-metrics").iterdir():
        path.write_text("{ damaged")
    assert kept.exists() and tool.listing() == first and len(tool.asked) == 8


@pytest.mark.parametrize(
    ("capability", "chips", "page", "why"),
    [
        ("", "ga104", PAGE, "no chip is known for compute capability ?"),
        ("13.0", "ga104", PAGE, "no chip is known for compute capability 13.0"),
        ("7.0", "ga104", PAGE, "the tool lists no chip of compute capability 7.0"),
        ("8.6", "", PAGE, "the tool lists no chip of compute capability 8.6"),
        ("8.6", "ga104", "==ERROR== no\n", "the tool did not list the metrics of ga104 (exit status 0)"),
    ],
)
def test_a_tool_that_does_not_answer_leaves_the_registry_in_charge(
    tmp_path: Path, capability: str, chips: str, page: str, why: str
) -> None:
    tool = Tool(tmp_path, chips, page)
    tool.code = int(not chips)
    listing = tool.listing(capability)
    assert (listing.names, listing.why) == (None, why)
    assert not (tmp_path / "state").exists()
    counters = ("instructions", "dram_bytes")
    plan = plan_metrics(replace(WORK, counters=counters), "8.6", "2024.1.1.0", listing)
    assert plan.names == ("smsp__inst_executed.sum", "dram__bytes.sum")


def test_a_page_is_read_by_its_header(tmp_path: Path) -> None:
    page = tmp_path / "p.csv"
    page.write_text("==WARNING== something before\n" + PAGE.replace('"ga104"\n', '"ga100","ga104"\n', 1)
                    .replace(',"1"\n', ',"1",""\n'))  # fmt: skip
    assert parse_listing(page, "ga100") == {"gpc__cycles_elapsed", "smsp__inst_executed"}
    assert parse_listing(page, "ga104") == frozenset()
    assert parse_listing(page, "gh100") == frozenset()


def test_another_name_of_the_same_counter_is_taken_and_what_has_none_is_missing() -> None:
    asked = replace(WORK, counters=("threads_per_instruction", "waves_per_sm", "artifact_global_loads"))
    names = frozenset({"smsp__average_thread_inst_executed_per_inst_executed"})
    listing = Listing("gb202", names)
    plan = plan_metrics(asked, "12.0", "2026.3.0.0", listing)
    assert plan.names == (
        "smsp__average_thread_inst_executed_per_inst_executed.ratio", "launch__waves_per_multiprocessor",
    )  # fmt: skip
    assert plan.missing == ("artifact_global_loads",)
    told = missing_text(listing, ToolVersion("ncu", "2026.3.0.0"), plan.missing)
    assert told == "Nsight Compute 2026.3.0.0 has no metric of chip gb202 for artifact_global_loads"


def test_a_run_of_which_the_box_lists_nothing_fails() -> None:
    with pytest.raises(ProfilerError) as caught:
        plan_metrics(
            replace(WORK, counters=("dram_bytes",)), "8.6", "2024.1.1.0", Listing("ga104", frozenset("x"))
        )
    assert caught.value.failure_class is FailureClass.METRIC_UNKNOWN


def test_every_capability_has_chips_of_its_architecture() -> None:
    for capability, chips in CHIPS.items():
        architecture = architecture_of(capability)
        assert architecture is not None and set(chips) <= set(architecture.chips), capability
    assert len({chip for chips in CHIPS.values() for chip in chips}) == sum(map(len, CHIPS.values()))
    for gpu in ARCHITECTURES.values():
        assert gpu.chip in CHIPS[gpu.compute_capability]


@pytest.mark.processes
def test_a_run_asks_its_own_tool_once_and_records_the_passes_of_each_launch(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(WORKLOAD)
    [place] = virtual_places([VirtualGPUs("V100")], tmp_path / "state")
    bench = Bench(place, tmp_path)
    counters = (*FEATURE_SETS["table2"], "cycles_gpc_avg", "tensor_memory_instructions")
    table, measurement = bench.measure(bench.work(COMPUTE, counters=counters))
    assert set(table["replay_passes"].to_pylist()) == {3.0}
    assert [(flag.name, flag.detail) for flag in measurement.flags] == [
        (
            "metrics_missing",
            "Nsight Compute 2024.1.1.0 has no metric of chip gv100 for tensor_memory_instructions",
        )
    ]
    assert measurement.log.text.count("--query-metrics") == 1
    # Where there is a driver, every table names it; the virtual GPU has none.
    assert table_metadata(table.schema).driver_version == ""
    one_pass, again = bench.measure(bench.work(COMPUTE, counters=("cycles_gpc_avg", "instructions")))
    assert set(one_pass["replay_passes"].to_pylist()) == {1.0}
    assert "--query-metrics" not in again.log.text and again.flags == ()


def test_a_measured_table_names_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ncu").write_text("#!/bin/sh\n")
    (tmp_path / "ncu").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    device = InstalledDevice(0, "Tesla V100", "GPU-1", "7.0", 80, 1 << 34)
    inventory = Inventory("host", "0", 2, 1 << 30, devices=(device,), driver_version="550.54.15")
    [place] = installed_places(inventory, tmp_path / "state")
    measurement = place.profilers[COMPUTE].run(WORK, threading.Event())
    assert isinstance(measurement, LiveMeasurement)
    schema = measurement.labelled(launch_schema(TableMetadata("detailed")), "2024.1.1.0")
    assert table_metadata(schema).driver_version == "550.54.15"
