"""Sampling in proportion to light time: exact values, no bias, and intervals that hold on a target."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_client.recordings.comparing import compare
from assay_sampling.estimation.proportional_draws import draw_in_proportion, hansen_hurwitz, taken_whole
from assay_sampling.estimation.sample_design import SampleDesign
from assay_sampling.estimation.student_t import t_quantile
from assay_sampling.estimation.target_intervals import LEAST_LAUNCHES, TargetInterval, target_interval
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.registry import select
from assay_sampling.notes.registry import make_note
from assay_sampling.scoring.saved_selection import SavedSelection
from tests.support.sampling.made_launches import made_launches


def made_pair(launches: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Light times, and costs on another GPU: each kernel by its own factor, shape (n,) both."""
    rng = np.random.default_rng(seed)
    kernel = rng.integers(0, 12, launches)
    time = np.exp(rng.normal(3, 1.5, 12))[kernel] * np.exp(rng.normal(0, 0.8, launches)) + 2
    return time, time * np.exp(rng.normal(0, 0.3, 12))[kernel] * np.exp(rng.normal(0, 0.05, launches)) + 3


def light(durations: object) -> Profile:
    values = np.asarray(durations)
    return Profile(light=made_launches(["k"] * len(values), duration_ns=values))


def test_what_dominates_is_taken_whole_step_by_step() -> None:
    # D / m = 25; without 60 it is 40 / 3, without 14 it is 13: 12 stays.
    assert taken_whole(np.array([12.0, 60.0, 8.0, 14.0, 6.0]), 4).tolist() == [1, 3]
    assert taken_whole(np.array([1.0, 1.0, 1.0]), 2).tolist() == []
    assert sorted(taken_whole(np.array([3.0, 0.1, 5.0]), 3).tolist()) == [0, 1, 2]
    assert taken_whole(np.array([5.0, 0.0]), 2).tolist() == [0]


@given(
    amounts=st.lists(st.sampled_from([0.0, 0.1, 1.0, 3.0, 1e3, 1e9]), min_size=1, max_size=40),
    draws=st.integers(1, 60),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=150, deadline=None)
def test_any_draw_projects_its_own_amount_exactly(amounts: list[float], draws: int, seed: int) -> None:
    values = np.array(amounts)
    if not values.sum() > 0:
        return
    drawn = draw_in_proportion(values, draws, np.random.default_rng(seed))
    assert (drawn.weights * values[drawn.rows]).sum() == pytest.approx(values.sum(), rel=1e-9)
    assert (values[drawn.rows] > 0).all()
    assert (np.diff(drawn.rows) > 0).all()
    assert (drawn.weights[drawn.draws == 0] == 1).all()
    assert (drawn.draws.sum() + (drawn.draws == 0).sum()) <= draws
    # Whatever is not taken whole lasts less than one of the remaining draws stands for.
    left = values.sum() - values[drawn.rows[drawn.draws == 0]].sum()
    met = values[drawn.rows[drawn.draws > 0]]
    assert (met * drawn.draws.sum() < left * (1 + 1e-9)).all()


def test_launches_are_met_in_proportion_and_the_total_elsewhere_is_not_biased() -> None:
    time, cost = made_pair(400)
    met, totals = np.zeros(400), []
    for seed in range(3000):
        drawn = draw_in_proportion(time, 20, np.random.default_rng(seed))
        met[drawn.rows] += drawn.draws
        totals.append((drawn.weights * cost[drawn.rows]).sum())
    whole = taken_whole(time, 20)
    assert met[whole].sum() == 0
    others = np.delete(np.arange(400), whole)
    expected = 3000 * (20 - len(whole)) * time[others] / time[others].sum()
    assert np.corrcoef(met[others], expected)[0, 1] > 0.99
    error = np.std(totals) / np.sqrt(3000)
    assert abs(np.mean(totals) - cost.sum()) < 3.5 * error
    assert error < 0.005 * cost.sum()


def there(costs: np.ndarray, weights: np.ndarray, draws: np.ndarray) -> TargetInterval:
    none = np.zeros(0)
    design = SampleDesign("proportional", none, none, none, np.ones(len(costs)), draws)
    return target_interval(design, costs, np.zeros(len(costs), int), weights, kind="light_time")


def test_the_error_is_the_textbooks() -> None:
    # Thirty draws of three launches, and one taken whole; each draw's guess is weight x cost x 30 / draws.
    draws, weights = np.array([15, 0, 9, 6]), np.array([2.0, 1.0, 6.0, 4.0])
    costs = np.array([10.0, 7.0, 5.0, 8.0])
    guesses = np.repeat([40.0, 100.0, 160.0], [15, 9, 6])
    error = guesses.std(ddof=1) / np.sqrt(30)
    quantile = t_quantile(0.975, 29)
    skewness = np.mean((guesses - guesses.mean()) ** 3) / guesses.std(ddof=1) ** 3
    quantile *= 1 + skewness**2 * (quantile**4 + 2 * quantile**2 - 3) / (18 * 30)
    found = hansen_hurwitz(costs, weights, draws)
    assert (found.draws, found.error, found.quantile) == pytest.approx((30, error, quantile))
    interval = there(costs, weights, draws).interval
    assert interval is not None
    assert interval.low == pytest.approx(7 + guesses.mean() - quantile * error)
    assert interval.high >= 7 + guesses.mean() + quantile * error - 1e-9
    assert interval.expected_error_percent == pytest.approx(100 * np.sqrt(2 / np.pi) * error / 89)
    assert interval.basis == "hansen_hurwitz"


