"""Boxes and GPUs that are kept free for a run that needs more than one slot, or a GPU or box alone.

A run with ``exclusive`` begins when its rivals are idle: the other slots of its GPU, or all other GPUs of its
box; a run over several GPUs, when all of them are idle. Once such a run is next for a slot, that slot and
those others take nothing else of its priority or below until it has begun, so that a stream of small runs
cannot keep it waiting for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass

from assay_server.campaign_file.compiled import Exclusive
from assay_server.store.model import Agent

# A reservation that no slot renews ends: its box may be gone.
KEPT_MS = 300_000


@dataclass(frozen=True)
class Reservation:
    """Slots of an agent that wait for the runs of a lane."""

    agent_id: str
    slots: frozenset[str]
    lane_id: int
    priority: int
    until_ms: int


class Reservations:
    """At most one for each lane and slot. Thread-safe; in memory only, so a restart forgets them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of_lanes: dict[int, Reservation] = {}

    def of_slot(self, agent_id: str, slot_id: str, now_ms: int) -> Reservation | None:
        """The reservation that a slot waits for."""
        with self._lock:
            return next(
                (r for r in self._live(now_ms) if r.agent_id == agent_id and slot_id in r.slots), None
            )

    def of_lane(self, lane_id: int, agent_id: str, now_ms: int) -> frozenset[str]:
        """The slots of an agent that are kept for a lane."""
        with self._lock:
            known = next((r for r in self._live(now_ms) if r.lane_id == lane_id), None)
            return known.slots if known is not None and known.agent_id == agent_id else frozenset()

    def reserve(self, reservation: Reservation, now_ms: int) -> bool:
        """Reserve slots, or renew that; False if the lane has slots elsewhere, or another lane has these."""
        with self._lock:
            for known in self._live(now_ms):
                same_box = known.agent_id == reservation.agent_id
                if known.lane_id == reservation.lane_id and not same_box:
                    return False
                overlaps = same_box and bool(known.slots & reservation.slots)
                if (
                    overlaps
                    and known.lane_id != reservation.lane_id
                    and known.priority >= reservation.priority
                ):
                    return False
            self._of_lanes[reservation.lane_id] = reservation
            return True

    def release(self, lane_id: int) -> None:
        """Its run has begun, or nothing waits in the lane any more."""
        with self._lock:
            self._of_lanes.pop(lane_id, None)

    def _live(self, now_ms: int) -> list[Reservation]:
        self._of_lanes = {lane: r for lane, r in self._of_lanes.items() if now_ms < r.until_ms}
        return list(self._of_lanes.values())


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
