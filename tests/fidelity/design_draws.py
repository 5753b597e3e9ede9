"""Many draws of one design, with what each projects and the interval that Student's t gives it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assay_sampling.estimation.rank_draws import order_by_group
from assay_sampling.estimation.student_t import t_quantile

_CHUNK_LAUNCHES = 1 << 20
_NORMAL = 1.959963984540054
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Design:
    """Costs and groups of all launches, shape (n,), launches drawn of each group, shape (g,), and amounts of
    all launches if the total is projected by them."""

    costs: np.ndarray
    labels: np.ndarray
    drawn: np.ndarray
    amounts: np.ndarray | None = None


@dataclass(frozen=True)
class Draws:
    """The ``total``, and of each draw, shape (d,): what it projects, what its launches cost, and half of its
    t interval."""

    total: float
    projected: np.ndarray
    drawn_cost: np.ndarray
    half_by_t: np.ndarray

    @property
    def deviation(self) -> float:
        """Root of the mean squared distance from the total."""
        return float(np.sqrt(np.mean(np.square(self.projected - self.total))))

    @property
    def spreads(self) -> bool:
        """Whether draws differ at all, but for rounding."""
        return self.deviation > 1e-9 * self.total

    @property
    def skewness(self) -> float:
        """Of the projected totals."""
        apart = self.projected - self.projected.mean()
        return float(np.mean(apart**3) / np.mean(apart**2) ** 1.5)

    def held(self, below: float | np.ndarray, above: float | np.ndarray) -> tuple[float, float]:
        """The share of intervals that hold the total, and their median half width, if they reach that far
        and not below the cost of the drawn launches."""
        low = np.maximum(self.projected - below, self.drawn_cost)
        high = np.maximum(self.projected + above, low)
        return self._share(low, high), float(np.median(high - low)) / 2

    def held_before(self) -> tuple[float, float]:
        """The share of t intervals that hold the total, and their median half width."""
        low, high = self.projected - self.half_by_t, self.projected + self.half_by_t
        return self._share(low, high), float(np.median(self.half_by_t))

    def _share(self, low: np.ndarray, high: np.ndarray) -> float:
        rounding = _ROUNDING * self.total
        return float(np.mean((low - rounding <= self.total) & (self.total <= high + rounding)))


def draws_of(design: Design, draws: int, seed: int) -> Draws:
    """That many draws without replacement within the groups, each a shuffle of the launches of each group."""
    rng = np.random.default_rng(seed)
    sizes = np.bincount(design.labels)
    ends = np.cumsum(sizes)
    order = order_by_group(design.labels, len(sizes))
    projected, drawn_cost, variance, squares = np.zeros((4, draws))
    for end, size, taken in zip(ends, sizes, design.drawn, strict=True):
        inside = order[end - size : end]
        costs = design.costs[inside]
        amounts = None if design.amounts is None else design.amounts[inside]
        if taken == size:
            projected += costs.sum()
            drawn_cost += costs.sum()
            continue
        step = max(1, _CHUNK_LAUNCHES // size)
        for start in range(0, draws, step):
            part = slice(start, min(start + step, draws))
            shuffled = rng.permuted(np.tile(np.arange(size), (part.stop - start, 1)), axis=1)[:, :taken]
            one, cost, of_variance = _scored(costs, amounts, shuffled)
            projected[part] += one
            drawn_cost[part] += cost
            variance[part] += of_variance
            squares[part] += np.square(of_variance) / max(taken - 1, 1)
    return Draws(float(design.costs.sum()), projected, drawn_cost, _half_by_t(variance, squares))


def _scored(
    costs: np.ndarray, amounts: np.ndarray | None, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of draws of one group, ``rows`` of shape (d, m): projected totals, costs of the drawn launches, and the
    variance that they estimate, each of shape (d,)."""
    drawn, (launches, m) = costs[rows], (len(costs), rows.shape[1])
    sums = drawn.sum(axis=1)
    expansion = np.full(len(rows), launches / m)
    residual = drawn - sums[:, None] / m
    if amounts is not None:
        of_drawn = amounts[rows].sum(axis=1)
        np.divide(amounts.sum(), of_drawn, out=expansion, where=of_drawn > 0)
        share = amounts[rows] / np.where(of_drawn > 0, of_drawn, 1.0)[:, None]
        residual = (drawn - sums[:, None] * share) * _jackknifed(share, m)
    spread = np.square(residual).sum(axis=1) / max(m - 1, 1)
    return expansion * sums, sums, np.square(expansion) * m * (1 - m / launches) * spread


def _jackknifed(share: np.ndarray, count: int) -> np.ndarray:
    """How much the residual of a ratio is enlarged, as if the ratio had been found without its launch."""
    return np.where(share < 1, (count - 1) / (count * np.where(share < 1, 1 - share, 1.0)), 1.0)


def _half_by_t(variance: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Half widths after Satterthwaite, shape (d,); ``squares``: of the groups' variances / (m - 1), added."""
    inverse = squares / np.where(variance > 0, np.square(variance), 1.0)
    points = np.linspace(0.0, 1.0, 401)
    quantiles = [_NORMAL, *(t_quantile(0.975, 1 / x) for x in points[1:].tolist())]
    found: np.ndarray = np.sqrt(variance) * np.interp(inverse, points, quantiles)
    return found
