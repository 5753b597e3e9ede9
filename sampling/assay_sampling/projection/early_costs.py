"""Scores of a selection whose representatives are simulated only until a rule of projection stops.

Source: docs/methods/error-decomposition.md; the rules: docs/methods/projection.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from assay_sampling.counters.definitions import SIMULATED_CYCLES
from assay_sampling.errors import ParameterError
from assay_sampling.launches.in_memory import Launches
from assay_sampling.projection.files import ProjectionOptions, refuse_sizes_of_one_launch
from assay_sampling.projection.runs import LaunchProjection, project_run
from assay_sampling.scoring.error_parts.decomposition import ErrorParts, all_together, with_costs_elsewhere
from assay_sampling.scoring.evaluation import Evaluation, cost_of
from assay_sampling.scoring.matching import row_keys
from assay_sampling.scoring.saved_selection import SavedSelection
from assay_sampling.simulators.accel_sim.run import SimulatorRun


@dataclass(frozen=True)
class EarlyCosts:
    """Costs of a recording's launches where each simulation ends when a rule stops, shape (n,) each.

    ``projected`` is the cost that the rule says the whole launch has, ``simulated`` the cost until it stops;
    both are the launch's own cost where it does not. ``stopped`` says where it does.
    """

    projected: np.ndarray
    simulated: np.ndarray
    stopped: np.ndarray


def early_costs(
    run: SimulatorRun, launches: Launches, quantity: str, options: ProjectionOptions | None = None
) -> EarlyCosts:
    """The costs of a recording's launches where their simulations end when a rule stops.

    Args:
        run: the logs of the run, from the beginning.
        launches: the recording that its standard output is, n launches.
        quantity: a key of SIMULATED_CYCLES.
        options: rule, window, threshold and SMs.

    Raises InputError as :meth:`SimulatorRun.launches`, ParameterError for a cost that no rule projects or an
    option of one launch.
    """
    if quantity not in SIMULATED_CYCLES:
        remedy = f"score it in {' or '.join(SIMULATED_CYCLES)}: --cost {SIMULATED_CYCLES[0]}"
        raise ParameterError("--intervals", f"no rule projects the cost {quantity!r}", remedy)
    chosen = options or ProjectionOptions()
    refuse_sizes_of_one_launch(chosen)
    whole = cost_of(launches, quantity).values
    projected, simulated, stopped = whole.copy(), whole.copy(), np.zeros(len(whole), bool)
    row_of = {uid: row for row, uid in enumerate(launches.column("report_id").tolist())}
    for projection in project_run(run, chosen.of_rule(), sms=chosen.sms):
        row = row_of.get(projection.launch.uid)
        if row is not None and projection.stop is not None:
            projected[row], simulated[row] = _cycles(projection, quantity)
            stopped[row] = True
    return EarlyCosts(projected, simulated, stopped)


def _cycles(projection: LaunchProjection, quantity: str) -> tuple[float, float]:
    """Projected and simulated cycles; active ones lack the launch latency."""
    assert projection.projected_cycles is not None
    assert projection.simulated_cycles is not None
    latency = projection.launch_latency_cycles if quantity == "cycles_simulated_active" else 0
    return projection.projected_cycles - latency, max(projection.simulated_cycles - latency, 0.0)


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
