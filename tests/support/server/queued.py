"""The slice that a slot would be given now, by the scheduler's own decision."""

from __future__ import annotations

from assay_core.records.machine import Inventory, Slot
from assay_server.campaigns.scheduling.fitting_slots import Seat
from assay_server.campaigns.scheduling.leases import Chooser
from assay_server.campaigns.scheduling.queue import Queue
from assay_server.campaigns.scheduling.resting import RestingSlots
from assay_server.store.model import Agent, Run, Slice
from assay_server.store.sql import SqlTransaction


def waiting_slice(store: SqlTransaction, slot: Slot, now_ms: int) -> tuple[Run, Slice] | None:
    """The first slice for a slot of an agent without a failure, from what the store holds."""
    agent = Agent("agent", "session", "agent", Inventory(), (slot,), now_ms)
    found = Chooser(store, RestingSlots(), Queue(), now_ms, Seat(agent, slot)).choose()
    return None if found is None else (found.run, found.piece)
