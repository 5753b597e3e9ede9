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
from assay_sampling.estimation.sample_design import SampleDesign, cost_cov, distinct_kernels
from assay_sampling.estimation.student_t import t_quantile
from assay_sampling.estimation.target_intervals import LEAST_LAUNCHES, LEAST_RESIDUALS, target_interval
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.launches.table import Device, TableMetadata
from assay_sampling.methods.registry import select
from assay_sampling.notes.registry import make_note
from assay_sampling.parameters import WeightKind
from assay_sampling.scoring.carried import score_on
from assay_sampling.scoring.elsewhere import score_saved
from assay_sampling.scoring.selection import SavedSelection
from tests.support.sampling.made_launches import made_launches

Z = t_quantile(0.975, math.inf)


def design(sizes: list[int], drawing: str = "uniform", cov: float = 0.0, **more: object) -> SampleDesign:
    made = SampleDesign("uniform", np.array(sizes), np.ones(len(sizes), int), np.full(len(sizes), cov))
    return replace(made, drawing=drawing, **more)  # type: ignore[arg-type]


def by_launches(plan: SampleDesign, costs: np.ndarray, groups: np.ndarray) -> Interval:
    weights = (plan.launches / np.bincount(groups))[groups]
    found, reason = target_interval(
        plan, costs, groups, weights, kind="launches", kernels=np.zeros(len(costs))
    )
    assert reason is None
    assert found is not None
    return found


def half(found: Interval) -> float:
    return (found.high - found.low) / 2


def test_the_spread_of_the_drawn_launches_and_that_of_the_profile_are_what_they_say() -> None:
    costs, groups = np.array([4.0, 6.0, 5.0, 5.0, 5.0]), np.zeros(5, int)
    own = 100 * math.sqrt((1 - 5 / 100) * costs.var(ddof=1) / 5)
    found = by_launches(design([100], cov=0.01), costs, groups)
    assert half(found) == pytest.approx(t_quantile(0.975, 4) * own)
    assert (found.low + found.high) / 2 == pytest.approx(500)
    # The profile's variation of 60 % of a mean of 5 is wider than what these five show.
    carried = 100 * math.sqrt((1 - 5 / 100) * 9 / 5)
    wide = by_launches(design([100], cov=0.6), costs, groups)
    assert half(wide) == pytest.approx(Z * carried)
    assert wide.expected_error_percent == pytest.approx(100 * math.sqrt(2 / math.pi) * carried / 500)
    assert wide.basis == "target_spread"


def test_equal_launches_do_not_hide_what_the_profile_saw() -> None:
    costs, groups = np.full(LEAST_LAUNCHES, 5.0), np.zeros(LEAST_LAUNCHES, int)
    assert half(by_launches(design([50], cov=0.0), costs, groups)) == 0
    assert half(by_launches(design([50], cov=0.3), costs, groups)) > 50


def test_groups_taken_whole_add_nothing() -> None:
    costs, groups = np.array([5.0, 9.0, 1.0, 1.0, 1.0, 1.0, 1.0]), np.array([0, 0, 1, 1, 1, 1, 1])
    found = by_launches(design([2, 8], cov=0.0), costs, groups)
    assert (found.low, found.high) == pytest.approx((22, 22))


def test_residuals_are_those_of_the_ratio_as_hc3_has_them() -> None:
    time = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    costs = np.array([2.0, 5.0, 6.0, 7.0, 11.0, 11.0, 13.0, 17.0])
    ratio = costs.sum() / time.sum()
    weights = np.full(8, 10.0)  # the group has ten times the light time of the drawn launches
    enlarged = math.sqrt(7 / 8) / (1 - time / time.sum())
    squares = np.square((costs - ratio * time) * enlarged / costs.mean()).sum()
    expected = 10 * costs.sum() * math.sqrt((1 - 8 / 80) * squares / 7 / 8)
    plan = design([80], "light_time", light_time=time)
    found, _ = target_interval(plan, costs, np.zeros(8, int), weights, kind="light_time", kernels=np.zeros(8))
    assert found is not None
    assert half(found) == pytest.approx(t_quantile(0.975, 7) * expected)
    assert found.basis == "target_residuals"
    # Weights by instructions are the same estimator of another amount.
    again, _ = target_interval(
        design([80]),
        costs,
        np.zeros(8, int),
        weights,
        kind="instructions",
        kernels=np.zeros(8),
        instructions=time,
    )
    assert again is not None
    assert again == found


