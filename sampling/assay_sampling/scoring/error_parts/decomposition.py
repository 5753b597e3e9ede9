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
from assay_sampling.engines.blockwise import counts_by, sums_by
from assay_sampling.engines.columns import blocks, in_place_of
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
        parts = {name: getattr(self, name) for name in PARTS}
        return {name: value for name, value in parts.items() if value is not None}

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
    ``origins``: numbers of ORIGINS; None: one level. ``right``: the group that counters give, UNKNOWN_GROUP
    where the launch has none; None: for no launch. ``unmatched``: the launch has no counterpart, so no group;
    None: all have one. ``amounts``: what weights count (launches, instructions, light time); None: launches.
    Without ``amounts_known`` nobody knows them.
    """

    kinds: np.ndarray
    origins: np.ndarray | None = None
    right: np.ndarray | None = None
    unmatched: np.ndarray | None = None
    amounts: np.ndarray | None = None
    amounts_known: bool = True


# What is known of a launch: its group is right; its kernel has no counters; it has no group; a model gave the
# group, and which one counters give is known; or that is not.
_SURE, _NEVER_PROFILED, _UNMATCHED, _JUDGED, _OPEN = range(5)
_CLASSES = 5


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
    # A launch may belong to a group that no launch was given and that has no representative.
    columns = [labels] if facts.right is None else [labels, facts.right]
    last = max(int(each[block].max()) for each in columns for block in blocks(len(labels), labels))
    groups = max(last, int(representative_groups.max(initial=-1))) + 1
    sums = _Groups.of(costs, labels, groups, facts)
    return sums.parts(whole, total, _Chosen(rows, weights, representative_groups))


@dataclass(frozen=True)
class _Chosen:
    """Representatives, arrays of shape (r,)."""

    rows: np.ndarray
    weights: np.ndarray
    groups: np.ndarray


@dataclass(frozen=True)
class _Groups:
    """Groups of n launches, ``labels`` of shape (n,), by what is known of these.

    ``amount`` and ``cost``, shape (g, 5), are sums over the launches of each group and class, ``judged``,
    shape (g,), the amount of launches that counters give the group. Amounts are launches where ``counted``,
    shape (g,). ``undivided``, shape (g,): groups of several cells without known amounts.
    """

    costs: np.ndarray
    facts: GroupFacts
    cells: Cells
    amount: np.ndarray
    cost: np.ndarray
    judged: np.ndarray
    counted: np.ndarray
    undivided: np.ndarray

    @classmethod
    def of(cls, costs: np.ndarray, labels: np.ndarray, groups: int, facts: GroupFacts) -> _Groups:
        cells = Cells.of(labels, facts.kinds)
        of_class = in_place_of(
            labels,
            np.int64,
            lambda block: np.asarray(labels[block], np.int64) * _CLASSES + _classes(facts, block),
            labels,
        )
        size = groups * _CLASSES
        launches = counts_by(of_class, size).reshape(groups, _CLASSES)
        amount = launches.astype(np.float64)
        # Where the launches of a group have no amount at all, each counts as one.
        counted = np.ones(groups, bool)
        if facts.amounts is not None:
            amounts = sums_by(of_class, facts.amounts, size).reshape(groups, _CLASSES)
            counted = amounts.sum(axis=1) <= 0
            amount = np.where(counted[:, None], amount, amounts)
        several = np.bincount(cells.group, minlength=groups) > 1
        judged = launches[:, [_SURE, _JUDGED, _OPEN]].sum(axis=1) > 0
        sums = cls(
            costs=costs,
            facts=facts,
            cells=cells,
            amount=amount,
            cost=sums_by(of_class, costs, size).reshape(groups, _CLASSES),
            judged=np.zeros(groups),
            counted=counted,
            undivided=several & judged if not facts.amounts_known else np.zeros(groups, bool),
        )
        return sums._with_judged(of_class) if launches[:, _JUDGED].any() else sums

    def _with_judged(self, of_class: np.ndarray) -> _Groups:
        rows = np.flatnonzero(of_class % _CLASSES == _JUDGED)
        label = of_class[rows] // _CLASSES
        assert self.facts.right is not None
        right, amounts = self.facts.right[rows], np.ones(len(rows))
        if self.facts.amounts is not None:
            amounts = np.where(self.counted[label], 1.0, self.facts.amounts[rows])
        # Launches of a group that is not divided stay in it.
        divided = ~self.undivided[label]
        return replace(self, judged=np.bincount(right[divided], amounts[divided], minlength=len(self.judged)))

    def parts(self, whole: float, total: float, chosen: _Chosen) -> ErrorParts:
        amount, cost = self.amount.sum(axis=1), self.cost.sum(axis=1)
        projected = np.bincount(chosen.groups, chosen.weights * self.costs[chosen.rows], len(amount))
        empty = amount == 0
        rate = np.divide(projected, amount, out=np.zeros(len(amount)), where=~empty)
        typical = self._typical_rate(rate, amount, cost, chosen)
        apart, alone = self.undivided, ~self.undivided

        def points(of: np.ndarray) -> float:
            percent = 100.0 * float(of.sum()) / total
            return percent if abs(percent) > _ROUNDING else 0.0

        def has(*classes: int) -> bool:
            return bool(self.amount[alone][:, classes].any() or self.cost[alone][:, classes].any())

        def error(rates: np.ndarray, which: int) -> np.ndarray:
            errors: np.ndarray = (rates * self.amount[:, which] - self.cost[:, which])[alone]
            return errors

        together = (typical * amount - cost)[apart]
        labelled = (typical * self.amount[:, _JUDGED])[alone]
        rightly = typical * self.judged
        by_part = {
            "labels": points(labelled.sum() - rightly.sum()) if has(_JUDGED) else None,
            "group_spread": points(
                error(typical, _SURE).sum() + rightly.sum() - self.cost[alone, _JUDGED].sum()
            )
            if has(_SURE, _JUDGED)
            else None,
            "kernels_never_profiled": points(error(rate, _NEVER_PROFILED)) if has(_NEVER_PROFILED) else None,
            "unmatched": points(error(rate, _UNMATCHED)) if has(_UNMATCHED) else None,
            "not_separated": points(error(typical, _OPEN).sum() + together.sum())
            if has(_OPEN) or apart.any()
            else None,
        }
        of_representatives = None
        if has(_SURE, _JUDGED, _OPEN) or projected[empty].any():
            # What is left, so that the parts add up exactly.
            of_representatives = whole - sum(each for each in by_part.values() if each is not None)
            of_representatives = of_representatives if abs(of_representatives) > _ROUNDING else 0.0
        open_ones = has(_OPEN) or bool(self.amount[apart][:, [_JUDGED, _OPEN]].any())
        names = (
            *(("representatives",) if apart.any() else ()),
            *(("labels",) if open_ones else ()),
            *(("group_spread",) if by_part["not_separated"] is not None else ()),
        )
        return ErrorParts(of_representatives, **by_part, not_separated_parts=names)

    def _typical_rate(
        self, rate: np.ndarray, amount: np.ndarray, cost: np.ndarray, chosen: _Chosen
    ) -> np.ndarray:
        """What each group would project for one of its amount if its representatives cost what launches of
        their kernel and size in the group do on average, shape (g,)."""
        cell = self.cells.of_launch[chosen.rows]
        counted, launches = self.counted[self.cells.group], self.cells.launches()
        amounts, own = launches.astype(np.float64), np.ones(len(chosen.rows))
        if self.facts.amounts is not None:
            amounts = np.where(counted, amounts, self.cells.sums(self.facts.amounts))
            own = np.where(counted[cell], own, self.facts.amounts[chosen.rows])
        costs = self.cells.sums(self.costs)
        rate_of_cell = np.divide(costs, amounts, out=np.zeros(len(amounts)), where=amounts > 0)
        stands_for = chosen.weights * own
        all_stand_for = np.bincount(chosen.groups, stands_for, len(rate))
        typical = np.bincount(chosen.groups, stands_for * rate_of_cell[cell], len(rate))
        mean = np.divide(cost, amount, out=np.zeros(len(rate)), where=amount > 0)
        # A group whose representatives stand for nothing lacks them: all of its error is theirs.
        rates: np.ndarray = np.divide(typical, all_stand_for, out=mean, where=all_stand_for > 0)
        return np.where(self.undivided, rate, rates)


def _classes(facts: GroupFacts, block: slice) -> np.ndarray | int:
    """What is known of each of some launches, shape (b,); one number for all of them where they are alike."""
    classes: np.ndarray | int = _SURE
    if facts.origins is not None:
        origins = facts.origins[block]
        has_group = False if facts.right is None else facts.right[block] != UNKNOWN_GROUP
        of_models = np.where(has_group, _JUDGED, _OPEN)
        classes = np.where(origins == ORIGINS.index("model"), of_models, _SURE)
        classes = np.where(origins == ORIGINS.index("unknown"), _NEVER_PROFILED, classes)
    if facts.unmatched is not None:
        classes = np.where(facts.unmatched[block], _UNMATCHED, classes)
    return classes


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
