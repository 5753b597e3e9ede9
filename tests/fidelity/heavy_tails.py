"""Synthetic recordings whose cost is in few launches, made with a seed."""

from __future__ import annotations

import numpy as np

from assay_sampling.counters.definitions import registry
from assay_sampling.launches.profile import Profile
from assay_sampling.launches.table import TableMetadata
from tests.support.sampling.made_launches import made_launches

_LAUNCHES = 10_000
_KERNELS = 20
_HUGE = 18
_COUNTERS = ("instructions", "cycles_gpc_avg")


def heavy_tailed_profiles() -> dict[str, Profile]:
    """Rare huge launches (18 of 10,000 with 60 % of the cycles, in two kernels that have small ones too), one
    launch with half of all cycles, and a Pareto tail of index 1.2."""
    rng = np.random.default_rng(11)
    kernels = rng.integers(0, _KERNELS, _LAUNCHES)
    small = rng.lognormal(kernels * 0.1, 0.3)
    huge, one = small.copy(), small.copy()
    some = rng.choice(np.flatnonzero(kernels < 2), _HUGE, replace=False)
    huge[some] = 1.5 * np.delete(small, some).sum() / _HUGE * rng.uniform(0.7, 1.3, _HUGE)
    one[int(rng.integers(_LAUNCHES))] = small.sum()
    tailed = small * (1 + rng.pareto(1.2, _LAUNCHES))
    return {
        f"made/{name}": _profile(kernels, 1000 * costs, rng)
        for name, costs in (("rare_huge", huge), ("one_launch", one), ("pareto", tailed))
    }


def _profile(kernels: np.ndarray, cycles: np.ndarray, rng: np.random.Generator) -> Profile:
    instructions = np.round(cycles * rng.lognormal(0.0, 0.2, len(cycles)))
    launches = made_launches(
        [f"kernel_{kernel}" for kernel in kernels.tolist()],
        counters=[registry()[name].column(registry()[name].metrics[0].name) for name in _COUNTERS],
        metadata=TableMetadata("detailed", origin="synthetic"),
        source="heavy_tails",
        instructions=instructions,
        cycles_gpc_avg=cycles,
    )
    return Profile(detailed=launches)
