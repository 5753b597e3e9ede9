"""Scores: the formulas of the design, and what must not be scored."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_sampling.counters.definitions import COST_UNITS
from assay_sampling.errors import CounterUnavailableError, RefusedError
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.table import BASELINE, Condition, TableMetadata
from assay_sampling.scoring.evaluation import Cost, cost_of, evaluate
from tests.support.sampling.made_launches import CYCLES, made_launches


def cost(*values: float) -> Cost:
    return Cost("duration_ns", "ns", BASELINE, np.array(values))


def launches_lasting(*durations: int | None) -> Launches:
    return made_launches(["k"] * len(durations), duration_ns=list(durations), source="light.sqlite")


def test_the_formulas() -> None:
    found = evaluate(
        cost(10.0, 20.0, 30.0, 40.0),
        np.array([0, 3]),
        np.array([2.0, 2.0]),
        labels=np.array([0, 0, 1, 1]),
        representative_groups=np.array([0, 1]),
        instructions=np.array([1.0, 2.0, 3.0, 4.0]),
    )
    assert (found.total, found.projected, found.simulated) == (100.0, 100.0, 50.0)
    assert (found.error_percent, found.signed_error_percent, found.speedup) == (0.0, 0.0, 2.0)
    assert found.group_error_percent == 20.0  # 20 for 30 and 80 for 70: the sum hides it
    assert found.to_dict() == {
        "cost": {
            "quantity": "duration_ns",
            "unit": "ns",
            "condition": {"cache": "none", "clock": "none", "sm_percent": 100.0},
            "total": 100.0,
            "projected": 100.0,
        },
        "error_percent": 0.0,
        "signed_error_percent": 0.0,
        "group_error_percent": 20.0,
        "speedup": 2.0,
        "speedup_instructions": 2.0,
        "speedup_launches": 2.0,
        # 0.3 of the instructions in a group of mean 15 and deviation 5, 0.7 in one of mean 35 and 5.
        "weighted_cov_percent": pytest.approx(100 * (0.3 * 5 / 15 + 0.7 * 5 / 35)),
        "decomposition": {
            "representatives": 0.0,
            "labels": None,
            "group_spread": None,
            "kernels_never_profiled": None,
            "unmatched": None,
            "cold_start": None,
            "projection_within_launches": None,
            "not_separated": None,
            "not_separated_parts": [],
        },
    }


def test_too_low_a_projection_has_a_negative_signed_error() -> None:
    found = evaluate(cost(30.0, 70.0), np.array([0]), np.array([2.0]))
    assert (found.error_percent, found.signed_error_percent) == (40.0, -40.0)
    assert found.group_error_percent is None
    assert found.speedup == pytest.approx(100 / 30)
    assert (found.speedup_launches, found.speedup_instructions) == (2.0, None)
    assert found.weighted_cov_percent is None


def test_a_group_without_a_representative_counts_in_full() -> None:
    labels, groups = np.array([0, 1]), np.array([0])
    found = evaluate(
        cost(40.0, 60.0), np.array([0]), np.array([1.0]), labels=labels, representative_groups=groups
    )
    assert (found.error_percent, found.group_error_percent) == (60.0, 60.0)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(0.01, 1e12)), min_size=1, max_size=40),
    st.randoms(use_true_random=False),
)
def test_groups_cannot_cancel(drawn: list[tuple[int, float]], random: object) -> None:
    rng = np.random.default_rng(random.randrange(2**32))  # type: ignore[attr-defined]
    labels = np.unique([group for group, _ in drawn], return_inverse=True)[1]
    groups = np.arange(labels.max() + 1)
    rows = np.array([rng.choice(np.flatnonzero(labels == g)) for g in groups])
    weights = np.bincount(labels).astype(float)
    found = evaluate(
        cost(*(value for _, value in drawn)), rows, weights, labels=labels, representative_groups=groups
    )
    assert found.group_error_percent is not None
    assert found.group_error_percent >= found.error_percent * (1 - 1e-9) - 1e-9
    assert abs(found.signed_error_percent) == found.error_percent
    assert found.speedup >= 1 - 1e-9


def test_everything_selected_is_exact() -> None:
    found = evaluate(
        cost(1.0, 2.0, 3.0),
        np.arange(3),
        np.ones(3),
        labels=np.arange(3),
        representative_groups=np.arange(3),
    )
    assert (found.error_percent, found.group_error_percent, found.speedup) == (0.0, 0.0, 1.0)


def test_representatives_without_cost_are_refused() -> None:
    with pytest.raises(RefusedError, match="representatives have no cost in 'duration_ns'"):
        evaluate(cost(0.0, 5.0), np.array([0]), np.array([2.0]))


def test_the_cost_of_launches_names_quantity_unit_and_condition() -> None:
    condition = Condition(cache="all", clock="base", sm_percent=50.0)
    launches = made_launches(
        ["a", "b"],
        counters=[CYCLES],
        metadata=TableMetadata("detailed", condition=condition),
        cycles_gpc_avg=[1.5, 2.5],
    )
    found = cost_of(launches, "cycles_gpc_avg")
    assert (found.quantity, found.unit, found.condition) == ("cycles_gpc_avg", "cycle", condition)
    assert found.values.tolist() == [1.5, 2.5]
    assert cost_of(launches_lasting(3, 4), "duration_ns").values.dtype == np.float64
    assert COST_UNITS["duration_ns"] == "ns"


@pytest.mark.parametrize(
    ("durations", "cause"),
    [
        ((5, -3), "launch 1 of process 0 has the negative cost -3"),
        ((0, 0), "no cost at all in 'duration_ns'"),
        ((), "no cost at all in 'duration_ns'"),
    ],
)
def test_impossible_costs_are_refused(durations: tuple[int, ...], cause: str) -> None:
    with pytest.raises(RefusedError, match=rf"light\.sqlite: .*{cause}"):
        cost_of(launches_lasting(*durations), "duration_ns")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_costs_that_are_no_numbers_are_refused(value: float) -> None:
    launches = made_launches(["a", "b"], counters=[CYCLES], cycles_gpc_avg=np.array([1.0, value]))
    with pytest.raises(
        RefusedError, match=r"launch 1 of process 0 has the cost (nan|inf) in 'cycles_gpc_avg'"
    ):
        cost_of(launches, "cycles_gpc_avg")


def test_a_cost_that_was_not_measured_for_all_is_an_error() -> None:
    with pytest.raises(
        CounterUnavailableError, match=r"not measured .* for 1 of 2 launches, first for launch 1"
    ):
        cost_of(launches_lasting(1, None), "duration_ns")
    with pytest.raises(CounterUnavailableError, match="'cycles_gpc_avg' was not measured"):
        cost_of(launches_lasting(1, 2), "cycles_gpc_avg")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("weights", [(1e308, 1.0), (1e307, 1e307), (1e306, 0.0)])
def test_weights_whose_projection_cannot_be_held_are_refused(weights: tuple[float, float]) -> None:
    with pytest.raises(RefusedError, match="its weights project too large a total"):
        evaluate(
            cost(20.0, 30.0),
            np.array([0, 1]),
            np.array(weights),
            labels=np.array([0, 1]),
            representative_groups=np.array([0, 1]),
        )
