"""Answers agents' requests from the scheduler. Plain functions of a record; all but heartbeats may block.

Texts, lists and numbers from agents are bounded before they are kept; the server sets what only it decides.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import replace
from typing import TypeVar

from assay_core.program import distribution_version
from assay_core.records.attempt import LONGEST_LOG_CHARACTERS, AttemptLog, bounded_text
from assay_core.records.failure import Failure
from assay_core.records.lease import (
    FailAnswer,
    FailedAttempt,
    FinishAnswer,
    FinishedAttempt,
    Heartbeat,
    HeartbeatAnswer,
    LeaseAnswer,
    LeaseRequest,
)
from assay_core.records.machine import InstalledDevice, Registered, Registration, Slot
from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.work import Work
from assay_sampling.errors import ParameterError
from assay_sampling.running.attempt_facts import MOST_BYTES
from assay_server.access.audit import note_nothing_new
from assay_server.access.caller import current_caller
from assay_server.campaigns.heartbeats import Heartbeats
from assay_server.campaigns.ingest.publish import Publisher
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.leases import Lease
from assay_server.identity.admission import require_free_name
from assay_server.limits import DEFAULT_LIMITS, AgentLimits
from assay_server.store.model import Agent
from assay_server.store.sql import SqlTransaction
from assay_server.store.transactions import repeated

Cut = TypeVar("Cut", Failure, InstalledDevice, Slot)

_LONGEST_NAME = 100
_LONGEST_TEXT = 4096
_MOST_ENTRIES = 1000
_ONE_RELEASE = "run the same release of Assay on agent and server"


class AgentHandler:
    """Register, heartbeat, lease, finish and fail."""

    def __init__(
        self,
        coordinator: Coordinator,
        publisher: Publisher,
        heartbeats: Heartbeats,
        heartbeat_ms: int,
        limits: AgentLimits = DEFAULT_LIMITS.agents,
    ) -> None:
        self._coordinator, self._publisher, self._heartbeats = coordinator, publisher, heartbeats
        self._heartbeat_ms, self._limits = heartbeat_ms, limits
        self._draining = False

    @repeated
    def register(self, registration: Registration) -> Registered:
        """Register an agent's process.

        Raises ParameterError for an invalid registration, NotPermittedError for a name that is another's.
        """
        limits, subject = self._limits, f"agent {registration.name[:100]!r}"
        _require_at_most(limits.registration_attempts, len(registration.held), subject, "attempts")
        _require_at_most(limits.registration_slots, len(registration.slots), subject, "slots")
        _require_at_most(limits.registration_bytes, registration.kept_bytes, subject, "bytes")
        agent = agent_of(registration)
        write_secrets = {each.key: each.write_secret for each in registration.held}
        with self._coordinator.schedule() as schedule:
            before = schedule.store.agent(agent.agent_id)
            _require_own_name(schedule.store, agent, before)
            resume, drop = schedule.register(agent, write_secrets)
            schedule.store.forget_agents(limits.agents_remembered)
            agent = schedule.store.agent(agent.agent_id) or agent
            if before is not None and _is_as_it_was(before, agent):
                note_nothing_new()
        self._coordinator.restarted(agent)
        heartbeat_ms, lease_ms = self._heartbeat_ms, self._coordinator.policy.lease_ms
        idle_ms = idle_heartbeat_ms(heartbeat_ms, lease_ms)
        return Registered(heartbeat_ms, lease_ms, tuple(resume), tuple(drop), distribution_version(), idle_ms)

    def heartbeat(self, heartbeat: Heartbeat) -> Future[HeartbeatAnswer]:
        """The answer to come; raises ParameterError for a heartbeat with too many attempts."""
        _require_at_most(self._limits.heartbeat_attempts, len(heartbeat.attempts), "heartbeat", "attempts")
        return self._heartbeats.take(heartbeat)

    @repeated
    def lease(self, request: LeaseRequest) -> LeaseAnswer:
        """Work for a slot; an empty answer if nothing waits for it.

        Raises ParameterError for a slot that the agent did not register.
        """
        with self._coordinator.schedule() as schedule:
            if not schedule.is_registered(request.agent_id, request.session_id):
                return LeaseAnswer(register_again=True)
            lease = schedule.lease(request.agent_id, request.slot_id, has_room=not self._is_full())
        return LeaseAnswer(None if lease is None else work_of(lease, self._coordinator.policy.lease_ms))

    def _is_full(self) -> bool:
        """Whether no new work is given out, because there is no room for its records."""
        return self._coordinator.capacity.shortage is not None

    def drain(self) -> None:
        """Give no more work: a lease that this server gave now would outlive it."""
        self._draining = True

    def lease_from_memory(self, request: LeaseRequest) -> LeaseAnswer | None:
        """That nothing waits for a slot, if that is known without a look into the store; else None."""
        if self._draining:
            return LeaseAnswer()
        coordinator = self._coordinator
        seat = coordinator.queue.idle_seat(request.agent_id, request.session_id, request.slot_id)
        must_ask = seat is None or (
            not self._is_full()
            and coordinator.queue.may_serve(
                seat,
                resting=coordinator.slots,
                windows=coordinator.policy.windows,
                now_ms=coordinator.clock.now_ms(),
            )
        )
        return None if must_ask else LeaseAnswer()

    def finish(self, attempt: FinishedAttempt) -> FinishAnswer:
        """Publish; answers once the slice's file is durable. After a StorageError the agent asks again."""
        bounded_attempt = replace(attempt, flags=bounded_flags(attempt.flags), log=bounded_log(attempt.log))
        return FinishAnswer(self._publisher.finish(bounded_attempt))

    @repeated
    def fail(self, attempt: FailedAttempt) -> FailAnswer:
        """End a failed attempt; changes nothing if the sender does not hold its lease."""
        with self._coordinator.schedule() as schedule:
            if schedule.is_held(attempt.claim):
                schedule.fail(attempt.claim.key, bounded_failure(attempt.failure), bounded_log(attempt.log))
        return FailAnswer()


