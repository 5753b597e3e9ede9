"""GPUs that a workload lost: the first may be chance, the second is the workload, and it gets no third.

What counts is the workload of a campaign with all its runs, not one run: each of a hundred runs could take
two GPUs of the lab with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from assay_server.campaigns.retry import MOST_GPUS_LOST, lost_gpu
from assay_server.store.model import FailureRecord, Run
from assay_server.store.protocols import MetadataReader


def gpus_lost(store: MetadataReader, run: Run) -> tuple[str, ...]:
    """UUIDs of the GPUs that attempts of the run's workload, in its campaign, have lost, first lost first."""
    failures = store.workload_failures(run.campaign_id, run.workload)
    lost = [slot_id for slot_id, failure in failures if lost_gpu(failure)]
    return tuple(dict.fromkeys(lost))


def workload_runs(store: MetadataReader, run: Run) -> list[Run]:
    """All runs of the same workload in the same campaign."""
    return [other for other in store.runs(run.campaign_id) if other.workload == run.workload]


def too_many(lost: Sequence[str]) -> bool:
    """Whether no further GPU is to be risked."""
    return len(lost) >= MOST_GPUS_LOST


def given_up(why: FailureRecord, run: Run, lost: Sequence[str]) -> FailureRecord:
    """The failure of a run whose workload has lost too many GPUs; ``why`` is that of the last one lost."""
    text = f"the workload {run.workload} has lost {len(lost)} GPUs ({', '.join(lost)}), so it gets no other"
    return replace(
        why,
        subject=f"run {run.run_id}",
        cause=f"{text}; the last time: {why.cause}",
        remedy="find out what breaks them (the kernel logs of their boxes), then submit the campaign again",
        retryable=False,
    )
