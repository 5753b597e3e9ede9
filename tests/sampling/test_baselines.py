"""The plain baselines: random, systematic, stratified, the first instructions, one iteration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from assay_sampling.errors import CounterUnavailableError, ParameterError, RefusedError
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.baselines.stratified import allocate
from assay_sampling.methods.baselines.systematic import starts_tried
from assay_sampling.methods.registry import select
from assay_sampling.notes.registry import make_note
from assay_sampling.scoring.selection import Selection
from tests.support.sampling.counted_launches import counted_launches
from tests.support.sampling.made_launches import made_launches


def timed(kernels: list[str], durations: Any, **columns: Any) -> Profile:
    return Profile(light=made_launches(kernels, duration_ns=durations, **columns))


def counted(instructions: Any, cycles: Any) -> Profile:
    return Profile(detailed=counted_launches({"instructions": instructions, "cycles_gpc_avg": cycles}))


def held(selection: Selection) -> bool:
    assert selection.interval is not None
    return selection.interval.low <= selection.evaluation.total <= selection.interval.high


@pytest.mark.parametrize("method", ["random", "stratified"])
@pytest.mark.parametrize("estimator", ["expansion", "ratio"])
def test_intervals_of_random_samples_hold_the_truth(method: str, estimator: str) -> None:
    rng = np.random.default_rng(4)
    instructions = rng.lognormal(3, 0.4, 1500)
    profile = counted(instructions, instructions * rng.normal(2, 0.2, 1500))
    parameters = {"launches": 40, "estimator": estimator}
    found = [select(method, profile, parameters, seed) for seed in range(60)]
    assert np.mean([held(each) for each in found]) >= 0.88
    assert {each.interval.basis for each in found if each.interval} == {"known_design"}


@pytest.mark.parametrize("method", ["random", "systematic", "stratified"])
def test_a_ratio_projects_exactly_what_the_instructions_explain(method: str) -> None:
    instructions = np.arange(1.0, 101)
    selection = select(method, counted(instructions, 7 * instructions), {"launches": 9, "estimator": "ratio"})
    assert selection.evaluation.error_percent == pytest.approx(0, abs=1e-10)
    drawn = instructions[selection.representatives.row].sum()
    assert selection.representatives.weight == pytest.approx(5050 / drawn)
    with pytest.raises(CounterUnavailableError, match="the ratio estimator needs it"):
        select(method, timed(["k"] * 3, [1, 2, 3]), {"estimator": "ratio"})


def test_one_launch_drawn_has_the_spread_of_all() -> None:
    selection = select("random", timed(["k"] * 5, [1, 2, 3, 4, 5]), {"launches": 1})
    assert selection.interval is not None
    # It projects 5, 10, 15, 20 or 25, and 15 is true: -10 to +10, and not below the launch itself.
    drawn = selection.evaluation.projected / 5
    assert selection.interval.high == pytest.approx(5 * drawn + 10)
    assert selection.interval.low == pytest.approx(max(5 * drawn - 10, drawn))
    assert selection.interval.expected_error_percent == pytest.approx(100 * 6 / (5 * drawn), rel=0.05)
    whole = select("random", timed(["k"] * 5, [1, 2, 3, 4, 5]), {"launches": 5})
    assert whole.interval is not None
    assert (whole.interval.low, whole.interval.high, whole.interval.expected_error_percent) == (15, 15, 0)


@pytest.mark.parametrize("method", ["random", "systematic", "stratified"])
def test_repetitions_show_how_the_error_spreads(method: str) -> None:
    rng = np.random.default_rng(0)
    profile = timed(["a", "b"] * 200, rng.integers(1, 1000, 400))
    once = select(method, profile, {"launches": 20}, 3)
    again = select(method, profile, {"launches": 20, "repetitions": 40}, 3)
    assert np.array_equal(once.representatives.row, again.representatives.row)
    assert "repetitions" not in once.extra
    errors = again.extra["repetitions"]
    assert errors["count"] == 40
    assert (
        errors["low_signed_error_percent"]
        < errors["mean_signed_error_percent"]
        < errors["high_signed_error_percent"]
    )
    assert abs(errors["mean_signed_error_percent"]) <= errors["mean_error_percent"]
    assert select(method, profile, {"launches": 20, "repetitions": 40}, 3).document() == again.document()


def test_equal_spacing_that_meets_the_period_of_the_workload_is_warned_of() -> None:
    kernels, durations = [*"abcd"] * 50, [1, 10, 100, 1000] * 50
    blind = select("systematic", timed(kernels, durations), {"launches": 50})
    (warning,) = blind.warnings
    assert blind.document().to_dict()["warnings"] == [warning.to_dict()]
    assert "repeats every 4 launches, and equal spacing meets only 1" in warning.text
    assert (warning.code, warning.parameters[0]) == ("spacing_meets_period", ("period", 4))
    assert blind.evaluation.error_percent > 50
    seeing = select("systematic", timed(kernels, durations), {"launches": 40})
    assert not seeing.warnings and "warnings" not in seeing.document().to_dict()
    apart = select("systematic", timed([f"k{i}" for i in range(200)], durations), {"launches": 50})
    assert not apart.warnings
    assert apart.interval is not None
    # Four starts: each meets one of the four durations only.
    given = select(
        "systematic", timed([f"k{i}" for i in range(200)], durations), {"launches": 50, "start": 2}
    )
    assert given.interval_reason == make_note("interval_of_one_start")


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("systematic", {"start": 0}),
        ("first_instructions", {}),
        ("single_iteration", {"iteration_launches": 5}),
    ],
)
def test_without_an_interval_a_way_to_one_is_offered(method: str, parameters: dict[str, Any]) -> None:
    launches = counted_launches({"instructions": [1e8] * 50, "cycles_gpc_avg": np.arange(1.0, 51.0)})
    selection = select(method, Profile(detailed=launches), parameters)
    assert selection.interval is None
    assert selection.interval_reason is not None
    assert "launches_per_group=2" in selection.interval_reason.text


def test_ratios_of_two_launches_a_group_hold_the_truth() -> None:
    instructions = np.arange(1.0, 201)
    launches = counted_launches({"instructions": instructions, "cycles_gpc_avg": 7 * instructions + 300})
    kernels = ["a", "b"] * 100
    renamed = made_launches(kernels).table["kernel_id"]
    position = launches.table.schema.get_field_index("kernel_id")
    table = launches.table.set_column(position, launches.table.schema.field(position), renamed)
    both = Profile(detailed=replace(launches, table=table, names=made_launches(kernels).names))
    found = [select("stratified", both, {"launches": 4, "estimator": "ratio"}, seed) for seed in range(80)]
    assert np.mean([held(each) for each in found]) >= 0.9


# Launches that dominate.


def heavy() -> Profile:
    """Of 400 launches 3 hold three quarters of the time, two of them in kernel a."""
    durations = np.full(400, 10)
    durations[[20, 21, 310]] = 4000
    return timed(["a"] * 200 + ["b"] * 200, durations)


def test_random_draws_dominating_launches_like_all_others_and_warns() -> None:
    plain = select("random", heavy(), {"launches": 20}, 1)
    assert plain.representatives.weight.tolist() == [20.0] * 20
    (warning,) = plain.warnings
    assert (warning.code, dict(warning.parameters)["launches"]) == ("launches_dominate", 3)
    assert not select("random", timed(["a"] * 40, [10] * 40), {"launches": 20}).warnings


@pytest.mark.parametrize("method", ["random", "stratified"])
def test_nothing_dominates_a_sample_of_all_launches(method: str) -> None:
    everything = {"launches": 8, "dominating": "drawn"}
    assert not select(method, timed(["a"] * 8, [1000] + [1] * 7), everything).warnings


def test_one_dominating_launch_is_spoken_of_in_the_singular() -> None:
    (warning,) = select("random", timed(["a"] * 40, [4000] + [10] * 39), {"launches": 10}).warnings
    assert str(warning).startswith(
        "1 launch holds 91.1 % of the cost and is drawn like all others: most draws miss it"
    )


@pytest.mark.parametrize("method", ["random", "stratified"])
@pytest.mark.parametrize("seed", range(3))
def test_dominating_launches_are_taken_whole(method: str, seed: int) -> None:
    selection = select(method, heavy(), {"launches": 20, "dominating": "whole"}, seed)
    chosen = selection.representatives
    whole = np.isin(chosen.row, [20, 21, 310])
    assert whole.sum() == 3 and len(chosen.row) == 20
    assert chosen.weight[whole].tolist() == [1.0] * 3
    # The others cost the same: what stands for them is exact, and their weights add up to them.
    assert chosen.weight[~whole].sum() == pytest.approx(397)
    assert selection.evaluation.error_percent == pytest.approx(0, abs=1e-10)
    assert selection.extra["taken_whole"]["launches"] == 3
    assert selection.extra["taken_whole"]["cost_percent"] == pytest.approx(100 * 12000 / 15970)
    assert held(selection) and not selection.warnings


def test_stratified_takes_dominating_launches_whole_unless_told_otherwise() -> None:
    assert select("stratified", heavy(), {"launches": 20}).parameters["dominating"] == "whole"
    drawn = select("stratified", heavy(), {"launches": 20, "dominating": "drawn"})
    assert drawn.group_launches.tolist() == [200, 200]
    assert drawn.warnings[0].code == "launches_dominate"


def test_a_launch_of_no_cost_is_still_drawn_for_its_group() -> None:
    selection = select(
        "random", timed(["a"] * 12, [50, 50] + [0] * 10), {"launches": 2, "dominating": "whole"}
    )
    assert selection.representatives.weight.tolist() == [1.0, 1.0, 10.0]
    assert selection.evaluation.error_percent == 0


# Stratified.


def test_kernels_are_drawn_from_in_proportion() -> None:
    profile = timed(["a"] * 60 + ["b"] * 30 + ["c"] * 10, [10] * 60 + [20] * 30 + [1000] * 10)
    selection = select("stratified", profile, {"launches": 10})
    chosen = selection.representatives
    assert np.bincount(chosen.group).tolist() == [5, 3, 2]  # 6, 3, 1 but for the least of two
    assert chosen.weight.tolist() == [12.0] * 5 + [10.0] * 3 + [5.0] * 2
    assert selection.evaluation.error_percent == pytest.approx(0, abs=1e-12)
    assert selection.group_launches.tolist() == [60, 30, 10]
    assert selection.interval is not None
    assert selection.parameters["launches"] == 10
    assert selection.extra == {"allocation_uses_cost": False}


def test_neyman_draws_where_the_cost_spreads_and_says_that_it_read_it() -> None:
    rng = np.random.default_rng(1)
    costs = np.concatenate([np.full(500, 100), rng.integers(1, 1000, 500)])
    profile = timed(["a"] * 500 + ["b"] * 500, costs)
    selection = select("stratified", profile, {"launches": 30, "allocation": "neyman"})
    assert np.bincount(selection.representatives.group).tolist() == [2, 28]
    assert selection.extra["allocation_uses_cost"] is True
    plain = select("stratified", profile, {"launches": 30})
    assert plain.interval and selection.interval
    assert selection.interval.expected_error_percent < plain.interval.expected_error_percent


def test_signatures_are_finer_groups_than_kernels() -> None:
    profile = timed(["a"] * 40, [10, 30] * 20, grid_x=[1, 2] * 20)
    finer = select("stratified", profile, {"launches": 4, "groups": "signature"})
    assert finer.group_launches.tolist() == [20, 20]
    assert finer.evaluation.error_percent == 0
    assert select("stratified", profile, {}).group_launches.tolist() == [40]


@given(
    st.lists(st.tuples(st.integers(1, 50), st.floats(0, 1e9)), min_size=1, max_size=30),
    st.integers(1, 600), st.integers(1, 4),
)  # fmt: skip
@example([(1, 0.0), (4, 1.1125369292536007e-308)], 4, 1)
@settings(max_examples=150, deadline=None)
def test_what_holds_for_every_allocation(groups: list[tuple[int, float]], launches: int, least: int) -> None:
    sizes, need = np.array([g[0] for g in groups]), np.array([g[1] for g in groups])
    drawn = allocate(need.copy(), sizes, launches, least)
    assert (drawn >= np.minimum(least, sizes)).all()
    assert (drawn <= sizes).all()
    assert drawn.sum() == min(max(launches, np.minimum(least, sizes).sum()), sizes.sum())


# The first instructions.


def test_the_first_launches_are_scaled_by_all_instructions() -> None:
    profile = counted([10.0, 20.0, 30.0, 40.0], [1.0, 2.0, 6.0, 8.0])
    selection = select("first_instructions", profile, {"instructions": 25})
    assert selection.representatives.row.tolist() == [0, 1]  # the launch that reaches the budget is whole
    assert selection.representatives.weight.tolist() == [100 / 30] * 2
    assert selection.evaluation.projected == pytest.approx(10)
    assert selection.evaluation.total == 17
    exact = select("first_instructions", profile, {"instructions": 30})
    assert exact.representatives.row.tolist() == [0, 1]
    whole = select("first_instructions", profile, {})
    assert whole.evaluation.error_percent == 0
    assert whole.representatives.weight.tolist() == [1.0] * 4
    assert whole.interval is None
    with pytest.raises(CounterUnavailableError, match="budget of instructions"):
        select("first_instructions", timed(["k"], [1]), {})


# One iteration.


def test_an_iteration_is_found_and_scaled() -> None:
    kernels = ["setup", *"abc" * 5, "end"]
    profile = timed(kernels, [50, *[1, 2, 3] * 5, 7])
    selection = select("single_iteration", profile, {})
    assert selection.representatives.row.tolist() == [7, 8, 9]  # the third of five
    assert selection.representatives.weight.tolist() == [17 / 3] * 3
    assert selection.evaluation.projected == pytest.approx(6 * 17 / 3)
    given = {"weights": None, "iteration_launches": 3, "first_launch": 1, "iteration": 2}
    assert selection.parameters == {"weights": None, **given}
    assert selection.extra["iterations"] == {
        "launches": 3,
        "count": 5,
        "first_launch": 1,
        "outside_launches": 2,
    }
    last = select("single_iteration", profile, {"iteration": 4})
    assert last.representatives.row.tolist() == [13, 14, 15]
    with pytest.raises(ParameterError, match="there is no iteration 5; the workload has 5"):
        select("single_iteration", profile, {"iteration": 5})


def test_iterations_may_be_given() -> None:
    profile = timed([f"k{i}" for i in range(10)], list(range(1, 11)))
    with pytest.raises(RefusedError, match="no iterations found"):
        select("single_iteration", profile, {})
    given = {"iteration_launches": 4, "first_launch": 1, "iteration": 0}
    selection = select("single_iteration", profile, given)
    assert selection.representatives.row.tolist() == [1, 2, 3, 4]
    assert selection.parameters == {"weights": None, **given}
    assert selection.extra["iterations"]["outside_launches"] == 2
    with pytest.raises(ParameterError, match="does not fit in 10"):
        select("single_iteration", profile, {"iteration_launches": 10, "first_launch": 1})
    with pytest.raises(ParameterError, match="give iteration_launches too"):
        select("single_iteration", profile, {"first_launch": 1})


def test_starts_of_systematic_samples_are_fewer_where_each_takes_millions_of_launches() -> None:
    """One per cent of ten million launches keeps all starts; half of five million must not take a minute."""
    assert [starts_tried(each) for each in (1, 100_000, 262_144, 2_500_000)] == [1024, 1024, 512, 128]
