"""Which launches stand for groups: the given representatives, or several drawn at random."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assay_sampling.estimation.intervals import NO_INTERVAL_FIXED_RULE, Interval, draw_per_group
from assay_sampling.estimation.known_design import known_design_interval
from assay_sampling.estimation.light_time_draws import draw_by_light_time
from assay_sampling.estimation.sample_design import Drawing
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.scoring.evaluation import Cost
from assay_sampling.scoring.weights import launch_weights

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
    rows = draw_per_group(labels, per_group, np.random.default_rng([seed, _STREAM]))
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
