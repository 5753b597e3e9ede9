"""The agent's requests, answered from the scheduler. Plain functions of a message; they may block."""

from __future__ import annotations

from assay_protos import agent_pb2
from assay_sampling.errors import ParameterError
from assay_server.campaigns.coordinator import Coordinator
from assay_server.campaigns.publish import Publisher
from assay_server.config import server_version
from assay_server.limits import DEFAULT_LIMITS, AgentLimits
from assay_server.rpc import convert


class AgentHandler:
    """Register, heartbeat, lease, finish and fail."""

    def __init__(
        self,
        coordinator: Coordinator,
        publisher: Publisher,
        heartbeat_ms: int,
        limits: AgentLimits = DEFAULT_LIMITS.agents,
    ) -> None:
        self._limits = limits
        self._coordinator = coordinator
        self._publisher = publisher
        self._heartbeat_ms = heartbeat_ms

    def register(self, request: agent_pb2.RegisterRequest) -> agent_pb2.RegisterResponse:
        """Take in an agent's process; raises ParameterError for a registration that cannot be."""
        self._require_within_limits(request)
        agent = convert.agent_of(request)
        with self._coordinator.schedule() as schedule:
            resume, drop = schedule.register(agent, convert.held_of(request.held))
            schedule.store.forget_agents(self._limits.agents_remembered)
        self._coordinator.restarted(agent)
        return agent_pb2.RegisterResponse(
            heartbeat_ms=self._heartbeat_ms,
            lease_ms=self._coordinator.policy.lease_ms,
            resume=[convert.key_message(key) for key in resume],
            drop=[convert.key_message(key) for key in drop],
            server_version=server_version(),
        )

    def _require_within_limits(self, request: agent_pb2.RegisterRequest) -> None:
        limits, subject = self._limits, f"agent {request.name[:100]!r}"
        self._require(subject, "attempts", len(request.held), limits.registration_attempts)
        self._require(subject, "slots", len(request.slots), limits.registration_slots)
        kept = request.ByteSize() - sum(held.ByteSize() for held in request.held)
        self._require(subject, "bytes", kept, limits.registration_bytes)

    def _require(self, subject: str, what: str, number: int, most: int) -> None:
        if number > most:
            cause = f"it tells of {number:,} {what}; at most {most:,} are taken"
            raise ParameterError(subject, cause, "run the same release of Assay on agent and server")

    def heartbeat(self, request: agent_pb2.HeartbeatRequest) -> agent_pb2.HeartbeatResponse:
        self._require("heartbeat", "attempts", len(request.attempts), self._limits.heartbeat_attempts)
        with self._coordinator.schedule() as schedule:
            if not schedule.is_registered(request.agent_id, request.session_id):
                return agent_pb2.HeartbeatResponse(register_again=True)
            drop = [
                progress.key
                for progress in request.attempts
                if not (
                    schedule.is_held(convert.claim_of(progress, request.agent_id, request.session_id))
                    and schedule.extend(convert.key_of(progress.key), progress.launches_spooled)
                )
            ]
        return agent_pb2.HeartbeatResponse(drop=drop)

    def lease(self, request: agent_pb2.LeaseRequest) -> agent_pb2.LeaseResponse:
        """Work for a slot, now; an empty response where there is none."""
        with self._coordinator.schedule() as schedule:
            if not schedule.is_registered(request.agent_id, request.session_id):
                return agent_pb2.LeaseResponse(register_again=True)
            lease = schedule.lease(request.agent_id, request.slot_id)
        if lease is None:
            return agent_pb2.LeaseResponse()
        return agent_pb2.LeaseResponse(work=convert.work_message(lease, self._coordinator.policy.lease_ms))

    def finish(self, request: agent_pb2.FinishAttemptRequest) -> agent_pb2.FinishAttemptResponse:
        """Publish; answers once the slice's file is durable. Raises StorageError: ask again."""
        published = self._publisher.finish(
            convert.claim_of(request, request.agent_id, request.session_id),
            request.segments,
            request.launches,
            convert.flags_of(request.flags),
            convert.log_of(request.log),
        )
        return agent_pb2.FinishAttemptResponse(published=published)

    def fail(self, request: agent_pb2.FailAttemptRequest) -> agent_pb2.FailAttemptResponse:
        """End an attempt that failed; what does not come from who holds its lease changes nothing."""
        claim = convert.claim_of(request, request.agent_id, request.session_id)
        with self._coordinator.schedule() as schedule:
            if schedule.is_held(claim):
                schedule.fail(claim.key, convert.failure_of(request.failure), convert.log_of(request.log))
        return agent_pb2.FailAttemptResponse()
