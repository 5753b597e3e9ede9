"""Messages about attempts between agent and server: leases, heartbeats, finishes, failures."""

from __future__ import annotations

from dataclasses import dataclass, field

from assay_core.records.attempt import AttemptKey, AttemptLog, Claim
from assay_core.records.failure import Failure
from assay_core.records.machine import GpuSample
from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.wire import Record, WireError, Within
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
class AttemptProgress(Record[agent_pb2.AttemptProgress]):
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
class Heartbeat(Record[agent_pb2.HeartbeatRequest]):
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

    @classmethod
    def from_proto(cls, message: agent_pb2.HeartbeatRequest) -> Heartbeat:
        del message.gpus[_MOST_GPUS:]  # before they are read
        return super().from_proto(message)


@dataclass(frozen=True)
class HeartbeatAnswer(Record[agent_pb2.HeartbeatResponse]):
    """Attempts that the agent must drop; ``register_again``: the server does not know this session."""

    drop: tuple[AttemptKey, ...] = ()
    register_again: bool = False


@dataclass(frozen=True)
class FinishedAttempt(Record[agent_pb2.FinishAttemptRequest], claim=Within()):
    """A complete attempt of a slice: all segments are acknowledged; counts of segments and launches."""

    claim: Claim
    segments: int
    launches: int
    flags: tuple[ValidityFlag, ...] = ()
    log: AttemptLog = field(default_factory=AttemptLog)


@dataclass(frozen=True)
class FinishAnswer(Record[agent_pb2.FinishAttemptResponse]):
    """``published`` False: superseded, or another agent holds the lease; the agent drops the attempt."""

    published: bool


@dataclass(frozen=True)
class FailedAttempt(Record[agent_pb2.FailAttemptRequest], claim=Within()):
    """Why an attempt failed, and how far it got."""

    claim: Claim
    failure: Failure
    log: AttemptLog = field(default_factory=AttemptLog)


@dataclass(frozen=True)
class FailAnswer(Record[agent_pb2.FailAttemptResponse]):
    """The server's acknowledgement."""
