"""Intervals of projected totals: how far off a sample of launches may be, by theory or by resampling.

Only methods that draw at least two launches of a group at random have such an interval; the others give
the reason why not. All sampling is within groups and without replacement.

Source: Cochran, Sampling Techniques, 3rd edition, sections 5.3-5.4 (stratified total, Satterthwaite's
degrees of freedom) and 6.10 (separate ratio estimator); Durbin, Biometrika 1959 (the jackknife for ratios);
Rao and Wu, JASA 1988 (bootstrap of a stratified sample).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from assay_sampling.estimation.rank_draws import draw_rows
from assay_sampling.estimation.student_t import t_quantile
from assay_sampling.notes.registry import Note, make_note

NO_INTERVAL_FIXED_RULE = make_note("interval_of_fixed_rule")

DEFAULT_CONFIDENCE = 0.95
_RESAMPLED_VALUES = 1 << 20


@dataclass(frozen=True)
class Interval:
    """A two-sided interval of a projected total, in the unit of the cost.

    ``expected_error_percent`` is the expected absolute error in percent of the projected total,
    ``basis`` how it was found: "known_design" (the errors of many draws of the same design, where all costs
    are known: :mod:`assay_sampling.estimation.known_design`), "stratified_t" (Student's t over group
    variances), "ratio_t" (Student's t over the residuals of a ratio estimator), "known_variance" (the group
    variances of the whole profile), "bootstrap".
    """

    low: float
    high: float
    expected_error_percent: float
    basis: str
    confidence: float = DEFAULT_CONFIDENCE

    def to_dict(self) -> dict[str, Any]:
        return {
            "low": self.low,
            "high": self.high,
            "confidence": self.confidence,
            "expected_error_percent": self.expected_error_percent,
            "basis": self.basis,
        }


def stratified_interval(
    costs: np.ndarray,
    groups: np.ndarray,
    group_sizes: np.ndarray,
    *,
    confidence: float = DEFAULT_CONFIDENCE,
) -> tuple[Interval | None, Note | None]:
    """Interval of the total that launches drawn at random within groups project.

    projected = sum over groups of N_g x mean cost of its m_g drawn launches
    variance  = sum over groups of N_g^2 (1 - m_g / N_g) s_g^2 / m_g

    Args:
        costs: of the drawn launches, shape (m,).
        groups: theirs, 0-based, shape (m,).
        group_sizes: launches of each group, N_g, shape (g,); fully drawn groups add no variance.
        confidence: in (0, 1).

    Returns the interval and None, or None and the reason why it is missing: a group with one launch drawn
    of several, or none drawn. A selection holds both as ``interval`` and ``interval_reason``.
    """
    sample = _Sample.of(costs, groups, group_sizes)
    if sample.reason is not None:
        return None, sample.reason
    means = sample.mean(costs)
    projected = float((sample.sizes * means).sum())
    deviations = costs - means[groups]
    return _t_interval(
        sample, projected, sample.sizes, deviations, confidence=confidence, basis="stratified_t"
    ), None


def ratio_interval(
    costs: np.ndarray,
    amounts: np.ndarray,
    groups: np.ndarray,
    group_sizes: np.ndarray,
    group_amounts: np.ndarray,
    *,
    confidence: float = DEFAULT_CONFIDENCE,
) -> tuple[Interval | None, Note | None]:
    """Interval of a total projected by a known amount, such as instructions: the separate ratio estimator.

    projected = sum over groups of X_g x (sum of the drawn costs) / (sum of the drawn amounts)

    Args:
        costs, amounts, groups: of the drawn launches, shape (m,).
        group_sizes: launches of each group, shape (g,).
        group_amounts: X_g, the amount of all launches of each group, shape (g,).
        confidence: in (0, 1).

    Only what the amount does not explain spreads: residuals cost - ratio x amount, each enlarged as if the
    ratio had been found without its launch (the jackknife): plain residuals of two launches are always too
    small. Ratios are biased in small samples, which no interval shows: with two launches of a group whose
    amounts differ widely it holds the truth too rarely; five are enough. Returns as
    :func:`stratified_interval`; a group whose drawn launches have no amount has neither ratio nor interval.
    """
    sample = _Sample.of(costs, groups, group_sizes)
    if sample.reason is not None:
        return None, sample.reason
    drawn = np.bincount(groups, weights=amounts, minlength=len(group_sizes))
    if bool((drawn[sample.drawn > 0] <= 0).any()):
        return None, make_note("interval_without_instructions")
    ratio = _over(np.bincount(groups, weights=costs, minlength=len(group_sizes)), drawn)
    share, count = amounts / np.where(drawn > 0, drawn, 1.0)[groups], sample.drawn[groups]
    # 1 where all launches have one amount; one launch with the whole amount cannot be left out.
    enlarged = np.where(share < 1, (count - 1) / (count * np.where(share < 1, 1 - share, 1.0)), 1.0)
    residuals = (costs - ratio[groups] * amounts) * enlarged
    expansion = _over(group_amounts * sample.drawn, drawn)  # the launches that the drawn ones stand for
    projected = float((group_amounts * ratio).sum())
    return _t_interval(sample, projected, expansion, residuals, confidence=confidence, basis="ratio_t"), None


def known_variance_interval(
    projected: float,
    deviations: np.ndarray,
    sampled: np.ndarray,
    group_sizes: np.ndarray,
    *,
    drawn_cost: float = 0.0,
    confidence: float = DEFAULT_CONFIDENCE,
) -> Interval:
    """Interval if the spread of each group is known from all its launches, not estimated from the drawn ones.

    ``deviations`` (of the cost, divisor N_g), ``sampled`` (launches drawn, m_g >= 1 where the group spreads)
    and ``group_sizes`` (N_g) have shape (g,). The total is assumed to be normal. No bound is below
    ``drawn_cost``, the cost of the drawn launches.
    """
    sizes = group_sizes.astype(np.float64)
    # Divisor N - 1: then the variance of a sample without replacement is exactly this.
    variance = np.square(deviations) * _over(sizes, sizes - 1)
    share = _over(sampled.astype(np.float64), sizes)
    error = math.sqrt(float((np.square(sizes) * (1 - share) * _over(variance, sampled)).sum()))
    found = _around(projected, error, math.inf, confidence, "known_variance")
    high = max(found.high, drawn_cost)
    return replace(found, low=min(max(found.low, drawn_cost), high), high=high)


def bootstrap_interval(
    costs: np.ndarray,
    groups: np.ndarray,
    group_sizes: np.ndarray,
    *,
    seed: int = 0,
    resamples: int = 1000,
    confidence: float = DEFAULT_CONFIDENCE,
) -> tuple[Interval | None, Note | None]:
    """Interval of the stratified total by resampling: percentiles, so it may be as skewed as the costs.

    Each resample draws m_g - 1 of the m_g launches with replacement and shrinks them towards the mean by
    sqrt(1 - m_g / N_g), which makes its variance that of the sample. Arguments and result are those of
    :func:`stratified_interval`. It needs about ten launches a group: with fewer it is too narrow.
    Memory: 16 MiB.
    """
    sample = _Sample.of(costs, groups, group_sizes)
    if sample.reason is not None:
        return None, sample.reason
    means = sample.mean(costs)
    projected = float((sample.sizes * means).sum())
    spreading = (sample.drawn > 1) & (sample.left_share > 0)
    totals = np.full(resamples, projected)
    if spreading.any():
        order = np.argsort(groups, kind="stable")
        deviations = (costs - means[groups])[order]
        first = (np.cumsum(sample.drawn) - sample.drawn)[spreading]
        size = sample.drawn[spreading]
        factor = (sample.sizes * np.sqrt(sample.left_share))[spreading] / (size - 1)
        which = np.repeat(np.arange(len(size)), size - 1)
        rng = np.random.default_rng(seed)
        step = max(1, _RESAMPLED_VALUES // len(which))
        for start in range(0, resamples, step):
            count = min(step, resamples - start)
            # floor(u x m) < m for u < 1 and any m below 2^53.
            chosen = first[which] + (rng.random((count, len(which))) * size[which]).astype(np.int64)
            totals[start : start + count] += deviations[chosen] @ factor[which]
    tail = (1 - confidence) / 2
    low, high = np.quantile(totals, [tail, 1 - tail])
    expected = float(np.abs(totals - projected).mean())
    return Interval(float(low), float(high), _percent(expected, projected), "bootstrap", confidence), None


def draw_per_group(labels: np.ndarray, per_group: int | np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rows drawn uniformly without replacement within each group, ascending.

    Args:
        labels: group of every launch, shape (n,), 0-based.
        per_group: launches to draw of each, a number or shape (g,); a smaller group gives all it has.
        rng: the source of randomness.
    """
    if not len(labels):
        return np.empty(0, np.int64)
    sizes = np.bincount(labels)
    wanted = np.minimum(np.broadcast_to(np.asarray(per_group, np.int64), sizes.shape), sizes)
    return np.sort(draw_rows(labels, sizes, wanted, rng)[0])


