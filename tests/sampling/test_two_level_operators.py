"""Operators and input shapes that only the light run has tell launches apart that counters cannot reach.

All launches are made up: one kernel at one shape, launched by two operators, the second one slower.
"""

from __future__ import annotations

import numpy as np
import pytest

from assay_sampling.counters.definitions import features_of, registry
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.launches.table import TableMetadata
from tests.support.sampling.made_launches import CYCLES, made_launches
from tests.support.sampling.two_level_profiles import two_level_selection

KERNEL, LAUNCHES, WINDOW = "void scale<float>(float*, int)", 600, 200
SLOW = np.random.default_rng(5).random(LAUNCHES) < 0.4
DURATION_NS = np.where(SLOW, 20_000, 4_000)
OPERATORS = np.where(SLOW, "aten::mm", "aten::mul").tolist()
SHAPES = np.where(SLOW, "[[64,128],[128,256]]", "[[8,16]]").tolist()


def detailed() -> Launches:
    """The window: counters, and no word of operators."""
    slow = SLOW[:WINDOW]
    values = {name: np.ones(WINDOW) for name in features_of("table2")}
    values["instructions"] = np.where(slow, 5_000.0, 1_000.0)
    counters = [registry()[name].column(registry()[name].metrics[0].name) for name in values]
    return made_launches(
        [KERNEL] * WINDOW,
        metadata=TableMetadata("detailed"),
        counters=[*counters, CYCLES],
        cycles_gpc_avg=DURATION_NS[:WINDOW] * 1.4,
        **values,
    )


def light(**texts: list[str]) -> Launches:
    starts = np.cumsum(DURATION_NS + 1_000) - DURATION_NS
    return made_launches([KERNEL] * LAUNCHES, start_ns=starts, duration_ns=DURATION_NS, **texts)


@pytest.mark.parametrize(
    "texts",
    [
        {"operator_id": OPERATORS, "input_shapes_id": SHAPES},
        {"operator_id": OPERATORS},
        {"input_shapes_id": SHAPES},
    ],
)
def test_what_the_light_run_knows_of_operators_labels_the_launches_behind_the_window(
    texts: dict[str, list[str]],
) -> None:
    selection = two_level_selection(Profile(detailed(), light(**texts)))
    assert selection.labels is not None and len(selection.representatives.row) == 2
    assert (
        len({(label, slow) for label, slow in zip(selection.labels.tolist(), SLOW.tolist(), strict=True)})
        == 2
    )
    assert selection.evaluation.error_percent == pytest.approx(0.0, abs=1e-9)
    assert selection.extra["two_level"]["ambiguous_percent"] == 0.0


def test_without_them_nothing_tells_the_launches_apart() -> None:
    selection = two_level_selection(Profile(detailed(), light()))
    assert selection.labels is not None
    assert len(set(selection.labels[WINDOW:].tolist())) == 1
    assert selection.evaluation.error_percent > 20.0
    assert selection.extra["two_level"]["ambiguous_percent"] == 100.0
