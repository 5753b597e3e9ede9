"""Slots that fit what a run needs, what the others lack, and which slots a run takes together. Pure.

Gangs are runs over several GPUs of one box, which begin on all of them at once or not at all. The slot that
asks leads. The run takes other slots of its agent; those that are idle come first, then those that are kept
free for it already, so that every slot that becomes idle brings it nearer to its beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from enum import StrEnum
from fnmatch import fnmatchcase

from assay_core.records.machine import InstalledDevice, Slot
from assay_server.campaign_file.compiled import NO_REQUIREMENTS, Requirements
from assay_server.store.model import Agent, Attempt, Need, Run, need_of

# Agents give a sign of life every few seconds; one that is away longer than this does not count.
AWAY_AFTER_MS = 120_000
_GIB = 1 << 30
_GANGS_NEED = (
    "its agent makes no runs over several GPUs, or its GPUs are instances (MIG), of which a process sees one"
)


class Lack(StrEnum):
    """What a slot lacks for a run."""

    GPU = "GPU"
    MARK = "mark"
    PROFILER = "profiler"
    PARTITIONS = "partitions"
    BUNDLES = "bundles"
    ARCHITECTURE = "architecture"
    NAME = "gpu"
    SM_COUNT = "sm_count"
    MEMORY = "memory_gib"
    DRIVER = "driver"
    TOOLS = "tools"
    LABELS = "labels"
    MIG = "mig"
    GANGS = "gangs"
    GANG_SIZE = "gang"


def lacking(need: Need, slot: Slot, agent: Agent) -> Lack | None:
    """What a slot of an agent lacks for a need; None if it fits."""
    if need.device_key and slot.device_key != need.device_key:
        return Lack.GPU
    if need.device_key and slot.synthetic != need.synthetic:
        return Lack.MARK
    if need.profiler not in slot.profilers:
        return Lack.PROFILER
    if need.partitions and not slot.sm_partitions:
        return Lack.PARTITIONS
    if need.bundles and not slot.bundles:
        return Lack.BUNDLES
    requires = need.placement.requires
    unmet = None if requires == NO_REQUIREMENTS else _unmet(requires, slot, agent)
    return unmet or (None if need.placement.gang == 1 else _lacking_for_gang(need, slot, agent))


def _lacking_for_gang(need: Need, slot: Slot, agent: Agent) -> Lack | None:
    if not slot.may_join_gangs:
        return Lack.GANGS
    return Lack.GANG_SIZE if len(companions(need, slot, agent)) + 1 < need.placement.gang else None


def companions(need: Need, slot: Slot, agent: Agent) -> list[Slot]:
    """The other slots of the agent that could take part in a gang that a slot leads: each another GPU of the
    same kind, in service."""
    alone = replace(need, placement=replace(need.placement, gang=1))
    gpus = {slot.device.index if slot.device is not None else -1}
    others = []
    for other in agent.slots:
        if other.device is None or other.quarantine_reason or not other.may_join_gangs:
            continue
        if other.device.index not in gpus and lacking(alone, other, agent) is None:
            gpus.add(other.device.index)
            others.append(other)
    return others


def _unmet(requires: Requirements, slot: Slot, agent: Agent) -> Lack | None:
    device = slot.device or InstalledDevice()
    unmet = {
        Lack.ARCHITECTURE: requires.architectures and device.compute_capability not in requires.architectures,
        Lack.NAME: requires.gpu and not fnmatchcase(device.name.lower(), requires.gpu.lower()),
        Lack.SM_COUNT: device.sm_count < requires.sm_count,
        Lack.MEMORY: device.memory_bytes < requires.memory_gib * _GIB,
        Lack.DRIVER: version(agent.inventory.driver_version) < version(requires.driver),
        Lack.TOOLS: not set(requires.tools) <= set(slot.profilers),
        Lack.LABELS: not set(requires.labels) <= set(agent.labels),
        Lack.MIG: requires.mig and (requires.mig == "yes") != slot.is_mig,
    }
    return next((lack for lack, is_unmet in unmet.items() if is_unmet), None)


def version(text: str) -> tuple[int, ...]:
    """A driver's version ("550.54.14") as numbers; what is not a number counts as 0."""
    return tuple(int(part) if part.isdecimal() else 0 for part in text.split(".")) if text else ()


def elsewhere(run: Run, attempt: Attempt, agents: Sequence[Agent], now_ms: int) -> list[tuple[str, str]]:
    """Agent and slot of every place that fits, is present and in service, except the attempt's own."""
    need = need_of(run)
    return [
        (agent.agent_id, slot.slot_id)
        for agent in agents
        if now_ms - agent.seen_at_ms <= AWAY_AFTER_MS
        for slot in agent.slots
        if lacking(need, slot, agent) is None
        and not slot.quarantine_reason
        and not (agent.agent_id == attempt.agent_id and slot.slot_id in attempt.slots)
    ]


def company(
    need: Need,
    leader: Slot,
    agent: Agent,
    *,
    is_free: Callable[[str], bool],
    rests: Callable[[str], bool],
    reserved_slots: Collection[str] = (),
) -> tuple[str, ...] | None:
    """The other slots of a gang that ``leader`` leads, some of which may not be free yet.

    Slots that rest after a failure of their box are left out; None if too few others remain.
    """
    others = [slot for slot in companions(need, leader, agent) if not rests(slot.slot_id)]
    if len(others) + 1 < need.placement.gang:
        return None
    ranked = sorted(others, key=lambda slot: (not is_free(slot.slot_id), slot.slot_id not in reserved_slots))
    return tuple(slot.slot_id for slot in ranked[: need.placement.gang - 1])


def idle_together(need: Need, agent: Agent, slot: Slot, busy: Collection[tuple[str, str]]) -> int:
    """How many idle GPUs a gang that a slot leads could have; ``busy``: agent and slot of every lease."""
    members = [slot, *companions(need, slot, agent)]
    return sum((agent.agent_id, member.slot_id) not in busy for member in members)


def lack_of_gangs(need: Need, agents: Sequence[Agent]) -> str:
    """What boxes with a GPU that fits lack for a gang, for people; "" if there is no such GPU."""
    if need.placement.gang == 1:
        return ""
    slots = [(agent, slot, lacking(need, slot, agent)) for agent in agents for slot in agent.slots]
    small = [(agent, slot) for agent, slot, lacks in slots if lacks is Lack.GANG_SIZE]
    if small:
        most = max(len(companions(need, slot, agent)) + (not slot.quarantine_reason) for agent, slot in small)
        return f": no box has more than {most} of them in service"
    return f": {_GANGS_NEED}" if any(lacks is Lack.GANGS for *_, lacks in slots) else ""
