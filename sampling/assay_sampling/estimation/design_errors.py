"""By how much a sample of launches misses the total, over many draws of its own design, where all costs are
known.

On the recording that launches are drawn from every cost is known, so the distribution of projected - true is
known too, however skewed it is. These draws have a random stream of their own: the result depends on
the design, never on the launches that were drawn.

Source: Cochran, Sampling Techniques, 3rd edition, 2.4-2.6 (a distribution of all possible samples), 5.3 and
6.10 (the two estimators); docs/methods/intervals.md, "Known design".
"""

from __future__ import annotations

import numpy as np

from assay_sampling.estimation.rank_draws import order_by_group

DESIGN_DRAWS = 4096
_LEAST_DRAWS = 512
_STREAM = 0x0A55A7
_LARGEST_PULLS = 512
_DRAWN_LAUNCHES = 1 << 22
_CHUNK_LAUNCHES = 1 << 20


def expansion_errors(costs: np.ndarray, labels: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Projected - true total of further draws, shape (:data:`DESIGN_DRAWS`,), in the unit of the cost.

    projected = sum over groups of N_g x mean cost of its m_g drawn launches

    The 512 launches that move the total most are drawn one by one, exactly. The others are drawn as a
    number, and their sum is normal with its exact mean and variance: without the largest it is not skewed.

    Args:
        costs, labels: of all launches, shape (n,); groups are 0-based.
        drawn: m_g, at least 1, launches drawn of each group, shape (g,).
    """
    sizes = np.bincount(labels, minlength=len(drawn))
    _check(sizes, drawn)
    mean = np.bincount(labels, costs, len(drawn)) / sizes
    # What a launch adds to projected - true if it is drawn; launches of fully drawn groups add nothing.
    pull = (costs - mean[labels]) * np.where(drawn < sizes, sizes / drawn, 0.0)[labels]
    apart = _largest(pull, labels)
    rest = np.ones(len(pull), bool)
    rest[apart] = False
    rest_mean, rest_variance = _moments(pull[rest], labels[rest], len(drawn))
    rng = np.random.default_rng(_STREAM)
    errors, variance = np.zeros(DESIGN_DRAWS), np.zeros(DESIGN_DRAWS)
    counts = np.bincount(labels[apart], minlength=len(drawn))
    none = counts == 0
    variance += float((drawn * (1 - drawn / sizes) * rest_variance)[none].sum())
    ends = np.cumsum(counts)
    for group in np.flatnonzero(counts).tolist():
        quota = np.full(DESIGN_DRAWS, drawn[group], np.int64)
        # Given how many are left to draw from how many launches, each of them is drawn with their quotient.
        launches = int(sizes[group])
        for row in apart[ends[group] - counts[group] : ends[group]].tolist():
            hit = rng.random(DESIGN_DRAWS) * launches < quota
            errors += hit * pull[row]
            quota -= hit
            launches -= 1
        errors += quota * rest_mean[group]
        if launches > 1:
            variance += quota * (1 - quota / launches) * rest_variance[group]
    return np.asarray(errors + rng.standard_normal(DESIGN_DRAWS) * np.sqrt(variance))


def ratio_errors(costs: np.ndarray, amounts: np.ndarray, labels: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Projected - true total of further draws, by a known amount such as instructions, shape (d,).

    projected = sum over groups of X_g x (sum of the drawn costs) / (sum of the drawn amounts), and by the
    number of launches where the drawn ones have no amount

    Args:
        costs, amounts, labels: of all launches, shape (n,); groups are 0-based.
        drawn: m_g, at least 1, launches drawn of each group, shape (g,).

    The ratio is biased in small samples, and so are these errors. Every draw is made whole, 4,096 of them, or
    fewer (at least 512) where that is more than four million launches. Memory: 40 MiB, 32 bytes a launch.
    """
    sizes = np.bincount(labels, minlength=len(drawn))
    _check(sizes, drawn)
    partly = np.flatnonzero(drawn < sizes)
    draws = DESIGN_DRAWS
    if len(partly):
        draws = int(np.clip(_DRAWN_LAUNCHES // int(drawn[partly].sum()), _LEAST_DRAWS, DESIGN_DRAWS))
    order = order_by_group(labels, len(drawn))
    columns = np.stack([costs, amounts])[:, order]
    begin = np.cumsum(sizes) - sizes
    whole = np.bincount(labels, amounts, len(drawn))
    rng = np.random.default_rng(_STREAM)
    errors = np.zeros(draws)
    for group in partly.tolist():
        size, count = int(sizes[group]), int(drawn[group])
        inside = columns[:, begin[group] : begin[group] + size]
        of_costs, of_amounts = _sums_of_draws(inside, count, draws, rng)
        weight = np.full(draws, size / count)
        np.divide(whole[group], of_amounts, out=weight, where=of_amounts > 0)
        errors += weight * of_costs - float(inside[0].sum())
    return errors


def _sums_of_draws(columns: np.ndarray, drawn: int, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Sums of each column, shape (c, draws), over that many draws of ``drawn`` of n launches.

    ``columns`` have shape (c, n). A shuffle of all launches, cut into parts, gives n / drawn draws.
    """
    launches = columns.shape[1]
    parts = launches // drawn
    sums = np.empty((len(columns), draws))
    step = max(1, _CHUNK_LAUNCHES // launches)
    begin = 0
    while begin < draws:
        shuffles = min(step, -(-(draws - begin) // parts))
        rows = rng.permuted(np.tile(np.arange(launches, dtype=np.int32), (shuffles, 1)), axis=1)
        cut = rows[:, : parts * drawn].reshape(shuffles * parts, drawn)[: draws - begin]
        sums[:, begin : begin + len(cut)] = columns[:, cut].sum(axis=2)
        begin += len(cut)
    return sums


def _check(sizes: np.ndarray, drawn: np.ndarray) -> None:
    if len(sizes) != len(drawn) or bool(((drawn < 1) & (sizes > 0)).any()):
        raise ValueError("a group without a drawn launch has no projected total")
    if bool((drawn > sizes).any()):
        raise ValueError("more launches are drawn than the groups have")


def _largest(pull: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Rows of the launches that move the total most, at most 512, in the order of their groups."""
    rows = np.flatnonzero(pull)
    if len(rows) > _LARGEST_PULLS:
        size = np.abs(pull[rows])
        rows = rows[np.argpartition(size, len(rows) - _LARGEST_PULLS)[-_LARGEST_PULLS:]]
    largest: np.ndarray = rows[np.argsort(labels[rows], kind="stable")]
    return largest


def _moments(values: np.ndarray, labels: np.ndarray, groups: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (divisor N - 1) of each group, shape (g,); 0 where there are too few."""
    sizes = np.bincount(labels, minlength=groups)
    mean = np.bincount(labels, values, groups) / np.maximum(sizes, 1)
    squares = np.bincount(labels, np.square(values - mean[labels]), groups)
    return mean, squares / np.maximum(sizes - 1, 1)
