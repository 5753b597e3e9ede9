"""Launches that dominate the cost: taken whole as strata of their own, or warned of where they are drawn.

Which ones they are is decided by the costs and the number of launches to draw, before the draw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from assay_sampling.estimation.proportional_draws import taken_whole
from assay_sampling.notes.registry import Note, make_note

Dominating = Literal["drawn", "whole"]


@dataclass(frozen=True)
class DominatingLaunches:
    """``rows``, shape (w,), ascending, of the launches with at least their share of the cost, and that
    ``cost_percent`` of all."""

    rows: np.ndarray
    cost_percent: float

    @classmethod
    def among(cls, costs: np.ndarray, launches: int) -> DominatingLaunches:
        """Those of ``costs``, shape (n,), if that many ``launches`` are drawn: cost >= cost of those that are
        not larger / launches left to draw, the largest first."""
        rows = np.sort(taken_whole(costs, launches))
        total = float(costs.sum())
        return cls(rows, 100.0 * float(costs[rows].sum()) / total if total > 0 else 0.0)

    def apart(self, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Strata of all launches, shape (n,), with these in strata of their own, one for each group that has
        any; and which strata those are, shape (g,). No stratum is empty."""
        groups = int(labels.max()) + 1
        moved = labels.astype(np.int64)
        moved[self.rows] += groups
        numbers, strata = np.unique(moved, return_inverse=True)
        return strata, numbers >= groups

    def facts(self) -> dict[str, Any]:
        """``taken_whole`` of a selection; empty if there is no such launch."""
        if not len(self.rows):
            return {}
        return {"taken_whole": {"launches": len(self.rows), "cost_percent": self.cost_percent}}

    def warnings(self, *, all_drawn: bool) -> tuple[Note, ...]:
        """Of a method that draws these launches like all others; none where every launch is drawn."""
        if all_drawn or not len(self.rows):
            return ()
        note = make_note("launches_dominate", launches=len(self.rows), cost_percent=self.cost_percent)
        return (note,)
