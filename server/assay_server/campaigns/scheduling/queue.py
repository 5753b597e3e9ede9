"""The queue in memory: who stands in line, and who has used how much.

Built from the store at the first lease after a start, and kept by the effects of every transaction. The
store holds the truth. A lane that is missing here would never be served, so lanes are only added when their
campaign changes, and removed only by a decision that looked in the store under its write lock and found
nothing. A lane too many costs one look.

Of GPU time, for fair shares and budgets, use counts less as it ages: GPU seconds that ended a half-life ago
count half. A lease that is held counts with the time it has run so far and one minute more, so that slots
which ask at the same moment do not all go to one person.
"""

from __future__ import annotations

import heapq
import math
import threading
from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from assay_core.records.attempt import AttemptKey
from assay_sampling.errors import StorageError
from assay_server.access.caller import OWNER_ID
from assay_server.campaign_file.compiled import SchedulingRules
from assay_server.campaigns.scheduling.fitting_slots import Seat
from assay_server.campaigns.scheduling.resting import Reservations, RestingSlots, Window, window_of
from assay_server.store.model import Entrant, GpuUse, Lane, Need, Run
from assay_server.store.sql import SqlTransaction

Fits = Callable[[Need], bool]
HALF_LIFE_MS = 24 * 3600 * 1000
ADVANCE_MS = 60_000
PERSON_DAYS = 30
_DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True)
class Account:
    """Whom a campaign's GPU time is charged to."""

    project: str = ""
    owner: str = ""


@dataclass(frozen=True)
class Usage:
    """GPU time of one project or person: ended leases as at ``at_ms``, and ``gpus`` that are leased.

    ``leased_ms``: the sum over these GPUs of the moments at which their leases began.
    """

    ended_s: float = 0.0
    at_ms: int = 0
    gpus: int = 0
    leased_ms: int = 0

    def seconds(self, now_ms: int) -> float:
        """GPU seconds that count now."""
        running_ms = self.gpus * (now_ms + ADVANCE_MS) - self.leased_ms
        return self.ended_s * decay(now_ms - self.at_ms) + running_ms / 1000

    def began(self, leased_at_ms: int, gpus: int = 1) -> Usage:
        leased_ms = self.leased_ms + gpus * leased_at_ms
        return Usage(self.ended_s, self.at_ms, self.gpus + gpus, leased_ms)

    def spent(self, seconds: float, ended_at_ms: int) -> Usage:
        """With GPU seconds that ended at a moment, which may be before or after ``at_ms``."""
        at_ms = max(self.at_ms, ended_at_ms)
        total = self.ended_s * decay(at_ms - self.at_ms) + seconds * decay(at_ms - ended_at_ms)
        return Usage(total, at_ms, self.gpus, self.leased_ms)


def decay(age_ms: int) -> float:
    """The factor by which use of this age counts."""
    return float(0.5 ** (max(0, age_ms) / HALF_LIFE_MS))


_UNUSED = Usage()


@dataclass(frozen=True)
class _Lease:
    """A lease of one or more GPUs that has not ended."""

    campaign_id: str
    account: Account
    leased_at_ms: int
    gpus: int = 1

    def seconds(self, now_ms: int) -> float:
        return self.gpus * max(0, now_ms - self.leased_at_ms) / 1000


