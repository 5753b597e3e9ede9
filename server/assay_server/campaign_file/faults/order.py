"""Faults of the order of workloads: who is unknown, and who would wait for itself."""

from __future__ import annotations

from collections.abc import Iterator

from assay_server.campaign_file.faults.messages import Fault
from assay_server.campaign_file.spec import Campaign


def order_faults(campaign: Campaign) -> Iterator[Fault]:
    """Faults of ``after``, and of keys about GPUs in workloads that use none."""
    after = {workload.name: workload.after for workload in campaign.workloads}
    wrong = False
    for position, workload in enumerate(campaign.workloads):
        for place, name in enumerate(workload.after):
            if name not in after:
                wrong = True
                yield Fault(("workloads", position, "after", place), f"there is no workload {name!r}")
        if workload.command is None:
            for key in ("requires", "exclusive", "gang"):
                if key in workload.model_fields_set:
                    yield Fault(("workloads", position, key), "this key needs a 'command' in the workload")
    if not wrong:
        circle = _in_a_circle(after)
        for position, workload in enumerate(campaign.workloads):
            if workload.name in circle:
                names = ", ".join(sorted(circle))
                cause = f"it would wait for itself: {names} wait for one another"
                yield Fault(("workloads", position, "after"), cause)
                return


def _in_a_circle(after: dict[str, list[str]]) -> set[str]:
    """Workloads that could never begin: those left when all that can begin have ended, one after another."""
    awaited = {name: set(first) for name, first in after.items()}
    waiting: dict[str, list[str]] = {}
    for name, first in awaited.items():
        for each in first:
            waiting.setdefault(each, []).append(name)
    ended = [name for name, first in awaited.items() if not first]
    for name in ended:  # grows as more of them can begin
        for other in waiting.get(name, ()):
            awaited[other].discard(name)
            if not awaited[other]:
                ended.append(other)
    return set(after).difference(ended)
