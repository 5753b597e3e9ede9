"""Agents and their leases: which slice a free slot gets, and until when.

A slot gets the first slice of whoever is next, unless another slot suits it better.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import AttemptState
from assay_core.records.failure import failure
from assay_core.records.machine import Slot
from assay_sampling.errors import DuplicateIdentityError, ParameterError
from assay_sampling.running.failures import FailureClass, Fault
from assay_server.campaigns.scheduling.fitting_slots import Seat, elsewhere, rivals
from assay_server.campaigns.scheduling.queue import Candidates, Queue
from assay_server.campaigns.scheduling.resting import KEPT_MS, Reservation, RestingSlots, window_of
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


@dataclass(frozen=True)
class Chooser:
    """One decision about a slot: the store and the queue at one moment.

    ``person_gpu_hours``: what a person without a budget of their own may use; 0: no limit.
    """

    store: SqlTransaction
    resting: RestingSlots
    queue: Queue
    now_ms: int
    seat: Seat
    person_gpu_hours: float = 0.0

    @property
    def _candidates(self) -> Candidates:
        return self.queue.candidates(self.store)

    def choose(self) -> Choice | None:
        """The slice for the slot; None: nothing waits, or the slot is in a gang, rests or waits with its box.

        A slice that failed in the slot is left to another slot for a while. A slot that has done no run since
        a failure of its box first gets slices that have not failed there.
        """
        if self._rests(self.seat.place) or not self._is_idle(self.seat.slot.slot_id):
            return None
        untried_in = self._first_untried_in()
        return (self._first(untried_in) if untried_in is not None else None) or self._first(None)

    def _rests(self, place: tuple[str, str]) -> bool:
        return self.resting.at(*place, self.now_ms) is not None

    def _first_untried_in(self) -> tuple[str, str] | None:
        """Agent and slot ("": any) where a slice must not have failed to be given first."""
        if self.resting.last(*self.seat.place) is not None:
            # Such a slice shows whether the slot is at fault. Otherwise a run that breaks every box would be
            # tried for ever, ahead of all other runs.
            return self.seat.place
        # What its policy refused waits for other agents, and must not hide what it allows.
        agent_id = self.seat.agent.agent_id
        return (agent_id, "") if self.resting.has_refused(agent_id) else None

    @cached_property
    def _busy(self) -> Mapping[str, frozenset[str]]:
        """The slots of the box that have a lease, each with the slots that must stay idle meanwhile."""
        agent = self.seat.agent
        if self.seat.slot.device is None or not self._candidates.looks_at_boxes:
            return {}
        barred_by_slot = {}
        for attempt in self.store.attempts_in((AttemptState.LEASED,), agent_id=agent.agent_id):
            run = self.store.run(attempt.key.run_id)
            assert run is not None  # foreign keys keep it in the store
            barred = rivals(run.placement.exclusive, attempt.slots, agent)
            barred_by_slot.update(dict.fromkeys(attempt.slots, barred))
        return barred_by_slot

    def _is_idle(self, slot_id: str) -> bool:
        """Whether a slot of the box has no lease, and none of its box keeps it idle."""
        return slot_id not in self._busy and not any(slot_id in barred for barred in self._busy.values())

    def _first(self, untried_in: tuple[str, str] | None) -> Choice | None:
        passed: list[tuple[str, int]] = []
        for candidate in self._candidates.in_order(self.seat.fits, self.queue.ledger, self.now_ms):
            lanes = self._open_lanes(candidate)
            while lanes:
                head = self.store.first_waiting(tuple(lanes), self.now_ms, passed, untried_in)
                if head is None:
                    self._set_aside(candidate.campaign_id, lanes)
                    break
                run, piece = head
                need = need_of(run)
                lane_id = next(lane_id for lane_id, each in lanes.items() if each == need)
                is_free = partial(self._is_free, lane_id, candidate.rules.priority)
                gang = self._gang(need, lane_id, is_free)
                if gang is None:
                    del lanes[lane_id]
                    continue
                kept_free = rivals(run.placement.exclusive, (self.seat.slot.slot_id, *gang), self.seat.agent)
                if kept_free & self._busy.keys() or not all(map(is_free, gang)):
                    if self._reserve(lane_id, kept_free.union(gang), candidate.rules.priority):
                        return None
                    del lanes[lane_id]
                    continue
                earlier = self.store.attempts(run.run_id, piece.index)
                if not self._is_for_another(run, piece, earlier):
                    self.queue.reservations.release(lane_id)
                    return Choice(run, piece, earlier, gang)
                passed.append((run.run_id, piece.index))
                if len(passed) > _MOST_PASSED:
                    return None
        return None

    def _gang(self, need: Need, lane_id: int, is_free: Callable[[str], bool]) -> tuple[str, ...] | None:
        """The other slots for a run over several GPUs, some of which may not be free yet.

        Slots that rest after a failure of their box are left out; None if too few others remain.
        """
        gang = need.placement.gang
        if gang == 1:
            return ()
        others = [each.slot.slot_id for each in self.seat.companions(need) if not self._rests(each.place)]
        if len(others) + 1 < gang:
            return None
        reserved = self.queue.reservations.of_lane(lane_id, self.seat.agent.agent_id, self.now_ms)
        ranked = sorted(others, key=lambda slot_id: (not is_free(slot_id), slot_id not in reserved))
        return tuple(ranked[: gang - 1])

    def _is_free(self, lane_id: int, priority: int, slot_id: str) -> bool:
        """Whether another slot of the box may join a run of a lane now."""
        if not self._is_idle(slot_id):
            return False
        reserved = self.queue.reservations.of_slot(self.seat.agent.agent_id, slot_id, self.now_ms)
        return reserved is None or reserved.lane_id == lane_id or reserved.priority < priority

    def _open_lanes(self, candidate: Entrant) -> dict[int, Need]:
        """The candidate's lanes that the slot may serve."""
        lanes = {lane.lane_id: lane.need for lane in candidate.lanes}
        left_hours = self.queue.budget_left_hours(
            candidate.campaign_id, candidate.owner, candidate.rules, self.person_gpu_hours, self.now_ms
        )
        if left_hours <= 0:
            for lane_id in lanes:
                self._candidates.rest(lane_id, self.now_ms + _BUDGET_LOOK_MS)
            return {}
        waits_for = self.queue.reservations.of_slot(*self.seat.place, self.now_ms)
        if waits_for is None or candidate.rules.priority > waits_for.priority:
            return lanes
        return {lane: need for lane, need in lanes.items() if lane == waits_for.lane_id}

    def _reserve(self, lane_id: int, kept_free: frozenset[str], priority: int) -> bool:
        """Keep the slot and its rivals free until the first run of a lane can begin."""
        agent_id, slot_id = self.seat.place
        until_ms = self.now_ms + KEPT_MS
        reservation = Reservation(agent_id, kept_free | {slot_id}, lane_id, priority, until_ms)
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

    def _is_for_another(self, run: Run, piece: Slice, earlier: Sequence[Attempt]) -> bool:
        """Whether a slice last failed in this place, and a place where it has not failed is there; or the
        policy of this agent refused it, and an agent is there that did not."""
        failed = [attempt for attempt in earlier if attempt.state is AttemptState.FAILED]
        if not failed:
            return False
        refused = refusals(a for a in failed if a.key.attempt >= piece.tries_from)
        if (mine := refused.get(self.seat.agent.agent_id)) is not None:
            others = elsewhere(run, mine, self.store.agents(), self.now_ms)
            return any(agent_id not in refused for agent_id, _ in others)
        if (failed[-1].agent_id, failed[-1].slot_id) != self.seat.place:
            return False
        age_ms = self.now_ms - failed[-1].ended_at_ms
        if age_ms > _LEFT_TO_OTHERS_MS or not _is_worth_another_slot(failed[-1]):
            return False
        tried = {(a.agent_id, a.slot_id) for a in failed}
        others = elsewhere(run, failed[-1], self.store.agents(), self.now_ms)
        return any(other not in tried and not self._rests(other) for other in others)


