"""The launch at which cumulative time, in the order of duration, reaches half of its group's: the median of
launches that count by their time. Half of the group's time is in launches that are no longer than it.

Of launches with that time the first is taken. Source: docs/methods/pks.md, "Representatives".
Memory: 40 bytes a launch.
"""

from __future__ import annotations

import numpy as np

from assay_sampling.engines.columns import place_of
from assay_sampling.methods.kernel_values import kernel_values

# Rounding of cumulative sums must not carry the half beyond the launch that reaches it exactly.
_ROUNDING = 1e-12


def weighted_median_rows(labels: np.ndarray, time: np.ndarray) -> np.ndarray:
    """Row of the weighted median of each group, shape (g,).

    ``labels``, 0-based with no group empty, and ``time``, finite and at least 0, have shape (n,). Of a group
    without any time it is the first launch.
    """
    if place_of(labels, time) is not None:
        return _on_disk(labels, time)
    order = np.lexsort((time, labels))
    of_group = labels[order]
    ordered = time[order]
    starts = np.flatnonzero(np.diff(of_group, prepend=-1))
    at = _reaching_half(ordered, starts)
    # Equal times are in the order of their rows.
    changes = np.ones(len(order), bool)
    changes[1:] = (np.diff(of_group) != 0) | (np.diff(ordered) != 0)
    run = np.maximum.accumulate(np.where(changes, np.arange(len(order)), 0))
    rows: np.ndarray = order[run[at]]
    return rows


def _on_disk(labels: np.ndarray, time: np.ndarray) -> np.ndarray:
    """As above, from the distinct times of each group."""
    atoms = kernel_values(labels, time)
    at = _reaching_half(atoms.value * atoms.count, atoms.kernel_start[:-1])
    rows = atoms.first_row[at]
    # Groups are numbered there in the order of their first launch.
    median_rows = np.empty(len(rows), np.int64)
    median_rows[labels[rows]] = rows
    return median_rows


def _reaching_half(weights: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Of each stretch from one of ``starts`` to the next, where its cumulative weight reaches half."""
    ends = np.append(starts[1:], len(weights))
    sums = np.concatenate([[0.0], np.cumsum(weights, dtype=np.float64)])
    before, after = sums[starts], sums[ends]
    half = before + (after - before) / 2 * (1 - _ROUNDING)
    places: np.ndarray = np.clip(np.searchsorted(sums[1:], half), starts, ends - 1)
    return places