@dataclass(frozen=True)
class _Sample:
    """Launches drawn (m_g) of all (N_g) in each group, shape (g,); ``reason`` if the spread is unknown."""

    groups: np.ndarray
    drawn: np.ndarray
    sizes: np.ndarray
    reason: Note | None

    @classmethod
    def of(cls, costs: np.ndarray, groups: np.ndarray, group_sizes: np.ndarray) -> _Sample:
        if len(costs) != len(groups):
            raise ValueError(f"{len(costs)} costs and {len(groups)} groups")
        drawn = np.bincount(groups, minlength=len(group_sizes))
        if len(drawn) != len(group_sizes) or bool((drawn > group_sizes).any()):
            raise ValueError("more launches are drawn than the groups have")
        reason: Note | None = None
        if bool(((drawn == 0) & (group_sizes > 0)).any()):
            reason = make_note("interval_of_unsampled_group")
        elif bool(((drawn == 1) & (group_sizes > 1)).any()):
            reason = make_note("interval_of_single_launch")
        return cls(groups, drawn, np.asarray(group_sizes, np.float64), reason)

    @property
    def left_share(self) -> np.ndarray:
        """1 - m_g / N_g: 0 if all launches were drawn."""
        return 1 - _over(self.drawn.astype(np.float64), self.sizes, otherwise=1.0)

    def mean(self, values: np.ndarray) -> np.ndarray:
        return _over(np.bincount(self.groups, weights=values, minlength=len(self.sizes)), self.drawn)

    def variances(self, expansion: np.ndarray, deviations: np.ndarray) -> np.ndarray:
        """Variance of each group's projected total, shape (g,), from deviations of its m_g launches."""
        squares = np.bincount(self.groups, weights=np.square(deviations), minlength=len(self.sizes))
        each = _over(squares, self.drawn - 1.0)
        found: np.ndarray = np.square(expansion) * self.left_share * _over(each, self.drawn)
        return found


