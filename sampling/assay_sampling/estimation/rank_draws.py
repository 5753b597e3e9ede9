"""Launches drawn at random within groups, without replacement, for any number of groups at once.

It draws ranks within the groups rather than sorting launches at random: the cost is one radix pass over the
launches, and the launches drawn.
"""

from __future__ import annotations

import numpy as np

from assay_sampling.engines.columns import blocks, place_of

_DIGIT_BITS = 16


def draw_rows(
    labels: np.ndarray, sizes: np.ndarray, draws: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Rows drawn uniformly without replacement within each group, and the group of each, both of shape (m,).

    Args:
        labels: group of every launch, shape (n,), 0-based.
        sizes, draws: launches of each group and how many of them to draw, shape (g,), int64.
        rng: the source of randomness.

    They are in the order of (group, row). Memory: 24 bytes a launch.
    """
    groups, ranks = draw_ranks(sizes, draws, rng)
    if place_of(labels) is not None:
        return _rows_on_disk(labels, len(sizes), groups, ranks), groups
    begin = np.cumsum(sizes) - sizes
    return order_by_group(labels, len(sizes))[begin[groups] + ranks], groups


def _rows_on_disk(labels: np.ndarray, count: int, groups: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """The rows of these ranks within these groups, shape (m,), found block by block."""
    rows = np.empty(len(groups), np.int64)
    before = np.zeros(count, np.int64)
    for block in blocks(len(labels), labels):
        here = labels[block].astype(np.int64)
        sizes = np.bincount(here, minlength=count)
        within = ranks - before[groups]
        mine = np.flatnonzero((within >= 0) & (within < sizes[groups]))
        if mine.size:
            begin = np.cumsum(sizes) - sizes
            rows[mine] = block.start + order_by_group(here, count)[begin[groups[mine]] + within[mine]]
        before += sizes
    return rows


def draw_ranks(
    sizes: np.ndarray, draws: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Distinct ranks 0..sizes[g] - 1, draws[g] of them for each group: groups and ranks, shape (m,).

    They are drawn with replacement until enough are distinct; if more than half of a group is drawn, the
    ranks to leave out are drawn instead.
    """
    others = 2 * draws > sizes
    fewer = np.where(others, sizes - draws, draws)
    begin = np.cumsum(sizes) - sizes
    places = np.empty(0, np.int64)
    missing = fewer
    while missing.any():
        group = np.repeat(np.arange(len(sizes)), missing)
        # floor(u x size) < size for u < 1 and any size below 2^53.
        rank = (rng.random(len(group)) * sizes[group]).astype(np.int64)
        places = np.unique(np.concatenate([places, begin[group] + rank]))
        have = np.bincount(np.searchsorted(begin, places, side="right") - 1, minlength=len(sizes))
        missing = fewer - have
    if others.any():
        chosen = np.repeat(others, sizes)
        chosen[places] ^= True
        places = np.flatnonzero(chosen)
    group = np.searchsorted(begin, places, side="right") - 1
    return group, places - begin[group]


def order_by_group(labels: np.ndarray, groups: int) -> np.ndarray:
    """Rows in the order of (group, row), shape (n,): a radix sort, whatever the number of groups."""
    order = np.argsort((labels & 0xFFFF).astype(np.uint16), kind="stable")
    shift = _DIGIT_BITS
    while (groups - 1) >> shift > 0:
        digit = ((labels[order] >> shift) & 0xFFFF).astype(np.uint16)
        order = order[np.argsort(digit, kind="stable")]
        shift += _DIGIT_BITS
    return order
