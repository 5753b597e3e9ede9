"""The queue in memory: who stands in line, which slots are kept for whom, and who has used how much.

Built from the store at the first lease after a start, and kept by the effects of every transaction. The
store holds the truth. A lane that is missing here would never be served, so lanes are only added when their
campaign changes, and removed only by a decision that looked in the store under its write lock and found
nothing. A lane too many costs one look.

Boxes and GPUs are kept free for a run that needs more than one slot, or a GPU or box alone. A run with
``exclusive`` begins when its rivals are idle: the other slots of its GPU, or all other GPUs of its box; a
run over several GPUs, when all of them are idle. Once such a run is next for a slot, that slot and those
others take nothing else of its priority or below until it has begun, so that a stream of small runs cannot
keep it waiting for ever.
"""

from __future__ import annotations

import heapq
import math
import threading
from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from assay_core.records.attempt import AttemptKey
from assay_core.records.machine import Slot
from assay_sampling.errors import StorageError
from assay_server.campaign_file.compiled import Exclusive, SchedulingRules
from assay_server.campaigns.scheduling.fair_share import Account, Ledger, Shares
from assay_server.campaigns.scheduling.fitting_slots import lacking
from assay_server.campaigns.scheduling.resting import RestingSlots, Window, window_of
from assay_server.store.model import Agent, Entrant, Lane, Need, Run
from assay_server.store.sql import SqlTransaction

Fits = Callable[[Need], bool]
# A reservation that no slot renews ends: its box may be gone.
KEPT_MS = 300_000


class Turn(NamedTuple):
    """A lane in the line of its account; older campaigns come first."""

    ordinal: int
    campaign_id: str
    lane_id: int


class _Group(NamedTuple):
    """Campaigns that differ only in age stand in one line."""

    priority: int
    account: Account


