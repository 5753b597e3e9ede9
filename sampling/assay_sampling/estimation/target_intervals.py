"""Intervals of the total on another GPU, from the drawn launches there and the design of their sample.

    by launches: around sum over groups of N_g x mean cost of its m_g drawn launches
    by light time or instructions: around sum over groups of X_g R_g, R_g = costs / amounts of the drawn
    drawn by light time: in steps, by what neighbours in size differ by; in proportion to it, Hansen and
    Hurwitz; in proportion to its root, successive differences

    below: t x standard error; where drawn launches are unlike, at least share x (1 - 1 / f) x projected
    above: the larger of that and share x (f - 1) x projected; where the drawn launches of each group are
           alike, at most such that the half width is WIDEST standard errors (of steps on a scale of factors)

``share`` is what the sample may have missed (:mod:`assay_sampling.estimation.unlike_share`), f the
assumption: no launch scales more than f times as its kernel does. A standard error has the variance of each
group, moderated towards that of all. Nothing vouches for a group of which one launch was drawn, or any by a
rule: beyond 5 % of the time there is no interval; below, the group may be wrong by the factor f.

Whether an interval is given depends on the design alone, never on what was drawn.

Source: docs/methods/target-intervals.md; Cochran, Sampling Techniques, 3rd edition, sections 5.4,
6.10 and 9A.3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from assay_sampling.estimation.intervals import DEFAULT_CONFIDENCE, Interval
from assay_sampling.estimation.moderated_errors import (
    LEAST_SPREAD,
    moderated_error,
    pooled_variance,
)
from assay_sampling.estimation.outliers import are_alike
from assay_sampling.estimation.proportional_draws import hansen_hurwitz
from assay_sampling.estimation.root_time_draws import DrawnGroups, successive_error
from assay_sampling.estimation.sample_design import COUNTED_DRAWS, SampleDesign
from assay_sampling.estimation.step_errors import step_errors
from assay_sampling.estimation.student_t import t_quantile
from assay_sampling.estimation.unlike_share import unlike_share
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.parameters import WeightKind

SCALES_AT_MOST = 3.0
# Fewer launches seldom meet what a GPU does to some of them alone, and their spread is hardly known.
LEAST_LAUNCHES = 18
# Of them so many must stand for others: those taken whole tell nothing about the launches left out.
LEAST_DRAWN = 8
MOST_NOT_VOUCHED_PERCENT = 5.0
# Half the width, in standard errors: the assumption alone would give a width that says nothing.
WIDEST = 3.6
# Of launches drawn in steps: errors of ratios multiply, so their upper end is a factor of the total.
WIDEST_OF_STEPS = 3.3
# A launch taken whole stands for itself; sums of times are rounded.
_WHOLE = 1 + 1e-9


@dataclass(frozen=True)
class Assumption:
    """What an interval rests on: no launch scales more than ``scales_at_most`` times as its kernel does,
    and launches which do, unlike any that was drawn, have at most ``unlike_percent`` of the time."""

    scales_at_most: float
    unlike_percent: float

    def to_dict(self) -> dict[str, float]:
        return {"scales_at_most": self.scales_at_most, "unlike_percent": self.unlike_percent}


@dataclass(frozen=True)
class TargetInterval:
    """An interval with its assumption, or the ``reason`` why there is none.

    ``not_vouched_percent``: share of the time in groups of which at most one launch was drawn at random,
    those taken whole left out: of the light time with weights by it, else of the projected time. None where
    nobody knows how they were drawn.
    """

    interval: Interval | None = None
    reason: Note | None = None
    assumption: Assumption | None = None
    not_vouched_percent: float | None = None


def target_interval(
    design: SampleDesign,
    costs: np.ndarray,
    groups: np.ndarray,
    weights: np.ndarray,
    *,
    kind: WeightKind,
    instructions: np.ndarray | None = None,
    scales_at_most: float = SCALES_AT_MOST,
    confidence: float = DEFAULT_CONFIDENCE,
) -> TargetInterval:
    """Interval of the total that representatives project on another recording.

    Args:
        design: how they were drawn, and what the profile knew.
        costs: of the representatives on the target, shape (r,).
        groups: theirs, 0-based, shape (r,).
        weights: theirs, of ``kind``, shape (r,).
        instructions: of the representatives, shape (r,), for weights by them.
        scales_at_most: f, above 1.
        confidence: in (0, 1).

    No lower end lies below the cost of the representatives themselves. Raises ValueError for another f.
    """
    if not 1 < scales_at_most < math.inf:
        raise ValueError(f"launches cannot scale at most {scales_at_most:g} times as their kernel")
    sample = _Sample.of(design, costs, groups, weights, kind)
    share = sample.not_vouched_percent
    reason = _why_not(design, sample, kind=kind, instructions=instructions)
    if reason is None and design.drawing == "root_light_time":
        reason = _launches_too_long(design, groups, weights)
    if reason is not None:
        return TargetInterval(reason=reason, not_vouched_percent=share)
    if design.drawing == "proportional":
        errors = _in_proportion(design, sample, weights, confidence)
    elif design.drawing == "root_light_time":
        errors = _in_proportion_to_root(design, sample, groups, weights, confidence)
    elif design.drawing == "light_time":
        errors = _in_steps(design, sample, weights, confidence)
    elif kind == "launches":
        errors = _by_launches(design, sample, confidence)
    else:
        amounts = design.light_time if kind == "light_time" else instructions
        assert amounts is not None
        errors = _by_amounts(design, sample, amounts, confidence)
    return _around(sample, errors, scales_at_most, confidence)


@dataclass(frozen=True)
class _Errors:
    """Standard error of the total, half the width that theory gives, what the sample may have missed (a
    share) of the launches that were left out, their projected total, whether the drawn are alike, and whether
    errors multiply."""

    standard: float
    half: float
    unlike: float
    left_out: float
    alike: bool
    basis: str
    factor: bool = False

    def most_above(self, total: float) -> float:
        """How far above the projected total the interval reaches at most where the drawn are alike."""
        if not self.factor:
            return 2 * WIDEST * self.standard - self.half
        return total * math.expm1((2 * WIDEST_OF_STEPS * self.standard - self.half) / total) if total else 0.0


@dataclass(frozen=True)
class _Sample:
    """Launches drawn of each group (m_g), those that it has (N_g), their projected costs and time, (g,).

    ``costs`` and ``groups`` are those of the drawn launches, shape (r,), and ``stands``: whether each stands
    for others, which one taken whole by its length does not. ``alone``: one launch of several was drawn, or
    any of several by a rule.
    """

    costs: np.ndarray
    groups: np.ndarray
    stands: np.ndarray
    drawn: np.ndarray
    sizes: np.ndarray
    projected: np.ndarray
    time: np.ndarray
    alone: np.ndarray

    @classmethod
    def of(
        cls,
        design: SampleDesign,
        costs: np.ndarray,
        groups: np.ndarray,
        weights: np.ndarray,
        kind: WeightKind,
    ) -> _Sample:
        if design.drawing in COUNTED_DRAWS and design.draws is not None:
            # Launches taken whole are a group, and so are all that were drawn from the rest.
            groups = (design.draws > 0).astype(np.int64)
            drawn = np.array([int((groups == 0).sum()), int(design.draws.sum())])
            sizes = np.array([float(drawn[0]), math.inf if drawn[1] else 0.0])
        else:
            drawn = np.bincount(groups, minlength=len(design.launches))
            sizes = design.launches.astype(np.float64)
        projected = time = np.bincount(groups, weights * costs, len(drawn))
        if kind == "light_time" and design.light_time is not None:
            time = np.bincount(groups, weights * design.light_time, len(drawn))
        few = 1 if design.drawing != "rule" else drawn.max(initial=1)
        stands = (weights > _WHOLE) | (design.drawing != "light_time")
        return cls(costs, groups, stands, drawn, sizes, projected, time, (drawn < sizes) & (drawn <= few))

    @property
    def unmet(self) -> bool:
        return bool(((self.drawn == 0) & (self.sizes > 0)).any())

    @property
    def spreads(self) -> np.ndarray:
        """Groups of which at least two launches were drawn, and some left out, shape (g,)."""
        mask: np.ndarray = (self.drawn < self.sizes) & ~self.alone
        return mask

    @property
    def tell_of_others(self) -> int:
        """Draws that stand for other launches, beside another one of their group."""
        drawn = self.drawn - np.bincount(self.groups[~self.stands], minlength=len(self.sizes))
        return int(drawn[self.spreads & (drawn >= 2)].sum())

    @property
    def not_vouched_percent(self) -> float | None:
        total = float(self.time.sum())
        if self.unmet or not total > 0:
            return None
        return 100 * float(self.time[self.alone].sum()) / total

    @property
    def unsampled(self) -> np.ndarray:
        """1 - m_g / N_g, shape (g,): 0 for a group that was taken whole."""
        shares: np.ndarray = 1 - self.drawn / np.maximum(self.sizes, 1)
        return shares

    @property
    def mean(self) -> np.ndarray:
        """Mean cost of the drawn launches of each group, 1 where they cost nothing, shape (g,)."""
        mean = self.sums(self.costs) / np.maximum(self.drawn, 1)
        return np.where(mean > 0, mean, 1.0)

    def sums(self, values: np.ndarray) -> np.ndarray:
        group_sums: np.ndarray = np.bincount(self.groups, values, len(self.sizes))
        return group_sums


def _why_not(
    design: SampleDesign, sample: _Sample, *, kind: WeightKind, instructions: np.ndarray | None
) -> Note | None:
    if sample.unmet:
        return make_note("interval_of_unsampled_group")
    if not (sample.drawn < sample.sizes).any():
        return make_note("interval_of_all_launches")
    if design.drawing == "rule":
        return make_note("interval_of_no_draw")
    return _unfit_weights(design, kind, instructions) or _not_vouched_for(sample)


def _unfit_weights(design: SampleDesign, kind: WeightKind, instructions: np.ndarray | None) -> Note | None:
    """Why these weights have no interval for launches drawn so; None if they have."""
    if kind == "light_time" and design.launches_without_time:
        return make_note("interval_of_launches_without_time", launches=design.launches_without_time)
    if kind != "light_time" and design.drawing != "uniform":
        return make_note("interval_of_weights_not_drawn_for", weights=kind, drawing=design.drawing)
    amounts = {"launches": design.launches, "light_time": design.light_time, "instructions": instructions}
    if amounts[kind] is None and design.drawing != "proportional":
        return make_note("interval_without_amounts")
    return None


def _not_vouched_for(sample: _Sample) -> Note | None:
    """Why so few launches do not vouch for the total; None if they do."""
    share = sample.not_vouched_percent
    if share is None or share > MOST_NOT_VOUCHED_PERCENT:
        percent = 100.0 if share is None else share
        return make_note("interval_not_vouched_for", percent=percent, most=MOST_NOT_VOUCHED_PERCENT)
    launches, drawn = int(sample.drawn.sum()), sample.tell_of_others
    if launches < LEAST_LAUNCHES:
        return make_note("interval_of_few_launches", launches=launches, least=LEAST_LAUNCHES)
    if drawn < LEAST_DRAWN:
        return make_note("interval_of_few_draws", draws=drawn, least=LEAST_DRAWN)
    return None


def _around(sample: _Sample, errors: _Errors, scales_at_most: float, confidence: float) -> TargetInterval:
    total, not_vouched = float(sample.projected.sum()), float(sample.projected[sample.alone].sum())
    reach = errors.left_out * (scales_at_most - 1)
    above = errors.unlike * reach
    if errors.alike:
        above = min(above, errors.most_above(total))
    above = max(above, errors.half)
    below = errors.half
    if not errors.alike:
        below = max(below, errors.unlike * errors.left_out * (1 - 1 / scales_at_most))
    unlike = min(errors.unlike, above / reach) if reach > 0 else errors.unlike
    low = total - below - not_vouched * (1 - 1 / scales_at_most)
    return TargetInterval(
        Interval(
            low=max(low, float(sample.costs.sum())),
            high=total + above + not_vouched * (scales_at_most - 1),
            expected_error_percent=100 * math.sqrt(2 / math.pi) * errors.standard / total
            if total > 0
            else 0.0,
            basis=errors.basis,
            confidence=confidence,
        ),
        assumption=Assumption(scales_at_most, 100 * unlike * errors.left_out / total if total > 0 else 0.0),
        not_vouched_percent=sample.not_vouched_percent,
    )


def _in_proportion(design: SampleDesign, sample: _Sample, weights: np.ndarray, confidence: float) -> _Errors:
    assert design.draws is not None
    costs = sample.costs
    drawn = design.draws > 0
    estimate = hansen_hurwitz(costs, weights, design.draws, confidence=confidence)
    drawn_from = float((weights * costs)[drawn].sum())
    floor = LEAST_SPREAD * drawn_from / math.sqrt(estimate.draws)
    standard = max(estimate.error, floor)
    return _Errors(
        standard,
        estimate.quantile * standard,
        unlike_share(estimate.draws, 0, 0, confidence),
        drawn_from,
        are_alike(sample.groups, weights * costs / np.maximum(design.draws, 1), sample.spreads),
        "hansen_hurwitz",
    )


def _in_proportion_to_root(
    design: SampleDesign, sample: _Sample, groups: np.ndarray, weights: np.ndarray, confidence: float
) -> _Errors:
    """Groups are numbered in the order of the draw, and each is drawn in the order of its times."""
    time, drawn = design.light_time, design.draws
    assert time is not None
    assert drawn is not None
    # A launch taken whole stands for others of its group where nothing else of it was drawn.
    stands_for = (weights - (drawn == 0)) * time
    order = np.lexsort((time, groups))
    order = order[stands_for[order] > 0]
    ratio = sample.costs / np.where(time > 0, time, 1.0)
    of_drawn = drawn > 0
    drawn_from = float((weights * sample.costs)[of_drawn].sum())
    floor = LEAST_SPREAD * drawn_from / math.sqrt(len(order))
    standard = max(successive_error(stands_for[order], ratio[order]), floor)
    # Launches are drawn uniformly if each counts as much as its root: times then vary less than they do.
    of = DrawnGroups.of(groups, drawn, weights * time)
    return _Errors(
        standard,
        standard * t_quantile((1 + confidence) / 2, len(order) - 1),
        unlike_share(0, of.effective_draws(), of.variation(design.cost_cov), confidence),
        drawn_from - float(sample.costs[of_drawn].sum()),
        are_alike(sample.groups, ratio, sample.spreads),
        "successive_differences",
    )


def _launches_too_long(design: SampleDesign, groups: np.ndarray, weights: np.ndarray) -> Note | None:
    """Why launches that may not have been drawn are too long for an interval; None if they are not."""
    assert design.draws is not None
    time = weights * design.light_time
    longest = DrawnGroups.of(groups, design.draws, time).longest(design.launches, design.cost_cov)
    percent = 100 * longest / float(time.sum())
    if percent <= MOST_NOT_VOUCHED_PERCENT:
        return None
    return make_note("interval_of_long_launches", percent=percent, most=MOST_NOT_VOUCHED_PERCENT)


def _by_launches(design: SampleDesign, sample: _Sample, confidence: float) -> _Errors:
    mean = sample.mean
    squares = sample.sums(np.square(sample.costs / mean[sample.groups] - 1))
    own = squares / np.maximum(sample.drawn - 1, 1)
    variances = np.square(design.cost_cov)
    factor = np.square(sample.projected) * sample.unsampled / np.maximum(sample.drawn, 1)
    by = sample.projected * sample.spreads
    there, here = pooled_variance(by, own), pooled_variance(by, variances)
    # Launches that spread more there do so whatever they did here; less, halfway to what was drawn.
    prior = variances + (there - here) if there >= here else variances * math.sqrt(there / here)
    standard, freedom = _moderated(sample, factor, own, prior)
    tail = (1 + confidence) / 2
    carried = t_quantile(tail, math.inf) * math.sqrt(float((factor * variances)[sample.spreads].sum()))
    half = max(standard * t_quantile(tail, freedom), carried)
    unlike = _unlike(design, sample, confidence)
    alike = are_alike(sample.groups, sample.costs, sample.spreads)
    return _Errors(standard, half, *unlike, alike, "target_spread")


def _in_steps(design: SampleDesign, sample: _Sample, weights: np.ndarray, confidence: float) -> _Errors:
    time = design.light_time
    assert time is not None
    drawn = sample.stands & sample.spreads[sample.groups]
    groups, costs, weights, time = sample.groups[drawn], sample.costs[drawn], weights[drawn], time[drawn]
    errors = step_errors(groups, time, costs, weights)
    return _Errors(
        errors.standard,
        errors.without_own * t_quantile((1 + confidence) / 2, errors.freedom),
        unlike_share(errors.effective_draws, 0, 0, confidence),
        float(((weights - 1) * costs).sum()),
        are_alike(groups, costs / time, sample.spreads),
        "steps_by_size",
        factor=True,
    )


def _by_amounts(design: SampleDesign, sample: _Sample, amounts: np.ndarray, confidence: float) -> _Errors:
    """Theory's half width is of residuals as HC3 has them; the standard error itself is that of independent
    ratios cost / amount, which two launches of very different amounts do not inflate."""
    of_drawn = sample.sums(amounts)
    of_drawn = np.where(of_drawn > 0, of_drawn, 1.0)
    number = np.maximum(sample.drawn, 1)
    share = amounts / of_drawn[sample.groups]
    ratio = sample.sums(sample.costs) / of_drawn
    # Enlarged as if the ratio had been found without the launch (HC3), where it was not alone.
    rest, of_group = 1 - share, number[sample.groups]
    enlarged = np.where(rest > 0, np.sqrt((of_group - 1) / of_group) / np.where(rest > 0, rest, 1.0), 1.0)
    residual = (sample.costs - ratio[sample.groups] * amounts) * enlarged / sample.mean[sample.groups]
    freedom = np.maximum(sample.drawn - 1, 1)
    own = sample.sums(np.square(residual)) / freedom
    factor = np.square(sample.projected) * sample.unsampled / number
    tail = (1 + confidence) / 2
    by = sample.projected * sample.spreads
    error, of_error = _moderated(sample, factor, own, pooled_variance(by, own))
    # Relative to the group's ratio.
    each = sample.costs / np.where(amounts > 0, amounts, 1.0)
    relative = each / np.where(ratio > 0, ratio, 1.0)[sample.groups]
    center = sample.sums(relative) / number
    spread = sample.sums(np.square(relative - center[sample.groups])) / freedom
    factor = np.square(sample.projected) * sample.unsampled * sample.sums(np.square(share))
    standard, _ = _moderated(sample, factor, spread, pooled_variance(by, spread))
    return _Errors(
        standard,
        error * t_quantile(tail, of_error),
        *_unlike(design, sample, confidence),
        are_alike(sample.groups, each, sample.spreads),
        "target_residuals",
    )


def _moderated(
    sample: _Sample, factor: np.ndarray, own: np.ndarray, prior: float | np.ndarray
) -> tuple[float, float]:
    """Standard error, and its degrees of freedom, of the groups that spread; shape (g,) each."""
    of_all = factor, own, np.broadcast_to(prior, own.shape), sample.drawn - 1.0
    return moderated_error(*(values[sample.spreads] for values in of_all))


def _unlike(design: SampleDesign, sample: _Sample, confidence: float) -> tuple[float, float]:
    """What a uniform sample may have missed of the groups that were drawn from, and what the launches of
    these that were left out are projected to cost."""
    used = sample.spreads
    drawn_from = float(sample.projected[used].sum())
    if not drawn_from > 0:
        return 0.0, 0.0
    # Launches that were drawn are not missed.
    left_out = float((sample.projected * sample.unsampled)[used].sum())
    share = sample.projected[used] / drawn_from
    uniform = 1 / float((np.square(share) / sample.drawn[used]).sum())
    variation = math.sqrt(float((share * np.square(design.cost_cov[used])).sum()))
    return unlike_share(0, uniform, variation, confidence), left_out
