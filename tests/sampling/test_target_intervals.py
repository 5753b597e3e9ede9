"""Intervals of the total on another GPU: exact values, and what decides whether there is one."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.errors import InputError
from assay_sampling.estimation.intervals import Interval, draw_per_group
from assay_sampling.estimation.moderated_errors import LEAST_SPREAD
from assay_sampling.estimation.sample_design import SampleDesign, cost_cov, distinct_kernels
from assay_sampling.estimation.step_errors import step_errors
from assay_sampling.estimation.student_t import t_quantile
from assay_sampling.estimation.target_intervals import (
    LEAST_LAUNCHES,
    WIDEST,
    WIDEST_OF_STEPS,
    Assumption,
    TargetInterval,
    target_interval,
)
from assay_sampling.estimation.unlike_share import unlike_share
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.launches.table import Device, TableMetadata
from assay_sampling.methods.registry import select
from assay_sampling.notes.registry import make_note
from assay_sampling.parameters import WeightKind
from assay_sampling.scoring.carried import score_on
from assay_sampling.scoring.saved_selection import SavedSelection
from tests.support.sampling.made_launches import made_launches
from tests.support.sampling.saved_scores import score_saved

Z = t_quantile(0.975, math.inf)


def design(sizes: list[int], drawing: str = "uniform", cov: float = 0.0, **more: object) -> SampleDesign:
    made = SampleDesign("uniform", np.array(sizes), np.ones(len(sizes), int), np.full(len(sizes), cov))
    return replace(made, drawing=drawing, **more)  # type: ignore[arg-type]


def interval_of(
    plan: SampleDesign, costs: np.ndarray, groups: np.ndarray, kind: WeightKind, **more: float
) -> tuple[Interval, Assumption]:
    amounts = plan.light_time if kind == "light_time" else None
    weights = (plan.launches / np.bincount(groups))[groups]
    if amounts is not None:
        weights = (TIME_OF_GROUP * plan.launches / np.bincount(groups, amounts))[groups]
    found = target_interval(plan, costs, groups, weights, kind=kind, **more)
    assert found.reason is None
    assert found.interval is not None
    assert found.assumption is not None
    return found.interval, found.assumption


# Light time of every launch on average, in the samples below.
TIME_OF_GROUP = 5.0
TWENTY = np.linspace(4.0, 6.0, 20)
ONE = np.zeros(20, int)


def half(found: Interval) -> float:
    return (found.high - found.low) / 2


def test_by_launches_the_lower_end_is_the_wider_of_two_and_the_upper_one_at_most_so_many_errors() -> None:
    variation = float(TWENTY.std(ddof=1) / TWENTY.mean())
    projected = 100 * TWENTY.mean()
    # A profile that knew four times the variation counts halfway, as three further launches do.
    for cov, enlarged in ((variation, 1.0), (4 * variation, math.sqrt((3 * 4 + 19) / 22))):
        found, _ = interval_of(design([100], cov=cov), TWENTY, ONE, "launches")
        left = projected * math.sqrt((1 - 20 / 100) / 20)
        error, carried = left * variation * enlarged, left * cov
        below = max(t_quantile(0.975, 19) * error, Z * carried)
        assert projected - found.low == pytest.approx(below)
        assert half(found) == pytest.approx(max(WIDEST * error, below))
        assert found.expected_error_percent == pytest.approx(100 * math.sqrt(2 / math.pi) * error / projected)
        assert found.basis == "target_spread"


def test_by_amounts_the_lower_end_has_residuals_as_hc3_has_them() -> None:
    time = np.linspace(3.0, 7.0, 20)
    costs = 2 * time * TWENTY / TWENTY.mean()
    ratio, total = costs.sum() / time.sum(), 200 * TIME_OF_GROUP * costs.sum() / time.sum()
    plan = design([200], cov=0.2, light_time=time)
    found, _ = interval_of(plan, costs, ONE, "light_time")
    enlarged = math.sqrt(19 / 20) / (1 - time / time.sum())
    squares = np.square((costs - ratio * time) * enlarged / costs.mean()).sum() / 19
    below = t_quantile(0.975, 19) * total * math.sqrt((1 - 20 / 200) / 20 * squares)
    assert total - found.low == pytest.approx(below)
    spread = (costs / time / ratio).std(ddof=1)
    error = total * spread * math.sqrt((1 - 20 / 200) * np.square(time / time.sum()).sum())
    assert half(found) == pytest.approx(WIDEST * error)
    assert found.basis == "target_residuals"
    # Weights by instructions are the same estimator of another amount.
    weights = np.full(20, total / costs.sum())
    again = target_interval(
        design([200], cov=0.2), costs, ONE, weights, kind="instructions", instructions=time
    )
    assert again.interval is not None
    assert (again.interval.low, half(again.interval)) == pytest.approx((found.low, half(found)))


def test_drawn_in_steps_the_lower_end_has_what_neighbours_in_size_differ_by() -> None:
    """One group, so no trend that groups have in common; its ratios rise with size, and neighbours tell."""
    time = np.linspace(3.0, 7.0, 20)[::-1]
    noise = np.tile([0.96, 1.04], 10)
    costs = time * np.linspace(1.5, 1.0, 20) * noise
    weights = 50.0 / time
    found = target_interval(
        design([200], "light_time", cov=0.2, light_time=time), costs, ONE, weights, kind="light_time"
    ).interval
    assert found is not None
    total = float(weights @ costs)
    ratio = costs / time / (costs / time).mean()
    variance = np.square(np.diff(ratio)).sum() / (2 * 19) * (1 - 1 / weights).mean()
    error = total * math.sqrt(variance / 20)
    below = t_quantile(0.975, 19) * error
    assert total - found.low == pytest.approx(below)
    assert found.high == pytest.approx(total * math.exp((2 * WIDEST_OF_STEPS * error - below) / total))
    assert found.basis == "steps_by_size"
    assert error < 0.6 * total * ratio.std(ddof=1) / math.sqrt(20), "the trend is no part of it"


def test_the_trend_with_size_that_groups_have_in_common_is_no_error_of_steps() -> None:
    """Two launches of each of nine groups, the longer one 20 % dearer for its time: steps take one of both
    sizes from every sample, and only the start within a step varies."""
    time, groups = np.tile([2.0, 4.0], 9), np.repeat(np.arange(9), 2)
    weights = 100.0 / time
    for trend, spread in ((0.2, 0.0), (0.0, 0.2)):
        rises = np.tile([-1.0, 1.0], 9) * trend / 2
        unlike = (
            np.repeat(np.where(np.arange(9) % 2 == 0, 1.0, -1.0), 2) * np.tile([-1.0, 1.0], 9) * spread / 2
        )
        found = step_errors(groups, time, time * (1 + rises + unlike), weights)
        if trend:
            rise = 2 * trend
            variance = max(rise**2 / 24, LEAST_SPREAD**2)
            assert found.standard == pytest.approx(
                math.sqrt(9 * 200**2 / 2 * (1 - (1 / weights).reshape(9, 2).mean()) * variance)
            )
            of_trend = found.standard
        else:
            assert found.standard > 1.6 * of_trend
    assert found.effective_draws == pytest.approx(18)
    assert found.without_own == pytest.approx(found.standard * math.sqrt(9 / 8))


def test_launches_taken_whole_add_their_cost_to_an_interval_of_steps() -> None:
    time = np.concatenate([[900.0], np.linspace(3.0, 7.0, 20)])
    costs = time * np.concatenate([[3.0], TWENTY])
    weights = np.concatenate([[1.0], 50.0 / time[1:]])
    plan = design([201], "light_time", light_time=time)
    found = target_interval(plan, costs, np.zeros(21, int), weights, kind="light_time").interval
    rest = target_interval(
        design([200], "light_time", light_time=time[1:]), costs[1:], ONE, weights[1:], kind="light_time"
    ).interval
    assert found is not None
    assert rest is not None
    assert found.low - 2700 == pytest.approx(rest.low)
    assert found.low < weights @ costs < found.high
    few = target_interval(
        replace(plan, launches=np.array([201])),
        costs,
        np.zeros(21, int),
        np.where(np.arange(21) < 14, 1.0, weights),
        kind="light_time",
    )
    assert few.reason == make_note("interval_of_few_draws", draws=7, least=8)


def test_the_assumption_alone_is_the_upper_end_where_one_launch_is_unlike_the_others() -> None:
    costs = TWENTY.copy()
    costs[7] *= 3
    projected = 100 * costs.mean()
    found, assumed = interval_of(design([100]), costs, ONE, "launches", scales_at_most=2.5)
    share = unlike_share(0, 20, 0, 0.95)
    assert found.high - projected == pytest.approx(share * 1.5 * projected * (1 - 20 / 100))
    assert assumed == Assumption(2.5, pytest.approx(100 * share * 0.8))  # type: ignore[arg-type]
    # Where all are alike the width is bounded, and the assumption says what that leaves room for.
    _, alike = interval_of(design([100]), TWENTY, ONE, "launches", scales_at_most=2.5)
    assert alike.unlike_percent < assumed.unlike_percent / 2


def test_launches_unlike_those_drawn_may_also_cost_less() -> None:
    """Where one that was drawn is unlike the others, what was missed may scale as little as 1 / f."""
    costs = np.full(20, TIME_OF_GROUP)
    costs[7] *= 1.3
    plan = design([100], "light_time", light_time=np.full(20, TIME_OF_GROUP))
    projected = 100 * costs.mean()
    found, _ = interval_of(plan, costs, ONE, "light_time", scales_at_most=2.5)
    share = unlike_share(20, 0, 0, 0.95)
    assert projected - found.low == pytest.approx(share * (1 - 1 / 2.5) * projected * (1 - 20 / 100))
    alike, _ = interval_of(plan, TWENTY, ONE, "light_time", scales_at_most=2.5)
    assert 100 * TWENTY.mean() - alike.low < 0.1 * 100 * TWENTY.mean()


def test_a_larger_assumption_never_narrows_the_interval() -> None:
    costs = TWENTY.copy()
    costs[7] *= 3
    highs = [
        interval_of(design([100]), costs, ONE, "launches", scales_at_most=each)[0].high
        for each in (1.01, 1.5, 3.0, 30.0)
    ]
    assert highs == sorted(highs)
    for wrong in (1.0, 0.5, math.inf, math.nan):
        with pytest.raises(ValueError, match="cannot scale"):
            interval_of(design([100]), costs, ONE, "launches", scales_at_most=wrong)


@given(st.floats(0, 200), st.floats(0, 200), st.floats(0, 5))
def test_the_share_that_a_sample_may_have_missed(in_proportion: float, uniform: float, spread: float) -> None:
    share = unlike_share(in_proportion, uniform, spread, 0.95)
    assert 0 <= share <= 1
    assert share >= unlike_share(in_proportion + 1, uniform, spread, 0.95)
    if in_proportion + uniform > 0 and share < 0.999:
        missed = (1 - share) ** in_proportion * (1 - share**2 / (1 + spread**2)) ** uniform
        assert missed == pytest.approx(0.05, rel=1e-3)


def test_equal_launches_have_an_interval_with_a_width() -> None:
    plan = design([50], "light_time", light_time=np.full(20, 5.0))
    for kind in ("launches", "light_time"):
        used = design([50]) if kind == "launches" else plan
        found, _ = interval_of(used, np.full(20, 5.0), ONE, kind)  # type: ignore[arg-type]
        assert found.low < 250 < found.high


def test_groups_taken_whole_add_nothing_and_all_taken_whole_is_exact() -> None:
    costs, groups = np.concatenate([[500.0, 900.0], TWENTY]), np.repeat([0, 1], [2, 20])
    found, _ = interval_of(design([2, 80]), costs, groups, "launches")
    alone, _ = interval_of(design([80]), TWENTY, ONE, "launches")
    assert (found.low - 1400, found.high - 1400) == pytest.approx((alone.low, alone.high))
    whole = target_interval(design([2, 20]), costs, groups, np.ones(22), kind="launches")
    assert whole == TargetInterval(reason=make_note("interval_of_all_launches"), not_vouched_percent=0.0)


def test_a_group_of_one_drawn_launch_is_not_vouched_for() -> None:
    costs, groups = np.concatenate([TWENTY, [9.0]]), np.repeat([0, 1], [20, 1])
    weights = np.concatenate([np.full(20, 50.0), [3.0]])
    found = target_interval(design([1000, 3]), costs, groups, weights, kind="launches", scales_at_most=3)
    alone, _ = interval_of(design([1000]), TWENTY, ONE, "launches")
    assert found.not_vouched_percent == pytest.approx(100 * 27 / (27 + 50 * TWENTY.sum()))
    assert found.interval is not None
    # It may be wrong by the factor f.
    assert found.interval.high == pytest.approx(alone.high + 27 * 3)
    assert found.interval.low == pytest.approx(alone.low + 27 / 3)
    weights[20] = 100
    withheld = target_interval(design([1000, 100]), costs, groups, weights, kind="launches")
    share = 100 * 900 / (900 + 50 * TWENTY.sum())
    assert withheld.interval is None
    assert withheld.not_vouched_percent == pytest.approx(share)
    assert withheld.reason is not None
    assert withheld.reason.code == "interval_not_vouched_for"


@given(seed=st.integers(0, 2**32), drawn=st.integers(1, 10), kind=st.sampled_from(["launches", "light_time"]))
@settings(max_examples=60, deadline=None)
def test_the_design_alone_decides_whether_there_is_an_interval(seed: int, drawn: int, kind: str) -> None:
    sizes = [1, 3, 40]
    labels = np.repeat([0, 1, 2], sizes)
    rng = np.random.default_rng(0)
    time, reasons = rng.lognormal(3, 1, 44), set()
    for draw in (seed, seed + 1):
        rows = draw_per_group(labels, drawn, np.random.default_rng(draw))
        costs = np.random.default_rng([draw, 1]).choice([1.0, 50.0], len(rows))
        plan = design(sizes, cov=0.5, light_time=time[rows])
        groups = labels[rows]
        weights = (np.array(sizes) / np.bincount(groups))[groups]
        found = target_interval(plan, costs, groups, weights, kind=kind)  # type: ignore[arg-type]
        reasons.add(None if found.reason is None else found.reason.code)
        assert found.interval is None or costs.sum() <= found.interval.low < found.interval.high
    assert len(reasons) == 1


@pytest.mark.parametrize(
    ("plan", "kind", "reason"),
    [
        (design([9], "rule"), "launches", make_note("interval_of_no_draw")),
        (design([9]), "light_time", make_note("interval_without_amounts")),
        (design([9]), "instructions", make_note("interval_without_amounts")),
        (
            design([9], "light_time"),
            "launches",
            make_note("interval_of_weights_not_drawn_for", weights="launches", drawing="light_time"),
        ),
        (design([9, 4]), "launches", make_note("interval_of_unsampled_group")),
        (design([9]), "launches", make_note("interval_of_few_launches", launches=6, least=LEAST_LAUNCHES)),
    ],
)
def test_what_has_no_interval_says_why(plan: SampleDesign, kind: str, reason: object) -> None:
    costs = np.arange(1.0, 7)
    found = target_interval(plan, costs, np.zeros(6, int), np.ones(6), kind=kind)  # type: ignore[arg-type]
    assert (found.interval, found.reason) == (None, reason)


def test_launches_taken_whole_count_in_the_sample_but_do_not_vouch_for_others() -> None:
    costs = np.concatenate([np.arange(100.0, 113), np.linspace(4.0, 6.0, 8)])
    for drawn, code in ((8, None), (7, "interval_of_few_draws"), (4, "interval_of_few_launches")):
        groups = np.repeat([0, 1], [13, drawn])
        weights = np.repeat([1.0, 60 / drawn], [13, drawn])
        found = target_interval(design([13, 60]), costs[: 13 + drawn], groups, weights, kind="launches")
        assert (found.reason and found.reason.code) == code


def test_nothing_vouches_for_launches_chosen_by_a_rule() -> None:
    costs, groups = np.array([1.0, 2.0, 5.0]), np.array([0, 0, 1])
    found = target_interval(design([9, 1], "rule"), costs, groups, np.array([4.5, 4.5, 1]), kind="launches")
    assert found.reason == make_note("interval_of_no_draw")
    assert found.not_vouched_percent == pytest.approx(100 * 13.5 / 18.5)


def test_launches_without_light_time_have_no_interval_by_light_time() -> None:
    reason = make_note("interval_of_launches_without_time", launches=3)
    costs, groups = np.arange(1.0, 41), np.zeros(40, int)
    for drawing in ("light_time", "uniform", "proportional"):
        plan = design([99], drawing, light_time=costs, launches_without_time=3, draws=np.ones(40, int))
        args = (costs, groups, np.full(40, 2.0))
        assert target_interval(plan, *args, kind="light_time").reason == reason
        timed = replace(plan, launches_without_time=0)
        assert target_interval(timed, *args, kind="light_time").interval is not None


def test_the_variation_of_a_group_and_its_kernels() -> None:
    labels = np.array([0, 0, 0, 1, 2, 2])
    assert cost_cov(np.array([1.0, 2, 3, 7, 0, 0]), labels) == pytest.approx([0.5, 0, 0])
    assert distinct_kernels(np.array([5, 5, 9, 9, 5, 5]), labels).tolist() == [2, 1, 1]
    # Ids are hashes of 64 bits, and the first launch need not be of the first group.
    ids = np.array([2**64 - 1, 7, 2**63, 7], np.uint64)
    assert distinct_kernels(ids, np.array([2, 0, 2, 1])).tolist() == [1, 1, 2]


# End to end: a selection made on one GPU, saved, read back, and scored on the recording of another.
KERNELS = ["gemm", "relu", "gemm", "copy"] * 60
TIME = np.random.default_rng(5).lognormal(5, 0.7, 240).astype(np.int64) + 20
COST = (TIME * np.tile([2.0, 1.2, 2.0, 1.5], 60) * np.random.default_rng(6).normal(1, 0.1, 240)).astype(
    np.int64
)


def recording(durations: np.ndarray, gpu: str) -> Launches:
    metadata = TableMetadata("light", devices=(Device(0, name=gpu),))
    return made_launches(KERNELS, metadata=metadata, duration_ns=durations, device=np.zeros(240, np.int32))


def saved(method: str, parameters: dict[str, Any]) -> SavedSelection:
    selection = select(method, Profile(light=recording(TIME, "V100")), parameters, 1)
    return SavedSelection.read(json.loads(json.dumps(selection.document(labels=True).to_dict())), "s.json")


@pytest.mark.parametrize(
    ("method", "parameters", "weights", "basis"),
    [
        ("proportional", {}, "light_time", "hansen_hurwitz"),
        ("stratified", {"launches": 40, "launches_per_group": 8}, "launches", "target_spread"),
        ("stratified", {"launches": 40, "launches_per_group": 8}, "light_time", "target_residuals"),
        ("stratified", {"launches": 40, "weights": "light_time"}, "light_time", "steps_by_size"),
        ("random", {"launches": 40}, "launches", "target_spread"),
    ],
)
def test_evaluating_on_another_gpu_gives_the_interval_there(
    method: str, parameters: dict[str, Any], weights: WeightKind, basis: str
) -> None:
    found = score_saved(saved(method, parameters), recording(COST, "RTX"), weights=weights)
    assert found.interval is not None, found.interval_reason
    assert found.interval.basis == basis
    assert found.interval.low < found.projected < found.interval.high
    assert found.interval.low <= found.total <= found.interval.high
    assert found.interval.low >= found.simulated


@pytest.mark.parametrize(
    ("method", "parameters", "weights", "code"),
    [
        ("systematic", {}, "launches", "interval_of_no_draw"),
        ("stratified", {"launches": 6}, "light_time", "interval_of_few_launches"),
        ("stratified", {"weights": "light_time"}, "launches", "interval_of_weights_not_drawn_for"),
        ("proportional", {"launches": 5}, "light_time", "interval_of_few_launches"),
    ],
)
def test_what_has_no_interval_there_says_why(
    method: str, parameters: dict[str, Any], weights: WeightKind, code: str
) -> None:
    found = score_saved(saved(method, parameters), recording(COST, "RTX"), weights=weights)
    assert found.interval is None
    assert found.interval_reason is not None
    assert found.interval_reason.code == code


def test_weights_by_light_time_have_no_interval_where_the_time_is_from() -> None:
    made = saved("proportional", {})
    at_home = score_saved(made, recording(TIME, "V100"))
    assert (at_home.interval, at_home.interval_reason) == (None, make_note("interval_at_home"))
    assert at_home.error_percent == pytest.approx(0, abs=1e-9)


def test_selections_of_earlier_releases_say_nothing_of_their_design() -> None:
    document = select("random", Profile(light=recording(TIME, "V100")), {}, 1).document().to_dict()
    del document["drawing"]
    found = score_saved(SavedSelection.read(document, "s.json"), recording(COST, "RTX"))
    assert found.interval_reason == make_note("interval_of_unknown_design")


def test_campaigns_score_with_the_interval_too() -> None:
    here, there = recording(TIME, "V100"), recording(COST, "RTX")
    made = select("stratified", Profile(light=here), {"launches": 40, "launches_per_group": 8}, 1)
    found, _ = score_on(made, there, reference=here)
    again = score_saved(saved("stratified", {"launches": 40, "launches_per_group": 8}), there)
    assert found.weights == again.weights == "light_time"
    assert found.interval is not None
    assert again.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx(
        (again.interval.low, again.interval.high)
    )


def test_zero_light_times_are_counted_and_survive_saving() -> None:
    times = TIME.copy()
    times[:3] = 0
    selection = select("random", Profile(light=recording(times, "V100")), {"launches": 40}, 1)
    again = SavedSelection.read(json.loads(json.dumps(selection.document(labels=True).to_dict())), "s.json")
    assert again.design is not None
    assert again.design.launches_without_time == 3
    if "light_time" in again.weight_kinds:
        found = score_saved(again, recording(COST, "RTX"), weights="light_time")
        assert found.interval_reason == make_note("interval_of_launches_without_time", launches=3)
    assert score_saved(again, recording(COST, "RTX"), weights="launches").interval is not None
    drawn = select("proportional", Profile(light=recording(times, "V100")), {}, 1)
    assert drawn.design is not None
    found, _ = score_on(drawn, recording(COST, "RTX"), reference=recording(times, "V100"))
    assert found.interval_reason == make_note("interval_of_launches_without_time", launches=3)


def test_gpus_without_names_are_not_taken_for_one_gpu() -> None:
    made = select("stratified", Profile(light=recording(TIME, "")), {"launches_per_group": 8}, 1)
    again = SavedSelection.read(json.loads(json.dumps(made.document(labels=True).to_dict())), "s.json")
    assert again.document.profile.devices == ["device 0"]
    other = replace(recording(COST, ""), sources=("other.json",))
    assert score_saved(again, other).weights == "light_time"
    # The file that it was made on is that GPU, whatever its name.
    document = made.document(labels=True).to_dict()
    document["profile"]["sources"] = ["here.json"]
    same = replace(recording(TIME, ""), sources=("here.json",))
    assert score_saved(SavedSelection.read(document, "s.json"), same).weights == "launches"
    assert score_saved(SavedSelection.read(document, "s.json"), other).weights == "light_time"


def _twice(document: dict[str, Any]) -> None:
    document["groups"][0]["representatives"][1] = dict(document["groups"][0]["representatives"][0])


def _emptied(document: dict[str, Any]) -> None:
    document["groups"][1]["representatives"] = []


def _proportional(document: dict[str, Any]) -> None:
    document["drawing"] = "proportional"


def _of_light_time(document: dict[str, Any]) -> None:
    document["weights"] = {"here": "light_time", "elsewhere": "light_time"}


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (_twice, "a launch is a representative twice"),
        (_emptied, "a group of launches has no representative"),
        (_proportional, "drawing is proportional, and a representative has no draws"),
        (_of_light_time, "weights.here is light_time, and its weights are not those by light time"),
    ],
)
def test_selections_edited_by_hand_are_refused_with_file_and_reason(
    edit: Callable[[dict[str, Any]], None], said: str
) -> None:
    made = select("stratified", Profile(light=recording(TIME, "V100")), {"launches_per_group": 8}, 1)
    document = json.loads(json.dumps(made.document(labels=True).to_dict()))
    SavedSelection.read(document, "edited.json")
    edit(document)
    with pytest.raises(InputError, match=said) as caught:
        SavedSelection.read(document, "edited.json")
    assert caught.value.subject == "edited.json"
