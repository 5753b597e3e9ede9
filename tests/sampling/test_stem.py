"""STEM+ROOT as a method: bound, error, cost beside the authors' artifact; edge cases; real recordings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay_sampling.errors import CounterUnavailableError, ParameterError, RefusedError
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.kernel_values import kernel_values
from assay_sampling.methods.registry import select
from assay_sampling.methods.stem.allocation import allocate
from assay_sampling.methods.stem.root_splits import split_jointly
from assay_sampling.methods.stem.sampler import (
    StemParameters,
    StemSampler,
    as_artifact,
    draw,
    predicted_bound_percent,
    stem,
)
from assay_sampling.notes.registry import make_note
from assay_sampling.readers.opening import read_launches
from assay_sampling.scoring.selection import Selection
from tests.support.sampling.counted_launches import counted_launches
from tests.support.sampling.made_launches import made_launches


def timed(durations: Any, kernels: list[str] | None = None) -> Launches:
    names = ["k"] * len(durations) if kernels is None else kernels
    return made_launches(names, duration_ns=list(durations), source="l.sqlite")


def stemmed(launches: Launches, seed: int = 0, **parameters: Any) -> Selection:
    return select("stem", Profile(light=launches), parameters, seed)


def mixture(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Kernels and durations, synthetic: up to 12 kernels of up to five lognormal modes each."""
    rng = np.random.default_rng(seed)
    kernels, durations = [], []
    for kernel in range(rng.integers(1, 13)):
        for _ in range(rng.integers(1, 6)):
            launches, mean, cov = int(rng.integers(1, 600)), np.exp(rng.uniform(6, 14)), rng.uniform(0, 0.8)
            sigma = np.sqrt(np.log1p(cov**2))
            durations.append(np.round(mean * np.exp(rng.normal(-sigma * sigma / 2, sigma, launches))))
            kernels.append(np.full(launches, kernel))
    return np.concatenate(kernels), np.concatenate(durations)


@pytest.mark.parametrize("mixtures", [50, pytest.param(200, marks=pytest.mark.campaigns)])
def test_mixtures_keep_their_bound_at_a_fraction_of_the_artifact(mixtures: int) -> None:
    parameters = StemParameters()
    within, ours, on_its_leaves, artifact = 0, 0.0, 0.0, 0.0
    for seed in range(mixtures):
        kernel, duration = mixture(seed)
        total = duration.sum()
        values = kernel_values(kernel, duration)
        clusters = stem(values, parameters)
        assert predicted_bound_percent(clusters, parameters) <= 5
        assert (clusters.sampled >= 1).all()
        rows, groups = draw(values.groups(clusters.start), clusters, seed)
        projected = (clusters.moments.launches[groups] / clusters.sampled[groups] * duration[rows]).sum()
        within += abs(projected - total) < 0.05 * total
        theirs = as_artifact(values, parameters)
        same_leaves = allocate(theirs.moments, 0.05 * total, parameters.bound().z, 1).sampled
        ours += clusters.cost() / total
        on_its_leaves += float((same_leaves * theirs.moments.mean).sum()) / total
        artifact += theirs.cost() / total
    assert within >= 0.9 * mixtures
    assert on_its_leaves < 0.7 * artifact
    assert ours < 0.3 * artifact


def test_a_sampler_keeps_clusters_for_other_seeds_and_for_nothing_else() -> None:
    profiles = []
    for seed in (1, 2):
        kernel, duration = mixture(seed)
        profiles.append(Profile(light=timed(duration, [f"k{each}" for each in kernel])))
    asked = [
        (profile, StemParameters(epsilon_percent=epsilon), seed)
        for profile in profiles
        for epsilon in (5, 20)
        for seed in (0, 1)
    ]
    one = StemSampler()
    for profile, parameters, seed in asked * 2:
        again = one.select(profile, parameters, seed=seed).document(labels=True)
        assert again == StemSampler().select(profile, parameters, seed=seed).document(labels=True)


def test_the_predicted_bound_is_how_far_draws_are_off() -> None:
    kernel, duration = mixture(11)
    launches = timed(duration.astype(np.int64), [f"k{k}" for k in kernel])
    selections = [stemmed(launches, seed) for seed in range(60)]
    errors = np.array([s.evaluation.signed_error_percent for s in selections])
    bound = selections[0].extra["predicted_bound_percent"]
    assert 0.75 * bound < 1.96 * np.sqrt(np.mean(errors**2)) < 1.25 * bound
    inside = [s.interval.low <= duration.sum() <= s.interval.high for s in selections if s.interval]
    assert len(inside) == 60
    assert sum(inside) >= 52
    for selection in selections[:3]:
        half = (selection.interval.high - selection.interval.low) / 2  # type: ignore[union-attr]
        assert 100 * half / duration.sum() == pytest.approx(bound, rel=1e-9)
        assert selection.interval.basis == "known_variance"  # type: ignore[union-attr]


