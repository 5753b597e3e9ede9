"""Detailed launches built by tests from a matrix of counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from assay_sampling.counters.definitions import FEATURE_SETS, registry
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.table import TableMetadata
from tests.support.sampling.made_launches import made_launches


def counted_launches(
    counters: Mapping[str, Sequence[float] | np.ndarray], *, source: str = "counted.csv", **columns: Any
) -> Launches:
    """Launches of one kernel with these counters (canonical names), synthetic."""
    rows = len(next(iter(counters.values())))
    return made_launches(
        ["kernel"] * rows,
        counters=[registry()[name].column(registry()[name].metrics[0].name) for name in counters],
        metadata=TableMetadata("detailed", origin="synthetic"),
        source=source,
        **dict(counters),
        **columns,
    )


def table2_launches(features: np.ndarray, cycles: Sequence[float] | np.ndarray, **columns: Any) -> Launches:
    """Launches with these values of the feature set table2, shape (n, up to 12); the others are 1."""
    rows = len(cycles)
    counters: dict[str, Any] = {name: np.ones(rows) for name in FEATURE_SETS["table2"]}
    for index in range(features.shape[1]):
        counters[FEATURE_SETS["table2"][index]] = features[:, index]
    return counted_launches({**counters, "cycles_gpc_avg": cycles}, **columns)