def test_groups_of_one_kernel_pool_their_residuals_and_mixed_groups_do_not() -> None:
    groups, kernels = np.repeat([0, 1], 4), np.zeros(8)
    costs, time = np.array([1.0, 2, 3, 4, 10, 20, 31, 40]), np.array([1.0, 2, 3, 4, 1, 2, 3, 4])
    plan = design([30, 30], "light_time", light_time=time)
    found, _ = target_interval(plan, costs, groups, np.full(8, 10.0), kind="light_time", kernels=kernels)
    assert found is not None
    too_few = make_note("interval_of_few_residuals", least=LEAST_RESIDUALS)
    for changed, ids in ((np.array([1, 2]), kernels), (np.array([1, 1]), groups)):
        apart = replace(plan, kernels=changed)
        assert target_interval(apart, costs, groups, np.full(8, 10.0), kind="light_time", kernels=ids) == (
            None,
            too_few,
        )


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
        found, reason = target_interval(plan, costs, groups, weights, kind=kind, kernels=groups)  # type: ignore[arg-type]
        reasons.add(reason)
        assert found is None or found.low >= costs.sum()
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
    ],
)
def test_what_has_no_interval_says_why(plan: SampleDesign, kind: str, reason: object) -> None:
    costs = np.arange(1.0, 7)
    found = target_interval(plan, costs, np.zeros(6, int), np.ones(6), kind=kind, kernels=np.zeros(6))  # type: ignore[arg-type]
    assert found == (None, reason)


def test_one_launch_of_several_has_no_spread() -> None:
    found, reason = target_interval(
        design([9]), np.ones(1), np.zeros(1, int), np.full(1, 9.0), kind="launches", kernels=np.zeros(1)
    )
    assert found is None
    assert reason == make_note("interval_of_single_launch")


def test_few_launches_may_all_miss_the_slow_ones_of_the_target() -> None:
    few, groups = np.full(LEAST_LAUNCHES - 1, 5.0), np.zeros(LEAST_LAUNCHES - 1, int)
    weights = np.full(len(few), 99 / len(few))
    found = target_interval(design([99], cov=0.3), few, groups, weights, kind="launches", kernels=groups)
    assert found == (None, make_note("interval_of_few_launches", least=LEAST_LAUNCHES))
    # Two groups of one kernel have them together.
    both = np.repeat([0, 1], [2, 3])
    found = target_interval(
        design([99, 9], cov=0.3), np.full(5, 5.0), both, np.ones(5), kind="launches", kernels=np.zeros(5)
    )
    assert found[0] is not None


def test_launches_without_light_time_have_no_interval_by_light_time() -> None:
    reason = make_note("interval_of_launches_without_time", launches=3)
    costs, groups = np.arange(1.0, 41), np.zeros(40, int)
    for drawing in ("light_time", "uniform", "proportional"):
        plan = design([99], drawing, light_time=costs, launches_without_time=3, draws=np.ones(40, int))
        args = (costs, groups, np.full(40, 2.0))
        assert target_interval(plan, *args, kind="light_time", kernels=groups) == (None, reason)
        timed = replace(plan, launches_without_time=0)
        assert target_interval(timed, *args, kind="light_time", kernels=groups)[0] is not None


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
        ("stratified", {"launches": 40, "weights": "light_time"}, "light_time", "target_residuals"),
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
        ("stratified", {"launches": 6}, "light_time", "interval_of_few_residuals"),
        ("stratified", {"weights": "light_time"}, "launches", "interval_of_weights_not_drawn_for"),
        ("proportional", {"launches": 5}, "light_time", "interval_of_few_draws"),
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
