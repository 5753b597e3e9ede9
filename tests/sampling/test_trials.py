"""Fair scores: tries over draws and halves, stars that luck does not earn, and the recommendation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.methods import registry
from assay_sampling.methods.tried import Tried, try_seeds
from assay_sampling.readers.base import ReadOptions
from assay_sampling.readers.opening import read_launches
from assay_sampling.scoring.fair import Contender, Fair, no_star, recommend
from assay_sampling.scoring.selection import Selection
from assay_sampling.scoring.trials import Trials, drawn_trials, random_half, trials_for
from tests.support.sampling.counted_launches import table2_launches
from tests.support.sampling.published import PUBLISHED_PKS

FEATURES = 12


def fair(error: float, speedup: float, **changed: Any) -> Fair:
    given: dict[str, Any] = {"basis": "draws", "trials": 30, "mean_signed_error_percent": 0.0,
                             "coverage_percent": None, **changed}  # fmt: skip
    return Fair(error_percent=error, speedup=speedup, **given)


def contenders(**scores: Fair) -> list[Contender]:
    return [Contender(name, "duration_ns", score) for name, score in scores.items()]


def test_error_is_a_root_mean_square_and_speedup_a_ratio_of_means() -> None:
    found = Trials("draws", 100.0, np.array([3.0, -4.0]), np.array([1.0, 4.0]), np.array([True, False]))
    assert found.error_percent == pytest.approx(np.sqrt(12.5))
    assert found.speedup == 40.0  # the mean of the two speedups would be 62.5
    assert found.coverage_percent == 50.0


def test_draws_are_scored_by_their_projection_and_their_own_interval() -> None:
    costs = np.array([1.0, 2.0, 3.0, 4.0])
    rows = iter([0, 3])

    def draw(rng: np.random.Generator) -> Any:
        row = next(rows)
        return np.array([row]), np.array([4.0]), (0.0, 4.0 * costs[row])

    found = drawn_trials(costs, draw, seed=0, count=2)
    assert found.signed_error_percent.tolist() == pytest.approx([-60.0, 60.0])
    assert found.simulated.tolist() == [1.0, 4.0]
    assert found.in_interval is not None
    assert found.in_interval.tolist() == [False, True]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=60), st.integers(0, 99))
def test_a_half_holds_half_of_the_launches_of_each_label(labels: list[int], seed: int) -> None:
    _, found = np.unique(labels, return_inverse=True)
    first = random_half(found, np.random.default_rng(seed))
    for label in range(int(found.max()) + 1):
        assert abs(2 * int(first[found == label].sum()) - int((found == label).sum())) <= 1


def test_tries_shrink_with_the_launches_and_never_below_thirty() -> None:
    assert (trials_for(79), trials_for(19_370), trials_for(10_000_000)) == (200, 103, 30)


def test_no_star_where_the_interval_seldom_holds_however_small_the_error() -> None:
    found = contenders(lucky=fair(1.0, 50.0, coverage_percent=89.9), honest=fair(4.0, 40.0))
    against = no_star(found[0], found)
    assert against is not None
    assert against.code == "interval_seldom_held"
    # And what cannot be judged beats nobody.
    assert no_star(found[1], found) is None


@pytest.mark.parametrize(
    ("score", "code"),
    [
        (fair(0.0, 9.0, basis="by_construction"), "exact_by_construction"),
        (fair(0.1, 9.0, basis="in_sample"), "chosen_by_own_error"),
        (fair(56.0, 900.0), "error_above_most"),
    ],
)
def test_no_star_for_luck(score: Fair, code: str) -> None:
    found = contenders(one=score)
    against = no_star(found[0], found)
    assert against is not None
    assert against.code == code


def test_a_star_is_for_what_no_other_of_the_same_cost_beats() -> None:
    found = [*contenders(a=fair(2.0, 10.0), b=fair(4.0, 30.0), c=fair(4.0, 20.0)),
             Contender("cycles", "cycles_gpc_avg", fair(9.0, 1.0))]  # fmt: skip
    assert [no_star(each, found) is None for each in found] == [True, True, False, True]
    assert dict(no_star(found[2], found).parameters) == {"method": "b"}  # type: ignore[union-attr]


def test_the_fastest_within_the_target_is_recommended_else_the_least_error() -> None:
    found = recommend(contenders(a=fair(2.0, 10.0), b=fair(4.9, 30.0), c=fair(8.0, 90.0)))
    assert (found.method, found.reason.code) == ("b", "fastest_within_target")
    found = recommend(contenders(a=fair(12.0, 10.0), c=fair(18.0, 90.0)))
    assert (found.method, found.reason.code) == ("a", "least_error")
    found = recommend(contenders(a=fair(56.0, 10.0)))
    assert (found.method, found.reason.code) == (None, "nothing_to_recommend")


def counted(launches: int) -> Launches:
    """Launches whose counters say nothing of their cost: whatever K is chosen by error is luck."""
    rng = np.random.default_rng(3)
    return table2_launches(rng.random((launches, FEATURES)), rng.lognormal(0.0, 1.0, launches) * 1e5)


def test_pks_that_is_lucky_in_sample_is_not_on_the_other_half() -> None:
    profile = Profile(detailed=counted(400))
    found = registry.select_and_try("pks", profile, PUBLISHED_PKS, 0, 60)
    assert found.fair.basis == "split_halves"
    assert found.fair.trials == 60
    assert found.selection.evaluation.error_percent < 5.0
    # Chosen and scored on the same half it would be 8 %.
    assert found.fair.error_percent > 15.0


@pytest.mark.parametrize("rule", ["first", "centre", "random"])
def test_pks_that_tells_costs_apart_holds_on_the_other_half(rule: str) -> None:
    kinds = np.repeat([0.0, 1.0, 2.0], 100)
    features = np.outer(kinds + 1, np.arange(1, FEATURES + 1))
    profile = Profile(detailed=table2_launches(features, 10.0 ** (kinds + 3)))
    found = registry.select_and_try("pks", profile, {"representative": rule}, 0, 30)
    assert found.fair.error_percent == pytest.approx(0.0, abs=1e-9)
    assert found.fair.speedup == pytest.approx(100.0)


def test_a_fixed_k_reads_no_cost_so_that_its_score_is_fair_as_it_is() -> None:
    profile = Profile(detailed=counted(80))
    found = registry.select_and_try("pks", profile, {**PUBLISHED_PKS, "k": 4}, 0, 30)
    assert (found.fair.basis, found.fair.trials) == ("as_scored", 1)


def test_every_method_gives_the_selection_that_it_gives_without_tries(shared_data: Path) -> None:
    path = shared_data / "ncu" / "synthetic_v100_1000_modern_layout.csv.gz"
    profile = Profile(detailed=read_launches(path, ReadOptions(synthetic=True)))
    basis = {}
    by_draws = ("random", "systematic", "stratified", "proportional", "balanced", "stem")
    for method in ("pks", *by_draws, "tbpoint", "sieve"):
        tried = registry.select_and_try(method, profile, {}, 5, 30)
        assert tried.selection.document() == registry.select(method, profile, {}, 5).document()
        again = registry.select_and_try(method, profile, {}, 5, 30)
        assert again.fair == tried.fair
        basis[method] = tried.fair.basis
    assert basis == {
        "pks": "split_halves",
        "random": "draws", "systematic": "draws", "stratified": "draws", "stem": "draws",
        "proportional": "by_construction", "balanced": "by_construction",
        "tbpoint": "as_scored", "sieve": "as_scored",
    }  # fmt: skip


def test_a_sampler_that_only_knows_seeds_is_tried_by_seeds() -> None:
    profile = Profile(detailed=counted(200))

    def select(seed: int) -> Selection:
        return registry.select("random", profile, {}, seed)

    tried = try_seeds(select, select(0), 0, 200)
    assert tried.trials is not None
    assert len(tried.trials) == 30
    fixed = try_seeds(lambda _seed: select(1), select(1), 1, 30)
    assert fixed == Tried(fixed.selection)


def test_further_starts_of_a_systematic_sample_count_how_often_their_interval_holds() -> None:
    cycles = np.random.default_rng(4).uniform(1, 9, 400)
    profile = Profile(detailed=table2_launches(np.ones((400, 1)), cycles))
    drawn = registry.select_and_try("systematic", profile, {"launches": 20}, 0, 40).trials
    assert drawn is not None and drawn.in_interval is not None
    assert drawn.in_interval.mean() >= 0.9
    given = registry.select_and_try("systematic", profile, {"launches": 20, "start": 0}, 0, 40).trials
    assert given is not None and given.in_interval is None
