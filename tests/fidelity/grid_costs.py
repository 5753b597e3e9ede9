"""Costs of new signatures without any time but the window's: by the label's representative, by the grid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from assay_sampling.clustering.feature_space import feature_matrix
from assay_sampling.labelling.grid_cost import Basis, project_costs
from assay_sampling.labelling.light_facts import LightFacts
from assay_sampling.labelling.light_run import label_rest
from assay_sampling.labelling.within_kernel import WindowCounters
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.signatures import distinct_signatures
from assay_sampling.methods.pks.principal_kernels import principal_kernels
from tests.fidelity.counted_workloads import CountedWorkload
from tests.fidelity.labels import workloads
from tests.fidelity.section import Effort, Section

_COLUMNS = (
    "cost of new signatures", "data", "workloads", "group error, median / %", "mean", "largest",
    "total, median / %",
)  # fmt: skip
_BY_GRID = "isotonic within the grids, power law beyond"
_BY_LABEL = ("representative of the group, by sgd", "representative of the group, by scaled_counters")


def section(effort: Effort) -> Section:
    """A row for each way to give new signatures a cost, and kind of data."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for workload in workloads(effort):
        for way, errors in errors_of(workload).items():
            found.setdefault((way, workload.origin), []).append(errors)
            found.setdefault((way, "all"), []).append(errors)
    rows = []
    for (way, origin), given in sorted(found.items()):
        groups, totals = np.array(given).T
        numbers = (np.median(groups), groups.mean(), groups.max(), np.median(totals))
        rows.append([way, origin, str(len(given)), *(f"{number:.1f}" for number in numbers)])
    medians = {way: float(np.median([e[0] for e in found[way, "all"]])) for way, _ in found}
    worse = [way for way in _BY_LABEL if medians[way] <= medians[_BY_GRID]]
    return Section(
        "Cost of new signatures where no light time exists",
        "The windows and workloads of the labels above (synthetic and simulated); the truth is the light "
        "time, which the methods did not see. Group error: over signatures, so that errors do not cancel.",
        _COLUMNS,
        rows,
        [f"{way} has a smaller median group error than the grid" for way in worse],
    )


def errors_of(workload: CountedWorkload) -> dict[str, tuple[float, float]]:
    """Group error and absolute error of the total of new signatures, in percent of their true cost."""
    signatures = distinct_signatures(workload.light)
    facts = LightFacts.of(workload.light, signatures)
    inverse, count = signatures.inverse, len(signatures)
    cost = workload.light.column("duration_ns").astype(float)
    in_window = inverse[: workload.window]
    projected = project_costs(
        facts,
        np.bincount(in_window, minlength=count),
        np.bincount(in_window, cost[: workload.window], count),
    )
    new = np.isin(projected.basis, (Basis.BETWEEN_SIZES, Basis.BEYOND_SIZES))
    launches = np.bincount(inverse, minlength=count)
    truth = np.bincount(inverse, cost, count)
    given = {_BY_GRID: projected.cost, **_by_label(workload, cost, inverse, count)}
    found = {}
    for way, each in given.items():
        apart = (launches * each - truth)[new]
        whole = truth[new].sum()
        found[way] = (100 * float(np.abs(apart).sum() / whole), 100 * float(abs(apart.sum()) / whole))
    return found


def _by_label(
    workload: CountedWorkload, cost: np.ndarray, inverse: np.ndarray, count: int
) -> dict[str, np.ndarray]:
    counted = workload.whole.slice(0, workload.window)
    grouping = principal_kernels(counted)
    counters = WindowCounters(grouping.features, feature_matrix(counted, grouping.features), grouping.space)
    blind = _without_times(workload.light)
    found = label_rest(blind, np.arange(workload.window), grouping.labels, counters=counters)
    costs = {}
    for way, model in zip(_BY_LABEL, ("sgd", "scaled_counters"), strict=True):
        label = np.zeros(count, int)
        label[inverse[found.classified_rows]] = found.predicted[model]  # type: ignore[index]
        costs[way] = cost[grouping.representative_rows][label]
    return costs


def _without_times(light: Launches) -> Launches:
    table = light.table
    index = table.schema.get_field_index("duration_ns")
    column = table.schema.field(index)
    return replace(light, table=table.set_column(index, column, pa.nulls(len(table), column.type)))