def _t_interval(
    sample: _Sample,
    projected: float,
    expansion: np.ndarray,
    deviations: np.ndarray,
    *,
    confidence: float,
    basis: str,
) -> Interval:
    variances = sample.variances(expansion, deviations)
    variance = float(variances.sum())
    # Satterthwaite: groups of few launches with much of the variance leave little to judge it by.
    shares = variances / variance if variance > 0 else np.zeros_like(variances)
    spread = float(_over(np.square(shares), sample.drawn - 1.0).sum())
    freedom = 1 / spread if spread > 0 else math.inf
    return _around(projected, math.sqrt(variance), freedom, confidence, basis)


def _over(numerator: np.ndarray, denominator: np.ndarray, otherwise: float = 0.0) -> np.ndarray:
    """The quotient, and ``otherwise`` where the denominator is not positive."""
    top = np.asarray(numerator, np.float64)
    found = np.full_like(top, otherwise)
    np.divide(top, denominator, out=found, where=np.asarray(denominator) > 0)
    return found


def _around(
    projected: float, standard_error: float, degrees_of_freedom: float, confidence: float, basis: str
) -> Interval:
    half = standard_error * t_quantile((1 + confidence) / 2, degrees_of_freedom)
    # The mean absolute value of a normal variable.
    expected = math.sqrt(2 / math.pi) * standard_error
    return Interval(projected - half, projected + half, _percent(expected, projected), basis, confidence)


def _percent(part: float, whole: float) -> float:
    return 100.0 * part / whole if whole > 0 else 0.0
