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
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import groupby

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
_MOST_FITS = 4_096
# A reservation that no slot renews ends: its box may be gone.
KEPT_MS = 300_000


@dataclass(frozen=True, order=True)
class Turn:
    """A lane in the line of its account; older campaigns come first."""

    ordinal: int
    campaign_id: str
    lane_id: int


@dataclass(frozen=True)
class _Group:
    """Campaigns that differ only in age stand in one line."""

    priority: int
    account: Account


class Candidates:
    """The lanes that may have waiting slices, and when those that rest are due. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._lines: dict[Need, dict[_Group, list[Turn]]] = {}
        self._entrants: dict[str, Entrant] = {}
        self._lanes: dict[int, tuple[Need, _Group, Turn]] = {}
        self._due: dict[int, int] = {}  # lanes outside the lines until this moment
        self._wakes: list[tuple[int, int]] = []  # a heap of (moment, lane)
        self._needs_version = 0
        self.looks_at_boxes = False  # whether any run may have asked for more than its own slot
        self._fits: dict[object, tuple[int, tuple[Need, ...]]] = {}

    def add(self, entrants: Iterable[Entrant]) -> None:
        """Campaigns whose lanes may have work now; lanes that rest are looked at again."""
        with self._lock:
            for entrant in entrants:
                self._entrants[entrant.campaign_id] = entrant
                group = _Group(entrant.rules.priority, Account(entrant.project, entrant.owner))
                for lane in entrant.lanes:
                    self.looks_at_boxes |= lane.need.placement.concerns_other_slots
                    stands = (lane.need, group, Turn(entrant.ordinal, entrant.campaign_id, lane.lane_id))
                    if self._lanes.get(lane.lane_id) == stands and lane.lane_id not in self._due:
                        continue
                    self.drop(lane.lane_id)
                    self._lanes[lane.lane_id] = stands
                    self._enter(lane.lane_id)

    def drop(self, lane_id: int) -> None:
        """No slice waits in this lane any more."""
        with self._lock:
            if lane_id in self._lanes and lane_id not in self._due:
                self._leave(lane_id)
            self._due.pop(lane_id, None)
            self._lanes.pop(lane_id, None)

    def rest(self, lane_id: int, until_ms: int) -> None:
        """All slices of this lane rest until a moment."""
        with self._lock:
            if lane_id in self._lanes and lane_id not in self._due:
                self._leave(lane_id)
                self._due[lane_id] = until_ms
                heapq.heappush(self._wakes, (until_ms, lane_id))

    def in_order(self, place: object, fits: Fits, shares: Shares, now_ms: int) -> Iterator[Entrant]:
        """Campaigns that may have work for a place, with the lanes that fit it, who is next first.

        By priority; then the project that has used least, the person of it that has used least, the oldest
        campaign. ``fits`` is asked once for each place and need.
        """
        for lines in self._ranked(place, fits, shares, now_ms):
            together = heapq.merge(*lines)
            for campaign_id, turns in groupby(together, key=lambda turn: turn.campaign_id):
                candidate = self._candidate(campaign_id, [turn.lane_id for turn in turns])
                if candidate is not None:
                    yield candidate

    def _candidate(self, campaign_id: str, lane_ids: Iterable[int]) -> Entrant | None:
        with self._lock:
            lanes = [Lane(one, self._lanes[one][0]) for one in lane_ids if one in self._lanes]
            entrant = self._entrants.get(campaign_id)
        return replace(entrant, lanes=tuple(lanes)) if lanes and entrant is not None else None

    def account(self, campaign_id: str) -> Account:
        """Whom a campaign that stood in line is charged to."""
        entrant = self._entrants.get(campaign_id)
        return Account() if entrant is None else Account(entrant.project, entrant.owner)

    def may_serve(self, place: object, fits: Fits, now_ms: int) -> bool:
        """Whether any lane that fits a place may have work now."""
        with self._lock:
            self._wake(now_ms)
            return bool(self._fitting(place, fits))

    def _ranked(self, place: object, fits: Fits, shares: Shares, now_ms: int) -> list[list[list[Turn]]]:
        """The lines of each group, the next group first.

        They are copies: the caller looks into the store while others change the lines.
        """
        with self._lock:
            self._wake(now_ms)
            groups: dict[_Group, list[list[Turn]]] = {}
            for need in self._fitting(place, fits):
                for group, line in self._lines[need].items():
                    groups.setdefault(group, []).append(line)
            ranked = sorted(
                (-group.priority, *shares.rank(group.account, now_ms), min(line[0] for line in lines), number)
                for number, (group, lines) in enumerate(groups.items())
            )
            in_line = list(groups.values())
            return [[line.copy() for line in in_line[number]] for *_, number in ranked]

    def _fitting(self, place: object, fits: Fits) -> tuple[Need, ...]:
        known = self._fits.get(place)
        if known is not None and known[0] == self._needs_version:
            return known[1]
        if len(self._fits) >= _MOST_FITS:
            self._fits.clear()
        needs = tuple(need for need in self._lines if fits(need))
        self._fits[place] = (self._needs_version, needs)
        return needs

    def _wake(self, now_ms: int) -> None:
        while self._wakes and self._wakes[0][0] <= now_ms:
            at_ms, lane_id = heapq.heappop(self._wakes)
            if self._due.get(lane_id) == at_ms:
                del self._due[lane_id]
                self._enter(lane_id)

    def _enter(self, lane_id: int) -> None:
        need, group, turn = self._lanes[lane_id]
        if need not in self._lines:
            self._lines[need] = {}
            self._needs_version += 1
        insort(self._lines[need].setdefault(group, []), turn)

    def _leave(self, lane_id: int) -> None:
        need, group, turn = self._lanes[lane_id]
        line = self._lines[need][group]
        line.remove(turn)
        if line:
            return
        del self._lines[need][group]
        if not self._lines[need]:
            del self._lines[need]
            self._needs_version += 1


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


@dataclass(frozen=True)
class Seat:
    """A slot of an agent, as a place for runs; equal seats fit equal needs.

    ``peers``: the agent's slots that take part in gangs now.
    """

    slot: Slot
    driver_version: str
    labels: tuple[str, ...]
    agent: Agent = field(compare=False)
    peers: tuple[str, ...] = ()

    def fits(self, need: Need) -> bool:
        """Whether the slot has what a need asks for."""
        return lacking(need, self.slot, self.agent) is None

    @property
    def place(self) -> tuple[str, str]:
        return self.agent.agent_id, self.slot.slot_id


def seat_of(agent: Agent, slot: Slot) -> Seat:
    """The seat of a slot."""
    peers = tuple(s.slot_id for s in agent.slots if s.may_join_gangs and not s.quarantine_reason)
    return Seat(slot, agent.inventory.driver_version, agent.labels, agent, peers)


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
