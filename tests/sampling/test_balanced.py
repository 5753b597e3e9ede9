"""Balanced sampling: exact probabilities and weights, no bias, and intervals that hold on a target."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.errors import CounterUnavailableError, InputError, ParameterError, RefusedError
from assay_sampling.estimation.root_time_draws import RootTimePlan, successive_error, systematic_draw
from assay_sampling.estimation.sample_design import SampleDesign
from assay_sampling.estimation.student_t import t_quantile
from assay_sampling.estimation.target_intervals import LEAST_LAUNCHES, TargetInterval, target_interval
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.launches.table import Condition, Device, TableMetadata
from assay_sampling.methods.balanced.cells import Cells
from assay_sampling.methods.balanced.sampler import ratio_weights
from assay_sampling.methods.registry import select
from assay_sampling.notes.registry import make_note
from assay_sampling.readers.base import ReadOptions
from assay_sampling.readers.opening import read_launches
from assay_sampling.scoring.saved_selection import SavedSelection
from assay_sampling.scoring.selection import Selection
from tests.support.sampling.made_launches import made_launches
from tests.support.sampling.saved_scores import score_saved


def light(durations: object, kernels: Sequence[str] | None = None, gpu: str = "V100") -> Launches:
    values = np.asarray(durations)
    metadata = TableMetadata("light", condition=Condition("none", "none", 100.0), devices=(Device(0, gpu),))
    return made_launches(
        kernels or ["k"] * len(values), metadata=metadata, duration_ns=values, device=[0] * len(values)
    )


def balanced(
    durations: object, seed: int = 0, kernels: Sequence[str] | None = None, **given: Any
) -> Selection:
    return select("balanced", Profile(light=light(durations, kernels)), given, seed)


def made_pair(launches: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Kernels, light times, and costs on another GPU: each kernel by its own factor, shape (n,) each."""
    rng = np.random.default_rng(seed)
    kernel = rng.integers(0, 12, launches)
    time = np.exp(rng.normal(3, 1.0, 12))[kernel] * np.exp(rng.normal(0, 0.6, launches)) + 2
    factor = np.exp(rng.normal(0, 0.3, 12))[kernel] * np.exp(rng.normal(0, 0.1, launches))
    return kernel, time, time * factor


def test_probabilities_follow_the_root_of_time_and_what_dominates_is_taken_whole() -> None:
    # Roots 10, 3, 2, 1: 10 >= 16 / 3, and without it 3 >= 6 / 2; one of the others is drawn.
    plan = RootTimePlan(np.array([4.0, 100.0, 0.0, 1.0, 9.0]))
    assert plan.probabilities(3) == pytest.approx([2 / 3, 1, 0, 1 / 3, 1])
    assert (plan.whole(3), plan.most) == (2, 4)
    assert plan.time(3) == pytest.approx(109 + 4 * 2 / 3 + 1 / 3)
    # (1 / pi - 1) d^2 of the two that are drawn: 8 and 2.
    assert plan.error(3, 0.5) == pytest.approx(0.5 * np.sqrt(8 + 2) / 114)
    assert plan.probabilities(4).tolist() == [1, 1, 0, 1, 1]
    assert (plan.time(4), plan.error(4, 0.5)) == (114, 0)


@given(
    times=st.lists(st.sampled_from([0.0, 0.1, 1.0, 3.0, 1e3, 1e9]), min_size=1, max_size=40),
    launches=st.integers(1, 40),
)
@settings(max_examples=200, deadline=None)
def test_probabilities_sum_to_the_launches_and_budgets_are_kept(times: list[float], launches: int) -> None:
    values = np.array(times)
    plan = RootTimePlan(values)
    if not plan.most:
        return
    launches = min(launches, plan.most)
    probability = plan.probabilities(launches)
    assert probability.sum() == pytest.approx(launches)
    assert ((probability >= 0) & (probability <= 1)).all()
    assert ((probability > 0) == (values > 0)).all()
    assert plan.time(launches) == pytest.approx((probability * values).sum())
    within = plan.within_time(plan.time(launches) * (1 + 1e-9))
    assert within >= launches
    drawn = (probability > 0) & (probability < 1)
    squares = ((1 / probability[drawn] - 1) * values[drawn] ** 2).sum()
    assert plan.error(launches, 0.3) == pytest.approx(0.3 * np.sqrt(squares) / values.sum(), abs=1e-7)
    enough = plan.within_error(0.01, 0.3)
    assert plan.error(enough, 0.3) <= 0.01
    assert enough == 1 or plan.error(enough - 1, 0.3) > 0.01


