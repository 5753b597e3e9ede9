"""The cost of signatures that were not measured, from the measured ones of their kernel and the grid.

Where a light run gives no times, names and grids are all that is known of the launches after a window. A
launch of a seen signature costs the mean of the window's. Another one of a known kernel costs what the
kernel's cost curve says at its size (warps of all blocks):

- between measured sizes the curve is the isotonic regression of the mean costs, weighted by launches (a
  larger grid never costs less), and straight in logarithms from one size to the next;
- beyond them it goes on as a power law from the last size. The exponent is the kernel's own, by least squares
  in logarithms, within 0 and 1; a kernel measured at one size takes the median exponent of the kernels
  measured at several, and 1/2 if there are none.

Kernels that were not measured have no cost.

Source: Ayer et al., Annals of Mathematical Statistics 1955 (isotonic regression by pooling adjacent
violators). That grids are worth a projection, and how, is ours: docs/methods/two-level.md, "Without times".
Memory: 60 bytes a signature.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from assay_sampling.labelling.light_facts import LightFacts

_EXPONENT_OF_NO_KERNEL = 0.5


class Basis(IntEnum):
    """The basis of the cost of a signature."""

    MEASURED = 0
    BETWEEN_SIZES = 1
    BEYOND_SIZES = 2
    UNKNOWN_KERNEL = 3


@dataclass(frozen=True)
class GridCosts:
    """Costs of m signatures, shape (m,), in the unit of the measured ones: NaN for unknown kernels.

    ``basis``, shape (m,), uint8, holds numbers of :class:`Basis`.
    """

    cost: np.ndarray
    basis: np.ndarray


def project_costs(facts: LightFacts, launches: np.ndarray, costs: np.ndarray) -> GridCosts:
    """Costs of all signatures of a list of launches, from those that a window measured.

    Args:
        facts: those of the m signatures; times are not looked at.
        launches: measured launches of each, shape (m,); 0 where there are none.
        costs: their summed cost, shape (m,), positive where there are launches.
    """
    measured = launches > 0
    basis = np.where(measured, Basis.MEASURED, Basis.UNKNOWN_KERNEL).astype(np.uint8)
    cost = np.divide(costs, launches, out=np.full(len(facts), np.nan), where=measured)
    size = np.log(facts.warps)
    curves = _curves(facts.kernel[measured], size[measured], launches[measured], costs[measured])
    for kernel, curve in curves.items():
        unmeasured = np.flatnonzero((facts.kernel == kernel) & ~measured)
        cost[unmeasured] = curve.at(size[unmeasured])
        beyond = (size[unmeasured] < curve.size[0]) | (size[unmeasured] > curve.size[-1])
        basis[unmeasured] = np.where(beyond, Basis.BEYOND_SIZES, Basis.BETWEEN_SIZES)
    return GridCosts(cost, basis)


@dataclass(frozen=True)
class _Curve:
    """Log cost at the s measured log sizes of a kernel, both of shape (s,) and ascending."""

    size: np.ndarray
    cost: np.ndarray
    exponent: float

    def at(self, size: np.ndarray) -> np.ndarray:
        """Costs at log sizes of shape (r,)."""
        beyond = np.minimum(size - self.size[0], 0) + np.maximum(size - self.size[-1], 0)
        return np.asarray(np.exp(np.interp(size, self.size, self.cost) + self.exponent * beyond))


def _curves(
    kernel: np.ndarray, size: np.ndarray, launches: np.ndarray, costs: np.ndarray
) -> dict[int, _Curve]:
    """The curve of each measured kernel; arrays are by measured signature, shape (d,)."""
    order = np.lexsort((size, kernel))
    kernel, size, launches, costs = (values[order] for values in (kernel, size, launches, costs))
    starts = np.unique(kernel, return_index=True)[1]
    points = {}
    for first, last in zip(starts, [*starts[1:], len(kernel)][: len(starts)], strict=True):
        sizes, inverse = np.unique(size[first:last], return_inverse=True)
        weight = np.bincount(inverse, launches[first:last])
        points[int(kernel[first])] = (sizes, weight, np.bincount(inverse, costs[first:last]) / weight)
    fits = {name: _exponent(sizes, np.log(mean)) for name, (sizes, _, mean) in points.items()}
    exponents = [exponent for exponent in fits.values() if exponent is not None]
    usual = float(np.median(exponents)) if exponents else _EXPONENT_OF_NO_KERNEL
    return {
        name: _Curve(sizes, np.log(isotonic(mean, weight)), usual if (own := fits[name]) is None else own)
        for name, (sizes, weight, mean) in points.items()
    }


def _exponent(size: np.ndarray, cost: np.ndarray) -> float | None:
    """The slope of log cost over log size, within 0 and 1; None for one size."""
    if len(size) < 2:
        return None
    apart = size - size.mean()
    return float(np.clip((apart * cost).sum() / np.square(apart).sum(), 0.0, 1.0))


def isotonic(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The nearest ascending values by weighted least squares, shape (s,), as given.

    Adjacent violators are pooled; each is pooled once, so the loop is linear in the sizes of a kernel.
    """
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        pool = (value, weight, 1)
        while pools and pools[-1][0] >= pool[0]:
            before = pools.pop()
            together = before[1] + pool[1]
            mean = (before[0] * before[1] + pool[0] * pool[1]) / together
            pool = (mean, together, before[2] + pool[2])
        pools.append(pool)
    return np.repeat([pool[0] for pool in pools], [pool[2] for pool in pools])