def _require_at_most(most: int, number: int, subject: str, what: str) -> None:
    if number > most:
        cause = f"it reports {number:,} {what}; at most {most:,} are taken"
        raise ParameterError(subject, cause, _ONE_RELEASE)


def work_of(lease: Lease, lease_remaining_ms: int) -> Work:
    """The work for a slot."""
    return Work.like(lease.attempt, lease.slice, lease.run, lease_remaining_ms=lease_remaining_ms)


def idle_heartbeat_ms(heartbeat_ms: int, lease_ms: int) -> int:
    """How often an agent without attempts sends a heartbeat, which then keeps no lease.

    Often enough to tell two agents of one identity from one that was moved: that looks at half a lease.
    """
    return max(heartbeat_ms, min(3 * heartbeat_ms, lease_ms // 4))


def _require_own_name(store: SqlTransaction, agent: Agent, before: Agent | None) -> None:
    """Raises NotPermittedError if an agent takes the name of another; the owner of the socket may."""
    caller = current_caller()
    if caller is None or caller.is_owner or (before is not None and before.name == agent.name):
        return
    require_free_name(store, agent.agent_id, agent.name)


def _is_as_it_was(before: Agent, now: Agent) -> bool:
    """Whether only its process is another one."""
    then = replace(before, session_id=now.session_id, seen_at_ms=now.seen_at_ms, since_ms=now.since_ms)
    return then == now


def bounded_failure(failure: Failure) -> Failure:
    """A failure from an agent, its texts bounded."""
    kind = failure.failure_class[:_LONGEST_NAME]
    return replace(_cut(failure, "subject", "cause", "remedy"), failure_class=kind)


def bounded_flags(flags: Iterable[ValidityFlag]) -> tuple[ValidityFlag, ...]:
    """Validity flags from an agent, their texts bounded; the server's registry decides what they mean.

    A flag that the registry does not know, say from a newer agent, is kept and invalidates.
    """
    return tuple(
        ValidityFlag.of_kind(flag.name[:_LONGEST_NAME], flag.detail[:_LONGEST_TEXT])
        for flag in list(flags)[:_MOST_ENTRIES]
    )


def bounded_log(log: AttemptLog) -> AttemptLog:
    """An attempt's log; a text that is too long keeps its beginning and end."""
    environment = {
        name[:_LONGEST_TEXT]: log.environment[name][:_LONGEST_TEXT]
        for name in sorted(log.environment)[:_MOST_ENTRIES]
    }
    return AttemptLog(
        tuple(word[:_LONGEST_TEXT] for word in log.command[:_MOST_ENTRIES]),
        environment,
        bounded_text(log.text),
        _json_object(log.telemetry_json, LONGEST_LOG_CHARACTERS),
        log.wall_seconds if 0 <= log.wall_seconds < math.inf else 0.0,
        _json_object(log.facts_json, MOST_BYTES),
    )


def _json_object(text: str, longest: int) -> str:
    """The text, or "" if it is not a JSON object or is too long to keep."""
    if len(text) > longest:
        return ""
    try:
        return text if isinstance(json.loads(text), dict) else ""
    except (ValueError, RecursionError):
        return ""


def agent_of(registration: Registration) -> Agent:
    """The agent that registers; raises ParameterError for an invalid registration."""
    slots = registration.slots
    identifiers = {slot.slot_id for slot in slots}
    if (
        not registration.agent_id
        or not registration.session_id
        or len(identifiers) != len(slots)
        or "" in identifiers
    ):
        raise ParameterError(
            f"agent {registration.name!r}",
            "its registration lacks an identifier, or names a slot twice",
            _ONE_RELEASE,
        )
    devices = tuple(_bounded_device(device) for device in registration.inventory.devices)
    return Agent(
        agent_id=registration.agent_id,
        session_id=registration.session_id,
        name=_name(registration.name or registration.agent_id),
        inventory=replace(registration.inventory, devices=devices),
        slots=tuple(_bounded_slot(slot) for slot in slots),
        seen_at_ms=0,
        place=registration.place[:_LONGEST_TEXT],
    )


def _name(text: str) -> str:
    """A name as it is shown to people: short, and without characters that could steer their terminal."""
    return "".join(each if each.isprintable() else "?" for each in text[:_LONGEST_NAME])


def _bounded_slot(slot: Slot) -> Slot:
    device = None if slot.device is None else _bounded_device(slot.device)
    return replace(_cut(slot, "quarantine_reason"), device=device)


def _bounded_device(device: InstalledDevice) -> InstalledDevice:
    return _cut(device, "problem", "left_out")


def _cut(record: Cut, *names: str) -> Cut:
    """A record with these texts bounded."""
    return replace(record, **{name: getattr(record, name)[:_LONGEST_TEXT] for name in names})