def test_the_draw_takes_equal_steps_and_meets_every_launch_with_its_probability() -> None:
    time = made_pair(60, 4)[1]
    probability = RootTimePlan(time).probabilities(12)
    order = np.argsort(time, kind="stable")
    drawn = probability[order] < 1
    reach = np.cumsum(probability[order] * drawn)
    met = np.zeros(60)
    for seed in range(4000):
        rows, _ = systematic_draw(
            probability, np.ones(len(probability), int), order, np.random.default_rng(seed)
        )
        assert len(rows) == 12 - int((probability == 1).sum())
        met[rows] += 1
        # Each is within one step of the running sum.
        places = reach[np.isin(order, rows)]
        assert (np.diff(places) < 2).all()
    expected = np.where(probability < 1, probability, 0)
    assert np.abs(met / 4000 - expected).max() < 4 * np.sqrt(0.25 / 4000)


def test_cells_come_by_time_and_go_up_and_down() -> None:
    #                    a   a   b   b   b   c
    kernel = np.array([7, 7, 3, 3, 3, 5])
    threads = np.array([64, 32, 64, 32, 32, 32])
    time = np.array([1.0, 2.0, 50.0, 20.0, 10.0, 1.0])
    cells = Cells.of(kernel, threads, time)
    # b has most time, and goes up; a is next, and goes down; c goes up.
    assert cells.order.tolist() == [4, 3, 2, 0, 1, 5]
    assert cells.of_launch.tolist() == [2, 3, 1, 0, 0, 4]
    assert cells.kernel.tolist() == [0, 0, 1, 1, 2]
    # Row 1 is of the second size of a: its first size joins it, and so does c; b's sizes join row 4's.
    assert cells.groups(np.array([4, 1]), np.zeros(2, bool), np.sqrt(time)).tolist() == [1, 1, 0, 0, 0, 1]
    # Every cell but c's is met.
    four = np.array([0, 1, 2, 3])
    assert cells.groups(four, np.zeros(4, bool), np.sqrt(time)).tolist() == [2, 3, 1, 0, 0, 3]
    # Taken whole, a launch is a group of its own if another of its cell was drawn; else it stands for all.
    whole = np.array([True, False, False, True])
    assert cells.groups(four, whole, np.sqrt(time)).tolist() == [2, 3, 1, 0, 0, 3]
    all_of_b = np.array([2, 3, 4])
    assert cells.groups(all_of_b, np.array([True, True, False]), np.sqrt(time)).tolist() == [2, 2, 2, 1, 0, 2]


def test_a_cell_between_two_joins_the_nearer() -> None:
    kernel, threads = np.zeros(5, int), np.arange(5)
    roots = np.array([1.0, 5.0, 1.0, 1.0, 1.0])
    cells = Cells.of(kernel, threads, np.square(roots))
    # Middles at 0.5, 3.5, 6.5, 7.5, 8.5.
    assert cells.groups(np.array([0, 4]), np.zeros(2, bool), roots).tolist() == [0, 0, 1, 1, 1]


def test_the_weights_are_those_of_the_ratio_estimator() -> None:
    time = np.array([100.0, 4.0, 6.0, 5.0, 30.0, 2.0])
    labels = np.array([0, 0, 0, 0, 1, 1])
    # Of group 0 one is whole, and two are drawn (4 / 0.2 + 5 / 0.5 = 30 for 15); of group 1 one is whole.
    weights = ratio_weights(time, labels, np.array([0, 1, 3, 4]), np.array([1.0, 0.2, 0.5, 1.0]))
    assert weights == pytest.approx([1, 2.5, 1, 32 / 30])


