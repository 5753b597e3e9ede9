"""Further tries of a selection method on one profile: further draws, or one half chosen by the other.

    error    = root mean square of the tries' signed errors
    speedup  = true total / mean cost of the representatives: a ratio of means, so that short launches that a
               draw happens to take do not look like speedup
    coverage = share of the tries whose interval held the truth

Source: docs/methods/comparing.md, "Fair scores".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from assay_sampling.engines import blockwise
from assay_sampling.estimation.rank_draws import order_by_group

TrialBasis = Literal["draws", "split_halves"]
LEAST_TRIALS = 30
_MOST_TRIALS = 200
_LAUNCHES_DRAWN_FROM = 2_000_000


@dataclass(frozen=True)
class Trials:
    """Tries as columns, each of shape (t,).

    ``signed_error_percent`` of the projected total; ``simulated``, cost of the representatives;
    ``in_interval``: whether the interval held the truth, None where the design gives no interval. ``total``
    is that of the whole workload.
    """

    basis: TrialBasis
    total: float
    signed_error_percent: np.ndarray
    simulated: np.ndarray
    in_interval: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.signed_error_percent)

    @property
    def error_percent(self) -> float:
        """Root mean square of the errors."""
        return float(np.sqrt(np.square(self.signed_error_percent).mean()))

    @property
    def mean_signed_error_percent(self) -> float:
        return float(self.signed_error_percent.mean())

    @property
    def speedup(self) -> float | None:
        """None where the representatives of no try cost anything."""
        mean = float(self.simulated.mean())
        return self.total / mean if mean > 0 else None

    @property
    def coverage_percent(self) -> float | None:
        return None if self.in_interval is None else 100.0 * float(self.in_interval.mean())


def trials_for(launches: int) -> int:
    """How many tries a workload of this size gets: from 30 for millions of launches up to 200."""
    return int(np.clip(_LAUNCHES_DRAWN_FROM // max(launches, 1), LEAST_TRIALS, _MOST_TRIALS))


# Rows, weights, and the ends of the interval (None without one) of one draw.
Draw = tuple[np.ndarray, np.ndarray, tuple[float, float] | None]


def drawn_trials(
    costs: np.ndarray, draw: Callable[[np.random.Generator], Draw], seed: int, count: int
) -> Trials:
    """Score ``count`` draws, each with its own random stream; ``costs`` has shape (n,)."""
    streams = (np.random.default_rng([seed, 1 + index]) for index in range(count))
    return scored_draws(costs, (draw(stream) for stream in streams))


def scored_draws(costs: np.ndarray, draws: Iterable[Draw]) -> Trials:
    """Score draws of launches whose ``costs``, shape (n,), are known."""
    total = blockwise.total(costs)
    projected, simulated, outcomes = [], [], []
    for rows, weights, interval in draws:
        of_rows = costs[rows]
        projected.append(float(weights @ of_rows))
        simulated.append(float(of_rows.sum()))
        outcomes.append(None if interval is None else interval[0] <= total <= interval[1])
    in_interval = [each for each in outcomes if each is not None]
    return Trials(
        basis="draws",
        total=total,
        signed_error_percent=100.0 * (np.array(projected) - total) / total,
        simulated=np.array(simulated),
        in_interval=np.array(in_interval, bool) if in_interval else None,
    )


def random_half(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Whether each launch is in the first half, shape (n,): of each label, half of its launches at random.

    The odd launch of a label goes to either half at random. ``labels`` has shape (n,), 0-based.
    """
    shuffled = rng.permutation(len(labels))
    counts = np.bincount(labels)
    order = shuffled[order_by_group(labels[shuffled], len(counts))]
    begin = np.cumsum(counts) - counts
    odd = rng.integers(2, size=len(counts))
    place = np.arange(len(labels)) - begin[labels[order]] + odd[labels[order]]
    first = np.empty(len(labels), bool)
    first[order] = place % 2 == 0
    return first
