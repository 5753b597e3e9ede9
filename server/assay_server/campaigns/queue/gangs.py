"""Gangs: runs over several GPUs of one box, which begin on all of them at once or not at all. Pure.

The slot that asks leads. The run takes other slots of its agent; those that are idle come first, then those
that are kept free for it already, so that every slot that becomes idle brings it nearer to its beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from assay_core.records.machine import Slot
from assay_server.campaigns.queue.fitting_slots import Lack, companions, lacking
from assay_server.store.model import Agent, Need

_NEED = (
    "its agent makes no runs over several GPUs, or its GPUs are instances (MIG), of which a process sees one"
)


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
    return f": {_NEED}" if any(lacks is Lack.GANGS for *_, lacks in slots) else ""