@given(
    durations=st.lists(st.sampled_from([0, 1, 2, 50, 1000, 10**9]), min_size=1, max_size=60),
    launches=st.integers(1, 70),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=150, deadline=None)
def test_weights_are_positive_and_every_group_has_its_time(
    durations: list[int], launches: int, seed: int
) -> None:
    if not sum(durations):
        return
    kernels = [f"k{row % 5}" for row in range(len(durations))]
    found = balanced(durations, seed, kernels, launches=launches)
    chosen, scores = found.representatives, found.evaluation
    assert (chosen.weight > 0).all()
    assert (np.array(durations)[chosen.row] > 0).all()
    assert scores.error_percent == pytest.approx(0, abs=1e-7)
    assert scores.group_error_percent == pytest.approx(0, abs=1e-7)
    assert len(chosen.row) <= min(launches, sum(each > 0 for each in durations))
    again = balanced(durations, seed, kernels, launches=launches)
    assert again.document(labels=True) == found.document(labels=True)


def test_the_total_elsewhere_is_not_biased_and_exact_where_all_are_taken_whole() -> None:
    kernel, time, cost = made_pair(600, 2)
    durations = np.round(1000 * time).astype(int)
    names = [f"k{each}" for each in kernel]
    errors = []
    for seed in range(200):
        chosen = balanced(durations, seed, names, launches=60).representatives
        errors.append((chosen.weight @ cost[chosen.row]) / cost.sum() - 1)
    assert abs(np.mean(errors)) < 4 * np.std(errors) / np.sqrt(200) + 0.002
    assert np.sqrt(np.mean(np.square(errors))) < 0.03
    whole = balanced(durations, 0, names, launches=600).representatives
    assert whole.weight.tolist() == [1.0] * 600
    assert whole.draws is not None
    assert not whole.draws.any()
    assert whole.weight @ cost[whole.row] == pytest.approx(cost.sum())


def test_budgets() -> None:
    durations = np.round(1000 * made_pair(5000, 3)[1]).astype(int)
    assert len(balanced(durations, launches=40).representatives.row) == 40
    speedups = [balanced(durations, seed, speedup=100).evaluation.speedup for seed in range(20)]
    assert 1 / np.mean(1 / np.array(speedups)) == pytest.approx(100, rel=0.05)
    by_error = balanced(durations, target_error_percent=1, ratio_spread_percent=20)
    plan = RootTimePlan(durations.astype(float))
    launches = len(by_error.representatives.row)
    assert plan.error(launches, 0.2) <= 0.01 < plan.error(launches - 1, 0.2)
    without = balanced(durations)
    assert without.parameters["target_error_percent"] == 2
    assert without.document() == balanced(durations, target_error_percent=2).document()
    # As few would do, but not for an interval.
    assert len(balanced(durations, target_error_percent=50).representatives.row) == LEAST_LAUNCHES
    with pytest.raises(ParameterError, match="launches and speedup each say how many"):
        balanced(durations, launches=4, speedup=10)


def test_a_profile_without_times_is_refused_with_the_remedy() -> None:
    untimed = made_launches(["a", "b"], metadata=TableMetadata("light"))
    with pytest.raises(CounterUnavailableError, match="profile") as caught:
        select("balanced", Profile(light=untimed), {})
    assert caught.value.remedy
    profiled = made_launches(["k"] * 6, metadata=TableMetadata("detailed"), duration_ns=[5] * 6)
    with pytest.raises(RefusedError, match="needs a light run"):
        select("balanced", Profile(detailed=profiled), {"weights": "light_time"})
    with pytest.raises(ParameterError, match=r"use light_time$"):
        balanced([1, 2, 3], weights="launches")
    with pytest.raises(RefusedError):
        balanced([0, 0, 0])


def test_one_launch_with_half_of_the_time_is_taken_whole() -> None:
    found = balanced([999, *([1] * 999)], launches=40).representatives
    assert found.row[0] == 0
    assert found.weight[0] == 1
    assert found.draws is not None
    assert found.draws.tolist() == [0, *([1] * 39)]
    assert found.weight[1:] == pytest.approx(999 / 39)


