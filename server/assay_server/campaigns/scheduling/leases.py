"""Agents and their leases: which slice a free slot gets, and until when.

A slot gets the first slice of whoever is next, unless another slot suits it better.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import AttemptState
from assay_core.records.failure import failure
from assay_core.records.machine import Slot
from assay_sampling.errors import DuplicateIdentityError, ParameterError
from assay_sampling.running.failures import FailureClass, Fault
from assay_server.campaigns.scheduling.fitting_slots import company, elsewhere
from assay_server.campaigns.scheduling.queue import (
    KEPT_MS,
    Candidates,
    Queue,
    Reservation,
    Seat,
    rivals,
)
from assay_server.campaigns.scheduling.resting import RestingSlots, window_of
from assay_server.campaigns.scheduling.retry import is_blameless, refusals
from assay_server.campaigns.scheduling.transitions import Transitions
from assay_server.store.model import Agent, Attempt, Entrant, Need, Run, Slice, SliceState, need_of
from assay_server.store.sql import SqlTransaction

# A slice that failed in a slot is left to others for this long: they may have to end a long run first.
_LEFT_TO_OTHERS_MS = 600_000
_MOST_PASSED = 16
# A campaign beyond its budget is looked at again after this long: use of the last days grows less.
_BUDGET_LOOK_MS = 60_000
SEEN_EVERY_MS = 10_000
_SECRET_BYTES = 32


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
        self, run: Run, lane_id: int, candidate: Entrant, seat: Seat, busy: _Busy
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

    def _is_free(self, lane_id: int, candidate: Entrant, seat: Seat, busy: _Busy) -> Callable[[str], bool]:
        """Whether another slot of the box may join a run of this lane now."""

        def is_free(slot_id: str) -> bool:
            if slot_id in busy or _is_barred(slot_id, busy):
                return False
            reservation = self.queue.reservations.of_slot(seat.agent.agent_id, slot_id, self.now_ms)
            return (
                reservation is None
                or reservation.lane_id == lane_id
                or reservation.priority < candidate.rules.priority
            )

        return is_free

    def _open_lanes(self, candidate: Entrant, seat: Seat) -> dict[int, Need]:
        """The candidate's lanes that the slot may serve."""
        lanes = {lane.lane_id: lane.need for lane in candidate.lanes}
        if self._is_over_budget(candidate):
            for lane_id in lanes:
                self._candidates.rest(lane_id, self.now_ms + _BUDGET_LOOK_MS)
            return {}
        waits_for = self.queue.reservations.of_slot(*seat.place, self.now_ms)
        if waits_for is None or candidate.rules.priority > waits_for.priority:
            return lanes
        return {lane: need for lane, need in lanes.items() if lane == waits_for.lane_id}

    def _is_over_budget(self, candidate: Entrant) -> bool:
        left = self.queue.budget_left_hours(
            candidate.campaign_id, candidate.owner, candidate.rules, self.person_gpu_hours, self.now_ms
        )
        return left <= 0

    def _reserve(self, lane_id: int, kept_free: frozenset[str], candidate: Entrant, seat: Seat) -> bool:
        """Keep the slot and its rivals free until the first run of a lane can begin."""
        agent_id, slot_id = seat.place
        reservation = Reservation(
            agent_id,
            kept_free | {slot_id},
            lane_id,
            candidate.rules.priority,
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


@dataclass(frozen=True)
class Lease:
    """The work for a slot."""

    attempt: Attempt
    run: Run
    slice: Slice


class Leases(Transitions):
    """Requests of agents to the scheduler: register, lease work, and keep it."""

    def register(
        self, agent: Agent, held: Mapping[AttemptKey, bytes]
    ) -> tuple[list[AttemptKey], list[AttemptKey]]:
        """Register an agent's process; returns which of its held attempts to resume, and which to drop.

        ``held``: attempts of an earlier process that it found on its disk, with the secrets of their leases.
        The earlier process's other attempts are lost: their slices wait again at once.
        """
        before = self._require_one_of_its_kind(agent)
        # Slots that came into service again ask at once; those of a new agent have not asked yet.
        self.effects.work = before is not None and before.slots != agent.slots
        same = before is not None and before.session_id == agent.session_id
        since_ms = before.since_ms if before is not None and same else self.now_ms
        self.store.put_agent(replace(agent, seen_at_ms=self.now_ms, since_ms=since_ms))
        for attempt in self.store.attempts_in((AttemptState.LEASED,), agent_id=agent.agent_id):
            is_held = attempt.belongs_to(agent.agent_id, held.get(attempt.key, b""))
            if attempt.session_id != agent.session_id and not is_held:
                self._lose(attempt, FailureClass.AGENT_RESTARTED, AttemptState.FAILED)
        resume, drop = [], []
        for key, secret in held.items():
            known = self.store.attempt(key.run_id, key.slice_index, key.attempt)
            mine = known is not None and known.belongs_to(agent.agent_id, secret)
            live_attempt = self.live_attempt(key) if mine else None
            if live_attempt is None:
                drop.append(key)
                continue
            resume.append(key)
            self.store.save_attempt(replace(live_attempt, session_id=agent.session_id))
            self.extend(key)
        return resume, drop

    def _require_one_of_its_kind(self, agent: Agent) -> Agent | None:
        """The agent as it is known; raises DuplicateIdentityError if it is alive in another place."""
        known = self.store.agent(agent.agent_id)
        if known is None or known.session_id == agent.session_id:
            return known
        places = (known.place, agent.place)
        silent_ms = self.now_ms - known.seen_at_ms
        if all(places) and places[0] != places[1] and silent_ms < SEEN_EVERY_MS + self.policy.lease_ms // 2:
            raise DuplicateIdentityError(
                f"agent {agent.name}",
                f"its identity {agent.agent_id} is also that of agent {known.name} on host "
                f"{known.inventory.host or 'unknown'}, seen {silent_ms // 1000} s ago: one state "
                "folder is a copy of the other",
                "on the copy: assay-agent new-identity --state DIR, join again (over TCP), start that agent",
            )
        return known

    def is_registered(self, agent_id: str, session_id: str) -> bool:
        """Whether this is the current process of a known agent; records that it was seen."""
        agent = self.store.agent(agent_id)
        if agent is None or agent.session_id != session_id:
            return False
        if self.now_ms - agent.seen_at_ms > SEEN_EVERY_MS:
            self.store.saw_agents([agent_id], self.now_ms)
        return True

    def lease(self, agent_id: str, slot_id: str) -> Lease | None:
        """Work for a slot of a registered agent, or None; a slot that is out of service gets none.

        If the agent has not confirmed the slot's attempt, the earlier answer was lost, and the slot gets the
        same attempt again. Raises ParameterError for a slot that the agent did not register.
        """
        agent = self.store.agent(agent_id)
        slot = next((s for s in agent.slots if s.slot_id == slot_id), None) if agent else None
        if agent is None or slot is None:
            raise ParameterError(
                f"slot {slot_id!r}", f"agent {agent_id!r} did not register it", "register the agent again"
            )
        if slot.quarantine_reason:
            return None
        held = self.store.attempts_in((AttemptState.LEASED,), agent_id=agent_id, slot_id=slot_id)
        if held:
            key = held[0].key
            return None if held[0].confirmed else Lease(held[0], self.run_of(key.run_id), self.slice_of(key))
        self.queue.candidates(self.store)  # from now on it says in memory which slots need not ask again
        seat = self.queue.seat(agent, slot)
        if window_of(self.policy.windows, agent, self.now_ms) is not None:
            return None
        chooser = Chooser(self.store, self.resting, self.queue, self.now_ms, self.policy.person_gpu_hours)
        choice = chooser.choose(seat)
        return None if choice is None else self._give(choice, agent, slot)

    def _give(self, choice: Choice, agent: Agent, slot: Slot) -> Lease:
        run, piece, earlier, gang = choice
        for expired in (a for a in earlier if a.state is AttemptState.EXPIRED):
            self.end_attempt(expired, AttemptState.SUPERSEDED, expired.failure)
        number = earlier[-1].key.attempt + 1 if earlier else 1
        attempt = Attempt(
            key=AttemptKey(run.run_id, piece.index, number, self.store.next_token()),
            state=AttemptState.LEASED,
            agent_id=agent.agent_id,
            agent_name=agent.name,
            session_id=agent.session_id,
            slot_id=slot.slot_id,
            leased_at_ms=self.now_ms,
            lease_ends_at_ms=self.now_ms + self.policy.lease_ms,
            write_secret=secrets.token_bytes(_SECRET_BYTES),
            gang=gang,
        )
        self.store.add_attempt(attempt)
        self.note_lease(attempt.key, run)
        self.set_slice(replace(piece, state=SliceState.LEASED))
        return Lease(attempt, run, piece)

    def extend(self, key: AttemptKey, launches_spooled: int = 0) -> bool:
        """A sign of life: the lease starts again. False: the agent must drop the attempt."""
        attempt = self.live_attempt(key)
        if attempt is None:
            return False
        if attempt.state is AttemptState.LEASED:
            if launches_spooled > attempt.launches_spooled:
                self.note_change(key.run_id)
            self.store.save_attempt(
                replace(
                    attempt,
                    lease_ends_at_ms=self.now_ms + self.policy.lease_ms,
                    confirmed=True,
                    launches_spooled=max(launches_spooled, attempt.launches_spooled),
                )
            )
        return True

    def extend_all(self) -> None:
        """Restart every lease: the server was away, which is not the agents' fault."""
        for attempt in self.store.attempts_in((AttemptState.LEASED,)):
            self.store.save_attempt(replace(attempt, lease_ends_at_ms=self.now_ms + self.policy.lease_ms))

    def mend_clocks(self) -> None:
        """At a start, pull back times from an earlier process that are further ahead than possible.

        Its clock may have been ahead by a day, but no slice rests that long, and no agent was seen tomorrow.
        """
        for piece in self.store.resting_slices(self.now_ms):
            attempts = self.store.attempts(piece.run_id, piece.index)
            why = attempts[-1].failure if attempts else None
            delay_ms = self.policy.retry.delay_after(attempts, why) if why is not None else 0
            until_ms = min(piece.not_before_ms, self.now_ms + (delay_ms or 0))
            self.store.save_slice(replace(piece, not_before_ms=until_ms))
        for agent in self.store.agents():
            if agent.seen_at_ms > self.now_ms:
                self.store.put_agent(replace(agent, seen_at_ms=self.now_ms))

    def expire(self, before_ms: int | None = None) -> None:
        """Let the slices of leases wait again that ended before a moment (None: now)."""
        before_ms = self.now_ms if before_ms is None else before_ms
        for attempt in self.store.attempts_in((AttemptState.LEASED,), lease_ended_before_ms=before_ms):
            self._lose(attempt, FailureClass.LEASE_EXPIRED, AttemptState.EXPIRED)

    def _lose(self, attempt: Attempt, failure_class: FailureClass, state: AttemptState) -> None:
        cause = failure(failure_class, f"agent {attempt.agent_name}")
        self.fail_attempt(attempt, cause, state)
