"""Where the error of a projected total comes from: signed parts, in points of the truth, that add up to it.

One fixed order of steps leads from the projection to the truth. Each step replaces one thing that is not
true by the measured one, and its part is what that changes:

    1. projected costs of representatives -> their costs simulated to the end    projection within launches
    2. costs with cold caches -> costs in the recording                          cold start
    3. representatives -> the mean of their kernel and size in the group         representatives
    4. groups that a model predicted -> groups that counters give                labels
    5. what the group projects -> the cost of its launches                       group spread

Groups of kernels that were never profiled, and launches without a counterpart where the selection was made,
are parts of their own. A step that nothing was measured for is left out, and its part is None, never 0.

Source: docs/methods/error-decomposition.md.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import numpy as np

from assay_sampling.engines import blockwise
from assay_sampling.scoring.error_parts.cells import Cells

# How a launch of a two-level selection got its group: in the window, from a model, by a group of its own, or
# by its kernel and size.
ORIGINS = ("window", "model", "unknown", "abstained", "size")
UNKNOWN_GROUP = -1


@dataclass(frozen=True)
class ErrorParts:
    """Parts of a signed error in points of the truth (percent of the true total).

    None: not measured, or it cannot be in this error. ``not_separated`` holds the parts that
    ``not_separated_parts`` names, of launches where they could not be told apart.
    """

    representatives: float | None
    labels: float | None = None
    group_spread: float | None = None
    kernels_never_profiled: float | None = None
    unmatched: float | None = None
    cold_start: float | None = None
    projection_within_launches: float | None = None
    not_separated: float | None = None
    not_separated_parts: tuple[str, ...] = ()

    @property
    def whole(self) -> float:
        """The sum of the parts: the signed error in percent."""
        return float(sum(self.measured().values()))

    def measured(self) -> dict[str, float]:
        """The parts that have a value, by name, in the order of PARTS."""
        found = {name: getattr(self, name) for name in PARTS}
        return {name: value for name, value in found.items() if value is not None}

    def to_dict(self) -> dict[str, float | list[str] | None]:
        return {**asdict(self), "not_separated_parts": list(self.not_separated_parts)}


PARTS = (
    "representatives", "labels", "group_spread", "kernels_never_profiled", "unmatched", "cold_start",
    "projection_within_launches", "not_separated",
)  # fmt: skip


@dataclass(frozen=True)
class GroupFacts:
    """Known facts of the groups of n launches, each array of shape (n,).

    ``kinds``: kernel and size (:func:`assay_sampling.scoring.error_parts.cells.kernel_and_size`).
    ``predicted``: a model gave the group. ``never_profiled``: the group is one of kernels without counters.
    ``unmatched``: the launch has no counterpart, so no group. ``right``: the group that counters give,
    UNKNOWN_GROUP where the launch has none; None: for no launch. ``amounts``: what weights count (launches,
    instructions, light time); None: launches. Without ``amounts_known`` nobody knows them.
    """

    kinds: np.ndarray
    predicted: np.ndarray
    never_profiled: np.ndarray
    unmatched: np.ndarray
    right: np.ndarray | None = None
    amounts: np.ndarray | None = None
    amounts_known: bool = True

    @classmethod
    def of(
        cls, kinds: np.ndarray, origins: np.ndarray | None = None, *, right: np.ndarray | None = None
    ) -> GroupFacts:
        """From numbers of ORIGINS, shape (n,); None: a selection of one level."""
        nothing = np.zeros(len(kinds), bool)
        if origins is None:
            return cls(kinds, nothing, nothing, nothing)
        predicted = origins == ORIGINS.index("model")
        return cls(kinds, predicted, origins == ORIGINS.index("unknown"), nothing, right)


def decompose(
    costs: np.ndarray,
    rows: np.ndarray,
    weights: np.ndarray,
    *,
    labels: np.ndarray | None = None,
    representative_groups: np.ndarray | None = None,
    facts: GroupFacts | None = None,
) -> ErrorParts:
    """The parts of a selection's error, where representatives cost what they cost in the recording.

    Args:
        costs: true cost of every launch, shape (n,).
        rows, weights: of the representatives, shape (r,).
        labels, representative_groups: group of every launch and of each representative, shapes (n,), (r,).
        facts: None where no group was predicted and kernels and sizes are not looked at, so that all of the
            error is that of the representatives.

    The parts add up to 100 (sum of weights x costs[rows] - sum of costs) / sum of costs.
    """
    total = blockwise.total(costs)
    whole = 100.0 * (float((weights * costs[rows]).sum()) - total) / total
    if facts is None:
        return ErrorParts(representatives=whole)
    if labels is None or representative_groups is None:
        return all_together(whole)
    groups = int(max(labels.max(initial=-1), representative_groups.max(initial=-1))) + 1
    found = _Groups.of(costs, labels, groups, facts)
    return found.parts(whole, total, _Chosen(rows, weights, representative_groups), facts)


@dataclass(frozen=True)
class _Chosen:
    """Representatives, arrays of shape (r,)."""

    rows: np.ndarray
    weights: np.ndarray
    groups: np.ndarray


@dataclass(frozen=True)
class _Groups:
    """Groups of n launches: ``labels``, ``amounts`` and ``costs`` have shape (n,), ``amount``, shape (g,), is
    that of each group. ``undivided``, shape (g,): groups of several cells without known amounts."""

    costs: np.ndarray
    labels: np.ndarray
    cells: Cells
    amounts: np.ndarray
    amount: np.ndarray
    undivided: np.ndarray

    @classmethod
    def of(cls, costs: np.ndarray, labels: np.ndarray, groups: int, facts: GroupFacts) -> _Groups:
        cells = Cells.of(labels, facts.kinds)
        several = np.bincount(cells.group, minlength=groups) > 1
        judged = np.bincount(labels[~facts.never_profiled & ~facts.unmatched], minlength=groups) > 0
        amounts = np.ones(len(costs)) if facts.amounts is None else np.asarray(facts.amounts, np.float64)
        # Where the launches of a group have no amount at all, each counts as one.
        amounts = np.where(np.bincount(labels, amounts, groups)[labels] > 0, amounts, 1.0)
        undivided = several & judged if not facts.amounts_known else np.zeros(groups, bool)
        return cls(costs, labels, cells, amounts, np.bincount(labels, amounts, groups), undivided)

    def parts(self, whole: float, total: float, chosen: _Chosen, facts: GroupFacts) -> ErrorParts:
        projected = np.bincount(chosen.groups, chosen.weights * self.costs[chosen.rows], len(self.amount))
        empty = self.amount == 0
        rate = np.divide(projected, self.amount, out=np.zeros(len(self.amount)), where=~empty)
        typical = self._typical_rate(rate, chosen)

        def points(of: np.ndarray) -> float:
            found = 100.0 * float(of.sum()) / total
            return found if abs(found) > _ROUNDING else 0.0

        apart = self.undivided[self.labels]
        lost = facts.unmatched & ~apart
        own = facts.never_profiled & ~lost & ~apart
        predicted = facts.predicted & ~own & ~lost & ~apart
        right = np.full(len(self.labels), UNKNOWN_GROUP) if facts.right is None else facts.right
        known = predicted & (right != UNKNOWN_GROUP)
        unknown = predicted & ~known | apart
        told = ~(lost | own | unknown)
        error = rate[self.labels] * self.amounts - self.costs
        by_kind = typical[self.labels] * self.amounts
        rightly = np.where(known, typical[np.where(known, right, 0)] * self.amounts, by_kind)
        found = {
            "labels": points((by_kind - rightly)[known]) if known.any() else None,
            "group_spread": points((rightly - self.costs)[told]) if told.any() else None,
            "kernels_never_profiled": points(error[own]) if own.any() else None,
            "unmatched": points(error[lost]) if lost.any() else None,
            "not_separated": points((by_kind - self.costs)[unknown]) if unknown.any() else None,
        }
        of_representatives = None
        if told.any() or (predicted & ~known).any() or projected[empty].any():
            # What is left, so that the parts add up exactly.
            of_representatives = whole - sum(each for each in found.values() if each is not None)
            of_representatives = of_representatives if abs(of_representatives) > _ROUNDING else 0.0
        together = (
            *(("representatives",) if apart.any() else ()),
            *(("labels",) if (facts.predicted & unknown).any() else ()),
            *(("group_spread",) if unknown.any() else ()),
        )
        return ErrorParts(of_representatives, **found, not_separated_parts=together)

    def _typical_rate(self, rate: np.ndarray, chosen: _Chosen) -> np.ndarray:
        """What each group would project for one of its amount if its representatives cost what launches of
        their kernel and size in the group do on average, shape (g,)."""
        cell = self.cells.of_launch[chosen.rows]
        amount, cost = self.cells.sums(self.amounts), self.cells.sums(self.costs)
        rate_of_cell = np.divide(cost, amount, out=np.zeros(len(amount)), where=amount > 0)
        stands_for = chosen.weights * self.amounts[chosen.rows]
        counted = np.bincount(chosen.groups, stands_for, len(rate))
        typical = np.bincount(chosen.groups, stands_for * rate_of_cell[cell], len(rate))
        mean = np.divide(
            np.bincount(self.labels, self.costs, len(rate)),
            self.amount, out=np.zeros(len(rate)), where=self.amount > 0,
        )  # fmt: skip
        # A group whose representatives stand for nothing lacks them: all of its error is theirs.
        found: np.ndarray = np.divide(typical, counted, out=mean, where=counted > 0)
        return np.where(self.undivided, rate, found)


_ROUNDING = 1e-9


def all_together(whole: float, *, predicted: bool = True) -> ErrorParts:
    """The parts where nobody knows which launches a group has or, if models ``predicted`` some, which."""
    of_two_levels = ("representatives", "labels", "group_spread", "kernels_never_profiled")
    return ErrorParts(
        representatives=None,
        not_separated=whole,
        not_separated_parts=of_two_levels if predicted else ("representatives", "group_spread"),
    )


def with_costs_elsewhere(
    parts: ErrorParts,
    total: float,
    weights: np.ndarray,
    recorded: np.ndarray,
    *,
    cold: np.ndarray | None = None,
    projected: np.ndarray | None = None,
) -> ErrorParts:
    """``parts`` of a projection from other costs of the representatives than those in the recording.

    Args:
        parts: with the costs in the recording.
        total: the true total.
        weights, recorded: of the representatives, shape (r,): weights, and costs in the recording.
        cold: their costs with cold caches; None: not measured.
        projected: their costs where each simulation was stopped early, in the state (cold or not) that the
            whole simulations had; None: not projected.

    The parts then add up to the signed error of sum of weights x the last of ``recorded``, ``cold`` and
    ``projected`` that is given.
    """
    simulated = recorded if cold is None else cold

    def points(now: np.ndarray, then: np.ndarray) -> float:
        return 100.0 * float((weights * (now - then)).sum()) / total

    return replace(
        parts,
        cold_start=None if cold is None else points(cold, recorded),
        projection_within_launches=None if projected is None else points(projected, simulated),
    )
