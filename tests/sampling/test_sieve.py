"""Sieve as a method: representatives, weights, scores, refusals, and what the authors' scripts give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.counters.definitions import registry
from assay_sampling.errors import CounterUnavailableError, ParameterError, RefusedError
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.launches.table import TableMetadata
from assay_sampling.methods.registry import select
from assay_sampling.notes.registry import make_note
from assay_sampling.readers.opening import read_launches
from assay_sampling.scoring.selection import Selection
from tests.support.sampling.made_launches import CYCLES, made_launches

INSTRUCTIONS = registry()["instructions"].column("smsp__inst_executed.sum")


def counted(instructions: list[float], kernels: list[str] | None = None, **columns: Any) -> Launches:
    rows = len(instructions)
    columns.setdefault("cycles_gpc_avg", np.arange(1.0, rows + 1))
    return made_launches(
        ["k"] * rows if kernels is None else kernels,
        counters=[CYCLES, INSTRUCTIONS],
        metadata=TableMetadata("detailed", origin="synthetic"),
        source="counted.csv",
        instructions=instructions,
        **columns,
    )


def sieved(launches: Launches, seed: int = 0, **parameters: Any) -> Selection:
    return select("sieve", Profile(detailed=launches), parameters, seed)


def rows_and_weights(selection: Selection) -> list[tuple[int, float]]:
    chosen = selection.representatives
    return list(zip(chosen.row.tolist(), chosen.weight.tolist(), strict=True))


def test_weights_are_the_instructions_that_a_launch_stands_for() -> None:
    # Tier 1 (a), tier 2 (b), tier 3 (c) in two strata.
    launches = counted(
        [10, 90, 4, 10, 110, 400, 10, 5], list("abcabcac"), cycles_gpc_avg=[5, 20, 3, 6, 30, 90, 7, 4]
    )
    selection = sieved(launches)
    assert rows_and_weights(selection) == [(0, 3.0), (1, 200 / 90), (2, 9 / 4), (5, 1.0)]
    assert selection.group_launches.tolist() == [3, 2, 2, 1]
    assert selection.instruction_share == pytest.approx([30 / 639, 200 / 639, 9 / 639, 400 / 639])
    projected = 3 * 5 + 200 / 90 * 20 + 9 / 4 * 3 + 90
    assert selection.evaluation.projected == pytest.approx(projected)
    assert selection.extra["ipc"] == pytest.approx(639 / projected)
    assert [t["kernels"] for t in selection.extra["tiers"]] == [1, 1, 1]
    assert [t["strata"] for t in selection.extra["tiers"]] == [1, 1, 2]
    assert "sweep" not in selection.extra
    assert selection.document().to_dict()["parameters"]["representative"] == "first_dominant"


def test_the_projection_is_the_weighted_harmonic_mean_of_the_ipc() -> None:
    rng = np.random.default_rng(2)
    x = np.round(np.exp(rng.normal(8, 2, 300)))
    launches = counted(
        list(x),
        list(rng.choice(list("abcd"), 300)),
        cycles_gpc_avg=np.round(x / rng.uniform(0.5, 3, 300)) + 1,
    )
    selection = sieved(launches)
    rows = selection.representatives.row
    ipc_of_strata = x[rows] / launches.column("cycles_gpc_avg")[rows]
    harmonic = 1 / (selection.instruction_share / ipc_of_strata).sum()
    assert selection.extra["ipc"] == pytest.approx(harmonic)
    assert selection.evaluation.projected == pytest.approx(x.sum() / harmonic)


kernel_count_blocks = st.tuples(st.integers(0, 2), st.integers(0, 10**12), st.integers(1, 4))


@given(
    st.lists(kernel_count_blocks, min_size=1, max_size=40),
    st.sampled_from(["first_dominant", "median", "nearest_mean"]),
    st.sampled_from(["kde", "dp", "script"]),
)
@settings(max_examples=100, deadline=None)
def test_what_holds_for_every_selection(drawn: list[tuple[int, int, int]], rule: str, method: str) -> None:
    x = np.array([float(x) for _, x, _ in drawn])
    launches = counted(list(x), [f"k{k}" for k, _, _ in drawn], block_x=[32 * b for _, _, b in drawn])
    if x.sum() == 0:
        with pytest.raises(RefusedError, match="no launch has executed an instruction"):
            sieved(launches)
        return
    selection = sieved(launches, stratification=method, representative=rule)
    chosen = selection.representatives
    assert selection.labels is not None
    assert chosen.group.tolist() == list(range(len(selection.group_launches)))
    assert np.array_equal(selection.labels[chosen.row], chosen.group)
    assert np.bincount(selection.labels).tolist() == selection.group_launches.tolist()
    assert selection.instruction_share.sum() == pytest.approx(1)
    assert (chosen.weight * x[chosen.row]).sum() == pytest.approx(x.sum(), rel=1e-12)
    share = np.bincount(selection.labels, x) > 0
    assert (x[chosen.row] > 0).tolist() == share.tolist()
    again = sieved(launches, stratification=method, representative=rule)
    assert again.document().to_dict() == selection.document().to_dict()


def test_the_first_launch_of_the_dominant_block_size() -> None:
    launches = counted([90, 100, 110, 101, 99], block_x=[32, 64, 64, 32, 128], grid_x=[4, 1, 2, 2, 1])
    # 32 and 64 threads twice each: the one that is launched first. Whole grids: 128 threads three times.
    assert sieved(launches).representatives.row.tolist() == [0]
    by_grid = sieved(launches, dominant_key="thread_count")
    assert by_grid.representatives.row.tolist() == [0]
    launches = counted([90, 100, 110, 101, 99], block_x=[32, 64, 64, 64, 128], grid_x=[2, 9, 1, 1, 2])
    assert sieved(launches).representatives.row.tolist() == [1]
    assert sieved(launches, dominant_key="thread_count").representatives.row.tolist() == [0]
    launches = counted([90, 100, 110, 101, 99], block_x=[32, 64, 64, 64, 128], grid_x=[2, 9, 1, 1, 3])
    assert sieved(launches, dominant_key="thread_count").representatives.row.tolist() == [0]
    launches = counted([90, 100, 110, 101, 99], block_x=[32, 64, 64, 64, 128], grid_x=[4, 9, 1, 1, 3])
    assert sieved(launches, dominant_key="thread_count").representatives.row.tolist() == [2]


def test_the_representatives_of_the_script() -> None:
    # Tier 2: 64 threads three times, of these 110 instructions twice.
    launches = counted([90, 100, 110, 110, 99], block_x=[32, 64, 64, 64, 128])
    assert sieved(launches, stratification="script").representatives.row.tolist() == [2]
    # Tier 3: the upper median of the distinct counts of each stratum, whatever the block.
    launches = counted([1, 2, 1, 3, 1, 5000, 5100], block_x=[32, 64, 32, 64, 32, 32, 32])
    selection = sieved(launches, representative="median")
    assert selection.group_launches.tolist() == [3, 2, 2]
    assert selection.representatives.row.tolist() == [0, 3, 6]


def test_the_launch_nearest_to_the_mean() -> None:
    launches = counted([100, 150, 130, 120])
    assert sieved(launches, representative="nearest_mean").representatives.row.tolist() == [3]


def test_a_launch_without_instructions_stands_only_for_its_like() -> None:
    launches = counted([0, 10, 10, 10, 10, 10, 10, 10, 10, 10, 0, 0], list("kkkkkkkkkkzz"))
    selection = sieved(launches)
    assert rows_and_weights(selection) == [(1, 9.0), (10, 2.0)]
    assert selection.evaluation.projected == 9 * 2 + 2 * 11
    # Strata without instructions have no IPC: they stay out of the mean.
    assert selection.extra["ipc"] == pytest.approx(90 / 18)


def test_random_launches_of_each_stratum_have_an_interval() -> None:
    rng = np.random.default_rng(5)
    x = np.round(rng.normal(1000, 100, 400))
    cycles = x * rng.normal(2, 0.1, 400)
    launches = counted(list(x), cycles_gpc_avg=cycles)
    inside = 0
    for seed in range(100):
        selection = sieved(launches, seed, launches_per_group=8)
        chosen = selection.representatives
        assert len(chosen.row) == 8
        assert chosen.weight == pytest.approx(x.sum() / x[chosen.row].sum())
        assert selection.interval is not None
        assert selection.interval.basis == "known_design"
        inside += selection.interval.low <= cycles.sum() <= selection.interval.high
    assert 88 <= inside <= 100
    assert (
        sieved(launches, 3, launches_per_group=8).document().to_dict()
        == sieved(launches, 3, launches_per_group=8).document().to_dict()
    )
    fixed = sieved(launches)
    assert fixed.interval is None
    assert fixed.interval_reason == make_note("interval_of_fixed_rule")
    census = sieved(counted([5, 6, 500]), launches_per_group=9)
    assert census.evaluation.error_percent == pytest.approx(0, abs=1e-12)
    assert census.representatives.weight == pytest.approx([1, 1, 1])


def test_the_sweep_scores_every_theta() -> None:
    launches = counted([100, 110, 150, 200, 400, 900])
    sweep = sieved(launches, theta_sweep=True).extra["sweep"]
    assert [entry["theta"] for entry in sweep] == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    for entry in sweep:
        alone = sieved(launches, theta=entry["theta"])
        assert entry["strata"] == len(alone.group_launches)
        assert entry["error_percent"] == alone.evaluation.error_percent
        assert entry["speedup"] == alone.evaluation.speedup
        assert entry["weighted_cov_percent"] == alone.evaluation.weighted_cov_percent
        assert entry["kernels_by_tier"] == [t["kernels"] for t in alone.extra["tiers"]]


@pytest.mark.parametrize(
    ("parameters", "shown"),
    [
        ({"theta": 0}, "greater than 0"),
        ({"theta": "inf"}, "finite"),
        ({"stratification": "jenks"}, "'kde', 'dp' or 'script'"),
        ({"stratification": "dp", "merge": True}, "merge=true joins strata of kde only"),
        (
            {"launches_per_group": 2, "representative": "median"},
            "representative choose one launch.*draws several",
        ),
        ({"launches_per_group": 0}, "greater than or equal to 1"),
    ],
)
def test_wrong_parameters_are_named(parameters: dict[str, Any], shown: str) -> None:
    with pytest.raises(ParameterError, match=shown):
        sieved(counted([1, 2]), **parameters)


def test_launches_without_instructions_are_refused_with_the_reason() -> None:
    light = made_launches(["k"], duration_ns=[5], source="l.sqlite")
    with pytest.raises(
        RefusedError, match=r"l\.sqlite: Sieve needs the instructions of every launch.*no counters"
    ):
        select("sieve", Profile(light=light), {})
    with pytest.raises(RefusedError, match="holds no launches"):
        sieved(counted([1.0]).slice(0, 0))
    with pytest.raises(
        CounterUnavailableError, match=r"of 2 of 3 launches .* first of launch 1 of process 0"
    ):
        sieved(counted([1.0, None, None]))  # type: ignore[list-item]
    with pytest.raises(CounterUnavailableError, match="first of launch 0"):
        sieved(counted([float("nan"), 1.0]))
    with pytest.raises(RefusedError, match="launch 1 of process 0 has executed -7 instructions"):
        sieved(counted([5.0, -7.0]))


def test_two_levels_need_the_instructions_of_all_launches() -> None:
    detailed = counted([10, 20, 400], list("aab"))
    times: dict[str, Any] = {"metadata": TableMetadata("light", origin="synthetic"), "source": "light.sqlite"}
    light = made_launches(list("aab"), duration_ns=[7, 9, 30], **times)
    both = select("sieve", Profile(detailed=detailed, light=light), {})
    assert both.evaluation.quantity == "duration_ns"
    assert both.evaluation.total == 46
    assert rows_and_weights(both) == [(0, 3.0), (2, 1.0)]
    assert both.evaluation.projected == 3 * 7 + 30
    assert both.instruction_share == pytest.approx([30 / 430, 400 / 430])
    assert both.extra["ipc"] is None
    assert both.profile.sources == ("light.sqlite",)
    longer = made_launches(list("aabb"), duration_ns=[7, 9, 30, 31], **times)
    with pytest.raises(
        RefusedError, match=r"detailed run has 3 launches, 3 of them among the 4 of the light"
    ):
        select("sieve", Profile(detailed=detailed, light=longer), {})


def test_one_launch_and_equal_launches_are_projected_exactly() -> None:
    assert rows_and_weights(sieved(counted([7.0]))) == [(0, 1.0)]
    equal = sieved(counted([7.0] * 30, cycles_gpc_avg=[3.0] * 30))
    assert rows_and_weights(equal) == [(0, 30.0)]
    assert equal.evaluation.error_percent == 0


def test_a_million_million_instructions_do_not_overflow_or_cancel() -> None:
    x = [1e12, 1e12 + 1, 1e12 + 2] * 1000
    selection = sieved(counted(x), theta=1e-13)
    # Deviations of 1 in 10^12: theta of 10^-13 tells them apart, none is lost to rounding.
    assert selection.group_launches.tolist() == [1000, 1000, 1000]
    assert sieved(counted(x), theta=1e-11).group_launches.tolist() == [3000]
    assert (selection.representatives.weight * np.array([1e12, 1e12 + 1, 1e12 + 2])).sum() == pytest.approx(
        sum(x), rel=1e-15
    )


def test_kernels_whose_names_differ_late_are_two() -> None:
    names = ["void f<" + "int, " * 1000 + last + ">()" for last in ("float", "double")]
    assert sieved(counted([5, 5], names)).group_launches.tolist() == [1, 1]


# What the authors' scripts compute ------------------------------------------------------------------------


def authors(shared_data: Path) -> tuple[Launches, dict[str, Any]]:
    launches = read_launches(shared_data / "sieve" / "syn5000_raw.csv")
    return launches, json.loads((shared_data / "sieve" / "syn5000_expected.json").read_text())["theta"]


@pytest.mark.shared_data
def test_script_gives_what_the_authors_scripts_give(shared_data: Path) -> None:
    launches, expected = authors(shared_data)
    assert len(expected) == 10
    for theta, theirs in expected.items():
        selection = sieved(launches, theta=theta, stratification="script")
        chosen = selection.representatives
        tiers = selection.extra["tiers"]
        assert [t["kernels"] for t in tiers] == [theirs["tier1"], theirs["tier2"], theirs["tier3"]]
        assert len(selection.group_launches) == theirs["strata"]
        ours = {
            (kernel, launch): share
            for kernel, launch, share in zip(
                chosen.kernel, chosen.launch.tolist(), selection.instruction_share, strict=True
            )
        }
        assert ours == pytest.approx(
            {(c["kernel"], c["id"]): c["weight"] for c in theirs["chosen"]}, rel=1e-12
        )
        scores = selection.evaluation
        assert scores.error_percent == pytest.approx(theirs["error_pct"], rel=1e-9)
        assert scores.projected == pytest.approx(theirs["predicted_cycles"], rel=1e-12)
        assert scores.speedup == pytest.approx(theirs["speedup_cycles"], rel=1e-12)
        assert scores.speedup_instructions == pytest.approx(theirs["speedup_inst"], rel=1e-12)
        assert scores.weighted_cov_percent == pytest.approx(100 * theirs["weighted_cov"], rel=1e-12)


@pytest.mark.shared_data
def test_strata_by_density_and_exactly_keep_below_theta(shared_data: Path) -> None:
    launches, expected = authors(shared_data)
    executed = launches.column("instructions")
    for theta in map(float, expected):
        strata = {}
        for method in ("kde", "dp"):
            selection = sieved(launches, theta=theta, stratification=method)
            assert selection.labels is not None
            strata[method] = len(selection.group_launches)
            for group in range(strata[method]):
                members = executed[selection.labels == group]
                assert members.std() < theta * members.mean() or len(np.unique(members)) == 1
            weights, rows = selection.representatives.weight, selection.representatives.row
            assert selection.instruction_share.sum() == pytest.approx(1)
            assert (weights * executed[rows]).sum() == pytest.approx(executed.sum(), rel=1e-12)
        apart = len(sieved(launches, theta=theta, merge=False).group_launches)
        assert strata["dp"] <= strata["kde"] <= min(strata["dp"] + 8, apart)
