"""Runs of campaigns that the caller may not know of, in a queue and on slots: there, but without names."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from assay_core.records.lab import QueuedRuns
from assay_server.store.model import Attempt, Sight
from assay_server.store.overviews import WorkloadCost
from assay_server.store.sql import SqlTransaction

_WORKLOAD = "a workload of another project"


def unnamed(queued: QueuedRuns, hidden: Set[str]) -> QueuedRuns:
    """Waiting runs without the names of hidden campaigns, each of which becomes ""."""
    ahead = tuple("" if each in hidden else each for each in queued.ahead)
    if queued.campaign_id not in hidden:
        return replace(queued, ahead=ahead)
    return replace(
        queued,
        campaign_id="",
        first_run_id="",
        owner_name="",
        project="",
        reason="it is of another project",
        ahead=ahead,
    )


def unnamed_costs(costs: Sequence[WorkloadCost]) -> list[WorkloadCost]:
    """The costs of a hidden campaign: what estimates say of them names no workload."""
    return [replace(each, workload=_WORKLOAD) for each in costs]


def hidden_runs(store: SqlTransaction, leased: Sequence[Attempt], sight: Sight) -> frozenset[str]:
    """Those of the runs being measured that the caller may not know of."""
    if sight.everything:
        return frozenset()
    runs = {each.key.run_id for each in leased}
    whose = {run_id: store.belongs_to(store.campaign_of(run_id) or "") for run_id in runs}
    return frozenset(run_id for run_id, of in whose.items() if of is None or not sight.sees(of))
