"""Intervals on the recording that launches were drawn from: errors of a design, and what is made of them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.estimation import design_errors
from assay_sampling.estimation.design_errors import DESIGN_DRAWS, expansion_errors, ratio_errors
from assay_sampling.estimation.intervals import draw_per_group, known_variance_interval
from assay_sampling.estimation.known_design import (
    errors_of_design,
    interval_of_errors,
    known_design_interval,
    reach_of_errors,
)

COSTS = np.array([1.0, 2.0, 4.0, 7.0, 30.0, 3.0, 5.0, 11.0])
AMOUNTS = np.array([1.0, 1.0, 3.0, 2.0, 9.0, 4.0, 0.0, 6.0])
LABELS = np.array([0, 0, 0, 0, 0, 1, 1, 1])
DRAWN = np.array([2, 1])


def all_samples() -> list[list[int]]:
    return [[*first, second] for first in combinations(range(5), 2) for second in range(5, 8)]


def projected(rows: list[int], amounts: np.ndarray | None) -> float:
    total = 0.0
    for group, size in ((0, 5), (1, 3)):
        chosen = [row for row in rows if int(LABELS[row]) == group]
        expansion = size / len(chosen)
        if amounts is not None and amounts[chosen].sum() > 0:
            expansion = amounts[np.equal(LABELS, group)].sum() / amounts[chosen].sum()
        total += expansion * COSTS[chosen].sum()
    return total


@pytest.mark.parametrize("by_amount", [False, True])
def test_the_errors_are_those_of_all_possible_samples(by_amount: bool) -> None:
    amounts = AMOUNTS if by_amount else None
    exact = np.array([projected(rows, amounts) for rows in all_samples()]) - COSTS.sum()
    if amounts is None:
        found = expansion_errors(COSTS, LABELS, DRAWN)
    else:
        found = ratio_errors(COSTS, AMOUNTS, LABELS, DRAWN)
    # Each sample is met as often as all others: 30 of them, 137 times of 4,096, standard deviation 11.5.
    values, share = np.unique(np.round(exact, 9), return_counts=True)
    met, counts = np.unique(np.round(found, 9), return_counts=True)
    assert np.allclose(met, values)
    assert counts / len(found) == pytest.approx(share / len(exact), abs=0.016)
    assert (abs(exact.mean()) > 1) == by_amount  # the ratio is biased, and the errors know it
    assert found.mean() == pytest.approx(exact.mean(), abs=0.05 * exact.std())


def test_many_launches_have_the_variance_of_a_sample_without_replacement() -> None:
    rng = np.random.default_rng(0)
    costs = rng.lognormal(1, 0.8, 6000)
    labels = rng.integers(0, 3, 6000)
    sizes, drawn = np.bincount(labels), np.array([40, 70, 90])
    variances = np.array([costs[labels == group].var(ddof=1) for group in range(3)])
    expected = np.sqrt((sizes**2 * (1 - drawn / sizes) * variances / drawn).sum())
    found = expansion_errors(costs, labels, drawn)
    assert found.shape == (DESIGN_DRAWS,)
    assert found.std() == pytest.approx(expected, rel=0.04)
    assert abs(found.mean()) < 0.06 * expected


def test_ratios_of_many_launches_are_drawn_fewer_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(design_errors, "_DRAWN_LAUNCHES", 50_000)
    monkeypatch.setattr(design_errors, "_CHUNK_LAUNCHES", 3_000)
    rng = np.random.default_rng(0)
    amounts = rng.uniform(1, 2, 1000)
    costs = amounts * rng.uniform(0.9, 1.1, 1000)
    found = ratio_errors(costs, amounts, np.zeros(1000, np.int64), np.array([60]))
    assert found.shape == (50_000 // 60,)
    residual = costs - costs.sum() / amounts.sum() * amounts
    expected = 1000 * np.sqrt((1 - 0.06) * residual.var(ddof=1) / 60)
    assert found.std() == pytest.approx(expected, rel=0.1)


def test_the_width_depends_on_the_design_not_on_the_draw() -> None:
    rng = np.random.default_rng(1)
    costs, labels = rng.uniform(50, 60, 300), rng.integers(0, 2, 300)
    drawn = [draw_per_group(labels, 5, np.random.default_rng(seed)) for seed in range(5)]
    found = [known_design_interval(costs, labels, rows) for rows in drawn]
    assert len({round(each.high - each.low, 9) for each in found}) == 1
    assert len({each.low for each in found}) == 5
    assert {each.basis for each in found} == {"known_design"}


def test_rare_huge_launches_are_known_to_an_interval_that_did_not_meet_them() -> None:
    rng = np.random.default_rng(2)
    costs = rng.uniform(1, 2, 5000)
    costs[:9] = 800.0
    labels = np.zeros(5000, np.int64)
    reach = reach_of_errors(expansion_errors(costs, labels, np.array([100])))
    held = 0
    for seed in range(400):
        rows = draw_per_group(labels, 100, np.random.default_rng(seed))
        total = 50 * costs[rows].sum()
        held += max(total - reach[0], costs[rows].sum()) <= costs.sum() <= total + reach[1]
    assert held / 400 >= 0.93


@given(
    st.lists(st.floats(0, 1e9), min_size=2, max_size=40), st.integers(1, 5), st.integers(0, 99), st.booleans()
)
@settings(max_examples=40, deadline=None)
def test_what_holds_for_every_interval(
    values: list[float], per_group: int, seed: int, by_amount: bool
) -> None:
    costs = np.array(values)
    labels = np.arange(len(costs)) % 2
    rows = draw_per_group(labels, per_group, np.random.default_rng(seed))
    amounts = np.arange(len(costs)) % 5 * 1.0 if by_amount else None
    found = known_design_interval(costs, labels, rows, amounts=amounts)
    rounding = 1e-9 * costs.sum()
    assert costs[rows].sum() - rounding <= found.low <= found.high
    assert found.expected_error_percent >= 0
    if len(rows) == len(costs):
        assert found.low == pytest.approx(costs.sum()) == found.high


def test_no_bound_is_below_what_the_drawn_launches_cost() -> None:
    errors = np.linspace(-50.0, 200.0, 1001)
    found = interval_of_errors(120.0, errors, total=150.0, drawn_cost=40.0)
    assert (found.low, round(found.high, 3)) == (40.0, 163.75)
    assert (
        known_variance_interval(10.0, np.array([5.0]), np.array([1]), np.array([4]), drawn_cost=9.0).low
        == 9.0
    )


def test_groups_without_a_drawn_launch_are_an_error() -> None:
    with pytest.raises(ValueError, match="without a drawn launch"):
        expansion_errors(COSTS, LABELS, np.array([2, 0]))
    with pytest.raises(ValueError, match="more launches are drawn"):
        ratio_errors(COSTS, AMOUNTS, LABELS, np.array([2, 4]))


def test_errors_of_a_design_are_kept_and_never_those_of_another() -> None:
    """Draws of one seed after the other ask for the same ones, and take turns with other designs."""
    designs = [
        (COSTS, LABELS, DRAWN, None),
        (COSTS + 1, LABELS, DRAWN, None),
        (COSTS, LABELS, DRAWN, AMOUNTS),
        (COSTS, LABELS, DRAWN, AMOUNTS + 1),
        (COSTS, LABELS, np.bincount(LABELS), None),
        (COSTS, LABELS[::-1].copy(), np.bincount(LABELS[::-1]) - 1, None),
    ]
    expected = [
        expansion_errors(costs, labels, drawn)
        if amounts is None
        else ratio_errors(costs, amounts, labels, drawn)
        for costs, labels, drawn, amounts in designs
    ]
    for _ in range(2):
        for design, errors in zip(designs, expected, strict=True):
            found = errors_of_design(*design)
            assert np.array_equal(found, errors)
            assert errors_of_design(*design) is found
            with pytest.raises(ValueError, match="read-only"):
                found[0] = 1.0
