"""Pass counts are those of the measured sets; what lies in none is bounded, and says so."""

from __future__ import annotations

import tomllib
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_sampling.counters.definitions import features_of, registry
from assay_sampling.counters.replay_passes import PassCount, replay_passes
from assay_sampling.errors import ParameterError

COSTS = ("cycles_gpc_avg", "cycles_gpc_max", "profiled_duration_ns", "instructions")


@pytest.mark.parametrize(
    ("counters", "passes"),
    [
        ((), 0),
        (("thread_blocks",), 0),
        (COSTS, 1),
        (("global_load_sectors", "global_store_sectors", "local_load_sectors"), 2),
        (("artifact_global_loads", "artifact_global_stores"), 1),
        ((*features_of("table2"), *COSTS), 3),
        ((*features_of("artifact12"), *COSTS), 3),
        ((*COSTS, "occupancy_percent", "l1_hit_percent", "l2_hit_percent", "dram_throughput_percent"), 2),
    ],
)
def test_measured_sets_are_exact(counters: tuple[str, ...], passes: int) -> None:
    assert replay_passes(counters) == PassCount(passes, exact=True)


def test_a_chip_may_need_more() -> None:
    counters = (*features_of("table2"), "occupancy_percent")
    assert replay_passes(counters, "9.0") == PassCount(5, exact=True)
    assert replay_passes(counters, "12.0") == PassCount(6, exact=True)


def test_what_lies_in_no_measured_set_is_bounded() -> None:
    assert replay_passes(["cycles_gpc_avg", "sm_instructions"]) == PassCount(2, exact=False)


def test_an_unknown_counter_is_refused() -> None:
    with pytest.raises(ParameterError, match="no counter 'cycels'"):
        replay_passes(["cycels"])


@given(st.sets(st.sampled_from(sorted(registry()))))
def test_any_set_has_a_count_that_covers_its_parts(counters: set[str]) -> None:
    found = replay_passes(counters)
    assert all(replay_passes([name]).passes <= found.passes for name in counters)
    assert found.passes <= len(counters) + 8


def test_the_data_name_hardware_counters_only() -> None:
    text = resources.files("assay_sampling.counters").joinpath("replay_passes.toml").read_text()
    for entry in tomllib.loads(text)["set"]:
        assert {registry()[name].variant for name in entry["counters"]} == {"hardware"}, entry["name"]
