"""Launches drawn within groups in proportion to their light time, at equal steps in order of size.

    whole:   launches with d_i >= D / m, taken out again and again, each lowering D by d_i and m by one
    drawn:   m launches at the points (u + k) D / m, k = 0..m - 1, of the running sum of light times, from
             the shortest launch on; u random in [0, 1), one for each group
    total  = costs of the whole ones + sum over drawn ones of cost x D / (m d_i)

A launch is drawn with the probability m d_i / D, so the total has no bias, whatever launches cost there; it
is exact if cost is in proportion to light time. Steps in order of size take short launches and long ones
alike, as their time asks: one of m is among the longest, which have D / m of the time.

Source: Madow, Annals of Mathematical Statistics 1949 (systematic, in proportion to size); Horvitz and
Thompson, Journal of the American Statistical Association 1952; Cochran, Sampling Techniques, 3rd edition,
sections 8.10 and 9A.10; docs/methods/weights.md.
"""

from __future__ import annotations

import numpy as np

from assay_sampling.engines.columns import require_in_memory
from assay_sampling.errors import RefusedError

# Sums of times are rounded: a launch must never be met by two steps.
_ROUNDING = 1e-9


def draw_by_light_time(
    labels: np.ndarray, per_group: int | np.ndarray, light_time: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Rows drawn within each group in proportion to light time, ascending, shape (m,).

    Args:
        labels: group of every launch, shape (n,), 0-based.
        per_group: launches to draw of each group, a number or shape (g,); a smaller group gives all it has.
        light_time: of every launch, shape (n,); launches without any are not drawn.
        rng: the source of randomness.

    Their weights are :func:`drawn_weights`. Raises RefusedError for a group without light time.
    """
    require_in_memory(labels, light_time)
    if not len(labels):
        return np.empty(0, np.int64)
    groups = int(labels.max()) + 1
    timed = light_time > 0
    sizes = np.bincount(labels[timed], minlength=groups)
    counts = np.broadcast_to(np.asarray(per_group, np.int64), sizes.shape)
    if bool(((sizes == 0) & (counts > 0)).any()):
        group = int(np.argmax((sizes == 0) & (counts > 0)))
        raise RefusedError(
            "selection",
            f"group {group} has no light time, so none of its launches can be drawn in proportion to it",
            "leave weights out, or use a light run that measures every launch",
        )
    whole, rest_time, steps = _whole(labels, np.minimum(counts, sizes), light_time)
    others = np.flatnonzero(timed & ~whole & (steps > 0)[labels])
    order = others[np.lexsort((light_time[others], labels[others]))]
    drawn = order[_met_by_steps(labels[order], light_time[order] / rest_time[labels[order]], steps, rng)]
    rows: np.ndarray = np.sort(np.concatenate([np.flatnonzero(whole), drawn]))
    return rows


def _met_by_steps(
    group: np.ndarray, share: np.ndarray, steps: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Which of n launches, group by group, are met by the ``steps``, shape (g,), of each group, ascending;
    ``group`` and ``share``, of the light time of the group, have shape (n,)."""
    groups = len(steps)
    ends = np.cumsum(np.bincount(group, minlength=groups))
    begin = np.concatenate([[0], ends[:-1]])
    # Launches of group g reach from g to g + 1.
    reach = np.cumsum(share)
    reach += group - np.concatenate([[0.0], reach])[begin[group]]
    of_step = np.repeat(np.arange(groups), steps)
    step = np.arange(len(of_step)) - np.repeat(np.cumsum(steps) - steps, steps)
    points = of_step + (rng.random(groups)[of_step] + step) / steps[of_step]
    # Rounding must not carry a step into the next group.
    met: np.ndarray = np.clip(np.searchsorted(reach, points, side="right"), begin[of_step], ends[of_step] - 1)
    return met


def drawn_weights(light_time: np.ndarray, labels: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Weights by light time of launches that :func:`draw_by_light_time` drew, shape (r,): 1 of a launch that
    is taken whole, else the light time of the rest of its group / (launches drawn of that x its own).

    Args:
        light_time: of every launch, shape (n,).
        labels: group of every launch, shape (n,), 0-based.
        rows: those drawn, each once, shape (r,), all with light time.
    """
    groups = int(labels.max(initial=-1)) + 1
    whole, rest_time, steps = _whole(labels, np.bincount(labels[rows], minlength=groups), light_time)
    group = labels[rows]
    shared = np.maximum(steps[group], 1) * light_time[rows]
    weights: np.ndarray = np.where(whole[rows], 1.0, rest_time[group] / shared)
    return weights


def _whole(
    labels: np.ndarray, draws: np.ndarray, light_time: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which of n launches are taken whole if ``draws``, shape (g,), are taken of each group, shape (n,); the
    light time of the others of each group, and how many of them are drawn, shape (g,)."""
    groups = len(draws)
    timed = light_time > 0
    whole = timed & (np.bincount(labels[timed], minlength=groups) <= draws)[labels]
    while True:
        rest_time = np.bincount(labels, np.where(whole, 0.0, light_time), groups)
        steps = np.maximum(draws - np.bincount(labels[whole], minlength=groups), 0)
        long = timed & ~whole & (steps > 0)[labels]
        long &= light_time * steps[labels] >= rest_time[labels] * (1 - _ROUNDING)
        if not long.any():
            return whole, rest_time, steps
        whole |= long
