"""Ranks: the processes of a workload that are evaluated each alone, and the names that reports give them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from assay_server.campaign_file.faults.messages import Fault
from assay_server.campaign_file.spec import Campaign

# All ranks that launched kernels, or those with these ordinals.
Ranks = Literal["each"] | tuple[int, ...]


def rank_name(workload: str, rank: int) -> str:
    """What reports call a rank of a workload."""
    return f"{workload}[rank {rank}]"


def ranks_of_workloads(campaign: Campaign) -> dict[str, Ranks]:
    """The workloads whose ranks are evaluated each alone, with the ranks that are."""
    found: dict[str, Ranks] = {}
    for workload in campaign.workloads:
        if workload.ranks == "each":
            found[workload.name] = "each"
        elif workload.ranks != "together":
            found[workload.name] = tuple(sorted(workload.ranks))
    return found


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
