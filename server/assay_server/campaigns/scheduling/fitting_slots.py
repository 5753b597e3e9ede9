"""Slots that fit what a run needs, what the others lack, and which slots a run takes together. Pure.

Gangs are runs over several GPUs of one box, which begin on all of them at once or not at all. The slot that
asks leads. The run takes other slots of its agent; those that are idle come first, then those that are kept
free for it already, so that every slot that becomes idle brings it nearer to its beginning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import NamedTuple

from assay_core.records.machine import InstalledDevice, Slot
from assay_server.campaign_file.compiled import NO_REQUIREMENTS, Exclusive, Requirements
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


class Seat(NamedTuple):
    """A slot of an agent, as a place for runs."""

    agent: Agent
    slot: Slot

    @property
    def place(self) -> tuple[str, str]:
        """Agent and slot, by their names in the store."""
        return self.agent.agent_id, self.slot.slot_id

    def fits(self, need: Need) -> bool:
        """Whether the slot has what a need asks for."""
        return self.lack(need) is None

    def lack(self, need: Need) -> Lack | None:
        """What the slot lacks for a need; None if it fits."""
        slot = self.slot
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
        unmet = None if requires == NO_REQUIREMENTS else _unmet(requires, self)
        return unmet or (None if need.placement.gang == 1 else self._lack_for_gang(need))

    def _lack_for_gang(self, need: Need) -> Lack | None:
        if not self.slot.may_join_gangs:
            return Lack.GANGS
        return Lack.GANG_SIZE if len(self.companions(need)) + 1 < need.placement.gang else None

    def companions(self, need: Need) -> list[Seat]:
        """The other slots of the agent that could take part in a gang that this slot leads: each another GPU
        of the same kind, in service."""
        alone = replace(need, placement=replace(need.placement, gang=1))
        gpus = {self.slot.device.index if self.slot.device is not None else -1}
        others = []
        for other in seats_of([self.agent]):
            device = other.slot.device
            if device is None or other.slot.quarantine_reason or not other.slot.may_join_gangs:
                continue
            if device.index not in gpus and other.fits(alone):
                gpus.add(device.index)
                others.append(other)
        return others


def seats_of(agents: Iterable[Agent]) -> Iterator[Seat]:
    """Every slot of these agents."""
    return (Seat(agent, slot) for agent in agents for slot in agent.slots)


def _unmet(requires: Requirements, seat: Seat) -> Lack | None:
    agent, slot = seat
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


def elsewhere(run: Run, attempt: Attempt, agents: Iterable[Agent], now_ms: int) -> list[tuple[str, str]]:
    """Agent and slot of every place that fits, is present and in service, except the attempt's own."""
    need = need_of(run)
    own = [(attempt.agent_id, slot_id) for slot_id in attempt.slots]
    present = (agent for agent in agents if now_ms - agent.seen_at_ms <= AWAY_AFTER_MS)
    in_service = (seat for seat in seats_of(present) if not seat.slot.quarantine_reason)
    return [seat.place for seat in in_service if seat.fits(need) and seat.place not in own]


def rivals(exclusive: Exclusive, taken: Collection[str], agent: Agent) -> frozenset[str]:
    """The other slots that must be idle while an exclusive run is measured in the slots ``taken``.

    Players of recordings use no GPU, so they never are rivals.
    """
    if not exclusive:
        return frozenset()
    gpus = {slot.device.index for slot in agent.slots if slot.slot_id in taken and slot.device is not None}
    return frozenset(
        other.slot_id
        for other in agent.slots
        if gpus
        and other.slot_id not in taken
        and other.device is not None
        and (exclusive == "box" or other.device.index in gpus)
    )


def idle_together(need: Need, leader: Seat, busy: Collection[tuple[str, str]]) -> int:
    """How many idle GPUs a gang that a slot leads could have; ``busy``: agent and slot of every lease."""
    return sum(member.place not in busy for member in (leader, *leader.companions(need)))


def lack_of_gangs(need: Need, agents: Sequence[Agent]) -> str:
    """What boxes with a GPU that fits lack for a gang, for people; "" if there is no such GPU."""
    if need.placement.gang == 1:
        return ""
    lacks = [(seat, seat.lack(need)) for seat in seats_of(agents)]
    small = [seat for seat, lack in lacks if lack is Lack.GANG_SIZE]
    if small:
        most = max(len(seat.companions(need)) + (not seat.slot.quarantine_reason) for seat in small)
        return f": no box has more than {most} of them in service"
    return f": {_GANGS_NEED}" if any(lack is Lack.GANGS for _, lack in lacks) else ""
