"""Faults of gangs: runs over several GPUs that the tools cannot make truthfully.

Sources: the command line reference of Nsight Compute 2026, "Mandatory Concurrent Kernels": kernels that wait
for kernels of other processes make no progress if a profiler runs them one after the other, unless it
launches them in lock-step. NVIDIA's MIG user guide: a process sees at most one instance.
"""

from __future__ import annotations

from collections.abc import Iterator

from assay_server.campaign_file.faults.messages import Fault
from assay_server.campaign_file.spec import Campaign, WorkloadSpec


def gang_faults(campaign: Campaign) -> Iterator[Fault]:
    """What keeps workloads over several GPUs from being measured, each with the reason."""
    for position, workload in enumerate(campaign.workloads):
        if workload.gang is not None and workload.command is not None:
            for cause in _causes(campaign, workload):
                yield Fault(("workloads", position, "gang"), cause)


def _causes(campaign: Campaign, workload: WorkloadSpec) -> Iterator[str]:
    if campaign.detailed is not None:
        yield (
            "counters of several GPUs at once are not collected: Nsight Compute runs kernels one after the "
            "other, so kernels that wait for those of other GPUs (NCCL) would hang; write 'detailed: none' "
            "in the campaign, and measure its counters on one GPU in another one"
        )
    if campaign.light == "cupti":
        yield "Assay's tracer records one GPU; leave out 'light: cupti'"
    if workload.kineto is not None:
        yield "a Kineto trace is of one process; leave out 'kineto', so that Nsight Systems records them all"
    if any(condition.condition().sm_percent != 100 for condition in campaign.conditions):
        yield "a share of the SMs (MPS) is that of one GPU; put it into another campaign"
    requires = workload.requires or campaign.requires
    if requires is not None and requires.mig:
        yield "a process sees one MIG instance, so instances cannot work together; leave out 'mig: true'"
