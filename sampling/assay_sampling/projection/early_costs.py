"""Costs of a simulator's launches where each simulation ends when a rule stops.

Source: docs/methods/projection.md.
"""

from __future__ import annotations

import numpy as np

from assay_sampling.counters.definitions import SIMULATED_CYCLES
from assay_sampling.errors import ParameterError
from assay_sampling.launches.in_memory import Launches
from assay_sampling.projection.files import ProjectionOptions, refuse_sizes_of_one_launch
from assay_sampling.projection.runs import LaunchProjection, project_run
from assay_sampling.scoring.evaluation import cost_of
from assay_sampling.scoring.stopped_early import EarlyCosts
from assay_sampling.simulators.accel_sim.run import SimulatorRun


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
    for found in project_run(run, chosen.of_rule(), sms=chosen.sms):
        row = row_of.get(found.launch.uid)
        if row is not None and found.stop is not None:
            projected[row], simulated[row] = _cycles(found, quantity)
            stopped[row] = True
    return EarlyCosts(projected, simulated, stopped)


def _cycles(found: LaunchProjection, quantity: str) -> tuple[float, float]:
    """Projected and simulated cycles; active ones lack the launch latency."""
    assert found.projected_cycles is not None
    assert found.simulated_cycles is not None
    latency = found.launch_latency_cycles if quantity == "cycles_simulated_active" else 0
    return found.projected_cycles - latency, max(found.simulated_cycles - latency, 0.0)