def test_weights_add_up_to_the_launches_of_each_cluster() -> None:
    kernel, duration = mixture(3)
    selection = stemmed(timed(duration.astype(np.int64), [f"k{k}" for k in kernel]), 5)
    chosen = selection.representatives
    assert selection.labels is not None
    assert np.array_equal(selection.labels[chosen.row], chosen.group)
    assert np.bincount(chosen.group, chosen.weight) == pytest.approx(selection.group_launches)
    assert len(set(chosen.row.tolist())) == len(chosen.row)
    assert selection.extra["clusters"] == len(selection.group_launches)
    assert selection.extra["clusters_without_sample"] == 0
    assert (
        selection.document().to_dict()
        == stemmed(timed(duration.astype(np.int64), [f"k{k}" for k in kernel]), 5).document().to_dict()
    )
    other = stemmed(timed(duration.astype(np.int64), [f"k{k}" for k in kernel]), 6)
    assert not np.array_equal(other.representatives.row, chosen.row)


def test_a_smaller_epsilon_simulates_more() -> None:
    kernel, duration = mixture(4)
    launches = timed(duration.astype(np.int64), [f"k{k}" for k in kernel])
    speedups = [stemmed(launches, epsilon_percent=e).evaluation.speedup for e in (10, 5, 1, 0.1)]
    assert speedups == sorted(speedups, reverse=True)
    assert stemmed(launches, epsilon_percent=0.1).extra["predicted_bound_percent"] <= 0.1
    least = stemmed(launches, least_samples=4, least_cluster=50)
    sampled = np.bincount(least.representatives.group)
    assert (sampled >= np.minimum(4, least.group_launches)).all()


def test_two_speeds_are_two_clusters_of_one_sample_each() -> None:
    selection = stemmed(timed([100] * 50 + [400] * 50))
    assert selection.group_launches.tolist() == [50, 50]
    assert selection.representatives.weight.tolist() == [50, 50]
    assert selection.evaluation.error_percent == 0
    assert selection.evaluation.speedup == 50


def test_the_artifact_loses_what_it_does_not_sample() -> None:
    # The kernel of equal launches has no sample: its half of the time is missing.
    durations = [100] * 10 + [1000]
    selection = stemmed(timed(durations, ["equal"] * 10 + ["alone"]), variant="artifact")
    assert selection.evaluation.error_percent == 50
    assert selection.extra["clusters_without_sample"] == 1
    assert selection.interval is None
    assert selection.interval_reason == make_note("interval_of_stem_artifact")
    assert selection.document().to_dict()["groups"][0]["representatives"] == []
    with pytest.raises(RefusedError, match="the artifact samples no launches"):
        stemmed(timed([100, 100]), variant="artifact")
    assert stemmed(timed([100, 100])).evaluation.error_percent == 0


def test_the_artifact_divides_where_nothing_is_gained() -> None:
    # Undivided two samples of 103.5 on average, divided one each of 101 and 106: the same 207.
    durations = [100, 102, 105, 107]
    assert stemmed(timed(durations), variant="artifact").group_launches.tolist() == [1, 1, 1, 1]
    assert stemmed(timed(durations)).group_launches.tolist() == [4]


@pytest.mark.parametrize(("gain_percent", "clusters"), [(0.5, 1), (1.5, 2)])
def test_a_division_must_save_one_percent(gain_percent: float, clusters: int) -> None:
    values = kernel_values(np.zeros(100, np.uint64), np.repeat([100.0, 101.0], 50))
    # One sample of each half costs 201; one of all costs 100.5 and a variance of 2,500 / 0.99 x 0.99.
    before = 201 / (1 - gain_percent / 100)
    multiplier = np.sqrt((before - 100.5) / 2500)
    assert len(split_jointly(values, multiplier, 2, 1)) == clusters + 1


def test_the_artifact_groups_by_the_name_before_the_parenthesis() -> None:
    launches = timed([100, 100, 100, 7], ["f(int)", "f(int)", "f(float)", "g(int)"])
    assert stemmed(launches).group_launches.tolist() == [2, 1, 1]
    assert stemmed(launches, variant="artifact").group_launches.tolist() == [3, 1]


