"""Workloads that harm GPUs, or fail everywhere: they get no further slots.

Of the GPUs that a workload lost, the first may be chance, the second is the workload's fault; it gets no
third. A workload that failed through its own fault in several slots, and never succeeded, is set aside. All
runs of a campaign's workload count together: otherwise each of a hundred runs could break two GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from assay_core.records.failure import Failure
from assay_sampling.running.failures import Fault
from assay_server.campaigns.scheduling.retry import MOST_GPUS_LOST, lost_gpu
from assay_server.store.model import Run
from assay_server.store.sql import SqlTransaction

# A workload that failed in this many slots and never succeeded gets no other slot.
MOST_SLOTS_FAILED = 3


def gpus_lost(store: SqlTransaction, run: Run) -> tuple[str, ...]:
    """UUIDs of the GPUs that attempts of the run's workload in its campaign lost, in the order of loss.

    Of a gang, which then never comes together again, all UUIDs are one entry: it lost one of them.
    """
    failures = store.workload_failures(run.campaign_id, run.workload)
    lost = [_named(slots) for slots, failure in failures if lost_gpu(failure)]
    return tuple(dict.fromkeys(lost))


def slots_failed(store: SqlTransaction, run: Run) -> tuple[str, ...]:
    """Slots in which attempts of the run's workload failed through the workload's own fault."""
    failures = store.workload_failures(run.campaign_id, run.workload)
    own = [_named(slots) for slots, why in failures if why and why.known_class.fault is Fault.RUN]
    return tuple(dict.fromkeys(own))


def _named(slots: Sequence[str]) -> str:
    return " + ".join(sorted(slots))


def set_aside(why: Failure, run: Run, slots: Sequence[str]) -> Failure:
    """The failure of a run whose workload failed in several slots; ``why`` is the last failure."""
    text = (
        f"the workload {run.workload} failed in {len(slots)} slots ({', '.join(slots)}) and never succeeded"
    )
    remedy = f"{why.remedy}; then: assay lab retry {run.campaign_id} --workload {run.workload}"
    cause = f"{text}, so its other runs are set aside; the last time: {why.cause}"
    return replace(why, subject=f"run {run.run_id}", cause=cause, remedy=remedy, retryable=False)


def workload_runs(store: SqlTransaction, run: Run) -> list[Run]:
    """All runs of the same workload in the same campaign."""
    return [other for other in store.runs(run.campaign_id) if other.workload == run.workload]


def too_many(lost: Sequence[str]) -> bool:
    """Whether the workload must not get another GPU."""
    return len(lost) >= MOST_GPUS_LOST


def given_up(why: Failure, run: Run, lost: Sequence[str]) -> Failure:
    """The failure of a run whose workload lost too many GPUs; ``why`` is that of the last loss."""
    text = f"the workload {run.workload} has lost {len(lost)} GPUs ({', '.join(lost)}), so it gets no other"
    return replace(
        why,
        subject=f"run {run.run_id}",
        cause=f"{text}; the last time: {why.cause}",
        remedy="find out what breaks them (the kernel logs of their boxes), then submit the campaign again",
        retryable=False,
    )
