"""Two populations that most samples of two launches of each kernel cannot tell apart, whatever the interval.

In P launches scale as their kernel does, within 1.5 %. In Q the longest launches of the largest kernel, which
hold 7 % of its time, scale 3.2 times as the others do: 2.8 times as their kernel does, so both keep f = 3.
Light times, noise and draws are the same. A sample that meets none of those launches is the same in both, and
as likely. Call an interval narrow if it is at most 2 x 4 errors of P wide: where the two totals are further
apart than that, no narrow interval holds both.

    P holds 93 %:  of all samples at most 7 % are narrow, meet none, and miss the total of P
    Q holds 93 %:  at most 7 % are narrow, meet none, and miss the total of Q
    so             narrow  <=  7 % + 7 % + those that meet one

With a third withheld, a median half width of at most 4 errors needs half of the other two thirds narrow.
Synthetic, seeded. Source: docs/methods/target-intervals.md, "What no interval can do".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assay_sampling.estimation.light_time_draws import draw_by_light_time, drawn_weights
from tests.fidelity.made_ratios import over, population

_SHARE, _TIMES, _NOISE, _SEED = 0.07, 3.2, 0.015, 300
_KERNELS, _PER_KERNEL = 9, 2
MISSED_PERCENT, WITHHELD_PERCENT, WIDEST_HALF = 7.0, 100 / 3, 4.0


@dataclass(frozen=True)
class Twins:
    """What samples of the two populations show: the error of P in percent of its total, how far the totals
    are apart in units of it, how many samples meet none of the unlike launches, and whether both keep f."""

    error_percent: float
    errors_apart: float
    meet_none_percent: float
    keeps_assumption: bool

    @property
    def narrow_percent(self) -> float:
        """At most so many samples can have a narrow interval."""
        return min(2 * MISSED_PERCENT + 100 - self.meet_none_percent, 100.0)

    @property
    def least_narrow_percent(self) -> float:
        """As many must be narrow for the median half width to be at most 4 errors."""
        return (100 - WITHHELD_PERCENT) / 2

    @property
    def impossible(self) -> bool:
        """Whether no interval keeps all bounds on both."""
        apart = self.errors_apart > 2 * WIDEST_HALF
        return self.keeps_assumption and apart and self.narrow_percent < self.least_narrow_percent


def twins(draws: int, scales_at_most: float) -> Twins:
    """Samples of two launches of each kernel, drawn for weights by light time."""
    time, cost, kernel = population(
        _SEED, _KERNELS, lambda rng, of, _: np.exp(rng.normal(0, _NOISE, len(of)))
    )
    largest = int(np.argmax(np.bincount(kernel, time)))
    inside = np.flatnonzero(kernel == largest)
    longest_first = inside[np.argsort(-time[inside])]
    reach = np.cumsum(time[longest_first]) / time[inside].sum()
    unlike = longest_first[reach <= _SHARE]
    other = cost.copy()
    other[unlike] *= _TIMES
    errors, none = [], []
    for seed in range(draws):
        rows = draw_by_light_time(kernel, _PER_KERNEL, time, np.random.default_rng([seed, 25]))
        weights = drawn_weights(time, kernel, rows)
        errors.append(float((weights * cost[rows]).sum() - cost.sum()))
        none.append(not np.isin(rows, unlike).any())
    error = float(np.sqrt(np.mean(np.square(errors))))
    return Twins(
        error_percent=100 * error / float(cost.sum()),
        errors_apart=float(other.sum() - cost.sum()) / error,
        meet_none_percent=100 * float(np.mean(none)),
        keeps_assumption=not any(over(time, each, kernel, scales_at_most).any() for each in (cost, other)),
    )