def test_no_bound_lies_below_the_cost_of_the_launches_drawn() -> None:
    draws, weights = np.full(10, 3), np.full(10, 1.2)
    costs = np.array([1.0] * 9 + [100.0])
    found = there(costs, weights, draws).interval
    assert found is not None
    assert found.low == 109
    whole = there(costs, np.ones(10), np.zeros(10, np.int64))
    assert (whole.interval, whole.reason) == (None, make_note("interval_of_all_launches"))
    assert hansen_hurwitz(costs, np.ones(10), np.zeros(10, np.int64)).error == 0


def test_few_draws_have_no_interval_whatever_they_cost() -> None:
    few = LEAST_LAUNCHES - 1
    for costs in (np.ones(few), np.arange(1.0, few + 1)):
        found = there(costs, np.full(few, 9.0), np.ones(few, np.int64))
        assert found.interval is None
        assert found.reason == make_note("interval_of_few_launches", launches=few, least=LEAST_LAUNCHES)


@pytest.mark.parametrize("draws", [18, 50])
def test_intervals_hold_the_truth_on_a_target(draws: int) -> None:
    time, cost = made_pair(5000, 1)
    held = 0
    for seed in range(600):
        drawn = draw_in_proportion(time, draws, np.random.default_rng([seed, draws]))
        found = there(cost[drawn.rows], drawn.weights, drawn.draws).interval
        assert found is not None
        held += found.low <= cost.sum() <= found.high
    assert held / 600 >= 0.92


def test_the_selection_is_exact_where_it_was_drawn_and_says_so() -> None:
    selection = select("proportional", light([1000, 10, 20, 30, 0] * 40), {"launches": 60}, 3)
    assert selection.evaluation.error_percent == pytest.approx(0, abs=1e-9)
    assert selection.why_no_interval == make_note("interval_exact_by_construction", quantity="duration_ns")
    assert selection.warnings == (
        make_note("launches_never_drawn", launches=40, quantity="duration_ns"),
    )  # fmt: skip
    chosen = selection.representatives
    assert chosen.draws is not None
    # The 40 large ones are taken whole, a group of their own; 20 draws are over the rest.
    assert selection.group_launches.tolist() == [160, 40]
    assert chosen.draws[chosen.group == 1].tolist() == [0] * 40
    assert chosen.draws.sum() == 20
    times = np.tile([1000, 10, 20, 30, 0], 40)[chosen.row]
    drawn = chosen.draws > 0
    assert chosen.weight[drawn] == pytest.approx(chosen.draws[drawn] * 2400 / (20 * times[drawn]))


def test_draws_are_saved_and_read_back() -> None:
    selection = select("proportional", light(np.arange(1, 300)), {"launches": 30}, 1)
    saved = SavedSelection.read(json.loads(json.dumps(selection.document().to_dict())), "s.json")
    assert saved.design is not None
    assert saved.design.draws is not None
    chosen = selection.representatives
    order = np.argsort(chosen.group, kind="stable")
    assert chosen.draws is not None
    assert saved.design.draws.tolist() == chosen.draws[order].tolist()
    plain = SavedSelection.read(select("random", light(np.arange(1, 300)), {}, 1).document().to_dict(), "s")
    assert plain.design is not None
    assert (plain.design.drawing, plain.design.draws) == ("uniform", None)


def test_a_total_that_is_exact_by_construction_earns_no_star() -> None:
    durations = np.random.default_rng(0).integers(1, 1000, 300)
    found = compare(light(durations), methods=("proportional", "random"))
    entries = {entry["method"]: entry for entry in found["methods"]}
    assert entries["proportional"]["error_percent"] < entries["random"]["error_percent"]
    assert not entries["proportional"]["pareto"]
    assert entries["random"]["pareto"]


@given(
    amounts=st.lists(st.sampled_from([0.0, 1.0, 2.0, 8.0, 64.0, 512.0]), min_size=1, max_size=40),
    draws=st.integers(1, 50),
)
def test_equal_launches_are_taken_in_their_order(amounts: list[float], draws: int) -> None:
    """One after another, the first of the largest ones that are left."""
    expected: list[int] = []
    left = dict(enumerate(amounts))
    while len(expected) < draws and left:
        row = max(left, key=lambda each: (left[each], -each))
        if left[row] <= 0 or left[row] * (draws - len(expected)) < sum(left.values()) * (1 - 1e-12):
            break
        expected.append(row)
        del left[row]
    assert taken_whole(np.array(amounts), draws).tolist() == expected
