"""Interval of the speedup between two designs that simulated the same representatives.

    speedup R = A / B    A = sum of weight x cycles on the first design, B on the second
    z_i = weight_i x (a_i / A - b_i / B): what launch i adds to a relative error of R, by linearising log R

The z of all launches add up to 0. Within a stratum their deviations from what its drawn launches have in
common are what another draw would change, so the variance of log R is a sum over strata, each moderated
towards that of all. It is of the draw alone: no cold caches, no error of the simulator.

A stratum of which one launch of several was drawn has no deviation, and one chosen by a rule none that means
anything: their share of the cycles is not vouched for. Launches that were all simulated have no error.

Source: Cochran, Sampling Techniques, 3rd edition, sections 5.3, 6.5 and 6.11 (two ratios of one sample), 9A.3
(draws in proportion); docs/methods/designs.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from assay_sampling.estimation.intervals import DEFAULT_CONFIDENCE
from assay_sampling.estimation.moderated_errors import LEAST_SPREAD, moderated_error, pooled_variance
from assay_sampling.estimation.sample_design import COUNTED_DRAWS, SampleDesign
from assay_sampling.estimation.student_t import t_quantile
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.parameters import WeightKind

# A launch taken whole stands for itself; sums of times are rounded.
_WHOLE = 1 + 1e-9


@dataclass(frozen=True)
class SpeedupInterval:
    """The interval of a speedup, or the ``reason`` why there is none.

    ``not_vouched_percent`` is the share of the cycles, the mean of both designs, in strata that no draw
    vouches for.
    """

    not_vouched_percent: float
    low: float | None = None
    high: float | None = None
    confidence: float = DEFAULT_CONFIDENCE
    reason: Note | None = None


def speedup_interval(
    design: SampleDesign | None,
    cycles: tuple[np.ndarray, np.ndarray],
    groups: np.ndarray,
    weights: np.ndarray,
    *,
    kind: WeightKind,
    confidence: float = DEFAULT_CONFIDENCE,
) -> SpeedupInterval:
    """Interval of sum(weights x first cycles) / sum(weights x second cycles).

    Args:
        design: how the representatives were drawn; None if nobody knows.
        cycles: positive cycles of the representatives on the first and the second design, shape (r,) each.
        groups: their strata, 0-based, shape (r,).
        weights: theirs, of ``kind``, shape (r,).
        kind: what the weights count.
        confidence: in (0, 1).
    """
    first, second = cycles
    a, b = (weights * each / float((weights * each).sum()) for each in cycles)
    share, pull = (a + b) / 2, a - b
    if design is None:
        return SpeedupInterval(100.0, reason=make_note("interval_of_no_draw"))
    if design.drawing in COUNTED_DRAWS and design.draws is not None:
        strata = _in_proportion(share, pull, design.draws)
    else:
        strata = _within_groups(design, (share, pull), groups, weights, kind=kind)
    not_vouched = 100.0 * strata.not_vouched
    if not strata.left_out:
        return SpeedupInterval(0.0, reason=make_note("interval_of_all_launches"))
    if design.drawing == "rule" or not len(strata.factor):
        code = "interval_of_no_draw" if design.drawing == "rule" else "interval_of_single_launch"
        return SpeedupInterval(not_vouched, reason=make_note(code))
    if kind != "light_time" and design.drawing != "uniform":
        reason = make_note("interval_of_weights_not_drawn_for", weights=kind, drawing=design.drawing)
        return SpeedupInterval(not_vouched, reason=reason)
    error, freedom = moderated_error(
        strata.factor, strata.own, pooled_variance(strata.share, strata.own), strata.freedom
    )
    half = error * t_quantile((1 + confidence) / 2, max(freedom, 1.0))
    speedup = float((weights * first).sum() / (weights * second).sum())
    return SpeedupInterval(
        not_vouched, speedup * math.exp(-half), speedup * math.exp(half), confidence=confidence
    )


@dataclass(frozen=True)
class _Strata:
    """Strata of which at least two launches were drawn and some left out, each of shape (s,): their ``share``
    of the cycles, the ``factor`` of their relative variance, their ``own`` one and its ``freedom``;
    ``not_vouched`` is the share of the others that left launches out, ``left_out`` whether any did."""

    share: np.ndarray
    factor: np.ndarray
    own: np.ndarray
    freedom: np.ndarray
    not_vouched: float
    left_out: bool


def _within_groups(
    design: SampleDesign,
    shares: tuple[np.ndarray, np.ndarray],
    groups: np.ndarray,
    weights: np.ndarray,
    *,
    kind: WeightKind,
) -> _Strata:
    """Strata of launches drawn within groups; those taken whole by their length stand for themselves."""
    count = len(design.launches)
    in_steps = design.drawing == "light_time"
    stands = weights > _WHOLE if in_steps else np.ones(len(groups), bool)
    of, share, pull = groups[stands], shares[0][stands], shares[1][stands]
    drawn = np.bincount(of, minlength=count)
    whole = np.bincount(groups[~stands], minlength=count)
    partly = drawn + whole < design.launches
    spreads = partly & (drawn >= 2) & (design.drawing != "rule")
    amounts = np.ones(len(of))
    if kind == "light_time" and not in_steps and design.light_time is not None:
        amounts = design.light_time[stands]
    of_groups = np.bincount(of, share, count)
    common = np.bincount(of, pull, count) / np.maximum(np.bincount(of, amounts, count), 1e-300)
    deviations = pull - common[of] * amounts
    number = np.maximum(drawn, 1)
    each = np.where(of_groups > 0, of_groups, 1.0) / number
    own = np.bincount(of, np.square(deviations), count) / np.maximum(drawn - 1, 1) / np.square(each)
    unsampled = 1 - drawn / np.maximum(design.launches - whole, 1)
    return _Strata(
        share=of_groups[spreads],
        factor=(np.square(of_groups) * unsampled / number)[spreads],
        own=own[spreads],
        freedom=(drawn - 1.0)[spreads],
        not_vouched=float(of_groups[partly & ~spreads].sum()),
        left_out=bool(partly.any()),
    )


def _in_proportion(share: np.ndarray, pull: np.ndarray, draws: np.ndarray) -> _Strata:
    """The one stratum of launches drawn in proportion to light time or its root, as if with replacement;
    launches taken whole have no error."""
    drawn = draws > 0
    number, of_drawn = int(draws.sum()), float(share[drawn].sum())
    spreads = number >= 2 and of_drawn > 0
    each = pull[drawn] / draws[drawn]
    mean = float(pull[drawn].sum()) / max(number, 1)
    squares = float((draws[drawn] * np.square(each - mean)).sum())
    own = squares / max(number - 1, 1) / (of_drawn / max(number, 1)) ** 2 if spreads else 0.0
    rows = slice(0, 1 if spreads else 0)
    return _Strata(
        share=np.array([of_drawn])[rows],
        factor=np.array([of_drawn**2 / max(number, 1)])[rows],
        own=np.array([max(own, LEAST_SPREAD**2)])[rows],
        freedom=np.array([number - 1.0])[rows],
        not_vouched=0.0 if spreads else of_drawn,
        left_out=bool(drawn.any()),
    )
