"""The group error of a division into groups, judged on launches that did not choose its representatives.

The launches of each cell (kernel and size) are divided into halves at random. The representative of every
group comes from one half, the launch at which cumulative time reaches half, and the other half is projected:

    held-out group error = 100 x sum over cells of |launches of the group x its cost - cost| / cost of all

and the other way round. Cells are the same for every division that is judged, so merging cells cannot hide
an error. A group that one half lacks is projected by the other: of a single launch that is the launch itself.

Source: docs/methods/pks.md, "Groups". Memory: 60 bytes a judged launch, at most JUDGED_LAUNCHES of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from assay_sampling.engines.blockwise import count_where
from assay_sampling.methods.groups.weighted_median import weighted_median_rows
from assay_sampling.scoring.trials import random_half

JUDGED_LAUNCHES = 100_000
# The random stream of the judged launches and their halves.
_STREAM = 7


@dataclass(frozen=True)
class HeldOut:
    """Some of n launches: ``rows``, shape (m,), ascending, with their ``cost`` and ``cell``, shape (m,);
    ``first`` says which are in the first half."""

    rows: np.ndarray
    cost: np.ndarray
    cell: np.ndarray
    first: np.ndarray

    @classmethod
    def of(cls, cost: np.ndarray, cell: np.ndarray, seed: int) -> HeldOut:
        """At most JUDGED_LAUNCHES launches, drawn at random; ``cost`` and ``cell`` have shape (n,)."""
        rng = np.random.default_rng([seed, _STREAM])
        rows = np.arange(len(cost))
        if len(cost) > JUDGED_LAUNCHES:
            rows = np.sort(rng.choice(len(cost), JUDGED_LAUNCHES, replace=False, shuffle=False))
        of_rows = np.unique(cell[rows], return_inverse=True)[1]
        return cls(rows, np.asarray(cost[rows], np.float64), of_rows, random_half(of_rows, rng))

    def group_error_percent(self, labels: np.ndarray) -> float:
        """The held-out group error in percent of groups ``labels``, shape (m,); 0 where nothing costs."""
        total = float(self.cost.sum())
        if total <= 0:
            return 0.0
        wrong = 0.0
        of_group = np.unique(labels, return_inverse=True)[1]
        for judged, projected in self._projections(of_group):
            cells = self.cell[judged]
            wrong += float(
                np.abs(np.bincount(cells, projected) - np.bincount(cells, self.cost[judged])).sum()
            )
        return 100.0 * wrong / total

    def _projections(self, labels: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For each half the other one, as a mask, and the cost that is projected for each of its launches."""
        halves = (self.first, ~self.first)
        groups = int(labels.max()) + 1
        costs = []
        for half in halves:
            medians = np.full(groups, np.nan)
            rows = np.flatnonzero(half)
            if count_where(self.cost[rows], lambda part: part > 0):
                of_rows, compact = np.unique(labels[rows], return_inverse=True)
                medians[of_rows] = self.cost[rows[weighted_median_rows(compact, self.cost[rows])]]
            costs.append(medians)
        for index, judged in enumerate((halves[1], halves[0])):
            own, other = costs[1 - index], costs[index]
            value = np.nan_to_num(np.where(np.isnan(other), own, other))
            yield judged, value[labels[judged]]
