"""Faults of ranks that are evaluated each alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from assay_server.campaign_file.faults.messages import Fault
from assay_server.campaign_file.spec import Campaign


def rank_faults(campaign: Campaign) -> Iterator[Fault]:
    """Ranks that are named twice, and workloads that have the name of another one's rank."""
    names = [workload.name for workload in campaign.workloads]
    for position, workload in enumerate(campaign.workloads):
        place = ("workloads", position, "ranks")
        if isinstance(workload.ranks, list) and len({*workload.ranks}) < len(workload.ranks):
            yield Fault(place, "a rank is named twice")
        if workload.ranks == "together":
            continue
        taken = re.compile(re.escape(workload.name) + r"\[rank \d+\]")
        for name in filter(taken.fullmatch, names):
            yield Fault(place, f"a rank of {workload.name!r} would have the name of the workload {name!r}")