class Candidates:
    """The lanes that may have waiting slices, and when those that rest are due. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._lines: defaultdict[Need, dict[_Group, list[Turn]]] = defaultdict(dict)
        self._entrants: dict[str, Entrant] = {}
        self._lanes: dict[int, tuple[Need, _Group, Turn]] = {}
        self._due: dict[int, int] = {}  # when lanes that rest are due (Unix time, ms)
        self.looks_at_boxes = False  # whether any run may have asked for more than its own slot

    def add(self, entrants: Iterable[Entrant]) -> None:
        """Campaigns whose lanes may have work now; lanes that rest are looked at again."""
        with self._lock:
            for entrant in entrants:
                self._entrants[entrant.campaign_id] = entrant
                group = _Group(entrant.rules.priority, Account(entrant.project, entrant.owner))
                for lane in entrant.lanes:
                    self.looks_at_boxes |= lane.need.placement.concerns_other_slots
                    turn = Turn(entrant.ordinal, entrant.campaign_id, lane.lane_id)
                    self.drop(lane.lane_id)
                    self._lanes[lane.lane_id] = lane.need, group, turn
                    insort(self._lines[lane.need].setdefault(group, []), turn)

    def drop(self, lane_id: int) -> None:
        """No slice waits in this lane any more."""
        with self._lock:
            self._due.pop(lane_id, None)
            if lane_id not in self._lanes:
                return
            need, group, turn = self._lanes.pop(lane_id)
            lines = self._lines[need]
            lines[group].remove(turn)
            if not lines[group]:
                del lines[group]
            if not lines:
                del self._lines[need]

    def rest(self, lane_id: int, until_ms: int) -> None:
        """All slices of this lane rest until a moment."""
        with self._lock:
            if lane_id in self._lanes:
                self._due[lane_id] = until_ms

    def in_order(self, fits: Fits, shares: Shares, now_ms: int) -> Iterator[Entrant]:
        """Campaigns that may have work for a slot, with the lanes that fit it, who is next first.

        By priority; then the project that has used least, the person of it that has used least, the oldest
        campaign.
        """
        lines_by_group = self._due_lines(fits, now_ms)

        def rank(group: _Group) -> tuple[float | Turn, ...]:
            used = shares.rank(group.account, now_ms)
            return (-group.priority, *used, min(line[0] for line in lines_by_group[group]))

        for group in sorted(lines_by_group, key=rank):
            together = heapq.merge(*lines_by_group[group])
            for campaign_id, turns in groupby(together, key=lambda turn: turn.campaign_id):
                candidate = self._candidate(campaign_id, [turn.lane_id for turn in turns])
                if candidate is not None:
                    yield candidate

    def _due_lines(self, fits: Fits, now_ms: int) -> dict[_Group, list[list[Turn]]]:
        """The lines of each group whose lanes fit and are due.

        They are copies: the caller looks into the store while others change the lines.
        """
        lines_by_group: dict[_Group, list[list[Turn]]] = {}
        with self._lock:
            self._due = {lane_id: due_ms for lane_id, due_ms in self._due.items() if due_ms > now_ms}
            for need, lines in self._lines.items():
                if fits(need):
                    for group, line in lines.items():
                        if due := [turn for turn in line if turn.lane_id not in self._due]:
                            lines_by_group.setdefault(group, []).append(due)
        return lines_by_group

    def _candidate(self, campaign_id: str, lane_ids: Iterable[int]) -> Entrant | None:
        with self._lock:
            lanes = [Lane(one, self._lanes[one][0]) for one in lane_ids if one in self._lanes]
            entrant = self._entrants.get(campaign_id)
        return replace(entrant, lanes=tuple(lanes)) if lanes and entrant is not None else None

    def account(self, campaign_id: str) -> Account:
        """Whom a campaign that stood in line is charged to."""
        entrant = self._entrants.get(campaign_id)
        return Account() if entrant is None else Account(entrant.project, entrant.owner)

    def may_serve(self, fits: Fits, now_ms: int) -> bool:
        """Whether any lane that fits a slot may have work now."""
        return bool(self._due_lines(fits, now_ms))


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
            mine = (r for r in self._live(now_ms) if (r.lane_id, r.agent_id) == (lane_id, agent_id))
            return next((reservation.slots for reservation in mine), frozenset())

    def reserve(self, reservation: Reservation, now_ms: int) -> bool:
        """Reserve slots, or renew that; False if the lane has slots elsewhere, or another lane has these."""
        with self._lock:
            for other in self._live(now_ms):
                same_box = other.agent_id == reservation.agent_id
                if other.lane_id == reservation.lane_id and not same_box:
                    return False
                overlaps = same_box and bool(other.slots & reservation.slots)
                if (
                    overlaps
                    and other.lane_id != reservation.lane_id
                    and other.priority >= reservation.priority
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


class Seat(NamedTuple):
    """A slot of an agent, as a place for runs."""

    agent: Agent
    slot: Slot

    def fits(self, need: Need) -> bool:
        """Whether the slot has what a need asks for."""
        return lacking(need, self.slot, self.agent) is None

    @property
    def place(self) -> tuple[str, str]:
        return self.agent.agent_id, self.slot.slot_id


class Queue:
    """One server's queue. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._candidates = Candidates()
        self._built = False
        self._ledger = Ledger()
        self._budgets: dict[str, float] = {}
        self.reservations = Reservations()
        self._idle: dict[tuple[str, str], Seat] = {}  # slots that got nothing when they asked last

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
                leased = (store.run(use.key.run_id) for use in uses if use.key is not None)
                self._candidates.looks_at_boxes |= any(
                    run and run.placement.concerns_other_slots for run in leased
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

    def began(self, key: AttemptKey, run: Run, now_ms: int) -> None:
        """An attempt got its GPUs, whose time counts for its run's campaign."""
        account = self._candidates.account(run.campaign_id)
        self._ledger.began(key, run.campaign_id, account, now_ms, run.placement.gang)

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

    def registered(self, agent_id: str) -> None:
        """An agent registered, perhaps with other slots: each of them asks the store first."""
        with self._lock:
            self._idle = {place: seat for place, seat in self._idle.items() if place[0] != agent_id}

    def answered(self, seat: Seat, *, with_work: bool) -> None:
        """A slot's request for work was decided in the store."""
        with self._lock:
            self._idle.pop(seat.place, None)
            if not with_work:
                self._idle[seat.place] = seat

    def idle_seat(self, agent_id: str, session_id: str, slot_id: str) -> Seat | None:
        """The slot if it asked, and was given nothing since: it holds no lease whose answer was lost."""
        seat = self._idle.get((agent_id, slot_id))
        return seat if seat is not None and seat.agent.session_id == session_id else None

    def may_serve(self, seat: Seat, *, resting: RestingSlots, windows: Sequence[Window], now_ms: int) -> bool:
        """Whether a slot that got nothing may get work now; looks only in memory."""
        if not self._built:
            return True
        if seat.slot.quarantine_reason or resting.at(*seat.place, now_ms) is not None:
            return False
        if window_of(windows, seat.agent, now_ms) is not None:
            return False
        return self._candidates.may_serve(seat.fits, now_ms)
