"""Intervals of totals projected on the recording that launches were drawn from, where all costs are known.

projected - true has a known distribution (:mod:`assay_sampling.estimation.design_errors`), so the interval is
projected - its upper quantile to projected - its lower quantile: of a hundred draws of the design 95 hold the
truth, however skewed the costs are, and whether or not a draw met the few launches that hold most of them.
"""

from __future__ import annotations

import hashlib

import numpy as np

from assay_sampling.engines.columns import require_in_memory
from assay_sampling.estimation.design_errors import expansion_errors, ratio_errors
from assay_sampling.estimation.intervals import DEFAULT_CONFIDENCE, Interval

# Sums of costs in another order differ by this share of the total.
_ROUNDING = 1e-12
# Methods that are compared draw with one seed after the other, each from the same design.
_MOST_KEPT = 2
_errors_by_key: dict[bytes, np.ndarray] = {}


def known_design_interval(
    costs: np.ndarray,
    labels: np.ndarray,
    rows: np.ndarray,
    *,
    amounts: np.ndarray | None = None,
    errors: np.ndarray | None = None,
    confidence: float = DEFAULT_CONFIDENCE,
) -> Interval:
    """Interval of the total that launches drawn at random within groups project on their own recording.

    Args:
        costs, labels: of all launches, shape (n,); groups are 0-based, and of each a launch was drawn.
        rows: of the drawn launches, shape (m,).
        amounts: of all launches, shape (n,), where the total is projected by them: the ratio estimator.
        errors: of this design, as :func:`errors_of_design` finds them, if they are known already.
        confidence: in (0, 1).

    Its width depends on how many launches are drawn of which groups, not on which ones, except that no bound
    is below the cost of those drawn.
    """
    require_in_memory(costs, labels)
    groups = labels[rows]
    sizes = np.bincount(labels)
    drawn = np.bincount(groups, minlength=len(sizes))
    if errors is None:
        errors = errors_of_design(costs, labels, drawn, amounts)
    weights = sizes / drawn
    if amounts is not None:
        by_drawn = np.bincount(groups, amounts[rows], len(sizes))
        np.divide(np.bincount(labels, amounts), by_drawn, out=weights, where=by_drawn > 0)
    projected = float(weights[groups] @ costs[rows])
    return interval_of_errors(
        projected,
        errors,
        total=float(costs.sum()),
        drawn_cost=float(costs[rows].sum()),
        confidence=confidence,
    )


def errors_of_design(
    costs: np.ndarray, labels: np.ndarray, drawn: np.ndarray, amounts: np.ndarray | None = None
) -> np.ndarray:
    """Projected - true total of many draws, shape (d,), of ``drawn`` launches of each group, shape (g,).

    Those of the last designs are kept: it is read-only.
    """
    key = _digest(costs, labels, drawn, amounts)
    errors = _errors_by_key.get(key)
    if errors is None:
        if amounts is None:
            errors = expansion_errors(costs, labels, drawn)
        else:
            errors = ratio_errors(costs, amounts, labels, drawn)
        errors.setflags(write=False)
        for oldest in list(_errors_by_key)[: 1 - _MOST_KEPT]:
            _errors_by_key.pop(oldest, None)
        _errors_by_key[key] = errors
    return errors


def _digest(*arrays: np.ndarray | None) -> bytes:
    """One of all bits of the arrays, 1 s for 10^9 bytes."""
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        if array is not None:
            digest.update(f"{array.dtype.str} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.digest()


def interval_of_errors(
    projected: float,
    errors: np.ndarray,
    *,
    total: float,
    drawn_cost: float,
    confidence: float = DEFAULT_CONFIDENCE,
) -> Interval:
    """The interval of one draw, from ``errors``, shape (d,): projected - true of many draws of its design.

    ``total`` and ``drawn_cost``, of all and of the drawn launches, are in the unit of the cost. It contains
    ``projected``; no bound is below ``drawn_cost``. ``basis`` is "known_design".
    """
    below, above = reach_of_errors(errors, confidence=confidence)
    # Where all was drawn, nothing is summed in another order.
    rounding = _ROUNDING * total if drawn_cost < total else 0.0
    below, above = below + rounding, above + rounding
    upper = max(projected + above, drawn_cost)
    expected = float(np.abs(errors).mean())
    return Interval(
        min(max(projected - below, drawn_cost), upper),
        upper,
        100.0 * expected / projected if projected > 0 else 0.0,
        "known_design",
        confidence,
    )


def reach_of_errors(errors: np.ndarray, *, confidence: float = DEFAULT_CONFIDENCE) -> tuple[float, float]:
    """How far an interval reaches below and above the projected total, both at least 0, in the unit of the
    ``errors``, shape (d,)."""
    tail = (1 - confidence) / 2
    # Outwards: a draw that is as far off as a quantile is held.
    low = float(np.quantile(errors, tail, method="lower"))
    high = float(np.quantile(errors, 1 - tail, method="higher"))
    return max(high, 0.0), max(-low, 0.0)