class Ledger:
    """What every campaign, project and person has used. Thread-safe; rebuilt from the store at a start.

    ``projects``, ``people``: the usage of each, by which it is decided who is next.
    """

    def __init__(
        self, projects: Mapping[str, Usage] | None = None, people: Mapping[Account, Usage] | None = None
    ) -> None:
        self._lock = threading.Lock()
        self.projects, self.people = dict(projects or {}), dict(people or {})
        self._campaigns: dict[str, float] = {}  # GPU seconds of ended leases, which never age
        self._days: dict[str, dict[int, float]] = {}  # by person and day
        self._leases: dict[AttemptKey, _Lease] = {}

    def rank(self, account: Account, now_ms: int) -> tuple[float, float]:
        """Who has used less goes first: projects among each other, then the people of a project."""
        project = self.projects.get(account.project, _UNUSED)
        person = self.people.get(account, _UNUSED)
        return project.seconds(now_ms), person.seconds(now_ms)

    def load(self, uses: Iterable[GpuUse]) -> None:
        """Begin with what the store knows."""
        for use in uses:
            account = Account(use.project, use.owner)
            if use.key is not None:
                self.began(use.key, use.campaign_id, account, use.leased_at_ms, use.gpus)
            else:
                with self._lock:
                    self._spend(use.campaign_id, account, use.seconds, use.ended_at_ms)

    def began(self, key: AttemptKey, campaign_id: str, account: Account, at_ms: int, gpus: int = 1) -> None:
        """A lease of GPUs began."""
        with self._lock:
            self._pop(key)
            self._leases[key] = _Lease(campaign_id, account, at_ms, gpus)
            self._change(account, lambda usage: usage.began(at_ms, gpus))

    def ended(self, key: AttemptKey, at_ms: int) -> None:
        """A lease ended; does nothing if it was not of a GPU, or has ended before."""
        with self._lock:
            lease = self._pop(key)
            if lease is not None:
                self._spend(lease.campaign_id, lease.account, lease.seconds(at_ms), at_ms)

    def _pop(self, key: AttemptKey) -> _Lease | None:
        """Take a lease out of the use of its account, if it is there."""
        lease = self._leases.pop(key, None)
        if lease is not None:
            self._change(lease.account, lambda usage: usage.began(lease.leased_at_ms, -lease.gpus))
        return lease

    def campaign_seconds(self, campaign_id: str, now_ms: int) -> float:
        """GPU seconds of a campaign, with what its held leases have run so far."""
        with self._lock:
            running = sum(
                each.seconds(now_ms) for each in self._leases.values() if each.campaign_id == campaign_id
            )
            return self._campaigns.get(campaign_id, 0.0) + running

    def person_seconds(self, owner: str, now_ms: int) -> float:
        """GPU seconds of a person in the last PERSON_DAYS days, with those of held leases so far."""
        first = now_ms // _DAY_MS - PERSON_DAYS
        with self._lock:
            running = sum(
                each.seconds(now_ms) for each in self._leases.values() if each.account.owner == owner
            )
            ended = sum(s for day, s in self._days.get(owner, {}).items() if day > first)
            return ended + running

    def _spend(self, campaign_id: str, account: Account, seconds: float, ended_at_ms: int) -> None:
        self._change(account, lambda usage: usage.spent(seconds, ended_at_ms))
        self._campaigns[campaign_id] = self._campaigns.get(campaign_id, 0.0) + seconds
        days, day = self._days.setdefault(account.owner, {}), ended_at_ms // _DAY_MS
        days[day] = days.get(day, 0.0) + seconds

    def _change(self, account: Account, change: Callable[[Usage], Usage]) -> None:
        self.projects[account.project] = change(self.projects.get(account.project, _UNUSED))
        self.people[account] = change(self.people.get(account, _UNUSED))


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

    def in_order(self, fits: Fits, ledger: Ledger, now_ms: int) -> Iterator[Entrant]:
        """Campaigns that may have work for a slot, with the lanes that fit it, who is next first.

        By priority; then the project that has used least, the person of it that has used least, the oldest
        campaign.
        """
        lines_by_group = self._due_lines(fits, now_ms)

        def rank(group: _Group) -> tuple[float | Turn, ...]:
            used = ledger.rank(group.account, now_ms)
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


class Queue:
    """One server's queue. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._candidates = Candidates()
        self._built = False
        self.ledger = Ledger()
        self._budgets: dict[str, float] = {}
        self.reservations = Reservations()
        self._idle: dict[tuple[str, str], Seat] = {}  # slots that got nothing when they asked last

    def candidates(self, store: SqlTransaction) -> Candidates:
        """Who stands in line; the first time, from the store. Call it in a transaction."""
        with self._lock:
            if not self._built:
                self._candidates.add(store.entrants())
                self.ledger = Ledger()
                self.ledger.load(uses := store.gpu_uses())
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
        self.ledger.began(key, run.campaign_id, account, now_ms, run.placement.gang)

    def budget_left_hours(
        self, campaign_id: str, owner: str, rules: SchedulingRules, person_gpu_hours: float, now_ms: int
    ) -> float:
        """GPU hours that a campaign may still use, by its own budget and its owner's; infinite without any.

        ``person_gpu_hours``: what a person without a budget of their own may use in PERSON_DAYS days; 0: no
        limit. The owner of the server's socket has none.
        """
        left = math.inf
        budget = rules.budget_gpu_hours
        if budget:
            left = budget - self.ledger.campaign_seconds(campaign_id, now_ms) / 3600
        hours = self._budgets.get(owner, person_gpu_hours or math.inf)
        if owner not in ("", OWNER_ID) and hours < math.inf:
            left = min(left, hours - self.ledger.person_seconds(owner, now_ms) / 3600)
        return left

    def person_hours(self, store: SqlTransaction, person: str, now_ms: int) -> float:
        """GPU hours that a person used in PERSON_DAYS days. Call it in a transaction."""
        self.candidates(store)
        return self.ledger.person_seconds(person, now_ms) / 3600

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
