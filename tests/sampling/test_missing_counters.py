"""A refusal for missing counters names all of them at once, by ncu's names, and who prints the commands."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from assay_sampling.counters.definitions import COST_COUNTERS, FEATURE_SETS, metric_of
from assay_sampling.counters.missing import require_counters
from assay_sampling.errors import AssayError, CounterUnavailableError
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.launches.table import Device, table_metadata, with_metadata
from assay_sampling.methods.needs import Needs
from assay_sampling.methods.registry import methods_without_counters, needs, samplers, select
from assay_sampling.nsight.tool import Program, options_since, tool_of_release
from tests.support.sampling.counted_launches import counted_launches
from tests.support.sampling.made_launches import made_launches

MISSING = ("global_load_sectors", "shared_load_instructions", "thread_blocks")


def on_gpu(launches: Launches, capability: str) -> Launches:
    metadata = table_metadata(launches.table.schema)
    device = Device(0, "some GPU", "", capability, 80)
    schema = with_metadata(launches.table.schema, replace(metadata, devices=(device,)))
    return replace(launches, table=launches.table.cast(schema))


def told(method: str, profile: Profile, **parameters: str) -> AssayError:
    with pytest.raises(AssayError) as caught:
        select(method, profile, parameters)
    return caught.value


def test_features_and_cycles_are_named_together() -> None:
    there = [name for name in FEATURE_SETS["table2"] if name not in MISSING]
    profile = Profile(detailed=counted_launches({name: [1.0, 2.0] for name in there}))
    error = told("pks", profile, features="table2")
    assert isinstance(error, CounterUnavailableError)
    assert error.subject == "counted.csv"
    for name in (*MISSING, "cycles_gpc_avg"):
        assert f"'{name}'" in error.cause
    for name in (*MISSING, "cycles_gpc_avg"):
        assert metric_of(name) in error.remedy
    assert "'assay metrics pks'" in error.remedy
    assert "smsp__inst_executed.sum" not in error.remedy  # it is there


def test_names_are_those_of_the_gpu_of_the_file() -> None:
    for capability, metric in (("8.0", "dram__bytes_read.sum"), ("12.0", "dram__bytes_op_read.sum")):
        launches = on_gpu(counted_launches({"instructions": [1.0]}), capability)
        with pytest.raises(CounterUnavailableError) as caught:
            require_counters(launches.table, ["dram_read_bytes"], "a.csv", method="pks")
        assert metric in caught.value.remedy
        assert f"'assay metrics pks --gpu {capability}'" in caught.value.remedy


def test_a_counter_that_the_gpu_does_not_have_is_said_to_be_so() -> None:
    launches = on_gpu(counted_launches({"instructions": [1.0]}), "7.0")
    with pytest.raises(CounterUnavailableError) as caught:
        require_counters(launches.table, ["tensor_memory_instructions", "dram_bytes"], "a.csv")
    assert "dram__bytes.sum" in caught.value.remedy
    assert "tensor_memory_instructions cannot be collected on compute capability 7.0" in caught.value.remedy


def test_what_is_missing_everywhere_and_what_for_some_launches() -> None:
    launches = counted_launches({"instructions": [1.0, np.nan, 3.0], "dram_bytes": [1.0, 2.0, 3.0]})
    table = launches.table
    place = table.schema.get_field_index("instructions")
    values = table["instructions"].to_pylist()
    import pyarrow as pa  # noqa: PLC0415

    table = table.set_column(
        place, table.schema.field(place), pa.array([values[0], None, values[2]], pa.float64())
    )
    with pytest.raises(CounterUnavailableError) as caught:
        require_counters(table, ["thread_blocks", "instructions", "dram_bytes"], "a.csv")
    assert "'thread_blocks' was not measured" in caught.value.cause
    assert "'instructions' was not measured (n/a or NaN) for 1 of 3 launches" in caught.value.cause
    assert "launch__grid_size" in caught.value.remedy
    assert "smsp__inst_executed.sum" in caught.value.remedy


@pytest.mark.parametrize("method", ["pks", "sieve", "tbpoint", "first_instructions"])
def test_a_light_recording_is_told_what_to_collect_and_what_needs_nothing(method: str) -> None:
    light = Profile(light=made_launches(["k", "k"], duration_ns=[1, 2], source="l.sqlite"))
    error = told(method, light)
    wanted = needs(method, {})
    assert wanted is not None
    for name in wanted.to_collect():
        assert metric_of(name) in error.remedy
    assert f"'assay metrics {method}'" in error.remedy
    for name in methods_without_counters():
        assert name in error.remedy


def test_one_counter_of_a_group_is_enough() -> None:
    wanted = Needs(counters=("instructions",), one_of=(("cycles_gpc_avg", "cycles_gpc_max"),))
    assert wanted.lacking({"instructions", "cycles_gpc_max"}) == ()
    assert wanted.lacking({"instructions"}) == ("cycles_gpc_avg",)
    assert wanted.lacking(()) == ("instructions", "cycles_gpc_avg")


@pytest.mark.parametrize("program", ["ncu", "nsys"])
def test_an_option_that_came_later_is_in_no_earlier_release(program: Program) -> None:
    for option, first in options_since(program).items():
        assert not tool_of_release(program).has(option)
        assert tool_of_release(program, first).has(option)


def test_a_ratio_needs_instructions() -> None:
    light = Profile(light=made_launches(["k", "k"], duration_ns=[1, 2], source="l.sqlite"))
    with pytest.raises(CounterUnavailableError, match=r"smsp__inst_executed\.sum.*'assay metrics random"):
        select("random", light, {"estimator": "ratio"})


@pytest.mark.parametrize("method", list(samplers()))
def test_what_a_method_says_it_needs_is_enough_for_it(method: str) -> None:
    """Launches with these counters alone are not refused for a missing one; without any of them they are."""
    wanted = needs(method, {})
    assert wanted is not None
    names = dict.fromkeys((*wanted.to_collect(), *COST_COUNTERS))
    sizes = np.array([1.0, 2.0, 3.0] * 20)
    given = {name: sizes for name in names if name != "profiled_duration_ns"}
    if "threads_per_instruction" in given:
        given["threads_per_instruction"] = np.full(60, 32.0)
    launches = counted_launches(given, duration_ns=(100 * sizes).astype(int))
    try:
        select(method, Profile(detailed=launches), {})
    except AssayError as error:
        assert not isinstance(error, CounterUnavailableError)
        assert "counter" not in error.cause
    for name in wanted.counters:
        without = counted_launches(
            {n: v for n, v in given.items() if n != name}, duration_ns=(100 * sizes).astype(int)
        )
        if method == "pks":  # by itself it takes the counters that are there
            assert metric_of(name) in told(method, Profile(detailed=without), features="table2").remedy
        elif method != "tbpoint" or name == "instructions":
            assert metric_of(name) in told(method, Profile(detailed=without)).remedy
