"""Groups and costs of a workload of which only names and grids are known after the window.

The launches of a window have counters and cycles; a list has the names, grids and blocks of all launches, and
no times. PKS groups the window, the models that need no times label the rest, and the cost of each launch is
projected within its kernel. No error can be given: nothing after the window was measured.

Source: docs/methods/two-level.md, "Without times". Memory: as two levels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay_sampling.labelling.grid_cost import Basis, project_costs
from assay_sampling.labelling.light_facts import LightFacts
from assay_sampling.labelling.light_run import Labelling, label_rest
from assay_sampling.labelling.within_kernel import WindowCounters
from assay_sampling.launches.alignment import align_window, require_match
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.levels import refuse_other_kind, source_of
from assay_sampling.launches.signatures import distinct_signatures
from assay_sampling.methods.pks.parameters import PksParameters
from assay_sampling.methods.pks.principal_kernels import principal_kernels
from assay_sampling.scoring.evaluation import Cost, cost_of


@dataclass(frozen=True)
class UntimedLabels:
    """The group and the projected cost of each of n listed launches.

    ``cost``, shape (n,), is in ``unit`` and NaN for kernels that the window lacks; ``basis``, shape (n,),
    holds numbers of :class:`assay_sampling.labelling.grid_cost.Basis`.
    """

    labelling: Labelling
    labels: np.ndarray
    quantity: str
    unit: str
    cost: np.ndarray
    basis: np.ndarray
    match_percent: float

    def facts(self) -> dict[str, Any]:
        """The projection as numbers: in all, by what it rests on, and by group."""
        costs = np.nan_to_num(self.cost)
        launches = np.bincount(self.basis, minlength=len(Basis))
        amounts = np.bincount(self.basis, costs, len(Basis))
        of_groups = np.bincount(self.labels, self.cost, self.labelling.groups)
        return {
            "quantity": self.quantity,
            "unit": self.unit,
            "total_of_known_kernels": float(costs.sum()),
            "by_basis": {
                basis.name.lower(): {
                    "launches": int(launches[basis]),
                    "cost": None if basis is Basis.UNKNOWN_KERNEL else float(amounts[basis]),
                }
                for basis in Basis
            },
            "group_costs": [None if np.isnan(cost) else float(cost) for cost in of_groups],
        }


def label_untimed(
    detailed: Launches, listed: Launches, parameters: PksParameters, *, seed: int
) -> UntimedLabels:
    """Group the launches of a window, and carry groups and costs to all that are listed.

    Raises RefusedError or MisalignedError where both are not of one workload, CounterUnavailableError where a
    counter is missing, and what :func:`assay_sampling.labelling.light_run.label_rest` raises.
    """
    refuse_other_kind(f"{source_of(detailed)} and {source_of(listed)}", detailed, listed)
    alignment = align_window(detailed, listed, parameters.match_kind)
    require_match(alignment, parameters.least_match_percent, f"{source_of(detailed)} and {source_of(listed)}")
    matched = detailed.take(alignment.left_rows)
    window = principal_kernels(matched, **_grouping(parameters), seed=seed)
    labelling = label_rest(
        listed,
        alignment.right_rows,
        window.labels,
        seed=seed,
        model=parameters.model,
        abstain=parameters.abstain,
        label_accuracy_percent=parameters.label_accuracy_percent,
        counters=WindowCounters.of(matched, window.features, window.space),
    )
    cost = cost_of(matched, window.evaluation.quantity)
    costs, basis = _projected(listed, alignment.right_rows, cost)
    return UntimedLabels(
        labelling=labelling,
        labels=labelling.labels(labelling.chosen),
        quantity=cost.quantity,
        unit=cost.unit,
        cost=costs,
        basis=basis,
        match_percent=alignment.match_percent,
    )


def _grouping(parameters: PksParameters) -> Mapping[str, Any]:
    values = parameters.of_grouping()
    names = ("features", "k", "k_max", "target_error_percent", "representative", "cost")
    return {name: values[name] for name in names}


def _projected(listed: Launches, rows: np.ndarray, cost: Cost) -> tuple[np.ndarray, np.ndarray]:
    """Cost and basis of each listed launch, both of shape (n,); the window's launches keep their own cost."""
    signatures = distinct_signatures(listed)
    of_window = signatures.inverse[rows]
    projected = project_costs(
        LightFacts.of(listed, signatures),
        np.bincount(of_window, minlength=len(signatures)),
        np.bincount(of_window, cost.values, len(signatures)),
    )
    costs = projected.cost[signatures.inverse]
    costs[rows] = cost.values
    return costs, projected.basis[signatures.inverse]
