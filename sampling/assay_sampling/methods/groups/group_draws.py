"""Which launches stand for groups: one chosen by a rule, or several drawn at random.

``auto``, the default, follows the weights that carry a selection to other GPUs. By light time: the launch at
which cumulative light time, in the order of duration, reaches half of the group's
(:mod:`assay_sampling.methods.groups.weighted_median`), or, where several are drawn, draws in proportion to
light time. By launches: uniform draws. Source: docs/methods/pks.md, "Representatives".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from assay_sampling.engines.blockwise import counts_by, sums_by, total
from assay_sampling.estimation.intervals import NO_INTERVAL_FIXED_RULE, Interval, draw_per_group
from assay_sampling.estimation.known_design import known_design_interval
from assay_sampling.estimation.light_time_draws import draw_by_light_time
from assay_sampling.estimation.sample_design import Drawing
from assay_sampling.methods.groups.weighted_median import weighted_median_rows
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.scoring.evaluation import Cost
from assay_sampling.scoring.weights import launch_weights

RepresentativeRule = Literal["auto", "first", "centre", "random", "weighted_median"]

# Draws of launches have their own random stream, independent of other uses of the seed.
_STREAM = 1


@dataclass(frozen=True)
class ChosenLaunches:
    """Rows and weights of the launches that stand for the groups, shape (r,), not ordered by group, and the
    interval of the total that they project."""

    rows: np.ndarray
    weights: np.ndarray
    interval: Interval | None
    interval_reason: Note | None
    drawing: Drawing = "rule"


def choose_launches(
    labels: np.ndarray,
    counts: np.ndarray,
    representatives: np.ndarray,
    cost: Cost,
    *,
    per_group: int,
    seed: int,
    light_time: np.ndarray | None = None,
) -> ChosenLaunches:
    """One representative a group with the group's launches as weight, or ``per_group`` >= 2 drawn.

    Args:
        labels: group of every launch, shape (n,).
        counts, representatives: launches of each group and the row that stands for it, shape (g,).
        cost: of every launch.
        light_time: of every launch, shape (n,), to draw in proportion to it; None draws uniformly.
    """
    if per_group == 1:
        return ChosenLaunches(representatives, counts.astype(np.float64), None, NO_INTERVAL_FIXED_RULE)
    if light_time is not None:
        return drawn_by_light_time(labels, light_time, per_group=per_group, seed=seed)
    return drawn_uniformly(labels, cost, per_group=per_group, seed=seed)


def choose_automatically(
    labels: np.ndarray, cost: Cost, light_time: np.ndarray | None, *, per_group: int, seed: int
) -> ChosenLaunches:
    """The rule ``auto``: by ``light_time``, shape (n,), the weighted median of each group or ``per_group``
    >= 2 draws in proportion to it; without it uniform draws. ``labels`` has shape (n,)."""
    if light_time is None:
        return drawn_uniformly(labels, cost, per_group=per_group, seed=seed)
    if per_group > 1:
        return drawn_by_light_time(labels, light_time, per_group=per_group, seed=seed)
    return by_rule(labels, weighted_median_rows(labels, light_time))


def by_rule(labels: np.ndarray, rows: np.ndarray) -> ChosenLaunches:
    """Representatives that a rule chose, one a group, weighed by launches."""
    return ChosenLaunches(rows, launch_weights(labels, rows), None, NO_INTERVAL_FIXED_RULE)


def drawn_uniformly(labels: np.ndarray, cost: Cost, *, per_group: int, seed: int) -> ChosenLaunches:
    """``per_group`` launches of each group, drawn uniformly; from two on they have an interval."""
    rows = draw_per_group(labels, per_group, np.random.default_rng([seed, _STREAM]))
    if per_group == 1:
        return by_rule(labels, rows)
    weights = launch_weights(labels, rows)
    interval = known_design_interval(cost.values, labels, rows)
    return ChosenLaunches(rows, weights, interval, None, "uniform")


def drawn_by_light_time(
    labels: np.ndarray, light_time: np.ndarray, *, per_group: int, seed: int
) -> ChosenLaunches:
    """``per_group`` launches of each group, drawn in proportion to light time, weighed by launches.

    Drawn so, these weights are biased on the profile itself, and have no interval there.
    """
    rows = draw_by_light_time(labels, per_group, light_time, np.random.default_rng([seed, _STREAM]))
    reason = make_note("interval_of_light_time_draw")
    return ChosenLaunches(rows, launch_weights(labels, rows), None, reason, "light_time")


def within_budget(
    choose: Callable[[int], ChosenLaunches],
    labels: np.ndarray,
    cost: np.ndarray,
    least_speedup: float | None,
    per_group: int,
) -> ChosenLaunches:
    """As many launches of each group as leave a speedup of at least ``least_speedup``, but at least
    ``per_group``; without a budget ``per_group``.

    ``choose`` chooses that many of each group; ``labels`` and ``cost`` have shape (n,).
    """
    if least_speedup is None:
        return choose(per_group)
    counts = counts_by(labels)
    of_groups = sums_by(labels, cost, len(counts))
    whole = total(cost)
    most = int(counts.max())
    # One launch of each costs about the mean of its group.
    round_cost = float((of_groups / counts).sum())
    several = most if round_cost == 0 else min(most, int(whole / least_speedup / round_cost) + 1)
    while several > per_group:
        chosen = choose(several)
        simulated = float(cost[chosen.rows].sum())
        if simulated <= 0 or whole / simulated >= least_speedup:
            return chosen
        several = min(several - 1, int(several * whole / least_speedup / simulated))
    return choose(per_group)
