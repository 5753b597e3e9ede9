"""Who stands in line: campaigns with waiting slices, by what they need. In memory; the store holds the truth.

A lane that is missing here would never be served, so lanes are only added when their campaign changes, and
removed only by a decision that looked in the store under its write lock and found nothing. A lane too many
costs one look.
"""

from __future__ import annotations

import heapq
import threading
from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from assay_server.campaigns.queue.fair_share import Account, Shares
from assay_server.store.model import Entrant, Lane, Need

Fits = Callable[[Need], bool]
_MOST_FITS = 4_096


@dataclass(frozen=True, order=True)
class Turn:
    """A lane in the line of its account; older campaigns come first."""

    ordinal: int
    campaign_id: str
    lane_id: int


@dataclass(frozen=True)
class Candidate:
    """A campaign that may have work for a slot, in these lanes."""

    entrant: Entrant
    lanes: tuple[Lane, ...]

    @property
    def campaign_id(self) -> str:
        return self.entrant.campaign_id


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

    def in_order(self, place: object, fits: Fits, shares: Shares, now_ms: int) -> Iterator[Candidate]:
        """Campaigns that may have work for a place, who is next first.

        By priority; then the project that has used least, the person of it that has used least, the oldest
        campaign. ``fits`` is asked once for each place and need.
        """
        for lines in self._ranked(place, fits, shares, now_ms):
            together = heapq.merge(*lines)
            for campaign_id, turns in groupby(together, key=lambda turn: turn.campaign_id):
                candidate = self._candidate(campaign_id, [turn.lane_id for turn in turns])
                if candidate is not None:
                    yield candidate

    def _candidate(self, campaign_id: str, lane_ids: Iterable[int]) -> Candidate | None:
        with self._lock:
            lanes = [Lane(one, self._lanes[one][0]) for one in lane_ids if one in self._lanes]
            entrant = self._entrants.get(campaign_id)
        return Candidate(entrant, tuple(lanes)) if lanes and entrant is not None else None

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
