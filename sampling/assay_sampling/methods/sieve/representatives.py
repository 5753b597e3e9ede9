"""Which launch stands for a stratum, and with what weight.

Where a stratum has launches with instructions, only those are considered: the others could not be scaled.

Source: Sieve (ISPASS'23), section III-C; docs/methods/sieve.md.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from assay_sampling.engines.columns import engine_of, place_of
from assay_sampling.engines.seam import ArrayRows
from assay_sampling.estimation.rank_draws import draw_rows
from assay_sampling.launches.in_memory import Launches
from assay_sampling.methods.kernel_values import KernelValues, first_rows, value_codes
from assay_sampling.methods.sieve.tiers import Strata
from assay_sampling.methods.thread_counts import threads

Rule = Literal["first_dominant", "median", "nearest_mean"]
DominantKey = Literal["block_threads", "thread_count"]


def representatives(
    launches: Launches, values: KernelValues, strata: Strata, rule: Rule, dominant_key: DominantKey
) -> np.ndarray:
    """Row of the representative of every stratum, shape (s,).

    Tier 1: the first launch. Else ``first_dominant``: the first launch of the stratum's most frequent
    ``dominant_key``; ``median`` (the authors' scripts): in tier 2 the most frequent key, in it the most
    frequent instruction count, the first launch with both; in tier 3 the first launch of the upper median
    of the distinct counts; ``nearest_mean``: the first launch of the count nearest to the mean. Ties go to
    the one that comes first.
    """
    if rule == "nearest_mean":
        return _nearest_mean(values, strata)
    usable = _usable(values, strata)
    key = threads(launches, ("block",) if dominant_key == "block_threads" else ("block", "grid"))
    if place_of(key) is not None:
        rows = _beyond_memory(rule, values, strata, usable, key)
    elif rule == "first_dominant":
        rows = _first_dominant(values.groups(strata.start), usable[values.atom], key, len(strata))
    else:
        rows = _median(values, strata, usable, key)
    of_first_tier = strata.tier == 1
    rows[of_first_tier] = values.first_row[strata.start[:-1][of_first_tier]]
    return rows


def weights(values: KernelValues, strata: Strata, rows: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Weight of each representative, shape (r,): instructions of the stratum / those of its representatives.

    ``rows`` and ``groups`` have shape (r,). Where the representatives execute none, the weight is launches /
    representatives.
    """
    chosen = np.bincount(groups, values.value[values.atom[rows]], len(strata))
    drawn = np.bincount(groups, minlength=len(strata))
    plain = strata.launches / np.maximum(drawn, 1)
    ratio = np.divide(strata.instructions, chosen, out=plain, where=chosen > 0)
    weights_of_rows: np.ndarray = ratio[groups]
    return weights_of_rows


def random_representatives(
    values: KernelValues, strata: Strata, per_group: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows drawn at random within each stratum, and their strata, both of shape (r,), in order of stratum."""
    sizes = strata.launches.astype(np.int64)
    draws = np.minimum(sizes, per_group)
    return draw_rows(values.groups(strata.start), sizes, draws, np.random.default_rng(seed))


def _usable(values: KernelValues, strata: Strata) -> np.ndarray:
    """Whether launches of an atom may stand for their stratum, shape (u,)."""
    without = np.repeat(strata.instructions == 0, np.diff(strata.start))
    usable: np.ndarray = (values.value > 0) | without
    return usable


def _first_dominant(group: np.ndarray, usable: np.ndarray, key: np.ndarray, groups: int) -> np.ndarray:
    """First row of the most frequent key of each group, shape (groups,), among the usable rows."""
    if usable.all():
        return _most_frequent(group, key, groups)
    rows = np.flatnonzero(usable)
    first: np.ndarray = rows[_most_frequent(group[rows], key[rows], groups)]
    return first


def _most_frequent(group: np.ndarray, key: np.ndarray, groups: int) -> np.ndarray:
    """First row of the most frequent key in each group, shape (groups,); ties go to the earlier row."""
    key_code, keys = value_codes(key)
    pair, pairs = value_codes(group * len(keys) + key_code)
    first = first_rows(pair, len(pairs))
    of_group = pairs // len(keys)
    order = np.lexsort((first, -np.bincount(pair, minlength=len(pairs)), of_group))
    first_of_group: np.ndarray = first[order[np.searchsorted(of_group, np.arange(groups))]]
    return first_of_group


def _median(values: KernelValues, strata: Strata, usable: np.ndarray, key: np.ndarray) -> np.ndarray:
    middle = strata.start[:-1] + np.diff(strata.start) // 2
    rows: np.ndarray = values.first_row[middle]
    second = np.flatnonzero(strata.tier == 2)
    if second.size:
        position = np.full(len(strata), -1, np.int64)
        position[second] = np.arange(len(second))
        group = position[values.groups(strata.start)]
        inside = np.flatnonzero((group >= 0) & usable[values.atom])
        group, key = group[inside], key[inside]
        dominant = key[_most_frequent(group, key, len(second))]
        same = np.flatnonzero(key == dominant[group])
        chosen = _most_frequent(group[same], values.atom[inside[same]], len(second))
        rows[second] = inside[same[chosen]]
    return rows


def _beyond_memory(
    rule: Rule, values: KernelValues, strata: Strata, usable: np.ndarray, key: np.ndarray
) -> np.ndarray:
    """As ``_first_dominant`` and ``_median``, from the launches on disk grouped by atom and key."""
    of_atom = np.repeat(np.arange(len(strata)), np.diff(strata.start))
    pairs = engine_of(key).groups(ArrayRows({"atom": values.atom, "key": key}), ["atom", "key"])
    chosen = np.flatnonzero(usable[pairs.key("atom")])
    atom, key_of = pairs.key("atom")[chosen].astype(np.int64), pairs.key("key")[chosen]
    group, count, first = of_atom[atom], pairs.count[chosen], pairs.first_row[chosen]
    # Pairs of stratum and key, with their launches and the first of these.
    order = np.lexsort((first, key_of, group))
    begins = np.flatnonzero(
        np.concatenate([[True], (np.diff(group[order]) != 0) | (np.diff(key_of[order]) != 0)])
    )
    pair_group, pair_key = group[order][begins], key_of[order][begins]
    pair_count = np.add.reduceat(count[order], begins)
    pair_first = np.minimum.reduceat(first[order], begins)
    best = _best_of_each(pair_group, pair_count, pair_first, len(strata))
    if rule == "first_dominant":
        first_rows_of: np.ndarray = pair_first[best]
        return first_rows_of
    rows: np.ndarray = values.first_row[strata.start[:-1] + np.diff(strata.start) // 2]
    second = strata.tier == 2
    same = np.flatnonzero(second[group] & (key_of == pair_key[best][group]))
    if same.size:
        winner = _best_of_each(group[same], count[same], first[same], len(strata))[second]
        rows[second] = first[same][winner]
    return rows


def _best_of_each(group: np.ndarray, count: np.ndarray, first: np.ndarray, groups: int) -> np.ndarray:
    """Of each group the entry of the largest count, shape (groups,); ties go to the least ``first``."""
    order = np.lexsort((first, -count, group))
    places = np.minimum(np.searchsorted(group[order], np.arange(groups)), len(order) - 1)
    best: np.ndarray = order[places]
    return best


def _nearest_mean(values: KernelValues, strata: Strata) -> np.ndarray:
    sizes = np.diff(strata.start)
    mean = np.repeat(strata.instructions / strata.launches, sizes)
    distance = np.abs(values.value - mean)
    distance[~_usable(values, strata)] = np.inf
    nearest = np.repeat(np.minimum.reduceat(distance, strata.start[:-1]), sizes)
    hits = np.flatnonzero(distance == nearest)
    rows: np.ndarray = values.first_row[hits[np.searchsorted(hits, strata.start[:-1])]]
    return rows
