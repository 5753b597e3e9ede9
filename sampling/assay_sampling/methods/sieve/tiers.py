"""Tiers and strata of Sieve: which launches count as alike, by the instructions they execute.

Source: Sieve (ISPASS'23), section III-B; docs/methods/sieve.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from assay_sampling.clustering.segments import moments
from assay_sampling.methods.kernel_values import KernelValues
from assay_sampling.methods.sieve.strata_dp import below, dp_cuts
from assay_sampling.methods.sieve.strata_kde import kde_strata
from assay_sampling.methods.sieve.strata_script import script_cuts

Stratification = Literal["kde", "dp", "script"]
TIERS = (1, 2, 3)


@dataclass(frozen=True)
class Strata:
    """Strata in the order of (kernel, instructions): stratum s is the atoms start[s] to start[s + 1].

    ``start`` has shape (s + 1,); of each stratum, shape (s,): ``tier`` (that of its kernel), ``launches``
    and ``instructions`` (float64, of all its launches).
    """

    start: np.ndarray
    tier: np.ndarray
    launches: np.ndarray
    instructions: np.ndarray

    def __len__(self) -> int:
        return len(self.tier)

    def tiers(self, kernel_start: np.ndarray) -> list[dict[str, Any]]:
        """How kernels, strata, launches and instructions divide over the three tiers."""
        first = np.searchsorted(self.start, kernel_start[:-1])
        kernels = np.bincount(self.tier[first], minlength=4)
        strata = np.bincount(self.tier, minlength=4)
        launches = np.bincount(self.tier, self.launches, minlength=4)
        instructions = np.bincount(self.tier, self.instructions, minlength=4)
        return [
            {
                "tier": tier,
                "kernels": int(kernels[tier]),
                "strata": int(strata[tier]),
                "launches": int(launches[tier]),
                "launch_share": float(launches[tier] / launches.sum()),
                "instruction_share": float(instructions[tier] / instructions.sum()),
            }
            for tier in TIERS
        ]


def stratify(values: KernelValues, theta: float, stratification: Stratification, *, merge: bool) -> Strata:
    """Strata of launches by kernel and instructions.

    Tier 1: every launch of the kernel executes the same instructions; tier 2: their CoV is below ``theta``;
    tier 3: it is not, and the kernel is divided by ``stratification``. ``merge`` joins neighbours again
    ("kde" only).
    """
    sizes = np.diff(values.kernel_start)
    kernels = moments(values.value, values.count, values.kernel_start)
    kernel_tier = np.where(sizes == 1, 1, np.where(below(kernels.cov(), theta), 2, 3))
    third = kernel_tier == 3
    inner = _third_tier(values, np.flatnonzero(third), theta, stratification, merge=merge)
    start = np.concatenate([values.kernel_start[:-1][~third], inner, values.kernel_start[-1:]])
    start.sort()
    parts = np.add.reduceat(values.count, start[:-1])
    return Strata(
        start=start,
        tier=kernel_tier[np.searchsorted(values.kernel_start, start[:-1], side="right") - 1],
        launches=parts,
        instructions=np.add.reduceat(values.count * values.value, start[:-1]),
    )


def _third_tier(
    values: KernelValues,
    kernels: np.ndarray,
    theta: float,
    stratification: Stratification,
    *,
    merge: bool,
) -> np.ndarray:
    """First atoms of the strata of the given kernels, shape (strata,)."""
    low, high = values.kernel_start[kernels], values.kernel_start[kernels + 1]
    if stratification == "kde":
        bounds = np.concatenate([[0], np.cumsum(high - low)])
        atoms = np.arange(bounds[-1]) + np.repeat(low - bounds[:-1], high - low)
        start = kde_strata(values.value[atoms], values.count[atoms], bounds, theta, merge=merge)
        first: np.ndarray = atoms[start[:-1]]
        return first
    cuts = [np.empty(0, np.int64)]
    for begin, end in zip(low.tolist(), high.tolist(), strict=True):
        value, count = values.value[begin:end], values.count[begin:end]
        cuts.append(begin + (dp_cuts(value, count, theta) if stratification == "dp" else script_cuts(value)))
    return np.concatenate(cuts)