def _is_worth_another_slot(attempt: Attempt) -> bool:
    """Whether an attempt's failure may be due to its slot."""
    why = attempt.failure
    if why is None or is_blameless(why):
        return False
    return why.known_class.retryable or why.known_class.fault is Fault.BOX


@dataclass(frozen=True)
class Lease:
    """The work for a slot."""

    attempt: Attempt
    run: Run
    slice: Slice


class Leases(Transitions):
    """Requests of agents to the scheduler: register, lease work, and keep it."""

    def register(
        self, agent: Agent, lease_secrets: Mapping[AttemptKey, bytes]
    ) -> tuple[list[AttemptKey], list[AttemptKey]]:
        """Register an agent's process; returns which of its attempts to resume, and which to drop.

        ``lease_secrets``: attempts of an earlier process on its disk, with the secrets of their leases.
        The earlier process's other attempts are lost: their slices wait again at once.
        """
        before = self._require_one_of_its_kind(agent)
        # Slots that came into service again ask at once; those of a new agent have not asked yet.
        self.effects.work = before is not None and before.slots != agent.slots
        same = before is not None and before.session_id == agent.session_id
        since_ms = before.since_ms if before is not None and same else self.now_ms
        self.store.put_agent(replace(agent, seen_at_ms=self.now_ms, since_ms=since_ms))
        for attempt in self.store.attempts_in((AttemptState.LEASED,), agent_id=agent.agent_id):
            is_resumed = attempt.belongs_to(agent.agent_id, lease_secrets.get(attempt.key, b""))
            if attempt.session_id != agent.session_id and not is_resumed:
                self._lose(attempt, FailureClass.AGENT_RESTARTED, AttemptState.FAILED)
        resume, drop = [], []
        for key, secret in lease_secrets.items():
            attempt_before = self.store.attempt(key.run_id, key.slice_index, key.attempt)
            mine = attempt_before is not None and attempt_before.belongs_to(agent.agent_id, secret)
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
        before = self.store.agent(agent.agent_id)
        if before is None or before.session_id == agent.session_id:
            return before
        places = (before.place, agent.place)
        silent_ms = self.now_ms - before.seen_at_ms
        if all(places) and places[0] != places[1] and silent_ms < SEEN_EVERY_MS + self.policy.lease_ms // 2:
            raise DuplicateIdentityError(
                f"agent {agent.name}",
                f"its identity {agent.agent_id} is also that of agent {before.name} on host "
                f"{before.inventory.host or 'unknown'}, seen {silent_ms // 1000} s ago: one state "
                "folder is a copy of the other",
                "on the copy: assay-agent new-identity --state DIR, join again (over TCP), start that agent",
            )
        return before

    def is_registered(self, agent_id: str, session_id: str) -> bool:
        """Whether this is the current process of a known agent; records that it was seen."""
        agent = self.store.agent(agent_id)
        if agent is None or agent.session_id != session_id:
            return False
        if self.now_ms - agent.seen_at_ms > SEEN_EVERY_MS:
            self.store.saw_agents([agent_id], self.now_ms)
        return True

    def lease(self, agent_id: str, slot_id: str, *, has_room: bool = True) -> Lease | None:
        """Work for a slot of a registered agent, or None; a slot that is out of service gets none.

        If the agent has not confirmed the slot's attempt, the earlier answer was lost, and the slot gets the
        same attempt again. ``has_room``: whether there is room for the records of new work. Raises
        ParameterError for a slot that the agent did not register.
        """
        agent = self.store.agent(agent_id)
        slot = next((s for s in agent.slots if s.slot_id == slot_id), None) if agent else None
        if agent is None or slot is None:
            raise ParameterError(
                f"slot {slot_id!r}", f"agent {agent_id!r} did not register it", "register the agent again"
            )
        seat = Seat(agent, slot)
        lease = self._lease(seat) if has_room and not slot.quarantine_reason else None
        self.queue.answered(seat, with_work=lease is not None)
        return lease

    def _lease(self, seat: Seat) -> Lease | None:
        agent_id, slot_id = seat.place
        leased = self.store.attempts_in((AttemptState.LEASED,), agent_id=agent_id, slot_id=slot_id)
        if leased:
            key = leased[0].key
            if leased[0].confirmed:
                return None
            return Lease(leased[0], self.run_of(key.run_id), self.slice_of(key))
        self.queue.candidates(self.store)  # from now on it says in memory which slots need not ask again
        if window_of(self.policy.windows, seat.agent, self.now_ms) is not None:
            return None
        hours = self.policy.person_gpu_hours
        choice = Chooser(self.store, self.resting, self.queue, self.now_ms, seat, hours).choose()
        return None if choice is None else self._give(choice, *seat)

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