def test_two_launches_in_all() -> None:
    assert balanced([1, 4]).representatives.weight.tolist() == [1, 1]
    one = balanced([1, 4], launches=1)
    assert one.representatives.weight[0] == pytest.approx(5 / (1, 4)[one.representatives.row[0]])
    assert one.evaluation.error_percent == pytest.approx(0)


def test_launches_without_time_are_never_drawn_and_said() -> None:
    found = balanced([10, 0, 20, 30, 0] * 40, launches=20)
    note = make_note("launches_never_drawn", launches=80, quantity="duration_ns")
    assert found.warnings == (note,)
    assert found.why_no_interval == make_note("interval_exact_by_weights", quantity="duration_ns")


def test_forty_thousand_kernels_share_groups_and_it_is_said() -> None:
    names = [f"kernel_{row}" for row in range(40_000)]
    durations = np.random.default_rng(1).integers(100, 10_000, 40_000)
    found = balanced(durations, 1, names, launches=100)
    assert len(found.group_launches) == 100
    (note,) = found.warnings
    assert note.code == "kernels_without_draw"
    assert dict(note.parameters)["kernels"] == 39_900
    assert 95 < dict(note.parameters)["time_percent"] < 100
    assert balanced([3, 5] * 50, 1, ["a", "b"] * 50, launches=10).warnings == ()


def test_successive_differences_are_the_textbooks() -> None:
    # Steps: 3 x 1, 4.5 x -2; n / (2 (n - 1)) = 3 / 4.
    error = successive_error(np.array([2.0, 4.0, 5.0]), np.array([1.0, 2.0, 0.0]))
    assert error == pytest.approx(np.sqrt(0.75 * (9 + 81)))
    # Without neighbours that differ in kind it has the variance of independent draws.
    rng = np.random.default_rng(0)
    found = [successive_error(np.full(50, 2.0), rng.normal(1, 0.1, 50)) ** 2 for _ in range(2000)]
    assert np.mean(found) == pytest.approx(50 * 4 * 0.01, rel=0.03)


def there(
    costs: np.ndarray, weights: np.ndarray, draws: np.ndarray, time: np.ndarray, groups: np.ndarray
) -> TargetInterval:
    many = np.full(groups.max() + 1, 1000)
    design = SampleDesign("root_light_time", many, many, np.full(len(many), 0.3), time, draws)
    return target_interval(design, costs, groups, weights, kind="light_time")


def test_the_interval_is_that_of_successive_differences() -> None:
    rng = np.random.default_rng(3)
    time = rng.uniform(1, 5, 30)
    costs = time * rng.uniform(0.9, 1.1, 30)
    weights, groups = 20 / time, np.repeat(np.arange(3), 10)
    order = np.lexsort((time, groups))
    error = successive_error((weights * time)[order], (costs / time)[order])
    interval = there(costs, weights, np.ones(30, int), time, groups).interval
    assert interval is not None
    projected = weights @ costs
    assert interval.low == pytest.approx(projected - t_quantile(0.975, 29) * error)
    assert interval.high >= projected + t_quantile(0.975, 29) * error - 1e-9
    assert interval.basis == "successive_differences"
    # The order of the representatives does not matter.
    mixed = rng.permutation(30)
    again = there(costs[mixed], weights[mixed], np.ones(30, int), time[mixed], groups[mixed]).interval
    assert again is not None
    assert (again.low, again.high) == pytest.approx((interval.low, interval.high))


def test_few_launches_and_launches_without_time_have_no_interval() -> None:
    few = LEAST_LAUNCHES - 1
    ones = np.ones(few)
    found = there(ones, 9 * ones, np.ones(few, int), ones, np.zeros(few, int))
    assert found.reason == make_note("interval_of_few_launches", launches=few, least=LEAST_LAUNCHES)
    whole = there(np.ones(30), np.ones(30), np.zeros(30, int), np.ones(30), np.zeros(30, int))
    assert whole.reason == make_note("interval_of_all_launches")


