"""Where the error of a projected total comes from: signed parts, in points of the truth, that add up to it.

One fixed order of steps leads from the projection to the truth. Each step replaces one thing that is not
true by the measured one, and its part is what that changes:

    1. projected costs of representatives -> their costs simulated to the end    projection within launches
    2. costs with cold caches -> costs in the recording                          cold start
    3. groups that a model predicted -> groups that counters give                labels
    4. representatives -> all launches that they stand for                       representatives, or, in
       groups of kernels that were never profiled                                kernels never profiled

A step that nothing was measured for is left out, and its part is None, never 0. Steps 3 and 4 of launches
with a predicted group and no counters cannot be told apart: they are together "not separated".

Source: docs/methods/error-decomposition.md.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import numpy as np

from assay_sampling.engines import blockwise

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
    kernels_never_profiled: float | None = None
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
    "representatives", "labels", "kernels_never_profiled", "cold_start", "projection_within_launches",
    "not_separated",
)  # fmt: skip


@dataclass(frozen=True)
class LabelFacts:
    """Known facts of the groups of n launches, each array of shape (n,).

    ``predicted``: a model gave the group. ``never_profiled``: the group is one of kernels without counters.
    ``unmatched``: the launch has no counterpart, so no group. ``right``: the group that counters give,
    UNKNOWN_GROUP where the launch has none; None: for no launch. ``amounts``: what weights count (launches,
    instructions, light time); None: launches.
    """

    predicted: np.ndarray
    never_profiled: np.ndarray
    unmatched: np.ndarray | None = None
    right: np.ndarray | None = None
    amounts: np.ndarray | None = None

    @classmethod
    def of(
        cls, origins: np.ndarray, *, right: np.ndarray | None = None, amounts: np.ndarray | None = None
    ) -> LabelFacts:
        """From numbers of ORIGINS, shape (n,)."""
        return cls(
            origins == ORIGINS.index("model"), origins == ORIGINS.index("unknown"), None, right, amounts
        )

    def by_whole_groups(self, labels: np.ndarray) -> LabelFacts:
        """The facts where the amounts that the weights count are not known: a group with predicted launches
        cannot be divided, so all of its launches count as predicted. ``labels`` has shape (n,)."""
        mixed = np.bincount(labels, weights=self.predicted) > 0
        return replace(self, predicted=mixed[labels], right=None)


def decompose(
    costs: np.ndarray,
    projected_each: np.ndarray,
    *,
    labels: np.ndarray | None = None,
    representative_groups: np.ndarray | None = None,
    facts: LabelFacts | None = None,
) -> ErrorParts:
    """The parts of a selection's error, where representatives cost what they cost in the recording.

    Args:
        costs: true cost of every launch, shape (n,).
        projected_each: weight x cost of each representative, shape (r,).
        labels, representative_groups: group of every launch and of each representative, shapes (n,), (r,).
        facts: of two levels; None where no group was predicted, so that all of the error is that of the
            representatives.

    The parts add up to 100 (sum of projected_each - sum of costs) / sum of costs.
    """
    total = blockwise.total(costs)
    whole = 100.0 * (float(projected_each.sum()) - total) / total
    if facts is None:
        return ErrorParts(representatives=whole)
    if labels is None or representative_groups is None:
        return all_together(whole)
    groups = int(max(labels.max(initial=-1), representative_groups.max(initial=-1))) + 1
    amounts = np.ones(len(costs)) if facts.amounts is None else facts.amounts
    amount_of_group = np.bincount(labels, weights=amounts, minlength=groups)
    # Where the launches of a group have no amount at all, each counts as one.
    amounts = np.where(amount_of_group[labels] > 0, amounts, 1.0)
    amount_of_group = np.bincount(labels, weights=amounts, minlength=groups)
    projected = np.bincount(representative_groups, weights=projected_each, minlength=groups)
    empty = amount_of_group == 0
    ratio = np.divide(projected, amount_of_group, out=np.zeros(groups), where=~empty)
    error_each = ratio[labels] * amounts - costs

    def points(of: np.ndarray) -> float:
        return 100.0 * float(of.sum()) / total

    lost = np.zeros(len(costs), bool) if facts.unmatched is None else facts.unmatched
    own = facts.never_profiled & ~lost
    judged = facts.predicted & ~own & ~lost
    known = np.zeros(len(costs), bool) if facts.right is None else judged & (facts.right != UNKNOWN_GROUP)
    open_ones = judged & ~known
    of_labels: float | None = None
    if known.any():
        assert facts.right is not None
        rightly = ratio[facts.right[known]] * amounts[known]
        of_labels = points(ratio[labels[known]] * amounts[known] - rightly)
    of_unknown = points(error_each[own]) if own.any() else None
    together = points(error_each[open_ones | lost]) if (open_ones | lost).any() else None
    right = ~(own | open_ones | lost)
    of_representatives = None
    if right.any() or projected[empty].any():
        # The step from the representatives to the launches whose right group is known, which may be none.
        of_representatives = whole - sum(p for p in (of_labels, of_unknown, together) if p is not None)
    return ErrorParts(
        representatives=of_representatives,
        labels=of_labels,
        kernels_never_profiled=of_unknown,
        not_separated=together,
        not_separated_parts=() if together is None else ("representatives", "labels"),
    )


def all_together(whole: float) -> ErrorParts:
    """The parts where nobody knows which launches got their group from a model."""
    return ErrorParts(
        representatives=None,
        not_separated=whole,
        not_separated_parts=("representatives", "labels", "kernels_never_profiled"),
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
