"""Groups of two levels that never mix kernels: kernel and size of the whole light run, divided by counters.

The window does not decide which kernels and sizes there are, so a longer one never makes groups coarser.
What it has met is kept apart: its kernels share no group, and sizes that only the light run has met are in
groups of their own. Its counters divide a group of kernel and size further where that lowers the held-out
group error of the window's own cost; then models label the launches after the window whose size it has met.

Source: ours; docs/methods/two-level.md, "Groups".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from assay_sampling.labelling.light_run import Labelling
from assay_sampling.launches.in_memory import Launches
from assay_sampling.methods.groups.held_out_groups import HeldOut
from assay_sampling.methods.groups.kernel_groups import KernelGroups, kernel_groups
from assay_sampling.methods.pks.principal_kernels import PrincipalKernels, principal_kernels
from assay_sampling.methods.pks.within_kernels import CounterSplit, counter_split, divided
from assay_sampling.scoring.error_parts.decomposition import ORIGINS
from assay_sampling.scoring.evaluation import cost_of

_MODEL, _UNKNOWN, _ABSTAINED, _SIZE = (
    ORIGINS.index(name) for name in ("model", "unknown", "abstained", "size")
)


@dataclass(frozen=True)
class CarriedGroups:
    """Groups of the n launches of a light run, and the clusters of the window, ``split.k`` of them if they
    divide groups. ``window_rows``, shape (w,), are the rows of the window's launches."""

    groups: KernelGroups
    window: PrincipalKernels
    split: CounterSplit
    window_rows: np.ndarray

    @classmethod
    def of(
        cls,
        light: Launches,
        light_time: np.ndarray,
        window_rows: np.ndarray,
        *,
        of_window: Launches,
        window: PrincipalKernels,
        grouping: Mapping[str, Any],
        seed: int,
    ) -> CarriedGroups:
        """Groups of kernel and size, and whether counters are to divide them.

        Args:
            light, light_time: the whole light run and the time of its launches, shape (n,).
            window_rows, of_window: the window's launches in the light run, shape (w,), and with counters.
            window: their clusters.
            grouping: the parameters of these.
            seed: of the halves that are held out, and of the clusters.
        """
        target = grouping["target_error_percent"]
        groups = kernel_groups(
            light, light_time, target_error_percent=target, seed=seed, window_rows=window_rows
        )
        cost = cost_of(of_window, window.evaluation.quantity).values
        base = groups.labels[window_rows]
        judged = HeldOut.of(cost, groups.cell[window_rows], seed)
        split = counter_split(
            base,
            window.labels_by_k,
            judged,
            replace(groups.chosen, groups=len(np.unique(base))),
            target_error_percent=target,
            k=grouping["k"],
        )
        if split.k not in (1, window.k):
            again = principal_kernels(of_window, **{**grouping, "k": split.k}, seed=seed)
            window = replace(again, sweep=window.sweep)
        return cls(groups, window, split, window_rows)

    def divided_by(self, labelling: Labelling, light_time: np.ndarray, seed: int) -> CarriedGroups:
        """With the groups of kernel and size divided by the clusters that models label, if any are."""
        if self.split.k == 1:
            tried = self.groups.tried
            return replace(
                self, groups=replace(self.groups, tried=(*tried[:-1], *self.split.tried, tried[-1]))
            )
        clusters = np.where(self._met(), labelling.labels(labelling.chosen), 0)
        judged = HeldOut.of(light_time, self.groups.cell, seed)
        return replace(self, groups=divided(self.groups, clusters, self.split, judged))

    def origins(self, labelling: Labelling) -> np.ndarray:
        """How each launch got its group, shape (n,), uint8: numbers of
        :data:`assay_sampling.scoring.error_parts.decomposition.ORIGINS`."""
        by_labels = labelling.origins()
        origin = np.full(len(by_labels), _SIZE, np.uint8)
        origin[by_labels == _UNKNOWN] = _UNKNOWN
        if self.split.k > 1:
            labelled = self._met() & np.isin(by_labels, (_MODEL, _ABSTAINED))
            origin[labelled] = by_labels[labelled]
        origin[self.window_rows] = ORIGINS.index("window")
        return origin

    def unknown_groups(self, labelling: Labelling) -> int:
        """How many groups hold launches of kernels that the window lacks."""
        return len(np.unique(self.groups.labels[labelling.origins() == _UNKNOWN]))

    def first_or_nearest(self, rule: str) -> np.ndarray:
        """The first launch of each group, shape (g,), or with the rule "centre" the one of the window that is
        nearest to the centre of its counters; of a group that the window lacks the first."""
        labels = self.groups.labels
        rows = np.unique(labels, return_index=True)[1]
        if rule == "centre":
            met, compact = np.unique(labels[self.window_rows], return_inverse=True)
            nearest = self.window.grouping.nearest_to_centres(None, compact)
            rows[met] = self.window_rows[nearest]
        return rows

    def _met(self) -> np.ndarray:
        """Whether the window has met the kernel and size of each launch, shape (n,)."""
        cell = self.groups.cell
        met = np.zeros(int(cell.max()) + 1, bool)
        met[cell[self.window_rows]] = True
        mask: np.ndarray = met[cell]
        return mask
