"""Launches drawn in proportion to the root of their light time, systematically; the dominant ones are whole.

    probability  pi_i = m' r_i / R,   r_i = sqrt(d_i),   of the launches that are not taken whole
    whole:       launches with r_i >= R / m, taken out one after another, each lowering R by r_i and m by one
    draw:        one random start u in [0, 1); the launches at which the running sum of pi, in a given order,
                 passes u, u + 1, u + 2, ...
    time         sum of pi_i d_i simulated;   error  rho sqrt(sum of (1 / pi_i - 1) d_i^2) of the total

where rho is the relative spread of cost per time. For a given simulated time this pi has the least error.

Source: Neyman's allocation with costs (Cochran, Sampling Techniques, 3rd edition, section 5.5) for launches
in place of strata; Madow, Annals of Mathematical Statistics 1949 (systematic, in proportion to size);
docs/methods/balanced.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

# Roots are summed with rounding: equal launches must not miss "at least R / m" by it.
_ROUNDING = 1e-12


class _SumsFrom:
    """Sums of root ** power over each launch and all after it, the longest first, without a row a launch.

    ``roots`` (descending) and ``ends``, the launches up to and with each root, have shape (m,).
    """

    def __init__(self, roots: np.ndarray, ends: np.ndarray, power: int) -> None:
        self._ends = ends
        self._each = roots**power
        counts = np.diff(ends, prepend=0)
        # The smallest are added first.
        sums = np.cumsum((counts * self._each)[::-1])[::-1]
        self._after = np.append(sums[1:], 0.0)

    def __getitem__(self, launch: int) -> float:
        place = int(np.searchsorted(self._ends, launch, side="right"))
        if place == len(self._ends):
            return 0.0
        return float(self._after[place] + (self._ends[place] - launch) * self._each[place])


@dataclass(frozen=True)
class RootTimePlan:
    """How many launches to take, and what that costs and gives.

    ``times`` has shape (n,); with ``counts``, shape (n,), each is the time of so many launches. Launches
    without any time are never drawn. Raises IndexError where no launch has any. Memory: 60 bytes a time.
    """

    times: np.ndarray
    counts: np.ndarray | None = None

    @cached_property
    def _by_length(self) -> tuple[np.ndarray, np.ndarray]:
        """Roots of the times, descending, and the number of launches up to and with each."""
        some = self.times > 0
        times = self.times[some]
        order = np.argsort(times, kind="stable")[::-1]
        counts = np.ones(len(times), np.int64) if self.counts is None else self.counts[some][order]
        return np.sqrt(times[order]), np.cumsum(counts.astype(np.int64))

    def _root(self, launch: int) -> float:
        """The root of the time of a launch, the longest first."""
        roots, ends = self._by_length
        return float(roots[int(np.searchsorted(ends, launch, side="right"))])

    @cached_property
    def _root_left(self) -> _SumsFrom:
        return _SumsFrom(*self._by_length, 1)

    @cached_property
    def _time_left(self) -> _SumsFrom:
        return _SumsFrom(*self._by_length, 2)

    @cached_property
    def _cube_left(self) -> _SumsFrom:
        return _SumsFrom(*self._by_length, 3)

    @cached_property
    def _fourth_left(self) -> _SumsFrom:
        return _SumsFrom(*self._by_length, 4)

    @property
    def most(self) -> int:
        """Launches that can be taken: those with any time."""
        ends = self._by_length[1]
        return int(ends[-1]) if len(ends) else 0

    def whole(self, launches: int) -> int:
        """How many of the longest are taken whole if so many are taken."""
        # If one is not long enough, no shorter one is: the first that is not is found by halving.
        return _first(
            launches,
            lambda j: self._root(j) * (launches - j) < self._root_left[j] * (1 - _ROUNDING),
        )

    def time(self, launches: int) -> float:
        """Expected light time of that many launches."""
        whole, drawn = self._parts(launches)
        of_drawn = drawn * self._cube_left[whole] / self._root_left[whole] if drawn else 0.0
        return float(self._time_left[0] - self._time_left[whole] + of_drawn)

    def error(self, launches: int, spread: float) -> float:
        """Standard error of a total as a share of it, if cost per time has the relative ``spread``."""
        whole, drawn = self._parts(launches)
        if not drawn:
            return 0.0
        squares = self._cube_left[whole] * self._root_left[whole] / drawn - self._fourth_left[whole]
        return spread * float(np.sqrt(max(squares, 0.0))) / float(self._time_left[0])

    def within_time(self, time: float) -> int:
        """The most launches, at least one, whose expected time is at most ``time``."""
        return max(_first(self.most, lambda j: self.time(j + 1) > time), 1)

    def within_error(self, error: float, spread: float) -> int:
        """The fewest launches whose standard error, a share of the total, is at most ``error``."""
        return min(_first(self.most, lambda j: self.error(j + 1, spread) <= error) + 1, self.most)

    def probabilities(self, launches: int) -> np.ndarray:
        """pi of a launch of each time, shape (n,): 1 if it is taken whole, 0 without any time."""
        whole, drawn = self._parts(launches)
        pi: np.ndarray = np.sqrt(self.times)
        least = self._root(whole - 1) if whole else np.inf
        of_whole = pi >= least
        pi *= drawn / self._root_left[whole] if drawn else 0.0
        pi[of_whole] = 1.0
        return pi

    def _parts(self, launches: int) -> tuple[int, int]:
        """Launches taken whole, and drawn, of ``launches``."""
        whole = self.whole(launches)
        return whole, (launches - whole if whole < self.most else 0)


def systematic_draw(
    probabilities: np.ndarray, counts: np.ndarray, order: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Launches drawn from one random start, in the order given, without those taken whole (pi = 1).

    Args:
        probabilities: of each launch of a row, shape (n,), as :meth:`RootTimePlan.probabilities` gives them.
        counts: launches of each row, which have one probability, shape (n,).
        order: rows to draw from, each at most once, shape (k,).
        rng: the source of randomness.

    Returns the rows drawn, shape (d,), and which of the launches of each, from 0, shape (d,).
    """
    rows: np.ndarray = order[(probabilities[order] > 0) & (probabilities[order] < 1)]
    if not len(rows):
        return rows, np.zeros(0, np.int64)
    each = probabilities[rows]
    reach = np.cumsum(each * counts[rows])
    launches = max(round(float(reach[-1])), 1)
    points = (rng.random() + np.arange(launches)) * (reach[-1] / launches)
    met = np.minimum(np.searchsorted(reach, points, side="right"), len(rows) - 1)
    before = np.where(met > 0, reach[met - 1], 0.0)
    place = ((points - before) / each[met]).astype(np.int64)
    place = np.clip(place, 0, counts[rows[met]] - 1)
    distinct = np.unique(np.stack([met, place]), axis=1)
    return rows[distinct[0]], distinct[1]


