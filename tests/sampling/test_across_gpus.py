"""Methods scored on other GPUs at one speedup: the fixed partition, budgets, stars and the recommendation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.errors import MisalignedError, NotJoinableError, RefusedError
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.launches.table import Device, TableMetadata
from assay_sampling.methods.budgets import Budget, value_for_speedup
from assay_sampling.methods.choosing.across_gpus import at_speedup, drawn_at_speedup, draws_for
from assay_sampling.methods.pks import one_level, two_level
from assay_sampling.methods.pks.principal_kernels import PrincipalKernels, principal_kernels
from assay_sampling.methods.registry import select
from assay_sampling.parameters import WeightKind
from assay_sampling.scoring.targets.judging import (
    ContenderElsewhere,
    no_star_elsewhere,
    recommend_elsewhere,
)
from assay_sampling.scoring.targets.matched import Target, Workload, parts_of
from tests.support.sampling.made_launches import made_launches
from tests.support.sampling.odd_workloads import THERE, many_names

KERNELS = ["a", "a", "b", "b", "b", "b"]
HERE = [10.0, 30.0, 5.0, 5.0, 10.0, 20.0]


def recording(
    durations: Sequence[float] | np.ndarray,
    kernels: Sequence[str] = KERNELS,
    gpu: str = "V100",
    **columns: object,
) -> Launches:
    metadata = TableMetadata("light", devices=(Device(0, gpu),))
    return made_launches(
        kernels,
        metadata=metadata,
        source=gpu,
        duration_ns=np.asarray(durations).round().astype(np.int64),
        device=[0] * len(kernels),
        **columns,
    )


def test_parts_are_kernels_and_grids() -> None:
    part, parts = parts_of(recording(HERE, grid_x=[1, 2, 1, 1, 3, 1]))
    assert parts == 4
    assert len(set(part.tolist())) == 4
    assert part[2] == part[3] == part[5]
    assert parts_of(recording(HERE).slice(0, 0))[1] == 0


def test_one_group_over_two_kernels_hides_no_error_by_kernel() -> None:
    """One launch stands for all: the total may be right while both kernels are wrong."""
    here = recording(HERE)
    there = recording([20.0, 60.0, 3.0, 3.0, 4.0, 10.0], gpu="A100")
    target = Target.by_launch(Workload.of(here), here, there, "duration_ns")
    one = select("proportional", Profile(light=here), {})
    assert one.labels is not None
    assert set(one.labels.tolist()) == {0}
    found = target.score(one, "light_time")
    # Kernel a takes twice as long there and b half as long; the one group projects both by one ratio.
    projected = float(one.weights_of("light_time") @ there.floats("duration_ns")[one.representatives.row])
    assert found.signed_error_percent == pytest.approx(100 * (projected - 100) / 100)
    of_a, of_b = projected * 40 / 80, projected * 40 / 80
    assert found.part_error_percent == pytest.approx(abs(of_a - 80) + abs(of_b - 20))


def test_weights_by_launches_spread_a_group_by_launches() -> None:
    here = recording(HERE)
    target = Target.by_launch(
        Workload.of(here), here, recording([*HERE[:-1], 21.0], gpu="A100"), "duration_ns"
    )
    made = select("random", Profile(light=here), {"launches": 6, "weights": "launches"})
    found = target.score(made, "launches")
    assert found.signed_error_percent == pytest.approx(0)
    # 81 for six launches of one group: 27 for the two of a (40 in truth), 54 for the four of b (41).
    assert found.part_error_percent == pytest.approx(100 * (13 + 13) / 81)


def test_launches_without_a_counterpart_count_in_full() -> None:
    kernels = ["a"] * 300
    here = recording(np.full(300, 2.0), kernels)
    there = recording([*np.full(299, 4.0), 100.0], [*kernels[:-1], "new"], gpu="A100")
    target = Target.by_launch(Workload.of(here), here, there, "duration_ns")
    made = select("balanced", Profile(light=here), {"launches": 30})
    found = target.score(made, "light_time")
    truth = 299 * 4 + 100
    assert found.signed_error_percent == pytest.approx(100 * (1200 - truth) / truth)
    # The launch of "a" that has no counterpart is projected, and that of "new" is not.
    assert found.part_error_percent == pytest.approx(100 * (4 + 100) / truth)


def test_recordings_that_do_not_match_are_refused() -> None:
    here = recording(HERE)
    workload = Workload.of(here)
    with pytest.raises(MisalignedError, match="only 0 % of the launches match"):
        Target.by_launch(workload, here, recording(HERE, ["x"] * 6, gpu="A100"), "duration_ns")
    with pytest.raises(MisalignedError, match="different numbers of launches"):
        Target.by_launch(workload, here, recording(HERE[:5], KERNELS[:5], gpu="A100"), "duration_ns")
    with pytest.raises(NotJoinableError, match="the same recording"):
        timed = recording(HERE, start_ns=[100 * row for row in range(6)])
        Target.by_launch(Workload.of(timed), timed, timed, "duration_ns")


@settings(max_examples=60, deadline=None)
@given(st.floats(1.5, 900), st.sampled_from(["larger", "smaller"]), st.booleans())
def test_the_budget_with_the_nearest_speedup_is_taken(wanted: float, faster: str, whole: bool) -> None:
    launches = 1000
    larger = faster == "larger"
    budget = Budget("x", 1, None, "larger" if larger else "smaller", start=20, whole=whole)
    speedup = float if larger else (lambda value: launches / value)
    value = value_for_speedup(budget, wanted, launches, speedup)
    assert 1 <= value <= launches
    found = speedup(value)
    if not whole:
        assert found == pytest.approx(wanted, rel=0.035)
    else:
        better = min(abs(np.log(speedup(near) / wanted)) for near in range(1, launches + 1))
        assert abs(np.log(found / wanted)) <= max(better + 1e-9, np.log(1.03))


def test_a_budget_that_every_value_of_is_refused_raises_the_reason() -> None:
    def refused(_value: float) -> float:
        raise RefusedError("method", "it does not apply")

    with pytest.raises(RefusedError, match="does not apply"):
        value_for_speedup(Budget("x", 1, 10, "larger", start=2), 5, 100, refused)


def made_pair(launches: int) -> tuple[Launches, list[Launches]]:
    rng = np.random.default_rng(5)
    kernel = rng.integers(0, 6, launches)
    names = [f"k{one}" for one in kernel]
    time = 1000 * np.exp(rng.normal(3, 1, 6))[kernel] * np.exp(rng.normal(0, 0.3, launches))
    others = []
    for seed, gpu in enumerate(("A100", "H100")):
        own = np.random.default_rng([9, seed])
        ratio = np.exp(own.normal(0, 0.4, 6))[kernel] * np.exp(own.normal(0, 0.05, launches))
        others.append(recording(time * ratio, names, gpu))
    return recording(time, names), others


def test_methods_come_to_one_speedup_and_say_with_which_parameters() -> None:
    here, others = made_pair(4000)
    targets = [Target.by_launch(Workload.of(here), here, other, "duration_ns") for other in others]
    for method in ("random", "proportional", "balanced", "stem"):
        found = at_speedup(
            method, Profile(light=here), targets,
            parameters={}, weights="light_time", speedup=50, seed=0, draws=5,
        )  # fmt: skip
        assert found.speedup == pytest.approx(50, rel=0.1), method
        assert found.draws == 5
        assert len(found.there) == 2
        again = select(method, Profile(light=here), found.parameters, 0)
        assert again.evaluation.speedup == pytest.approx(50, rel=0.25), method
    fixed = at_speedup(
        "random", Profile(light=here), targets,
        parameters={"launches": 10}, weights="launches", speedup=50, seed=0, draws=5,
    )  # fmt: skip
    assert (fixed.launches, fixed.parameters["launches"]) == (10, 10)


@pytest.mark.parametrize(
    ("method", "kinds"),
    [
        ("random", ("launches", "light_time")), ("proportional", ("light_time",)),
        ("balanced", ("light_time",)), ("stem", ("launches", "light_time")),
    ],
)  # fmt: skip
def test_draws_are_scored_as_the_whole_selections_of_their_seeds(
    method: str, kinds: tuple[WeightKind, ...]
) -> None:
    here, others = made_pair(600)
    profile = Profile(light=here)
    targets = [Target.by_launch(Workload.of(here), here, other, "duration_ns") for other in others]
    for weights in kinds:
        found = at_speedup(
            method, profile, targets, parameters={}, weights=weights, speedup=20, seed=3, draws=4
        )  # fmt: skip
        asked, made = drawn_at_speedup(method, profile, {"weights": weights}, 20, seed=3, draws=4)
        assert asked == found.parameters
        assert len(made) == found.draws
        for index, one in enumerate(made):
            assert one.document().to_dict() == select(method, profile, asked, 3 + index).document().to_dict()
        for target, there in zip(targets, found.there, strict=True):
            signed = [target.score(one, weights).signed_error_percent for one in made]
            assert there.mean_signed_error_percent == pytest.approx(sum(signed) / len(signed))
        assert found.launches == sum(len(one.representatives.row) for one in made) / len(made)


@pytest.mark.parametrize("levels", [1, 2])
def test_pks_groups_once_a_seed_whatever_the_weights_and_the_budget(
    levels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = many_names(600, 6)
    odd = replace(of, blocks=8 << of.kernel, nanoseconds=of.nanoseconds + 1_000 * of.blocks % 997)
    counted, light = odd.counted(), odd.light()
    other = replace(odd, nanoseconds=odd.nanoseconds * (2 + odd.kernel % 3)).light(THERE)
    profile = Profile(counted) if levels == 1 else Profile(counted.take(np.arange(200)), light)
    whole = Workload.of(light)
    target = Target.by_launch(whole, light, other, "duration_ns")
    kinds: tuple[WeightKind, ...] = ("launches",) if levels == 1 else ("launches", "light_time")
    module = one_level if levels == 1 else two_level
    seeds: list[int] = []

    def counting(*given: Any, seed: int, **others: Any) -> PrincipalKernels:
        seeds.append(seed)
        return principal_kernels(*given, seed=seed, **others)

    monkeypatch.setattr(module, "principal_kernels", counting)
    groups: dict[int, Any] = {}
    for weights in kinds:
        given = {"parameters": {}, "weights": weights, "speedup": 4, "seed": 3, "draws": 4}
        found = at_speedup("pks", profile, [target], **given, groups=groups)
        assert (found.draws, found.parameters["launches_per_group"] > 1) == (4, True)
        assert seeds == [3, 4, 5, 6]
        assert found == at_speedup("pks", profile, [target], **given)
        _, made = drawn_at_speedup("pks", profile, {"weights": weights}, 4, seed=3, draws=4)
        for index, one in enumerate(made):
            alone = select("pks", profile, found.parameters, 3 + index)
            assert one.document().to_dict() == alone.document().to_dict()
        seeds[:] = [3, 4, 5, 6]


def test_large_workloads_get_fewer_draws() -> None:
    assert (draws_for(100), draws_for(20_000), draws_for(10**7)) == (60, 20, 10)


def contender(method: str, total: float, part: float | None, speedup: float = 100.0) -> ContenderElsewhere:
    return ContenderElsewhere.of(method, "light_time", speedup, [(total / 2, part), (total, part)])


def test_a_star_is_given_by_both_errors_at_one_speedup() -> None:
    low = contender("low", 1.0, 9.0)
    even = contender("even", 2.0, 4.0)
    mixed = contender("mixed", 0.2, 26.0)
    beaten = contender("beaten", 2.0, 5.0)
    slow = contender("slow", 0.1, 0.1, speedup=50)
    far = contender("far", 30.0, 3.0)
    blind = contender("blind", 0.5, None)
    every = [low, even, beaten, slow, far, blind, mixed]
    against = {each.method: no_star_elsewhere(each, every, 100.0) for each in every}
    assert against["low"] is None
    assert against["even"] is None
    codes = {name: note.code for name, note in against.items() if note is not None}
    assert codes == {
        "beaten": "beaten_elsewhere", "slow": "slower_than_compared", "far": "error_above_most",
        "blind": "groups_unknown", "mixed": "error_above_most",
    }  # fmt: skip
    advice, best = recommend_elsewhere(every, 2, 100.0)
    # 2 / 3 and 4 / 6 of the goals against 9 / 6.
    assert (advice.method, best) == ("even", even)
    assert "by 2 other GPUs: at most 2.00 % off in total and 4.00 % by kernel and grid" in advice.reason.text
    assert (even.mean_error_percent, even.worst_error_percent) == (1.5, 2.0)


def test_without_one_speedup_a_faster_method_keeps_its_star() -> None:
    fast, exact = contender("fast", 2.0, 5.0, speedup=200), contender("exact", 1.0, 3.0)
    assert no_star_elsewhere(fast, [fast, exact]) is None
    assert no_star_elsewhere(exact, [fast, exact]) is None
    assert no_star_elsewhere(fast, [fast, exact], 100.0) is not None
    missed = contender("missed", 4.0, 3.0)
    advice, _ = recommend_elsewhere([missed], 1)
    assert "that misses the goals of 3 % and 6 %" in advice.reason.text
    nothing, best = recommend_elsewhere([contender("far", 40.0, 40.0)], 1)
    assert (nothing.method, best) == (None, None)
