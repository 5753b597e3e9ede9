"""Chooses the slice for a free slot: the first of whoever is next, unless another slot suits it better."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from assay_core.records.campaign import AttemptState
from assay_sampling.running.failures import Fault
from assay_server.campaigns.scheduling.fitting_slots import Seat, company, elsewhere, rivals
from assay_server.campaigns.scheduling.queue import KEPT_MS, Candidate, Candidates, Queue, Reservation
from assay_server.campaigns.scheduling.resting import RestingSlots
from assay_server.campaigns.scheduling.retry import is_blameless, refusals
from assay_server.store.model import Attempt, Need, Run, Slice, need_of
from assay_server.store.sql import SqlTransaction

# A slice that failed in a slot is left to others for this long: they may have to end a long run first.
_LEFT_TO_OTHERS_MS = 600_000
_MOST_PASSED = 16
# A campaign beyond its budget is looked at again after this long: use of the last days grows less.
_BUDGET_LOOK_MS = 60_000


class Choice(NamedTuple):
    """The slice for a slot, with its earlier attempts; ``gang``: the other slots of a run on several GPUs."""

    run: Run
    piece: Slice
    earlier: Sequence[Attempt]
    gang: tuple[str, ...] = ()


_Busy = Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class Chooser:
    """One decision: the store and the queue at one moment.

    ``person_gpu_hours``: what a person without a budget of their own may use; 0: no limit.
    """

    store: SqlTransaction
    resting: RestingSlots
    queue: Queue
    now_ms: int
    person_gpu_hours: float = 0.0

    @property
    def _candidates(self) -> Candidates:
        return self.queue.candidates(self.store)

    def choose(self, seat: Seat) -> Choice | None:
        """The slice for a slot; None: nothing waits, or the slot is in a gang, rests or waits with its box.

        A slice that failed in the slot is left to another slot for a while. A slot that has done no run since
        a failure of its box first gets slices that have not failed there.
        """
        if self.resting.at(*seat.place, self.now_ms) is not None:
            return None
        busy = self._busy(seat)
        if seat.slot.slot_id in busy or _is_barred(seat.slot.slot_id, busy):
            return None
        untried_in = self._first_untried_in(seat)
        if untried_in is not None:
            choice = self._first(seat, busy, untried_in)
            if choice is not None:
                return choice
        return self._first(seat, busy, None)

    def _first_untried_in(self, seat: Seat) -> tuple[str, str] | None:
        """Agent and slot ("": any) where a slice must not have failed to be given first."""
        if self.resting.last(*seat.place) is not None:
            # Such a slice shows whether the slot is at fault. Otherwise a run that breaks every box would be
            # tried for ever, ahead of all other runs.
            return seat.place
        # What its policy refused waits for other agents, and must not hide what it allows.
        return (seat.agent.agent_id, "") if self.resting.has_refused(seat.agent.agent_id) else None

    def _busy(self, seat: Seat) -> _Busy:
        """The slots of the box that have a lease, each with the slots that must stay idle meanwhile."""
        if seat.slot.device is None or not self._candidates.looks_at_boxes:
            return {}
        barred_by_slot = {}
        for attempt in self.store.attempts_in((AttemptState.LEASED,), agent_id=seat.agent.agent_id):
            run = self.store.run(attempt.key.run_id)
            assert run is not None  # foreign keys keep it in the store
            barred = rivals(run.placement.exclusive, attempt.slots, seat.agent)
            barred_by_slot.update(dict.fromkeys(attempt.slots, barred))
        return barred_by_slot

    def _first(self, seat: Seat, busy: _Busy, untried_in: tuple[str, str] | None) -> Choice | None:
        passed: list[tuple[str, int]] = []
        for candidate in self._candidates.in_order(seat, seat.fits, self.queue.shares, self.now_ms):
            lanes = self._open_lanes(candidate, seat)
            while lanes:
                head = self.store.first_waiting(tuple(lanes), self.now_ms, passed, untried_in)
                if head is None:
                    self._set_aside(candidate.campaign_id, lanes)
                    break
                lane_id = _lane_of(head[0], lanes)
                gang = self._gang(head[0], lane_id, candidate, seat, busy)
                if gang is None:
                    del lanes[lane_id]
                    continue
                taken = (seat.slot.slot_id, *gang)
                kept_free = rivals(head[0].placement.exclusive, taken, seat.agent)
                is_free = self._is_free(lane_id, candidate, seat, busy)
                if kept_free & busy.keys() or not all(map(is_free, gang)):
                    if self._reserve(lane_id, kept_free.union(gang), candidate, seat):
                        return None
                    del lanes[lane_id]
                    continue
                earlier = self.store.attempts(head[0].run_id, head[1].index)
                if not self._is_for_another(*head, earlier, seat.place):
                    self.queue.reservations.release(lane_id)
                    return Choice(*head, earlier, gang)
                passed.append((head[0].run_id, head[1].index))
                if len(passed) > _MOST_PASSED:
                    return None
        return None

    def _gang(
        self, run: Run, lane_id: int, candidate: Candidate, seat: Seat, busy: _Busy
    ) -> tuple[str, ...] | None:
        """The other slots for a run over several GPUs; None if too many of them rest."""
        if run.placement.gang == 1:
            return ()
        return company(
            need_of(run),
            seat.slot,
            seat.agent,
            is_free=self._is_free(lane_id, candidate, seat, busy),
            rests=lambda slot_id: self.resting.at(seat.agent.agent_id, slot_id, self.now_ms) is not None,
            reserved_slots=self.queue.reservations.of_lane(lane_id, seat.agent.agent_id, self.now_ms),
        )

    def _is_free(self, lane_id: int, candidate: Candidate, seat: Seat, busy: _Busy) -> Callable[[str], bool]:
        """Whether another slot of the box may join a run of this lane now."""

        def is_free(slot_id: str) -> bool:
            if slot_id in busy or _is_barred(slot_id, busy):
                return False
            reservation = self.queue.reservations.of_slot(seat.agent.agent_id, slot_id, self.now_ms)
            return (
                reservation is None
                or reservation.lane_id == lane_id
                or reservation.priority < candidate.entrant.rules.priority
            )

        return is_free

    def _open_lanes(self, candidate: Candidate, seat: Seat) -> dict[int, Need]:
        """The candidate's lanes that the slot may serve."""
        lanes = {lane.lane_id: lane.need for lane in candidate.lanes}
        if self._is_over_budget(candidate):
            for lane_id in lanes:
                self._candidates.rest(lane_id, self.now_ms + _BUDGET_LOOK_MS)
            return {}
        waits_for = self.queue.reservations.of_slot(*seat.place, self.now_ms)
        if waits_for is None or candidate.entrant.rules.priority > waits_for.priority:
            return lanes
        return {lane: need for lane, need in lanes.items() if lane == waits_for.lane_id}

    def _is_over_budget(self, candidate: Candidate) -> bool:
        who, hours = candidate.entrant, self.person_gpu_hours
        return self.queue.budget_left_hours(who.campaign_id, who.owner, who.rules, hours, self.now_ms) <= 0

    def _reserve(self, lane_id: int, kept_free: frozenset[str], candidate: Candidate, seat: Seat) -> bool:
        """Keep the slot and its rivals free until the first run of a lane can begin."""
        agent_id, slot_id = seat.place
        reservation = Reservation(
            agent_id,
            kept_free | {slot_id},
            lane_id,
            candidate.entrant.rules.priority,
            self.now_ms + KEPT_MS,
        )
        return self.queue.reservations.reserve(reservation, self.now_ms)

    def _set_aside(self, campaign_id: str, lanes: Collection[int]) -> None:
        """No slice in these lanes is due, or their campaign does not run: they leave the line, or rest."""
        is_running = self.store.is_running(campaign_id)
        for lane_id in lanes:
            due_ms = self.store.earliest_due_ms(lane_id) if is_running else None
            if due_ms is None:
                self._candidates.drop(lane_id)
                self.queue.reservations.release(lane_id)
            elif due_ms > self.now_ms:
                self._candidates.rest(lane_id, due_ms)

    def _is_for_another(
        self, run: Run, piece: Slice, earlier: Sequence[Attempt], place: tuple[str, str]
    ) -> bool:
        """Whether a slice last failed in this place, and a place where it has not failed is there; or the
        policy of this agent refused it, and an agent is there that did not."""
        failed = [attempt for attempt in earlier if attempt.state is AttemptState.FAILED]
        if not failed:
            return False
        refused = refusals(a for a in failed if a.key.attempt >= piece.tries_from)
        if (mine := refused.get(place[0])) is not None:
            others = elsewhere(run, mine, self.store.agents(), self.now_ms)
            return any(agent_id not in refused for agent_id, _ in others)
        if (failed[-1].agent_id, failed[-1].slot_id) != place:
            return False
        age_ms = self.now_ms - failed[-1].ended_at_ms
        if age_ms > _LEFT_TO_OTHERS_MS or not _is_worth_another_slot(failed[-1]):
            return False
        tried = {(a.agent_id, a.slot_id) for a in failed}
        others = elsewhere(run, failed[-1], self.store.agents(), self.now_ms)
        return any(other not in tried and self.resting.at(*other, self.now_ms) is None for other in others)


def _is_barred(slot_id: str, busy: _Busy) -> bool:
    return any(slot_id in barred for barred in busy.values())


def _lane_of(run: Run, lanes: Mapping[int, Need]) -> int:
    need = need_of(run)
    return next(lane_id for lane_id, each in lanes.items() if each == need)


def _is_worth_another_slot(attempt: Attempt) -> bool:
    """Whether an attempt's failure may be due to its slot."""
    why = attempt.failure
    if why is None or is_blameless(why):
        return False
    failure_class = why.known_class
    return failure_class.retryable or failure_class.fault is Fault.BOX