def test_cycles_or_nanoseconds() -> None:
    launches = counted_launches(
        {"cycles_gpc_avg": [5.0, 6.0], "cycles_gpc_max": [7.0, 9.0]}, duration_ns=[50, 60]
    )
    profile = Profile(detailed=launches)
    assert select("stem", profile, {}).evaluation.quantity == "cycles_gpc_avg"
    assert select("stem", profile, {}).parameters["cost"] == "cycles_gpc_avg"
    assert select("stem", profile, {"cost": "cycles_gpc_max"}).evaluation.total == 16
    assert select("stem", profile, {"cost": "duration_ns"}).evaluation.total == 110
    with pytest.raises(CounterUnavailableError, match="'cycles_sys_avg' was not measured"):
        select("stem", profile, {"cost": "cycles_sys_avg"})


@pytest.mark.parametrize(
    ("parameters", "shown"),
    [
        ({"epsilon_percent": 0}, "greater than 0"),
        ({"confidence": 1}, "less than 1"),
        ({"least_samples": 0}, "greater than or equal to 1"),
        ({"variant": "paper"}, "'sound' or 'artifact'"),
        ({"cost": "instructions"}, "parameter 'cost'"),
    ],
)
def test_wrong_parameters_are_named(parameters: dict[str, Any], shown: str) -> None:
    with pytest.raises(ParameterError, match=shown):
        stemmed(timed([1, 2]), **parameters)


def test_launches_that_cannot_be_sampled_are_refused() -> None:
    with pytest.raises(RefusedError, match="holds no launches"):
        stemmed(timed([1]).slice(0, 0))
    with pytest.raises(CounterUnavailableError, match="'duration_ns' was not measured"):
        stemmed(timed([1, None]))
    with pytest.raises(RefusedError, match="launch 1 of process 0 has the negative cost -3"):
        stemmed(timed([1, -3]))
    with pytest.raises(RefusedError, match=r"launch 1 .*cost nan"):
        select("stem", Profile(detailed=counted_launches({"cycles_gpc_avg": np.array([1.0, np.nan])})), {})


def test_one_launch_and_equal_launches_are_projected_exactly() -> None:
    one = stemmed(timed([9]))
    assert (one.evaluation.error_percent, one.evaluation.speedup) == (0, 1)
    equal = stemmed(timed([7] * 40))
    assert (equal.evaluation.error_percent, equal.evaluation.speedup) == (0, 40)
    assert equal.extra["predicted_bound_percent"] == 0
    assert equal.interval is not None
    assert equal.interval.low == equal.interval.high == 280


def test_launches_that_take_no_time_are_no_trouble() -> None:
    selection = stemmed(timed([0] * 20 + [10, 11], ["nothing"] * 20 + ["some"] * 2))
    assert selection.evaluation.error_percent < 5.1


def test_durations_of_ten_to_the_twelve_do_not_overflow_or_cancel() -> None:
    durations = [10**12 + i % 3 for i in range(900)]
    selection = stemmed(timed(durations), epsilon_percent=1e-11)
    assert selection.extra["predicted_bound_percent"] <= 1e-11
    assert selection.evaluation.error_percent < 2e-11


def test_kernels_whose_names_differ_late_are_two() -> None:
    names = ["void f<" + "int, " * 1000 + last + ">()" for last in ("float", "double")]
    assert stemmed(timed([5, 5], names)).group_launches.tolist() == [1, 1]


@pytest.mark.shared_data
@pytest.mark.parametrize(
    "recording",
    [
        "nsys/a100_nerf_1106_kernels.sqlite",
        "kineto/a100_input_dims_8568_kernels.json.gz",
        "kineto/v100_input_dims_9876_kernels.json.gz",
        "kineto/v100_training_19370_kernels.json.gz",
    ],
)
def test_real_recordings_keep_their_bound(shared_data: Path, recording: str) -> None:
    launches = read_launches(shared_data / recording)
    duration = launches.column("duration_ns").astype(np.float64)
    values = kernel_values(launches.column("kernel_id"), duration)
    parameters = StemParameters()
    clusters = stem(values, parameters)
    bound = predicted_bound_percent(clusters, parameters)
    assert bound <= 5
    labels, errors = values.groups(clusters.start), []
    for seed in range(300):
        rows, groups = draw(labels, clusters, seed)
        weights = clusters.moments.launches[groups] / clusters.sampled[groups]
        errors.append(100 * ((weights * duration[rows]).sum() / duration.sum() - 1))
    assert np.mean(np.abs(errors) < 5) >= 0.93
    assert 0.85 * bound < 1.96 * np.sqrt(np.mean(np.square(errors))) < 1.15 * bound
    profile = Profile(light=launches)
    stratified = [select("stratified", profile, {}, seed).evaluation for seed in range(10)]
    drawn = [select("random", profile, {}, seed).evaluation for seed in range(10)]
    for others in (stratified, drawn):
        assert np.mean(np.abs(errors)) < 0.3 * np.mean([e.error_percent for e in others])
