"""The section of labels, short: its rows, and the bounds that must hold on little data too."""

from __future__ import annotations

import numpy as np

from tests.fidelity import grid_costs, labels
from tests.fidelity.counted_workloads import virtual
from tests.fidelity.section import Effort


def test_new_signatures_are_labelled_best_by_scaled_counters() -> None:
    found = labels.section(Effort.SHORT)
    assert not [text for text in found.missed if text.startswith(("scaled_counters", "best"))]
    new = {(row[0], row[1]): float(row[3]) for row in found.rows}
    assert new["scaled_counters", "synthetic"] == 100.0
    assert new["best", "synthetic"] == 100.0
    assert new["sgd", "synthetic"] < 80.0
    assert {row[0] for row in found.rows} == {
        "best", "sgd", "gaussian_nb", "mlp", "combined", "nearest_light_time", "scaled_counters",
        "k nearest neighbours", "extra trees",
    }  # fmt: skip
    assert all("synthetic" in row or "simulated" in row for row in found.rows)


def test_a_distance_is_that_of_each_workload_not_of_the_means() -> None:
    held_out: dict[str, list[float | None]] = {
        "expected": [50.0, None, 90.0], "chronological": [None] * 3, "grouped": [80.0, 60.0, 100.0],
    }  # fmt: skip
    found = labels.Found([0.0] * 3, [80.0, 60.0, 60.0], held_out)
    assert found.off("expected") == 30.0
    assert found.mean("expected") == 70.0
    assert found.off("chronological") is None
    joined = found.joined(
        labels.Found([1.0], [50.0], {"expected": [50.0], "chronological": [0.0], "grouped": [1.0]})
    )
    assert joined.off("expected") == 20.0
    assert np.mean(joined.new) == 0.25


def test_the_grid_tells_more_of_a_new_signatures_cost_than_its_label() -> None:
    found = grid_costs.errors_of(virtual("inference", window=100))
    by_grid, *by_label = (errors[0] for errors in found.values())
    assert by_grid < min(by_label) / 2