def _first(count: int, holds: Callable[[int], bool]) -> int:
    """The first of 0..count - 1 for which ``holds`` is true, as it is of all after it; else ``count``."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def successive_error(times: np.ndarray, ratios: np.ndarray) -> float:
    """Standard error of sum(times x ratios), from what neighbours in the order of the draw differ by.

        error^2 = n / (2 (n - 1))  sum over neighbours of (mean of their times x difference of their ratios)^2

    Args:
        times: light time that each launch stands for, shape (n,), n at least 2, in the order of the draw.
        ratios: cost per light time of each, shape (n,).

    Where neighbours differ only by chance this is unbiased; where kernels differ, too, it is too large.
    Source: Wolter, Introduction to Variance Estimation, 2nd edition, section 8.2.1 (estimator v2).
    """
    count = len(times)
    steps = (times[1:] + times[:-1]) / 2 * np.diff(ratios)
    return float(np.sqrt(count / (2 * (count - 1)) * np.square(steps).sum()))


@dataclass(frozen=True)
class DrawnGroups:
    """Groups that launches were drawn of, each of shape (g,): their ``index``, the light ``time`` that their
    drawn launches stand for, and how many were ``drawn``."""

    index: np.ndarray
    time: np.ndarray
    drawn: np.ndarray

    @classmethod
    def of(cls, groups: np.ndarray, draws: np.ndarray, time: np.ndarray) -> DrawnGroups:
        """Of representatives with these groups, draws and time that they stand for, each of shape (r,)."""
        of_drawn = draws > 0
        index, place = np.unique(groups[of_drawn], return_inverse=True)
        return cls(index, np.bincount(place, time[of_drawn]), np.bincount(place))

    def effective_draws(self) -> float:
        """So many draws from one group tell as much."""
        return 1 / float((np.square(self.time / self.time.sum()) / self.drawn).sum())

    def variation(self, cost_cov: np.ndarray) -> float:
        """Standard deviation / mean of times within groups; ``cost_cov`` is that of all groups."""
        share = self.time / self.time.sum()
        return float(np.sqrt((share * np.square(cost_cov[self.index])).sum()))

    def longest(self, launches: np.ndarray, cost_cov: np.ndarray) -> float:
        """The largest time that one launch of a group holds, on average over the time of the group: time x
        (1 + v^2) / N, with ``launches`` (N) and ``cost_cov`` (v) of all groups."""
        times = self.time * (1 + np.square(cost_cov[self.index])) / launches[self.index]
        return float(times.max(initial=0.0))
