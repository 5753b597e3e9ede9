"""Groups whose launches do not scale alike from one recording to another: what cancels in a total.

Of a group, ratio = its cost there / its cost here, and

    misfit points  = 100 sum over its launches |cost there - ratio x cost here| / true total there
    spread percent = 100 of the same sum / cost of the group there

A representative whose launch does not scale as its group does is wrong there by the weight it carries, and
errors of both signs hide in the total.

Source: docs/methods/error-decomposition.md, "Across GPUs".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MOST_NAMED = 5


@dataclass(frozen=True)
class GroupSpread:
    """A group, its first representative, and how far its launches are from scaling alike."""

    group: int
    kernel: str
    grid: tuple[int, ...]
    launches: int
    ratio: float
    representative_ratio: float | None
    spread_percent: float
    misfit_points: float
    error_points: float

    def to_dict(self) -> dict[str, object]:
        return {
            "group": self.group,
            "kernel": self.kernel,
            "grid": list(self.grid),
            "launches": self.launches,
            "ratio": self.ratio,
            "representative_ratio": self.representative_ratio,
            "spread_percent": self.spread_percent,
            "misfit_points": self.misfit_points,
            "error_points": self.error_points,
        }


@dataclass(frozen=True)
class Chosen:
    """Representatives as columns, each of shape (r,): rows here and there, groups, weights, kernels, grids
    of shape (r, 3)."""

    rows_here: np.ndarray
    rows_there: np.ndarray
    group: np.ndarray
    weight: np.ndarray
    kernel: tuple[str, ...]
    grid: np.ndarray


def widest_groups(
    here: np.ndarray,
    there: np.ndarray,
    labels: np.ndarray,
    chosen: Chosen,
    *,
    rows_here: np.ndarray | None = None,
    rows_there: np.ndarray | None = None,
    most: int = MOST_NAMED,
) -> tuple[GroupSpread, ...]:
    """The groups of largest misfit, at most ``most``, the largest first.

    Args:
        here, there: cost of every launch of both recordings, in one quantity, shapes (n,), (m,).
        labels: group of every launch here, shape (n,).
        chosen: the representatives.
        rows_here, rows_there: rows of the launches that both hold, shape (p,); None: all, in order.

    Groups whose launches scale alike, up to rounding, are not named.
    """
    left = np.arange(len(here)) if rows_here is None else rows_here
    right = left if rows_there is None else rows_there
    group, cost_here, cost_there = labels[left], here[left], there[right]
    groups = int(max(group.max(initial=-1), chosen.group.max(initial=-1))) + 1
    total_here = np.bincount(group, weights=cost_here, minlength=groups)
    total_there = np.bincount(group, weights=cost_there, minlength=groups)
    ratio = _over(total_there, total_here)
    misfit = np.bincount(group, weights=np.abs(cost_there - ratio[group] * cost_here), minlength=groups)
    projected = np.bincount(chosen.group, weights=chosen.weight * there[chosen.rows_there], minlength=groups)
    of_chosen = [
        np.bincount(chosen.group, weights=costs[rows], minlength=groups)
        for costs, rows in ((there, chosen.rows_there), (here, chosen.rows_here))
    ]
    counts = np.bincount(group, minlength=groups)
    whole = float(there.sum())
    named, first = np.unique(chosen.group, return_index=True)
    order = named[np.argsort(-misfit[named], kind="stable")][:most]
    first_of = dict(zip(named.tolist(), first.tolist(), strict=True))
    return tuple(
        GroupSpread(
            group=index,
            kernel=chosen.kernel[first_of[index]],
            grid=tuple(int(v) for v in chosen.grid[first_of[index]] if v > 0),
            launches=int(counts[index]),
            ratio=float(ratio[index]),
            representative_ratio=float(of_chosen[0][index] / of_chosen[1][index])
            if of_chosen[1][index] > 0
            else None,
            spread_percent=100.0 * float(misfit[index] / total_there[index]),
            misfit_points=100.0 * float(misfit[index]) / whole,
            error_points=100.0 * float(projected[index] - total_there[index]) / whole,
        )
        for index in order.tolist()
        if misfit[index] > _ROUNDING * total_there[index]
    )


_ROUNDING = 1e-9


def _over(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    ratios: np.ndarray = np.divide(
        numerator, denominator, out=np.zeros(len(numerator)), where=denominator > 0
    )
    return ratios
