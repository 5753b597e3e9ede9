"""ROOT: which clusters of one kernel's launches, by cost, to divide in two.

A division pays where sampling the halves to the same bound costs less than sampling the whole.

Source: STEM+ROOT, its hierarchical clustering; docs/methods/stem.md, "The model".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assay_sampling.clustering.segments import Moments, moments, split_segments
from assay_sampling.methods.kernel_values import KernelValues
from assay_sampling.methods.stem.allocation import best_whole, spread_of

_LEAST_GAIN = 0.01


@dataclass(frozen=True)
class Bound:
    """The requested bound: z standard errors within ``epsilon`` (a fraction) of the total."""

    epsilon: float
    z: float


def split_jointly(
    values: KernelValues, multiplier: float, least_launches: int, least_sampled: int
) -> np.ndarray:
    """Bounds of the clusters, shape (c + 1,), if all kernels together must meet one bound.

    ``multiplier`` is that of :func:`assay_sampling.methods.stem.allocation.allocate`: its square is the
    price of a unit of variance. A division must save 1 % of samples and variance together. A cluster of
    fewer than ``least_launches`` is not divided; at least ``least_sampled`` launches of each are sampled.
    """

    def lagrangian(part: Moments) -> np.ndarray:
        spread = spread_of(part) * part.launches
        real = multiplier * _over(spread, np.sqrt(part.mean))
        m = best_whole(real, np.minimum(float(least_sampled), part.launches), part.launches)
        cost: np.ndarray = m * part.mean + np.square(multiplier * spread) * (1 / m - 1 / part.launches)
        return cost

    def rule(
        parent: Moments, left: Moments, right: Moments, state: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        after = lagrangian(left) + lagrangian(right)
        return _pays(lagrangian(parent), after, parent, least_launches), state, state

    return split_segments(values.value, values.count, values.kernel_start, rule)[0]


def split_as_artifact(values: KernelValues, bound: Bound) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of the clusters, shape (c + 1,), and launches sampled of each, shape (c,), by the authors' code.

    It has their faults: a cluster whose launches cost the same gets no sample, unless it is a single launch;
    divisions that save nothing are made; each half must meet the bound of the pair it came from.
    """

    def rule(
        parent: Moments, left: Moments, right: Moments, state: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        halves = [np.ceil(m) for m in _pair(parent, left, right, bound)]
        after = halves[0] * left.mean + halves[1] * right.mean
        states = [np.where(p.launches == 1, 1.0, m) for p, m in zip((left, right), halves, strict=True)]
        return after <= state * parent.mean, states[0], states[1]

    roots = moments(values.value, values.count, values.kernel_start)
    alone = np.ceil(np.square(bound.z * _over(roots.deviation, bound.epsilon * roots.mean)))
    state = np.where(roots.launches == 1, 1.0, alone)
    start, sampled = split_segments(values.value, values.count, values.kernel_start, rule, state)
    launches = np.add.reduceat(values.count, start[:-1])
    return start, np.minimum(sampled, launches).astype(np.int64)


def _pair(parent: Moments, left: Moments, right: Moments, bound: Bound) -> tuple[np.ndarray, np.ndarray]:
    """Real numbers of launches to sample of both halves so that together they meet the bound, shape (s,)."""
    total = bound.epsilon * parent.launches * parent.mean
    spreads = left.launches * left.deviation, right.launches * right.deviation
    needed = spreads[0] * np.sqrt(left.mean) + spreads[1] * np.sqrt(right.mean)
    factor = np.square(bound.z / total) * needed
    return factor * _over(spreads[0], np.sqrt(left.mean)), factor * _over(spreads[1], np.sqrt(right.mean))


def _pays(before: np.ndarray, after: np.ndarray, parent: Moments, least_launches: int) -> np.ndarray:
    mask: np.ndarray = (after < (1 - _LEAST_GAIN) * before) & (parent.launches >= least_launches)
    return mask


def _over(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Quotient, shape (s,); 0 where the denominator is 0: launches without cost have no spread either."""
    quotient: np.ndarray = np.divide(
        numerator, denominator, out=np.zeros_like(denominator), where=denominator > 0
    )
    return quotient
