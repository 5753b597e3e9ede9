"""Messages about attempts between agent and server: leases, heartbeats, finishes, failures."""

from __future__ import annotations

from dataclasses import dataclass, field

from assay_core.records.attempt import AttemptKey, AttemptLog, Claim
from assay_core.records.failure import Failure
from assay_core.records.machine import GpuSample
from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.wire import Record, WireError
from assay_core.records.work import Work
from assay_protos import agent_pb2

_MOST_GPUS = 256


@dataclass(frozen=True)
class LeaseRequest(Record[agent_pb2.LeaseRequest]):
    """A free slot asks for work that waits now."""

    agent_id: str
    session_id: str = field(repr=False)
    slot_id: str = ""


@dataclass(frozen=True)
class UnreadableWork:
    """Work that this release does not understand, with what the agent needs to report that to the server."""

    key: AttemptKey
    write_secret: bytes = field(repr=False)
    error: WireError


@dataclass(frozen=True)
class LeaseAnswer:
    """``work`` None: nothing to do now. ``register_again``: the server does not know this session."""

    work: Work | UnreadableWork | None = None
    register_again: bool = False

    def to_proto(self) -> agent_pb2.LeaseResponse:
        work = self.work.to_proto() if isinstance(self.work, Work) else None
        return agent_pb2.LeaseResponse(work=work, register_again=self.register_again)

    @classmethod
    def from_proto(cls, message: agent_pb2.LeaseResponse) -> LeaseAnswer:
        """Raises WireError only if even the attempt's key cannot be read."""
        if not message.HasField("work"):
            return cls(None, message.register_again)
        key = AttemptKey.from_proto(message.work.key)
        try:
            return cls(Work.from_proto(message.work), message.register_again)
        except WireError as error:
            return cls(UnreadableWork(key, message.work.write_secret, error), message.register_again)


@dataclass(frozen=True)
class AttemptProgress:
    """The progress of an attempt, and the secret that proves that its agent holds the lease."""

    key: AttemptKey
    launches_spooled: int
    write_secret: bytes = field(repr=False)


@dataclass(frozen=True)
class SpoolState(Record[agent_pb2.SpoolState]):
    """How full an agent's spool is.

    ``waits``: it is full, so no run begins, and runs under way wait with what they have measured.
    ``damaged``: damaged files that the agent keeps for a person to look at.
    """

    used_bytes: int
    limit_bytes: int
    waits: bool = False
    damaged: int = 0


@dataclass(frozen=True)
class Heartbeat:
    """A sign of life from an agent's process and each of its attempts.

    ``spool`` None: the agent is of a release that does not tell it. ``gpus``: those of its GPUs that were
    sampled lately.
    """

    agent_id: str
    session_id: str = field(repr=False)
    attempts: tuple[AttemptProgress, ...] = ()
    spool: SpoolState | None = None
    gpus: tuple[GpuSample, ...] = ()

    def claim(self, progress: AttemptProgress) -> Claim:
        """The agent's claim to the lease of one of its attempts."""
        return Claim(progress.key, self.agent_id, self.session_id, progress.write_secret)

    def to_proto(self) -> agent_pb2.HeartbeatRequest:
        attempts = [
            agent_pb2.AttemptProgress(
                key=each.key.to_proto(),
                launches_spooled=each.launches_spooled,
                write_secret=each.write_secret,
            )
            for each in self.attempts
        ]
        spool = None if self.spool is None else self.spool.to_proto()
        return agent_pb2.HeartbeatRequest(
            agent_id=self.agent_id,
            session_id=self.session_id,
            attempts=attempts,
            spool=spool,
            gpus=[each.to_proto() for each in self.gpus],
        )

    @classmethod
    def from_proto(cls, message: agent_pb2.HeartbeatRequest) -> Heartbeat:
        attempts = tuple(
            AttemptProgress(AttemptKey.from_proto(each.key), each.launches_spooled, each.write_secret)
            for each in message.attempts
        )
        spool = SpoolState.from_proto(message.spool) if message.HasField("spool") else None
        gpus = tuple(GpuSample.from_proto(each) for each in message.gpus[:_MOST_GPUS])
        return cls(message.agent_id, message.session_id, attempts, spool, gpus)


@dataclass(frozen=True)
class HeartbeatAnswer(Record[agent_pb2.HeartbeatResponse]):
    """Attempts that the agent must drop; ``register_again``: the server does not know this session."""

    drop: tuple[AttemptKey, ...] = ()
    register_again: bool = False


@dataclass(frozen=True)
class FinishedAttempt:
    """A complete attempt of a slice: all segments are acknowledged; counts of segments and launches."""

    claim: Claim
    segments: int
    launches: int
    flags: tuple[ValidityFlag, ...] = ()
    log: AttemptLog = field(default_factory=AttemptLog)

    def to_proto(self) -> agent_pb2.FinishAttemptRequest:
        return agent_pb2.FinishAttemptRequest(
            agent_id=self.claim.agent_id,
            session_id=self.claim.session_id,
            write_secret=self.claim.secret,
            key=self.claim.key.to_proto(),
            segments=self.segments,
            launches=self.launches,
            flags=[flag.to_proto() for flag in self.flags],
            log=self.log.to_proto(),
        )

    @classmethod
    def from_proto(cls, message: agent_pb2.FinishAttemptRequest) -> FinishedAttempt:
        return cls(
            Claim.from_proto(message),
            message.segments,
            message.launches,
            tuple(ValidityFlag.from_proto(flag) for flag in message.flags),
            AttemptLog.from_proto(message.log),
        )


@dataclass(frozen=True)
class FinishAnswer(Record[agent_pb2.FinishAttemptResponse]):
    """``published`` False: superseded, or another agent holds the lease; the agent drops the attempt."""

    published: bool


@dataclass(frozen=True)
class FailedAttempt:
    """Why an attempt failed, and how far it got."""

    claim: Claim
    failure: Failure
    log: AttemptLog = field(default_factory=AttemptLog)

    def to_proto(self) -> agent_pb2.FailAttemptRequest:
        return agent_pb2.FailAttemptRequest(
            agent_id=self.claim.agent_id,
            session_id=self.claim.session_id,
            write_secret=self.claim.secret,
            key=self.claim.key.to_proto(),
            failure=self.failure.to_proto(),
            log=self.log.to_proto(),
        )

    @classmethod
    def from_proto(cls, message: agent_pb2.FailAttemptRequest) -> FailedAttempt:
        return cls(
            Claim.from_proto(message),
            Failure.from_proto(message.failure),
            AttemptLog.from_proto(message.log),
        )


@dataclass(frozen=True)
class FailAnswer:
    """The server's acknowledgement."""

    def to_proto(self) -> agent_pb2.FailAttemptResponse:
        return agent_pb2.FailAttemptResponse()
