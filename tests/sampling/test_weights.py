"""Weights by light time: the formula, what is refused, which weights are used where, and fair draws."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from assay_sampling.counters.simulated import simulated_counters
from assay_sampling.errors import InputError, MisalignedError, ParameterError, RefusedError
from assay_sampling.estimation.light_time_draws import draw_by_light_time, drawn_weights
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.launches.table import Condition, Device, TableMetadata
from assay_sampling.methods import registry
from assay_sampling.methods.baselines.random_sampling import RandomParameters, RandomSampler
from assay_sampling.methods.registry import samplers, select
from assay_sampling.scoring.carried import score_on, score_on_by_weights
from assay_sampling.scoring.saved_selection import SavedSelection
from assay_sampling.scoring.selection import Selection
from assay_sampling.scoring.weights import WeightRule, light_time_of, light_time_weights, mean_light_time
from tests.support.sampling.counted_launches import counted_launches, table2_launches
from tests.support.sampling.made_launches import made_launches
from tests.support.sampling.published import PUBLISHED_PKS
from tests.support.sampling.saved_scores import score_relative, score_saved

KERNELS = ["a", "a", "a", "b", "b", "b"]
SYNTHETIC = TableMetadata("light", origin="synthetic")


def light(durations: list[int], device: str = "V100", **changed: Any) -> Launches:
    condition = changed.pop("condition", Condition("none", "none", 100.0))
    metadata = TableMetadata("light", condition=condition, devices=(Device(0, device),))
    kernels = changed.pop("kernels", KERNELS)
    return made_launches(
        kernels, metadata=metadata, source=device, duration_ns=durations, device=[0] * len(kernels), **changed
    )


def saved(selection: Selection) -> SavedSelection:
    return SavedSelection.read(json.loads(json.dumps(selection.document(labels=True).to_dict())), "s.json")


def by_kernel(launches: Launches, **parameters: Any) -> Selection:
    """One launch drawn of each kernel."""
    asked = {"launches": 2, "launches_per_group": 1, **parameters}
    return select("stratified", Profile(light=launches), asked, seed=1)


def test_the_weight_is_the_light_time_of_the_group_over_that_of_its_representatives() -> None:
    time = np.array([10.0, 30.0, 60.0, 5.0, 15.0])
    labels = np.array([0, 0, 0, 1, 1])
    assert light_time_weights(time, labels, np.array([1, 4])).tolist() == [100 / 30, 20 / 15]
    assert light_time_weights(time, labels, np.array([0, 2, 3])).tolist() == [100 / 70, 100 / 70, 20 / 5]


@pytest.mark.parametrize("missing", [0.0, -3.0, np.nan])
def test_a_representative_without_positive_light_time_is_refused(missing: float) -> None:
    time = np.array([10.0, missing, 60.0])
    with pytest.raises(RefusedError, match="row 1"):
        light_time_weights(time, np.zeros(3, int), np.array([0, 1]))
    assert light_time_weights(np.array([10.0, 0.0, 30.0]), np.zeros(3, int), np.array([0])).tolist() == [4.0]


@given(st.lists(st.tuples(st.integers(1, 10**9), st.integers(0, 3)), min_size=1, max_size=40), st.data())
def test_on_the_light_run_itself_the_projection_is_the_total(
    launches: list[tuple[int, int]], data: st.DataObject
) -> None:
    time = np.array([float(t) for t, _ in launches])
    _, labels = np.unique([g for _, g in launches], return_inverse=True)
    rows = np.array(
        [data.draw(st.sampled_from(np.flatnonzero(labels == g).tolist())) for g in range(labels.max() + 1)]
    )
    weights = light_time_weights(time, labels, rows)
    assert (weights * time[rows]).sum() == pytest.approx(time.sum())


def test_the_light_time_is_that_of_a_light_run_alone() -> None:
    assert light_time_of(light([1, 2, 3, 4, 5, 6])).tolist() == [1, 2, 3, 4, 5, 6]  # type: ignore[union-attr]
    profiled = made_launches(KERNELS, metadata=TableMetadata("detailed"), duration_ns=[1] * 6)
    assert light_time_of(profiled) is None
    assert light_time_of(made_launches(KERNELS)) is None


def test_the_light_time_of_a_simulator_is_its_active_cycles() -> None:
    counters = [each.column() for each in simulated_counters().values() if each.name.startswith("cycles_")]
    cycles = {"cycles_simulated": [5010.0, 5020.0], "cycles_simulated_active": [10.0, 20.0]}
    made = made_launches(
        ["a", "a"], counters=counters, metadata=TableMetadata("detailed", origin="simulated"), **cycles
    )
    found = light_time_of(made)
    assert found is not None
    assert found.tolist() == [10.0, 20.0]


def test_with_repeats_the_mean_over_the_light_runs_counts() -> None:
    first, again = light([10, 20, 30, 1, 1, 1]), light([30, 20, 10, 3, 3, 3])
    assert mean_light_time([first, again]).tolist() == [20, 20, 20, 2, 2, 2]
    found = select(
        "stratified", Profile(light=first, repeats=(again,)), {"launches_per_group": 1, "launches": 2}, 1
    )
    assert found.light_time_weights is not None
    assert found.light_time_weights.tolist() == [3.0, 3.0]
    other = light([1] * 6, kernels=["a", "b", "a", "b", "b", "b"])
    with pytest.raises(MisalignedError, match="repeats"):
        mean_light_time([first, other])


@pytest.mark.parametrize("method", sorted(samplers()))
def test_every_method_takes_the_parameter_and_gives_both_weights(method: str) -> None:
    launches = light([10, 20, 30, 1, 2, 3] * 20, kernels=KERNELS * 20)
    if method in ("pks", "photon", "sieve", "tbpoint", "first_instructions", "proportional", "balanced"):
        pytest.skip("tested apart: it needs counters or vectors, or has weights by light time alone")
    parameters = {"iteration_launches": 6} if method == "single_iteration" else {}
    for asked in (None, "launches", "light_time"):
        found = select(method, Profile(light=launches), {**parameters, "weights": asked}, 3)
        assert found.weights.elsewhere == (asked or "light_time")
        assert found.weights.here == "launches"
        rows, labels, time = found.representatives.row, found.labels, launches.column("duration_ns")
        assert labels is not None
        assert found.light_time_weights is not None
        of = drawn_weights if found.drawing == "light_time" else light_time_weights
        assert found.light_time_weights == pytest.approx(of(time, labels, rows))
        document = found.document().to_dict()
        assert document["weights"] == {"here": "launches", "elsewhere": asked or "light_time"}
        written = [e["light_time_weight"] for g in document["groups"] for e in g["representatives"]]
        assert sorted(written) == sorted(found.light_time_weights.tolist())
        assert "light_time_weight" in found.to_csv().splitlines()[0]


def test_without_a_light_run_there_are_no_weights_by_light_time() -> None:
    profiled = made_launches(KERNELS, metadata=TableMetadata("detailed"), duration_ns=[5] * 6)
    found = select("random", Profile(detailed=profiled), {"launches": 2})
    assert found.light_time_weights is None
    assert found.weights.elsewhere == "launches"
    assert found.document().to_dict()["groups"][0]["representatives"][0]["light_time_weight"] is None
    with pytest.raises(RefusedError, match="needs a light run"):
        select("random", Profile(detailed=profiled), {"weights": "light_time"})
    with pytest.raises(ParameterError, match="no weights by instructions"):
        select("random", Profile(detailed=profiled), {"weights": "instructions"})


def test_a_representative_without_time_leaves_the_other_weights_and_says_so() -> None:
    launches = light([0, 0, 0, 5, 5, 5])
    found = by_kernel(launches)
    assert found.light_time_weights is None
    assert [note.code for note in found.warnings] == ["no_light_time_weights"]
    with pytest.raises(ParameterError, match="no weights by light time"):
        score_saved(saved(found), light([1] * 6, "A100"), weights="light_time")
    with pytest.raises(RefusedError, match="no light time"):
        by_kernel(launches, weights="light_time")


def test_another_gpu_or_condition_is_scored_by_light_time_and_the_own_profile_is_not() -> None:
    launches = light([10, 12, 40, 5, 5, 5])
    found = by_kernel(launches)
    text = saved(found)
    assert score_saved(text, launches).weights == "launches"
    assert score_saved(text, launches).error_percent == pytest.approx(found.evaluation.error_percent)
    locked = light([10, 12, 40, 5, 5, 5], condition=Condition("none", "base", 100.0))
    unrecorded = light([10, 12, 40, 5, 5, 5], condition=Condition())
    assert score_saved(text, locked).weights == "light_time"
    assert score_saved(text, unrecorded).weights == "launches"
    # Everything takes twice as long: ratios are equal, so light time projects exactly, launches do not.
    slow = light([20, 24, 80, 10, 10, 10], "T4")
    assert score_saved(text, slow).weights == "light_time"
    assert score_saved(text, slow).error_percent == pytest.approx(0)
    assert score_saved(text, slow, weights="launches").error_percent > 1
    assert score_on(found, slow, reference=launches)[0].error_percent == pytest.approx(0)
    both, _ = score_on_by_weights(found, slow, reference=launches)
    assert list(both) == ["launches", "light_time"]
    with pytest.raises(ParameterError, match="instructions"):
        score_saved(text, slow, weights="instructions")


def test_a_method_with_weights_by_light_time_alone_names_them_once() -> None:
    launches = light([10, 20, 30, 5, 5, 5])
    with pytest.raises(ParameterError, match=r"use light_time$"):
        select("proportional", Profile(detailed=launches), {"weights": "launches"})
    found = select("proportional", Profile(detailed=launches), {"launches": 3})
    with pytest.raises(ParameterError, match=r"use light_time$"):
        score_saved(saved(found), light([20, 40, 60, 10, 10, 10], "T4"), weights="launches")


def test_a_selection_that_is_to_use_weights_it_lacks_is_no_selection() -> None:
    document = by_kernel(light([10, 20, 30, 5, 5, 5])).document(labels=True).to_dict()
    document["weights"]["elsewhere"] = "instructions"
    with pytest.raises(InputError, match=r"weights\.elsewhere is instructions"):
        SavedSelection.read(document, "edited.json")


def test_draws_that_no_number_holds_are_refused_in_words() -> None:
    found = select("proportional", Profile(detailed=light([10, 20, 30, 5, 5, 5])), {"launches": 3})
    document = found.document(labels=True).to_dict()
    document["groups"][0]["representatives"][0]["draws"] = 10**30
    with pytest.raises(InputError, match="has more than 1,099,511,627,776 draws"):
        SavedSelection.read(document, "edited.json")


def test_asked_for_launches_they_are_used_everywhere() -> None:
    launches = light([10, 20, 30, 5, 5, 5])
    found = by_kernel(launches, weights="launches")
    assert score_saved(saved(found), light([20, 40, 60, 10, 10, 10], "T4")).weights == "launches"
    assert found.light_time_weights is not None


def test_a_speedup_has_the_same_weights_on_both_sides() -> None:
    launches, slow = light([10, 20, 30, 5, 5, 5]), light([20, 40, 60, 15, 15, 15], "T4")
    text = saved(by_kernel(launches))
    found = score_relative(text, launches, slow)
    assert (found.first.weights, found.second.weights) == ("light_time", "light_time")
    assert found.first.error_percent == pytest.approx(0)
    assert found.speedup_predicted == pytest.approx(75 / 165)
    assert score_relative(text, launches, launches).first.weights == "launches"


def test_selections_of_earlier_releases_have_weights_by_launches() -> None:
    document = by_kernel(light([10, 20, 30, 5, 5, 5])).document(labels=True).to_dict()
    del document["weights"]
    for group in document["groups"]:
        for entry in group["representatives"]:
            del entry["light_time_weight"]
    old = SavedSelection.read(document, "old.json")
    assert score_saved(old, light([20, 40, 60, 10, 10, 10], "T4")).weights == "launches"


def test_launches_are_drawn_in_proportion_to_their_light_time_and_long_ones_whole() -> None:
    """The launch of 20 is longer than half of the 30 and taken whole, that of 6 longer than the other half of
    the 10 that are left: then one of three is drawn."""
    time = np.array([1.0, 20.0, 1.0, 2.0, 6.0])
    rng, draws = np.random.default_rng(0), 4_000
    drawn = [tuple(draw_by_light_time(np.zeros(5, int), 3, time, rng).tolist()) for _ in range(draws)]
    for row, chance in ((0, 1 / 4), (1, 1), (2, 1 / 4), (3, 2 / 4), (4, 1)):
        share = sum(row in rows for rows in drawn) / draws
        assert share == pytest.approx(chance, abs=4 * np.sqrt(chance * (1 - chance) / draws))
        for rows in {rows for rows in drawn if row in rows}:
            assert drawn_weights(time, np.zeros(5, int), np.array(rows))[rows.index(row)] == 1 / chance


@given(st.lists(st.floats(0.1, 100), min_size=2, max_size=40), st.integers(1, 6), st.integers(0, 2**32))
def test_each_step_of_light_time_in_order_of_size_meets_one_launch(
    times: list[float], steps: int, seed: int
) -> None:
    time, labels = np.array(times), np.zeros(len(times), int)
    rows = draw_by_light_time(labels, steps, time, np.random.default_rng(seed))
    weights = drawn_weights(time, labels, rows)
    # Together they stand for the light time of all.
    assert weights @ time[rows] == pytest.approx(time.sum())
    whole, drawn = rows[weights == 1], rows[weights > 1]
    if not len(drawn):
        return
    left = np.setdiff1d(np.arange(len(time)), whole)
    order = left[np.argsort(time[left], kind="stable")]
    ends = np.cumsum(time[order]) / (time[left].sum() / len(drawn))
    place = np.sort([int(np.flatnonzero(order == row)[0]) for row in drawn])
    begins = np.concatenate([[0], ends])[place]
    assert (begins < np.arange(len(drawn)) + 1).all()
    assert (ends[place] > np.arange(len(drawn)) - 1e-9).all()


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), min_size=1, max_size=60),
    st.integers(1, 5), st.integers(0, 2**32),
)  # fmt: skip
def test_as_many_are_drawn_of_each_group_as_it_has(
    launches: list[tuple[int, int]], wanted: int, seed: int
) -> None:
    _, labels = np.unique([g for g, _ in launches], return_inverse=True)
    time = np.array([float(t) for _, t in launches])
    timed = np.bincount(labels[time > 0], minlength=labels.max() + 1)
    if (timed == 0).any():
        with pytest.raises(RefusedError, match="light time"):
            draw_by_light_time(labels, wanted, time, np.random.default_rng(seed))
        return
    rows = draw_by_light_time(labels, wanted, time, np.random.default_rng(seed))
    assert (np.diff(rows) > 0).all()
    assert (time[rows] > 0).all()
    assert np.bincount(labels[rows], minlength=len(timed)).tolist() == np.minimum(timed, wanted).tolist()


@pytest.mark.parametrize("method", ["random", "systematic", "stratified"])
def test_methods_draw_without_bias_for_another_gpu(method: str) -> None:
    """On the target a launch costs 100 and its time: drawn uniformly, short launches would count too much."""
    rng = np.random.default_rng(2)
    durations = rng.choice([1, 10, 400], 60, p=[0.6, 0.3, 0.1])
    launches = light(durations.tolist(), kernels=["k"] * 60)
    cost = 100.0 + durations
    projected = []
    for seed in range(200):
        asked = {
            "launches": 3,
            "weights": "light_time",
            **({"launches_per_group": 3} if method == "stratified" else {}),
        }
        found = select(method, Profile(light=launches), asked, seed)
        assert found.light_time_weights is not None
        projected.append(float(found.light_time_weights @ cost[found.representatives.row]))
    error = np.std(projected) / np.sqrt(len(projected))
    assert abs(np.mean(projected) - cost.sum()) < 4 * error
    with pytest.raises(ParameterError, match="repetitions"):
        select(method, Profile(light=launches), {"weights": "light_time", "repetitions": 3})


def counted(durations: list[int]) -> Profile:
    """Detailed and light runs of the same launches; instructions follow from the kernel and the duration."""
    detailed = counted_launches(
        {"instructions": [10.0 * d for d in durations], "cycles_gpc_avg": [2.0 * d for d in durations]}
    )
    names = ["kernel"] * len(durations)
    return Profile(detailed=detailed, light=made_launches(names, metadata=SYNTHETIC, duration_ns=durations))


def test_sieve_weighs_by_instructions_and_takes_launches_where_they_are_asked_for() -> None:
    profile = counted([10, 11, 12, 30, 31, 90])
    published = select("sieve", profile, {"theta": 10})
    assert (published.weights.here, published.weights.elsewhere) == ("instructions", "light_time")
    assert published.evaluation.weights == "instructions"
    assert published.representatives.weight.tolist() == [184 / 10]
    assert (
        select("sieve", profile, {"theta": 10, "weights": "instructions"}).weights.elsewhere == "instructions"
    )
    by_launches = select("sieve", profile, {"theta": 10, "weights": "launches"})
    assert by_launches.representatives.weight.tolist() == [6.0]
    assert (by_launches.weights.here, by_launches.weights.elsewhere) == ("launches", "launches")
    for each in (published, by_launches):
        assert each.light_time_weights is not None
        assert each.light_time_weights.tolist() == [184 / 10]


@pytest.mark.parametrize(
    ("method", "asked"),
    [("sieve", {"launches_per_group": 3}), ("stem", {}), ("random", {}), ("stratified", {})],
)
def test_launches_drawn_by_light_time_have_no_interval_on_their_own_profile(
    method: str, asked: dict[str, Any]
) -> None:
    durations = [10, 12, 11, 30, 31, 90] * 9
    found = select(method, counted(durations), {"weights": "light_time", **asked}, 1)
    assert found.interval is None
    assert found.interval_reason is not None
    assert found.interval_reason.code == "interval_of_light_time_draw"
    assert found.light_time_weights is not None
    assert found.labels is not None
    expected = drawn_weights(np.array(durations, float), found.labels, found.representatives.row)
    assert found.light_time_weights == pytest.approx(expected)


def test_a_new_signature_adds_its_own_light_time_to_the_group_that_its_label_names() -> None:
    """The window has small launches; behind it the same kernel is launched with a grid that lasts 50 times as
    long. By launches it counts as one small launch, by light time as what it lasts."""
    window = table2_launches(np.zeros((4, 1)), [20.0] * 4)
    durations = [10, 10, 10, 10, 500, 10]
    light_run = made_launches(
        ["kernel"] * 6, metadata=SYNTHETIC, duration_ns=durations, grid_x=[1, 1, 1, 1, 50, 1]
    )
    found = select("pks", Profile(detailed=window, light=light_run), {**PUBLISHED_PKS, "k": 1})
    assert found.group_launches.tolist() == [6]
    assert found.representatives.weight.tolist() == [6.0]
    assert found.light_time_weights is not None
    assert found.light_time_weights.tolist() == [550 / 10]


def test_a_method_of_another_package_gets_both_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plain(BaseModel):
        launches: int = 1

    class Foreign:
        name = "foreign"
        parameters = Plain

        def select(self, profile: Profile, parameters: Plain, *, seed: int) -> Selection:
            asked = RandomParameters(launches=parameters.launches)
            made = RandomSampler().select(profile, asked, seed=seed)
            return replace(made, light_time_weights=None, weights=WeightRule())

    monkeypatch.setattr(registry, "samplers", lambda: {"foreign": Foreign()})
    found = select("foreign", Profile(light=light([10, 20, 30, 5, 5, 5])), {"weights": "launches"})
    assert found.light_time_weights is not None
    assert found.weights.elsewhere == "launches"
    assert select("foreign", Profile(light=light([10] * 6)), {}).weights.elsewhere == "light_time"
    with pytest.raises(ParameterError, match="weights"):
        select("foreign", Profile(light=light([10] * 6)), {"weights": "by hand"})
