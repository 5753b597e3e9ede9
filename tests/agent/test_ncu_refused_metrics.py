"""A metric that the tool lists and refuses when it profiles: left out, told, remembered, never twice paid."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from assay_agent.config import VirtualGPUs
from assay_agent.daemon.places import virtual_places
from assay_agent.execution.environment import MeasuredGPU
from assay_agent.execution.errors import ProfilerError
from assay_agent.execution.tool_version import ToolVersion
from assay_agent.profilers.ncu.command import plan_metrics
from assay_agent.profilers.ncu.preflight import NOT_ASKED, Listing, missing_text
from assay_agent.profilers.ncu.profiler import NsightComputeMeasurement
from assay_agent.profilers.ncu.refused_metrics import MOST_ROUNDS, refusal_memory, refused_in
from assay_sampling.counters.definitions import metric_of
from assay_sampling.launches.table import Device, counter_columns
from assay_sampling.running.failures import FailureClass
from tests.support.agent.assignments import WORK
from tests.support.agent.tool_bench import COMPUTE, WORKLOAD, Bench, failed

CYCLES, SECTORS, ATOMICS = "cycles_gpc_avg", "global_load_sectors", "global_atomic_instructions"
METRICS = {name: metric_of(name) for name in (CYCLES, SECTORS, ATOMICS)}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    (tmp_path / "small.toml").write_text(WORKLOAD)
    [place] = virtual_places([VirtualGPUs("V100")], tmp_path / "state")
    return Bench(place, tmp_path)


def refusing(*metrics: str) -> str:
    return f"metric_unknown:{'+'.join(metrics)}"


@pytest.mark.processes
def test_what_the_tool_refuses_is_left_out_flagged_and_remembered(bench: Bench) -> None:
    fault = refusing(METRICS[SECTORS], METRICS[ATOMICS])
    table, measurement = bench.measure(bench.work(COMPUTE, fault))
    assert table["launch"].to_pylist() == list(range(20))
    names = [column.name for column in counter_columns(table.schema)]
    assert CYCLES in names and not {SECTORS, ATOMICS} & set(names)
    [flag] = measurement.flags
    assert (flag.name, flag.invalidates) == ("metrics_missing", False)
    assert flag.detail == (
        f"Nsight Compute 2024.1.1.0 has no metric of chip gv100 for {SECTORS}, {ATOMICS}; it refused "
        f"{METRICS[SECTORS]}, {METRICS[ATOMICS]} when it profiled"
    )
    # Every round's log is kept: two that were refused, and the one that was not.
    text = measurement.log.text
    assert text.count("--cache-control") == 3
    for name in (SECTORS, ATOMICS):
        assert f"==ERROR== Failed to find metric {METRICS[name]}" in text
    # The next slice pays nothing, has the same counters, and says the same.
    following, again = bench.measure(bench.work(COMPUTE, fault, launch_skip=20))
    assert following.schema == table.schema
    assert again.flags == measurement.flags
    assert again.log.text.count("--cache-control") == 1 and "==ERROR==" not in again.log.text


@pytest.mark.processes
def test_without_its_cycles_a_run_fails_at_once_and_so_does_the_next(bench: Bench) -> None:
    work = bench.work(COMPUTE, refusing(METRICS[CYCLES]))
    for _ in range(2):
        error = failed(bench, work)
        assert error.failure_class is FailureClass.METRIC_UNKNOWN
        assert f"has none of the counters {CYCLES}, without which the run would be worthless" in error.cause
        assert f"refused {METRICS[CYCLES]} when it profiled" in error.cause
        assert "install a release of Nsight Compute" in error.remedy and not error.failure.retryable


@pytest.mark.processes
def test_the_rounds_of_one_attempt_are_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay_agent.profilers.ncu.profiler.MOST_ROUNDS", 1)
    work = bench.work(COMPUTE, refusing(METRICS[SECTORS]))
    error = failed(bench, work)
    assert error.failure_class is FailureClass.METRIC_UNKNOWN
    assert METRICS[SECTORS] in error.cause and "submit it again" in error.remedy
    assert bench.measure(work)[0].num_rows == 20
    assert MOST_ROUNDS == 5


@pytest.mark.processes
def test_a_column_that_is_missing_without_a_word_is_treated_alike(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = NsightComputeMeasurement._import

    def without_column(self: NsightComputeMeasurement, tool: ToolVersion) -> Path | None:
        page = imported(self, tool)
        assert page is not None
        page.write_text(page.read_text().replace(METRICS[SECTORS], "of_another_release.sum"))
        return page

    monkeypatch.setattr(NsightComputeMeasurement, "_import", without_column)
    table, measurement = bench.measure(bench.work(COMPUTE))
    names = {column.name for column in counter_columns(table.schema)}
    assert {CYCLES, ATOMICS} <= names and SECTORS not in names
    assert [flag.name for flag in measurement.flags] == ["metrics_missing"]
    assert f"the report has no column for {METRICS[SECTORS]}" in measurement.log.text
    assert measurement.log.text.count("--cache-control") == 2
    _, again = bench.measure(bench.work(COMPUTE, launch_skip=20))
    assert again.log.text.count("--cache-control") == 1


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("==ERROR== Failed to find metric a__b.sum", ["a__b.sum"]),
        ("==ERROR== Failed to find metric 'a__b.sum'.", ["a__b.sum"]),
        ("==ERROR== Failed to find metrics: a__b.avg, c__d.sum", ["a__b.avg", "c__d.sum"]),
        ("==ERROR== Failed to find metric a__b", ["a__b.sum", "a__b.avg"]),
        ("==ERROR== Failed to find metric a__b.max", []),
        ("the workload: Failed to find metric a__b.sum", []),
        ("==ERROR== Unsupported GPU", []),
    ],
)
def test_the_metrics_are_found_in_the_tools_own_words(line: str, expected: list[str]) -> None:
    asked = ("a__b.sum", "a__b.avg", "c__d.sum")
    assert (
        list(refused_in([line, "==ERROR== The application returned an error code (9)."], asked)) == expected
    )


THREADS = "smsp__{}thread_inst_executed_per_inst_executed"


@pytest.mark.parametrize("names", [None, frozenset({THREADS.format(""), THREADS.format("average_")})])
def test_another_metric_of_the_same_counter_takes_its_place(names: frozenset[str] | None) -> None:
    asked = replace(WORK, counters=("threads_per_instruction",))
    listing = Listing("ga104", names)
    [first] = plan_metrics(asked, "8.6", "2025.4.0.0", listing).names
    refused = listing.without([first])
    found = [name for plan in [plan_metrics(asked, "8.6", "2025.4.0.0", refused)] for name in plan.names]
    assert found and first not in found
    with pytest.raises(ProfilerError, match=f"refused {found[0]}"):
        plan_metrics(asked, "8.6", "2025.4.0.0", refused.without(found).without([first]))


def test_the_only_counter_that_was_asked_for_is_not_replaced_by_what_comes_along() -> None:
    asked = replace(WORK, counters=("instructions",))
    listing = NOT_ASKED.without([metric_of("instructions")])
    with pytest.raises(ProfilerError, match="none of the counters instructions"):
        plan_metrics(asked, "8.6", "2024.1.1.0", listing)
    # With something else that was asked for, the rest is worth a run.
    plan = plan_metrics(replace(WORK, counters=("instructions", CYCLES)), "8.6", "2024.1.1.0", listing)
    assert plan.missing == ("instructions",) and METRICS[CYCLES] in plan.names
    told = missing_text(listing, ToolVersion("ncu", "2024.1.1.0"), plan.missing)
    assert told == (
        "Nsight Compute 2024.1.1.0 has no metric of this GPU for instructions; it refused "
        f"{metric_of('instructions')} when it profiled"
    )


def test_the_memory_is_of_one_tool_gpu_and_driver_and_survives_damage(tmp_path: Path) -> None:
    program = tmp_path / "ncu"
    program.write_text("one release")
    tool = ToolVersion(str(program), "2024.1.1.0")
    gpu = MeasuredGPU(Device(0, "A", "GPU-1", "8.6", 46), path="", driver_version="550.1")

    def memory(of: MeasuredGPU = gpu, **variables: str) -> frozenset[str]:
        return refusal_memory(tool, of, variables, tmp_path / "state").read()

    kept = refusal_memory(tool, gpu, {}, tmp_path / "state")
    kept.add(["a.sum"])
    kept.add(["b.sum"])
    assert memory() == {"a.sum", "b.sum"}
    # Another GPU of the same kind knows it too; what could answer otherwise does not.
    assert memory(replace(gpu, device=replace(gpu.device, uuid="GPU-2"))) == {"a.sum", "b.sum"}
    assert memory(replace(gpu, device=replace(gpu.device, name="B"))) == frozenset()
    assert memory(replace(gpu, driver_version="560.1")) == frozenset()
    assert memory(ASSAY_VIRTUAL_FAULTS="metric_unknown") == frozenset()
    kept.path.write_text("{")
    assert memory() == frozenset()
    program.write_text("another release")
    assert refusal_memory(tool, gpu, {}, tmp_path / "state").path != kept.path
