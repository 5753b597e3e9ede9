"""The lab's agents, GPUs, queue and budgets as plain dictionaries, for ``--json`` and notebooks.

Keys, types and units are those of :mod:`assay_client.remote.lab_model`.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from assay_client.remote.documents import estimate_document, moment
from assay_client.remote.lab_model import (
    AgentEntry,
    AgentsDocument,
    BudgetEntry,
    BudgetsDocument,
    EstimateEntry,
    GpuEntry,
    GpusDocument,
    QueuedEntry,
    QueueDocument,
    SensorsEntry,
    SlotEntry,
)
from assay_core.records.lab import (
    Budgets,
    LabAgent,
    LabAgents,
    LabQueue,
    LabSlot,
    PersonBudget,
    QueuedRuns,
)
from assay_core.records.machine import GpuSample


def agents_document(lab: LabAgents) -> dict[str, Any]:
    """Every agent: who and where it is, since when, its versions, its labels, and its slots."""
    return AgentsDocument(agents=[_agent(agent) for agent in lab.agents]).to_dict()


def gpus_document(lab: LabAgents) -> dict[str, Any]:
    """Every GPU of every agent with what it is and does; ``health`` is null if it takes no runs at all."""
    return GpusDocument(gpus=[gpu for agent in lab.agents for gpu in _gpus(agent)]).to_dict()


def queue_document(lab_queue: LabQueue) -> dict[str, Any]:
    """Waiting runs by campaign and need: why they wait, who is ahead, and until when.

    Campaigns that the caller may not know of are null.
    """
    queued = [_queued(each) for each in lab_queue.queued]
    return QueueDocument(queue=queued, campaigns_left_out=lab_queue.campaigns_left_out).to_dict()


def budgets_document(budgets: Budgets) -> dict[str, Any]:
    """People with their budgets, which count the GPU time of so many days."""
    return BudgetsDocument(people=[_budget(each) for each in budgets.people], days=budgets.days).to_dict()


def person_budget_document(one: PersonBudget) -> dict[str, Any]:
    """One person with a budget; null: no budget of their own, and no limit."""
    return _budget(one).to_dict()


def _budget(one: PersonBudget) -> BudgetEntry:
    left = None if one.gpu_hours is None else max(0.0, one.gpu_hours - one.used_gpu_hours)
    return BudgetEntry(**asdict(one), left_gpu_hours=left)


def _agent(agent: LabAgent) -> AgentEntry:
    box = agent.inventory
    return AgentEntry(
        agent_id=agent.agent_id,
        name=agent.name,
        host=box.host,
        present=agent.present,
        seen_at=moment(agent.seen_at_ms),
        since=moment(agent.since_ms),
        labels=list(agent.labels),
        agent_version=box.agent_version,
        driver_version=box.driver_version,
        cuda_driver_version=box.cuda_driver_version,
        cpu_count=box.cpu_count,
        memory_bytes=box.memory_bytes,
        no_device_reason=box.no_device_reason,
        slots=[_slot(slot) for slot in agent.slots],
    )


def _slot(slot: LabSlot) -> SlotEntry:
    return SlotEntry(
        slot=slot.slot.slot_id,
        gpu=slot.slot.device_name or None,
        profilers=list(slot.slot.profilers),
        synthetic=slot.slot.synthetic,
        **_state(slot),
    )


def _state(slot: LabSlot) -> dict[str, Any]:
    return {
        "health": slot.health,
        "why": slot.why,
        "rest_remaining_ms": slot.rest_remaining_ms,
        "run_id": slot.run_id or None,
        "slice": slot.slice_index if slot.run_id else None,
        "leased_at": moment(slot.leased_at_ms),
        "maintenance_until": moment(slot.maintenance_until_ms),
        "sensors": None if slot.sample is None else _sensors(slot.sample),
    }


def _sensors(sample: GpuSample) -> SensorsEntry:
    return SensorsEntry(
        temperature_celsius=sample.temperature_celsius,
        power_watts=sample.power_watts,
        busy_percent=sample.busy_percent,
        sm_clock_mhz=sample.sm_clock_mhz,
        age_seconds=sample.age_ms / 1000,
    )


def _gpus(agent: LabAgent) -> list[GpuEntry]:
    slots = {slot.slot.slot_id: slot for slot in agent.slots}
    entries = []
    for device in agent.inventory.devices or tuple(s.slot.device for s in agent.slots if s.slot.device):
        slot = slots.get(device.uuid)
        nothing = {"health": None, "why": device.left_out or device.problem, "rest_remaining_ms": 0,
                   "run_id": None, "slice": None, "leased_at": None, "maintenance_until": None,
                   "sensors": None}  # fmt: skip
        entries.append(
            GpuEntry(
                agent=agent.name,
                host=agent.inventory.host,
                uuid=device.uuid,
                name=device.name,
                compute_capability=device.compute_capability or None,
                sm_count=device.sm_count or None,
                memory_bytes=device.memory_bytes or None,
                driver_version=agent.inventory.driver_version,
                labels=list(agent.labels),
                synthetic=slot.slot.synthetic if slot else False,
                profilers=list(slot.slot.profilers) if slot else [],
                **(_state(slot) if slot else nothing),
            )
        )
    return entries


def _queued(each: QueuedRuns) -> QueuedEntry:
    return QueuedEntry(
        campaign_id=each.campaign_id or None,
        owner_name=each.owner_name,
        project=each.project,
        first_run_id=each.first_run_id or None,
        runs=each.runs,
        device_kind=each.device_kind,
        profiler=each.profiler,
        kind=each.kind,
        reason=each.reason,
        ahead=[campaign_id or None for campaign_id in each.ahead],
        runs_ahead=each.runs_ahead,
        eta=EstimateEntry(**estimate_document(each.estimate)),
    )
