"""Faults of ranks that are evaluated each alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from assay_server.campaign_file.faults.messages import Fault
from assay_server.campaign_file.spec import Campaign

# What a report calls a rank (assay_server.campaign_file.compiled.rank_name), and whose it is.
_RANK = re.compile(r"(.*)\[rank \d+\]", re.DOTALL)


def rank_faults(campaign: Campaign) -> Iterator[Fault]:
    """Ranks that are named twice, and workloads that have the name of another one's rank."""
    named: dict[str, list[str]] = {}
    for workload in campaign.workloads:
        if match := _RANK.fullmatch(workload.name):
            named.setdefault(match[1], []).append(workload.name)
    for position, workload in enumerate(campaign.workloads):
        place = ("workloads", position, "ranks")
        if isinstance(workload.ranks, list) and len({*workload.ranks}) < len(workload.ranks):
            yield Fault(place, "a rank is named twice")
        if workload.ranks == "together":
            continue
        for name in named.get(workload.name, ()):
            yield Fault(place, f"a rank of {workload.name!r} would have the name of the workload {name!r}")
