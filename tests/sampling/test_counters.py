"""The registry of counters: one meaning a name, one name a metric."""

from __future__ import annotations

import pyarrow as pa
import pytest

from assay_sampling.counters import definitions as counters
from assay_sampling.counters.missing import require_counters
from assay_sampling.errors import CounterUnavailableError, ParameterError
from assay_sampling.launches import table as lt

ARCHITECTURES = ("7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0")


def table(**values: list[float | None]) -> pa.Table:
    columns = [counters.registry()[n].column(counters.registry()[n].metrics[0].name) for n in values]
    schema = lt.launch_schema(lt.TableMetadata("detailed"), columns)
    rows = len(next(iter(values.values())))
    base = {"process": [0] * rows, "launch": list(range(10, 10 + rows)), "kernel_id": [1] * rows}
    shape = {"grid_x": [1] * rows, "block_x": [1] * rows}
    return pa.Table.from_batches([lt.make_batch(schema, {**base, **shape, **values})])


def test_every_metric_measures_one_counter() -> None:
    metrics = [m.name for c in counters.registry().values() for m in c.metrics]
    assert len(metrics) == len(set(metrics))
    for counter in counters.registry().values():
        assert counter.variant in ("hardware", "sass", "software")
        assert counter.help and counter.metrics
        for metric in counter.metrics:
            assert counters.counter_of_metric(metric.name) is counter


def test_sass_variants_are_counters_of_their_own() -> None:
    hardware = counters.counter_of_metric("smsp__inst_executed_op_global_ld.sum")
    sass = counters.counter_of_metric("smsp__sass_inst_executed_op_global_ld.sum")
    assert hardware is not None and sass is not None
    assert (hardware.variant, sass.variant) == ("hardware", "sass")
    assert hardware.name != sass.name


def test_feature_sets_are_those_of_the_paper_and_its_artifact() -> None:
    metrics = [counters.metric_of(n) for n in counters.features_of("artifact12")]
    assert metrics == [
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
        "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
        "smsp__inst_executed.sum",
        "smsp__thread_inst_executed_per_inst_executed.ratio",
        "smsp__sass_inst_executed_op_global_atom.sum",
        "smsp__inst_executed_op_global_ld.sum",
        "smsp__inst_executed_op_global_st.sum",
        "smsp__inst_executed_op_shared_ld.sum",
        "smsp__inst_executed_op_shared_st.sum",
        "sass__inst_executed_global_loads",
        "sass__inst_executed_global_stores",
        "launch__grid_size",
    ]
    assert len(counters.features_of("table2")) == 12
    assert set(counters.features_of("artifact12")) - set(counters.features_of("artifact11")) == {
        "global_atomic_instructions"
    }
    with pytest.raises(ParameterError, match="table2, artifact12, artifact11"):
        counters.features_of("table3")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_table2_can_be_asked_for_on_every_architecture(architecture: str) -> None:
    for name in counters.features_of("table2"):
        assert counters.metric_of(name, architecture, "2024.1")


def test_metrics_follow_the_architecture() -> None:
    assert counters.metric_of("dram_read_bytes", "9.0") == "dram__bytes_read.sum"
    assert counters.metric_of("dram_read_bytes", "12.0") == "dram__bytes_op_read.sum"
    with pytest.raises(CounterUnavailableError, match=r"compute capability 7\.0"):
        counters.metric_of("tensor_memory_instructions", "7.0")
    with pytest.raises(ParameterError, match="no counter 'flops'"):
        counters.metric_of("flops")


def test_tool_versions_bound_a_metric() -> None:
    metric = counters.Metric("m", since="2023.2", before="2026.1")
    known = {v: metric.exists_on("", v) for v in ("2023.1", "2023.2", "2025.4", "2026.1", "")}
    assert known == {"2023.1": False, "2023.2": True, "2025.4": True, "2026.1": False, "": True}


def test_a_missing_counter_is_named_with_the_launch_that_lacks_it() -> None:
    with pytest.raises(CounterUnavailableError, match=r"a\.csv: .*1 of 3 launches, first for launch 11"):
        require_counters(table(instructions=[1.0, None, 3.0]), ["instructions"], "a.csv")
    with pytest.raises(CounterUnavailableError, match=r"collect smsp__inst_executed\.sum "):
        require_counters(table(thread_blocks=[1.0]), ["instructions"], "a.csv")


def test_another_variant_never_stands_in() -> None:
    sass_only = table(global_load_instructions_sass=[1.0])
    with pytest.raises(CounterUnavailableError, match="cannot replace it"):
        require_counters(sass_only, ["global_load_instructions"], "a.csv")


def test_default_cost_is_the_first_cycle_counter_measured() -> None:
    assert (
        counters.default_cost_counter(table(cycles_sys_avg=[1.0], cycles_gpc_max=[1.0])) == "cycles_gpc_max"
    )
    assert (
        counters.default_cost_counter(table(cycles_gpc_avg=[None], cycles_sys_avg=[2.0])) == "cycles_sys_avg"
    )
    assert counters.default_cost_counter(table(instructions=[1.0])) is None
