"""Scores of a selection whose representatives are simulated only until a rule of projection stops.

Source: docs/methods/error-decomposition.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from assay_sampling.launches.in_memory import Launches
from assay_sampling.scoring.decomposition import ErrorParts, all_together, with_costs_elsewhere
from assay_sampling.scoring.evaluation import Evaluation, cost_of
from assay_sampling.scoring.matching import row_keys
from assay_sampling.scoring.selection import SavedSelection


@dataclass(frozen=True)
class EarlyCosts:
    """Costs of a recording's launches where each simulation ends when a rule stops, shape (n,) each.

    ``projected`` is the cost that the rule says the whole launch has, ``simulated`` the cost until it stops;
    both are the launch's own cost where it does not. ``stopped`` says where it does.
    """

    projected: np.ndarray
    simulated: np.ndarray
    stopped: np.ndarray


@dataclass(frozen=True)
class StoppedEarly:
    """Scores with projected costs of r representatives, of which a rule stopped some.

    ``parts`` add up to ``signed_error_percent``. ``simulated`` is the cost of all representatives until each
    of them stopped.
    """

    representatives: int
    stopped: int
    total: float
    projected: float
    simulated: float
    parts: ErrorParts

    @property
    def signed_error_percent(self) -> float:
        return 100.0 * (self.projected - self.total) / self.total

    @property
    def speedup(self) -> float | None:
        return self.total / self.simulated if self.simulated > 0 else None

    def to_dict(self) -> dict[str, Any]:
        return {
            "representatives": self.representatives,
            "stopped": self.stopped,
            "projected": self.projected,
            "error_percent": abs(self.signed_error_percent),
            "signed_error_percent": self.signed_error_percent,
            "speedup": self.speedup,
            "decomposition": self.parts.to_dict(),
        }


def score_stopped_early(
    saved: SavedSelection, launches: Launches, evaluation: Evaluation, costs: EarlyCosts
) -> StoppedEarly:
    """The scores of a selection whose representatives cost what a rule projected.

    Args:
        saved: the selection.
        launches: the recording, in whose launches every representative is.
        evaluation: its scores there, by whole simulations.
        costs: of the launches, in the quantity of ``evaluation``.
    """
    keys = row_keys(launches.column("process"), launches.column("launch"))
    rows = np.searchsorted(keys, row_keys(saved.process, saved.launch))
    weights = saved.weights_of(evaluation.weights)
    recorded = cost_of(launches, evaluation.quantity).values[rows]
    projected = costs.projected[rows]
    before = evaluation.parts or all_together(evaluation.signed_error_percent)
    return StoppedEarly(
        representatives=len(rows),
        stopped=int(costs.stopped[rows].sum()),
        total=evaluation.total,
        projected=float((weights * projected).sum()),
        simulated=float(costs.simulated[rows].sum()),
        parts=with_costs_elsewhere(before, evaluation.total, weights, recorded, projected=projected),
    )
