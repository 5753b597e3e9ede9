"""Costs of signatures that were not measured, from the grids of their kernel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import isotonic_regression

from assay_sampling.labelling.grid_cost import Basis, isotonic, project_costs
from assay_sampling.labelling.light_facts import LightFacts


def facts(kernel: list[int], blocks: list[float]) -> LightFacts:
    size = np.array(blocks, float)
    return LightFacts(np.array(kernel, np.uint64), size, 2 * size, None)


def test_between_sizes_the_cost_is_on_the_line_and_beyond_on_the_power_law() -> None:
    # Kernel 1: 100 at 4 blocks, 400 at 64: the exponent is 1/2.
    given = facts([1, 1, 1, 1, 1], [4, 64, 16, 1, 1024])
    found = project_costs(given, np.array([2, 5, 0, 0, 0]), np.array([200, 2_000, 0, 0, 0]))
    assert found.cost == pytest.approx([100, 400, 200, 50, 1_600])
    assert [Basis(number).name for number in found.basis] == [
        "MEASURED", "MEASURED", "BETWEEN_SIZES", "BEYOND_SIZES", "BEYOND_SIZES"
    ]  # fmt: skip


def test_a_larger_grid_never_costs_less() -> None:
    # The small grid was slow twice: both sizes cost their mean, weighted by launches.
    given = facts([1, 1, 1, 1], [8, 16, 12, 64])
    found = project_costs(given, np.array([3, 1, 0, 0]), np.array([900, 100, 0, 0]))
    assert found.cost == pytest.approx([300, 100, 250, 250])


def test_a_kernel_of_one_size_takes_the_exponent_of_the_others() -> None:
    given = facts([1, 1, 2, 2, 3, 3, 4], [1, 16, 1, 16, 8, 32, 8])
    launches = np.array([1, 1, 1, 1, 1, 0, 0])
    costs = np.array([10.0, 20.0, 10.0, 80.0, 7.0, 0.0, 0.0])
    found = project_costs(given, launches, costs)
    # Exponents 1/4 and 3/4, so 1/2: four times the blocks, twice the cost. Kernel 4 was not measured.
    assert found.cost[5] == pytest.approx(14.0)
    assert np.isnan(found.cost[6])
    assert found.basis[5:].tolist() == [Basis.BEYOND_SIZES, Basis.UNKNOWN_KERNEL]
    alone = project_costs(given.take(slice(4, 7)), launches[4:], costs[4:])
    assert alone.cost[1] == pytest.approx(14.0)


def test_exponents_stay_within_0_and_1() -> None:
    given = facts([1, 1, 1, 2, 2, 2], [1, 2, 4, 1, 2, 4])
    found = project_costs(given, np.array([1, 1, 0] * 2), np.array([10.0, 80.0, 0, 10.0, 5.0, 0]))
    assert found.cost[2] == pytest.approx(160)
    assert found.cost[5] == pytest.approx(7.5)


def test_nothing_measured_has_no_cost() -> None:
    found = project_costs(facts([1, 2], [4, 4]), np.zeros(2, int), np.zeros(2))
    assert np.isnan(found.cost).all()
    assert found.basis.tolist() == [Basis.UNKNOWN_KERNEL] * 2


@given(st.lists(st.tuples(st.integers(1, 1_000), st.integers(1, 50)), min_size=1, max_size=40))
def test_isotonic_regression_is_that_of_scikit_learn(points: list[tuple[int, int]]) -> None:
    values, weights = np.array(points, float).T
    assert isotonic(values, weights) == pytest.approx(isotonic_regression(values, sample_weight=weights))
