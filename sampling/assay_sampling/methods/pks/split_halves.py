"""PKS judged by halves: K chosen by the costs of one half of the launches, scored on the other.

PKS takes the number of groups whose error is small, and that error is then an optimistic score: of twenty
numbers of groups, the errors of one or another cancel by luck. The groups themselves are made of counters
alone, so that K is all that costs decide. Here

    each signature's launches are divided at random; K and representatives are chosen on one half, and the
    other half is projected: its launches of each group x the cost of that group's representative

and then the other way round. Source: docs/methods/comparing.md, "Fair scores".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from assay_sampling.methods.groups.group_draws import ChosenLaunches, choose_launches
from assay_sampling.methods.pks.principal_kernels import PrincipalKernels, SweepEntry, best_k
from assay_sampling.scoring.evaluation import Cost
from assay_sampling.scoring.trials import Trials, random_half


@dataclass(frozen=True)
class Halving:
    """The launches and groups that are divided, and how PKS chooses among them.

    ``signatures``, shape (n,), are the launches' (0-based); ``rule`` names the representative;
    ``per_group`` is how many launches of each group are drawn, 1 for the representative.
    """

    principal: PrincipalKernels
    cost: Cost
    signatures: np.ndarray
    rule: str
    target_error_percent: float
    per_group: int = 1

    def trials(self, seed: int, count: int) -> Trials:
        """At least ``count`` scores, two for each division."""
        total = float(self.cost.values.sum())
        signed: list[float] = []
        simulated: list[float] = []
        in_interval: list[bool] = []
        for index in range((count + 1) // 2):
            rng = np.random.default_rng([seed, 1 + index])
            first = random_half(self.signatures, rng)
            if first.all() or not first.any():
                continue
            halves = [_Half.of(self, np.flatnonzero(chosen), rng) for chosen in (first, ~first)]
            for chooser, scored in (halves, reversed(halves)):
                k = best_k(chooser.sweep(), self.target_error_percent)
                if self.per_group == 1:
                    error, paid, holds = *scored.projected_by(chooser, k), None
                else:
                    error, paid, holds = scored.drawn(k, seed=[seed, 1 + index])
                signed.append(error)
                simulated.append(paid)
                in_interval += [] if holds is None else [holds]
        return Trials(
            basis="split_halves",
            total=total,
            signed_error_percent=np.array(signed),
            simulated=np.array(simulated),
            in_interval=np.array(in_interval, bool) if in_interval else None,
        )


@dataclass(frozen=True)
class _Half:
    """One half: its rows, and of each distinct launch, m of them, how many it holds, its row here, and the
    order in which they become representatives (the present ones only)."""

    halving: Halving
    rows: np.ndarray
    counts: np.ndarray
    row: np.ndarray
    order: np.ndarray

    @classmethod
    def of(cls, halving: Halving, rows: np.ndarray, rng: np.random.Generator) -> _Half:
        inverse = halving.principal.labels_by_k.inverse
        distinct = int(inverse.max()) + 1
        counts = np.bincount(inverse[rows], minlength=distinct)
        # Written backwards, the first launch of each distinct one is what stays.
        placed = rng.permutation(rows) if halving.rule == "random" else rows[::-1]
        row = np.zeros(distinct, np.int64)
        row[inverse[placed]] = placed
        present = np.flatnonzero(counts)
        if halving.rule == "random":
            # The least of exponential variables: each distinct launch in proportion to its launches.
            order = present[np.argsort(rng.standard_exponential(len(present)) / counts[present])]
        else:
            order = present[np.argsort(row[present], kind="stable")]
        return cls(halving, rows, counts, row, order)

    @property
    def total(self) -> float:
        return float(self.halving.cost.values[self.rows].sum())

    def sweep(self) -> tuple[SweepEntry, ...]:
        """The error of each K on this half, by its own representatives."""
        return tuple(
            SweepEntry(k, abs(self.projected_by(self, k)[0]), None, 0.0)
            for k in self.halving.principal.labels_by_k
        )

    def projected_by(self, chooser: _Half, k: int) -> tuple[float, float]:
        """Signed error in percent of this half, projected from one representative a group that ``chooser``
        has, and what they cost. A group that it lacks projects nothing."""
        labels = self.halving.principal.labels_by_k.of_distinct(k)
        order = chooser.order
        if self.halving.rule == "centre":
            distance = self.halving.principal.grouping.distances(k)
            order = order[np.argsort(distance[order], kind="stable")]
        launches = np.bincount(labels, weights=self.counts)
        representative = np.full(len(launches), -1, np.int64)
        representative[labels[order][::-1]] = order[::-1]
        there = representative >= 0
        costs = self.halving.cost.values[chooser.row[representative[there]]]
        total = self.total
        return 100.0 * (float(launches[there] @ costs) - total) / total, float(costs.sum())

    def drawn(self, k: int, seed: list[int]) -> tuple[float, float, bool | None]:
        """Signed error in percent of launches drawn from the groups of this half, what they cost, and whether
        their interval held."""
        whole = self.halving.cost
        values = whole.values[self.rows]
        _, labels = np.unique(self.halving.principal.labels_by_k[k][self.rows], return_inverse=True)
        chosen = choose_launches(
            labels,
            np.bincount(labels),
            np.empty(0, np.int64),
            replace(whole, values=values),
            per_group=self.halving.per_group,
            seed=int(np.random.default_rng(seed).integers(2**31)),
        )
        paid = values[chosen.rows]
        interval, total = chosen.interval, self.total
        return (
            100.0 * (float(chosen.weights @ paid) - total) / total,
            float(paid.sum()),
            None if interval is None else interval.low <= total <= interval.high,
        )


# Chooses launches for groups, from rows, shape (m,), their groups, shape (m,), and a seed; the rows of the
# result count within those.
Choose = Callable[[np.ndarray, np.ndarray, int], ChosenLaunches]


def halves_of_groups(
    labels: np.ndarray, cost: Cost, signatures: np.ndarray, choose: Choose, *, seed: int, count: int
) -> Trials:
    """At least ``count`` scores of fixed groups, shape (n,), two for each division of the launches.

    Launches of one half that ``choose`` chose stand for the other half; a group that the first half lacks
    stands for itself.
    """
    total = float(cost.values.sum())
    signed: list[float] = []
    simulated: list[float] = []
    for index in range((count + 1) // 2):
        rng = np.random.default_rng([seed, 1 + index])
        first = random_half(signatures, rng)
        if first.all() or not first.any():
            continue
        for half in (first, ~first):
            error, paid = _projected(labels, cost.values, half, choose, int(rng.integers(2**31)))
            signed.append(error)
            simulated.append(paid)
    return Trials("split_halves", total, np.array(signed), np.array(simulated))


def _projected(
    labels: np.ndarray, costs: np.ndarray, half: np.ndarray, choose: Choose, seed: int
) -> tuple[float, float]:
    """Signed error in percent of the launches outside ``half``, and what the representatives in it cost."""
    groups = int(labels.max()) + 1
    rows = np.flatnonzero(half)
    _, compact = np.unique(labels[rows], return_inverse=True)
    chosen = rows[choose(rows, compact, seed).rows]
    drawn = np.bincount(labels[chosen], minlength=groups)
    of_chosen = np.bincount(labels[chosen], costs[chosen], groups)
    there, true = labels[~half], costs[~half]
    mean = np.divide(of_chosen, drawn, out=np.zeros(groups), where=drawn > 0)
    projected = np.where(drawn[there] > 0, mean[there], true)
    total = float(true.sum())
    paid = float(costs[chosen].sum()) + float(true[drawn[there] == 0].sum())
    return 100.0 * (float(projected.sum()) - total) / total if total else 0.0, paid
