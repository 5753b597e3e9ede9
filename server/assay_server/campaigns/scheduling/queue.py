"""The queue in memory: who stands in line, what everybody has used, and which slots wait for work.

Built from the store at the first lease after a start, and kept by the effects of every transaction.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from assay_core.records.attempt import AttemptKey
from assay_core.records.machine import Slot
from assay_sampling.errors import StorageError
from assay_server.campaign_file.compiled import SchedulingRules
from assay_server.campaigns.queue.candidates import Candidates
from assay_server.campaigns.queue.fair_share import Ledger, Shares
from assay_server.campaigns.queue.reservations import Reservations
from assay_server.campaigns.queue.windows import Window, window_of
from assay_server.campaigns.scheduling.choice import Seat, seat_of
from assay_server.campaigns.scheduling.resting import RestingSlots
from assay_server.store.model import Agent
from assay_server.store.sql import SqlTransaction


@dataclass(frozen=True)
class GpuLease:
    """An attempt got one or more GPUs, whose time counts for its campaign."""

    key: AttemptKey
    campaign_id: str
    gpus: int


class Queue:
    """One server's queue. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._candidates = Candidates()
        self._built = False
        self._ledger = Ledger()
        self._budgets: dict[str, float] = {}
        self.reservations = Reservations()
        self._seats: dict[tuple[str, str], Seat] = {}
        self._sessions: dict[str, str] = {}
        self._empty_handed: dict[tuple[str, str], str] = {}

    @property
    def shares(self) -> Shares:
        """What projects and people have used."""
        return self._ledger.shares

    def candidates(self, store: SqlTransaction) -> Candidates:
        """Who stands in line; the first time, from the store. Call it in a transaction."""
        with self._lock:
            if not self._built:
                self._candidates.add(store.entrants())
                self._ledger = Ledger()
                self._ledger.load(uses := store.gpu_uses())
                own = ((each.identity_id, each.budget_gpu_hours) for each in store.identities())
                self._budgets = {person: hours for person, hours in own if hours is not None}
                held = (store.run(use.key.run_id) for use in uses if use.key is not None)
                self._candidates.looks_at_boxes |= any(
                    run and run.placement.concerns_other_slots for run in held
                )
                self._built = True
        return self._candidates

    def changed(
        self, campaign_ids: set[str], snapshot: Callable[[], AbstractContextManager[SqlTransaction]]
    ) -> None:
        """Slices of these campaigns may wait that did not."""
        if not self._built or not campaign_ids:
            return
        try:
            with snapshot() as store:
                self._candidates.add(store.entrants(sorted(campaign_ids)))
        except StorageError:
            self.doubt()

    def doubt(self) -> None:
        """What was decided may not have become durable: the next lease reads everything from the store."""
        with self._lock:
            self._built = False

    def began(self, lease: GpuLease, now_ms: int) -> None:
        """A run got its GPUs."""
        account = self._candidates.account(lease.campaign_id)
        self._ledger.began(lease.key, lease.campaign_id, account, now_ms, lease.gpus)

    def ended(self, key: AttemptKey, now_ms: int) -> None:
        """An attempt gave its slot back."""
        self._ledger.ended(key, now_ms)

    def budget_left_hours(
        self, campaign_id: str, owner: str, rules: SchedulingRules, person_gpu_hours: float, now_ms: int
    ) -> float:
        """GPU hours that a campaign may still use, by its own budget and its owner's; infinite without any.

        ``person_gpu_hours``: what a person without a budget of their own may use in PERSON_DAYS days; 0: no
        limit.
        """
        left = math.inf
        budget = rules.budget_gpu_hours
        if budget:
            left = budget - self._ledger.campaign_seconds(campaign_id, now_ms) / 3600
        hours = self._budgets.get(owner, person_gpu_hours or math.inf)
        if owner and hours < math.inf:
            left = min(left, hours - self._ledger.person_seconds(owner, now_ms) / 3600)
        return left

    def person_hours(self, store: SqlTransaction, person: str, now_ms: int) -> float:
        """GPU hours that a person used in PERSON_DAYS days. Call it in a transaction."""
        self.candidates(store)
        return self._ledger.person_seconds(person, now_ms) / 3600

    def saw(self, agent: Agent) -> None:
        """An agent registered: its slots as they are now."""
        with self._lock:
            for place in [place for place in self._seats if place[0] == agent.agent_id]:
                del self._seats[place]
                self._empty_handed.pop(place, None)
            self._sessions[agent.agent_id] = agent.session_id
            for slot in agent.slots:
                self._seats[agent.agent_id, slot.slot_id] = seat_of(agent, slot)

    def seat(self, agent: Agent, slot: Slot) -> Seat:
        """The seat of a slot that asks, as the store has it now."""
        seat = seat_of(agent, slot)
        with self._lock:
            self._seats[seat.place] = seat
            self._sessions[agent.agent_id] = agent.session_id
        return seat

    def answered(self, agent_id: str, session_id: str, slot_id: str, *, with_work: bool) -> None:
        """A slot's request for work was decided in the store."""
        with self._lock:
            if with_work:
                self._empty_handed.pop((agent_id, slot_id), None)
            else:
                self._empty_handed[agent_id, slot_id] = session_id

    def got_nothing_before(self, agent_id: str, session_id: str, slot_id: str) -> bool:
        """Whether a slot asked, and was given nothing since: it holds no lease whose answer was lost."""
        return self._empty_handed.get((agent_id, slot_id)) == session_id

    def may_serve(
        self,
        agent_id: str,
        session_id: str,
        slot_id: str,
        *,
        resting: RestingSlots,
        windows: Sequence[Window],
        now_ms: int,
    ) -> bool:
        """Whether a slot that got nothing may get work now; looks only in memory."""
        if not self._built or self._sessions.get(agent_id) != session_id:
            return True
        seat = self._seats.get((agent_id, slot_id))
        if seat is None:
            return True
        if seat.slot.quarantine_reason or resting.at(agent_id, slot_id, now_ms) is not None:
            return False
        if window_of(windows, seat.agent, now_ms) is not None:
            return False
        return self._candidates.may_serve(seat, seat.fits, now_ms)
