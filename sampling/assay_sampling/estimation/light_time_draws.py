"""Launches drawn within groups for weights by light time: samples in proportion to their light time.

Of each group the first launch is drawn in proportion to its light time, the others uniformly from the rest,
all without replacement. Every possible sample then has a probability in proportion to the sum of its light
times, and the ratio estimator D_g x (costs of the sample) / (light times of the sample) has no bias,
whatever the cost. Of samples drawn uniformly it has one where cost per time depends on the size.

Source: Lahiri, Bulletin of the International Statistical Institute 33 (1951); Midzuno, Annals of the
Institute of Statistical Mathematics 3 (1952); Cochran, Sampling Techniques, 3rd edition, section 6.15.
"""

from __future__ import annotations

import numpy as np

from assay_sampling.engines.columns import require_in_memory
from assay_sampling.errors import RefusedError
from assay_sampling.estimation.rank_draws import draw_ranks, order_by_group


def draw_by_light_time(
    labels: np.ndarray, per_group: int | np.ndarray, light_time: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Rows drawn within each group in proportion to light time, ascending, shape (m,).

    Args:
        labels: group of every launch, shape (n,), 0-based.
        per_group: launches to draw of each group, a number or shape (g,); a smaller group gives all it has.
        light_time: of every launch, shape (n,); launches without any are not drawn.
        rng: the source of randomness.

    Raises RefusedError for a group without light time.
    """
    require_in_memory(labels, light_time)
    if not len(labels):
        return np.empty(0, np.int64)
    groups = int(labels.max()) + 1
    timed = np.flatnonzero(light_time > 0)
    order = timed[order_by_group(labels[timed], groups)]
    sizes = np.bincount(labels[timed], minlength=groups)
    asked = np.broadcast_to(np.asarray(per_group, np.int64), sizes.shape)
    if bool(((sizes == 0) & (asked > 0)).any()):
        group = int(np.argmax((sizes == 0) & (asked > 0)))
        raise RefusedError(
            "selection",
            f"group {group} has no light time, so none of its launches can be drawn in proportion to it",
            "leave weights out, or use a light run that measures every launch",
        )
    wanted = np.minimum(asked, sizes)
    begin = np.cumsum(sizes) - sizes
    first = _first_ranks(light_time[order], begin, sizes, rng)
    used = np.flatnonzero(wanted > 0)
    others, ranks = draw_ranks(sizes[used] - 1, wanted[used] - 1, rng)
    of_group = used[others]
    # The ranks of the others leave out the launch that was drawn first.
    ranks = ranks + (ranks >= first[of_group])
    drawn: np.ndarray = np.sort(order[np.concatenate([begin[used] + first[used], begin[of_group] + ranks])])
    return drawn


def _first_ranks(
    times: np.ndarray, begin: np.ndarray, sizes: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Rank within its group of one launch of each, drawn in proportion to its time, shape (g,)."""
    ends = np.cumsum(times)
    before = np.concatenate([[0.0], ends])[begin]
    of_group = np.concatenate([[0.0], ends])[begin + sizes] - before
    position = np.searchsorted(ends, before + rng.random(len(sizes)) * of_group, side="right")
    # Rounding must not carry a draw into the next group.
    found: np.ndarray = np.clip(position - begin, 0, np.maximum(sizes - 1, 0))
    return found
