"""Intervals of the total on another GPU, from the drawn launches there and the design of their sample.

    by launches: the wider of two half widths around sum over groups of N_g x mean cost of its m_g launches,
        t x sqrt(sum N_g^2 (1 - m_g / N_g) s_g^2 / m_g)       s_g: deviation of the drawn launches there
        z x sqrt(sum N_g^2 (1 - m_g / N_g) (v_g c_g)^2 / m_g)  v_g: variation of the group on the profile
    by light time or instructions: around sum over groups of X_g R_g, R_g = costs / amounts of the drawn,
        t x sqrt(sum (X_g R_g)^2 (1 - m_g / N_g) s_k^2 / m_g)  s_k: residuals cost - R_g x amount, relative
    in proportion to light time: Hansen and Hurwitz

Two launches drawn of a group may cost the same by luck, which the profile's variation shows; a GPU may spread
launches that took equal time on the profile, which only the launches there show. Whether an interval is
given depends on the design alone, never on what was drawn.

Source: docs/methods/target-intervals.md; Cochran, Sampling Techniques, 3rd edition, sections 5.4,
6.10 and 9A.3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from assay_sampling.estimation.intervals import DEFAULT_CONFIDENCE, Interval
from assay_sampling.estimation.proportional_draws import hansen_hurwitz_interval
from assay_sampling.estimation.sample_design import SampleDesign
from assay_sampling.estimation.student_t import t_quantile
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.parameters import WeightKind

# Fewer launches often miss a mode of the cost that the profile does not know either.
LEAST_LAUNCHES = 5
# Of fewer launches the residuals of a ratio are too small: the ratio follows them.
LEAST_RESIDUALS = 8


def target_interval(
    design: SampleDesign,
    costs: np.ndarray,
    groups: np.ndarray,
    weights: np.ndarray,
    *,
    kind: WeightKind,
    kernels: np.ndarray,
    instructions: np.ndarray | None = None,
    confidence: float = DEFAULT_CONFIDENCE,
) -> tuple[Interval | None, Note | None]:
    """Interval of the total that representatives project on another recording.

    Args:
        design: how they were drawn, and what the profile knew.
        costs: of the representatives on the target, shape (r,).
        groups: theirs, 0-based, shape (r,).
        weights: theirs, of ``kind``, shape (r,).
        kernels: an id of each one's kernel, shape (r,).
        instructions: of the representatives, shape (r,), for weights by them.
        confidence: in (0, 1).

    Returns the interval and None, or None and the reason. No lower end lies below the cost of the
    representatives themselves.
    """
    if design.drawing == "rule":
        return None, make_note("interval_of_no_draw")
    if kind == "light_time" and design.launches_without_time:
        reason = make_note("interval_of_launches_without_time", launches=design.launches_without_time)
        return None, reason
    if design.drawing == "proportional" and design.draws is not None:
        return hansen_hurwitz_interval(costs, weights, design.draws, confidence=confidence)
    sample = _Sample.of(design, costs, groups)
    spread = _spread(sample, design, weights, kind=kind, kernels=kernels, instructions=instructions)
    if isinstance(spread, Note):
        return None, spread
    projected = float((weights * costs).sum())
    tail = (1 + confidence) / 2
    half = max(error * t_quantile(tail, freedom) for error, freedom in spread)
    error = max(error for error, _ in spread)
    return Interval(
        low=max(projected - half, float(costs.sum())),
        high=projected + half,
        expected_error_percent=100 * math.sqrt(2 / math.pi) * error / projected if projected > 0 else 0.0,
        basis="target_spread" if kind == "launches" else "target_residuals",
        confidence=confidence,
    ), None


# Standard errors of the total, each with its degrees of freedom.
_Errors = list[tuple[float, float]]


@dataclass(frozen=True)
class _Sample:
    """Launches drawn of each group (m_g), those that it has (N_g), and the mean cost of the drawn, (g,).

    ``costs`` and ``groups`` are those of the drawn launches, shape (r,).
    """

    costs: np.ndarray
    groups: np.ndarray
    drawn: np.ndarray
    sizes: np.ndarray
    mean: np.ndarray

    @classmethod
    def of(cls, design: SampleDesign, costs: np.ndarray, groups: np.ndarray) -> _Sample:
        count = len(design.launches)
        drawn = np.bincount(groups, minlength=count)
        mean = np.bincount(groups, costs, count) / np.maximum(drawn, 1)
        return cls(costs, groups, drawn, design.launches.astype(np.float64), mean)

    @property
    def met_all(self) -> bool:
        return bool(((self.drawn > 0) | (self.sizes == 0)).all())

    @property
    def left(self) -> np.ndarray:
        """1 - m_g / N_g, shape (g,): 0 for a group that was taken whole."""
        found: np.ndarray = 1 - self.drawn / np.maximum(self.sizes, 1)
        return found

    @property
    def spreads(self) -> np.ndarray:
        """Whether launches of the group were left out, shape (g,)."""
        found: np.ndarray = self.drawn < self.sizes
        return found

    def sums(self, values: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.bincount(self.groups, values, len(self.sizes))
        return found


def _spread(
    sample: _Sample,
    design: SampleDesign,
    weights: np.ndarray,
    *,
    kind: WeightKind,
    kernels: np.ndarray,
    instructions: np.ndarray | None,
) -> _Errors | Note:
    if not sample.met_all:
        return make_note("interval_of_unsampled_group")
    if kind == "launches" and design.drawing == "uniform":
        return _by_launches(sample, design, kernels)
    if kind == "light_time" or (kind == "instructions" and design.drawing == "uniform"):
        amounts = design.light_time if kind == "light_time" else instructions
        return _by_amounts(sample, design, weights, amounts, kernels)
    return make_note("interval_of_weights_not_drawn_for", weights=kind, drawing=design.drawing)


def _by_launches(sample: _Sample, design: SampleDesign, kernels: np.ndarray) -> _Errors | Note:
    if bool((sample.spreads & (sample.drawn < 2)).any()):
        return make_note("interval_of_single_launch")
    pool = _pools(design, sample, kernels)
    if bool((sample.spreads & (_drawn_of_pool(sample, pool) < LEAST_LAUNCHES)).any()):
        return make_note("interval_of_few_launches", least=LEAST_LAUNCHES)
    factor = np.square(sample.sizes) * sample.left / np.maximum(sample.drawn, 1)
    squares = sample.sums(np.square(sample.costs - sample.mean[sample.groups]))
    own = factor * squares / np.maximum(sample.drawn - 1, 1)
    carried = factor * np.square(design.cost_cov * sample.mean)
    return [
        (math.sqrt(float(own.sum())), _satterthwaite(own, sample.drawn - 1.0)),
        (math.sqrt(float(carried.sum())), math.inf),
    ]


def _by_amounts(
    sample: _Sample,
    design: SampleDesign,
    weights: np.ndarray,
    amounts: np.ndarray | None,
    kernels: np.ndarray,
) -> _Errors | Note:
    if amounts is None:
        return make_note("interval_without_amounts")
    pool = _pools(design, sample, kernels)
    used = sample.spreads
    if bool((used & (_drawn_of_pool(sample, pool) < LEAST_RESIDUALS)).any()):
        return make_note("interval_of_few_residuals", least=LEAST_RESIDUALS)
    of_drawn = sample.sums(amounts)
    ratio = sample.sums(sample.costs) / np.where(of_drawn > 0, of_drawn, 1.0)
    scale = np.where(sample.mean > 0, sample.mean, 1.0)
    # Enlarged as if the ratio had been found without the launch (HC3), where it was not alone.
    share = amounts / np.where(of_drawn > 0, of_drawn, 1.0)[sample.groups]
    number = sample.drawn[sample.groups]
    alone = share >= 1
    enlarged = np.where(alone, 1.0, np.sqrt((number - 1) / number) / np.where(alone, 1.0, 1 - share))
    residual = (sample.costs - ratio[sample.groups] * amounts) * enlarged / scale[sample.groups]
    freedom = np.bincount(pool, np.where(used, sample.drawn - 1.0, 0.0))
    squares = np.bincount(pool, np.where(used, sample.sums(np.square(residual)), 0.0))
    variance = squares / np.maximum(freedom, 1)
    projected = sample.sums(weights * sample.costs)
    each = np.square(projected) * sample.left * variance[pool] / np.maximum(sample.drawn, 1)
    by_pool = np.bincount(pool, each)
    return [(math.sqrt(float(each.sum())), _satterthwaite(by_pool, freedom))]


def _drawn_of_pool(sample: _Sample, pool: np.ndarray) -> np.ndarray:
    """Launches drawn of each group's pool, shape (g,), those of groups taken whole left out."""
    found: np.ndarray = np.bincount(pool, sample.drawn * sample.spreads)[pool]
    return found


def _pools(design: SampleDesign, sample: _Sample, kernels: np.ndarray) -> np.ndarray:
    """The pool of residuals of each group, shape (g,): groups of one and the same kernel share one.

    A group of several kernels is alone, whichever of them were drawn: the draw decides nothing.
    """
    count = len(design.launches)
    codes = np.unique(kernels, return_inverse=True)[1]
    of_group = np.zeros(count, np.int64)
    of_group[sample.groups] = codes
    key = np.where(design.kernels == 1, of_group, int(codes.max(initial=0)) + 1 + np.arange(count))
    found: np.ndarray = np.unique(key, return_inverse=True)[1]
    return found


def _satterthwaite(variances: np.ndarray, freedom: np.ndarray) -> float:
    """Degrees of freedom of a sum of variances, each with its own."""
    total = float(variances.sum())
    if not total > 0:
        return math.inf
    used = variances > 0
    shares = variances[used] / total
    return 1 / float((np.square(shares) / np.maximum(freedom[used], 1)).sum())