def test_launches_that_a_draw_may_miss_must_not_be_long() -> None:
    """The interval is withheld whether or not the one with half of the time is among the drawn."""
    ones = np.ones(40)
    launches, variation = np.array([1000]), np.array([999 / 2 / np.sqrt(1000)])
    design = SampleDesign("root_light_time", launches, launches, variation, ones, ones.astype(int))
    found = target_interval(design, ones, np.zeros(40, int), 25 * ones, kind="light_time")
    assert found.interval is None
    assert found.reason is not None
    assert found.reason.code == "interval_of_long_launches"
    selection = balanced([999, *([1] * 999)], 1, launches=20)
    assert selection.design is not None
    chosen = selection.representatives
    score = target_interval(selection.design, np.ones(20), chosen.group, chosen.weight, kind="light_time")
    assert score.reason is not None
    assert score.reason.code == "interval_of_long_launches"
    assert dict(score.reason.parameters)["percent"] == pytest.approx(25, rel=0.02)


@pytest.mark.parametrize("launches", [18, 60])
def test_intervals_hold_the_truth_on_a_target(launches: int) -> None:
    kernel, time, cost = made_pair(3000, 1)
    durations, costs = np.round(1000 * time).astype(int), np.round(1500 * cost).astype(int)
    names = [f"k{each}" for each in kernel]
    other = light(costs, names, "T4")
    held = 0
    for seed in range(60):
        selection = balanced(durations, seed, names, launches=launches)
        saved = SavedSelection.read(json.loads(json.dumps(selection.document().to_dict())), "s.json")
        interval = score_saved(saved, other, weights="light_time").interval
        assert interval is not None
        held += interval.low <= costs.sum() <= interval.high
    assert held >= 56


def test_draws_are_saved_and_read_back() -> None:
    selection = balanced(np.arange(1, 300), launches=30)
    document = selection.document().to_dict()
    saved = SavedSelection.read(json.loads(json.dumps(document)), "s.json")
    assert saved.design is not None
    assert saved.design.drawing == "root_light_time"
    chosen = selection.representatives
    assert chosen.draws is not None
    order = np.argsort(chosen.group, kind="stable")
    assert saved.design.draws is not None
    assert saved.design.draws.tolist() == chosen.draws[order].tolist()
    document["groups"][0]["representatives"][0]["draws"] = None
    with pytest.raises(InputError, match="drawing is root_light_time, and a representative has no draws"):
        SavedSelection.read(document, "s.json")


def test_on_three_gpus_it_keeps_its_promises(shared_data: Path) -> None:
    """Root mean square of the error and mean error by kernel and grid, over 60 draws (synthetic)."""
    folder = shared_data / "three_gpus"
    profile = Profile(light=read_launches(folder / "v100_light.json.gz"))
    targets = [
        read_launches(folder / f"{gpu}.csv.gz", ReadOptions(synthetic=True)).floats("cycles_gpc_avg")
        for gpu in ("rtx2060", "rtx3070")
    ]
    for speedup, most in ((250, 1.8), (150, 1.1)):
        by_gpu = _errors(profile, targets, "balanced", {"speedup": speedup})
        assert by_gpu.mean() <= most
    # 150 takes as much time as 133 launches drawn in proportion to light time on average.
    for method in ("proportional", "random"):
        as_dear = {"proportional": 76, "random": 133}[method]
        assert by_gpu.mean() < _errors(profile, targets, method, {"launches": as_dear}).mean()


def _errors(
    profile: Profile, targets: list[np.ndarray], method: str, parameters: dict[str, Any]
) -> np.ndarray:
    """Root mean square over draws of the error on each target, percent, with weights by light time."""
    found = []
    for seed in range(60):
        selection = select(method, profile, parameters, seed)
        weights, rows = selection.weights_of("light_time"), selection.representatives.row
        found.append([100 * (weights @ cost[rows] / cost.sum() - 1) for cost in targets])
    signed: np.ndarray = np.sqrt(np.square(found).mean(axis=0))
    return signed
