"""Agents and their leases: who runs which slice, and until when."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace

from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import AttemptState
from assay_core.records.failure import failure
from assay_core.records.machine import Slot
from assay_sampling.errors import DuplicateIdentityError, ParameterError
from assay_sampling.running.failures import FailureClass
from assay_server.campaigns.scheduling.choice import Choice, Chooser
from assay_server.campaigns.scheduling.resting import window_of
from assay_server.campaigns.scheduling.transitions import Transitions
from assay_server.store.model import Agent, Attempt, Run, Slice, SliceState

SEEN_EVERY_MS = 10_000
_SECRET_BYTES = 32


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
