"""Strata of one kernel's instruction counts as the Sieve authors' scripts make them.

    1. density of the distinct counts, Gaussian, one instruction wide, on 50 points from smallest to largest
    2. cut at every point that is no higher than its neighbours (an end is compared with itself)
    3. a group whose distinct counts have CoV > 0.5 is cut once more in the same way

Two points of the grid are far wider apart than one instruction, so this cuts in the middle of every gap that
is wider than about two steps. It gives neither CoV < theta nor few strata; it is here for comparison.

Source: github.com/gpubench/sieve; docs/methods/sieve.md, "Strata". If the counts span so few instructions
that no cut has a count below it, the scripts fail; here they stay one group.
"""

from __future__ import annotations

import numpy as np

_POINTS = 50
_SECOND_PASS_COV = 0.5
_NEGLIGIBLE = 80.0  # in squared distance: a share of exp(-40)


def script_cuts(value: np.ndarray) -> np.ndarray:
    """First atoms of the strata of one kernel, shape (strata,), from 0; ``value`` has shape (u,)."""
    first = _pass(value)
    cuts = []
    for low, high in zip(first.tolist(), [*first[1:].tolist(), len(value)], strict=True):
        group = value[low:high]
        mean = float(group.mean())
        wide = mean > 0 and float(group.std()) / mean > _SECOND_PASS_COV
        cuts.append(low + _pass(group) if wide else np.array([low]))
    return np.concatenate(cuts)


def _pass(value: np.ndarray) -> np.ndarray:
    grid = np.linspace(value[0], value[-1], _POINTS)
    density = _log_density(value, grid)
    before = np.concatenate([density[:1], density[:-1]])
    after = np.concatenate([density[1:], density[-1:]])
    cuts = grid[(density <= before) & (density <= after)]
    first = np.unique(np.concatenate([[0], np.searchsorted(value, cuts, side="left")]))
    return first[first < len(value)]


def _log_density(value: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Log of the sum of exp(-distance^2 / 2) over the values, at each point of the grid; both sorted."""
    right = np.searchsorted(value, grid)
    nearest = np.minimum(
        np.abs(grid - value[np.minimum(right, len(value) - 1)]),
        np.abs(grid - value[np.maximum(right - 1, 0)]),
    )
    reach = np.sqrt(np.square(nearest) + _NEGLIGIBLE)
    low, high = np.searchsorted(value, grid - reach), np.searchsorted(value, grid + reach, side="right")
    logs = np.empty(len(grid))
    for point in range(len(grid)):
        distance = grid[point] - value[low[point] : high[point]]
        relative = 0.5 * (np.square(nearest[point]) - np.square(distance))
        logs[point] = np.log(np.exp(relative).sum()) - 0.5 * np.square(nearest[point])
    return logs
