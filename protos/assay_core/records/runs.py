"""What people ask about runs and of them, to pause, resume, cancel or retry them; and a run in detail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from assay_core.records.attempt import AttemptKey, AttemptLog
from assay_core.records.campaign import ATTEMPT_STATES, AttemptState, CampaignStatus, RunStatus
from assay_core.records.failure import Failure, optional_failure_to_proto
from assay_core.records.wire import Record
from assay_protos import campaign_pb2


class RunsAction(StrEnum):
    """What is asked for.

    ``PAUSE`` holds waiting runs, ``RESUME`` lets them go on, ``CANCEL`` stops runs for good, and ``RETRY``
    lets failed and cancelled runs wait again.
    """

    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    RETRY = "retry"


@dataclass(frozen=True)
class RunsRequest(Record[campaign_pb2.RunsRequest]):
    """A request about the runs of ``workload``, about the run ``run_id``, or about the whole campaign if both
    are "". ``at_once``: a pause also hands back what is running."""

    campaign_id: str
    workload: str = ""
    run_id: str = ""
    at_once: bool = False


@dataclass(frozen=True)
class RunsAnswer(Record[campaign_pb2.RunsAnswer]):
    """The campaign after a request, without its runs.

    ``runs_changed``: runs that it changed; ``attempts_ended``: attempts that were running and were cancelled
    or handed back; ``attempts_running``: attempts of the requested runs that go on.
    """

    campaign: CampaignStatus
    runs_changed: int
    attempts_ended: int
    attempts_running: int


@dataclass(frozen=True)
class NamedRun(Record[campaign_pb2.GetRunRequest]):
    """A request about a run."""

    run_id: str


@dataclass(frozen=True, kw_only=True)
class AttemptDetail:
    """An attempt, for people. ``ended_at_ms`` 0: it has not ended yet.

    ``gang``: the other slots of a run over several GPUs.
    """

    key: AttemptKey
    state: AttemptState
    agent: str
    slot: str
    leased_at_ms: int
    ended_at_ms: int
    launches: int
    failure: Failure | None
    log: AttemptLog = field(default_factory=AttemptLog)
    gang: tuple[str, ...] = ()

    def to_proto(self) -> campaign_pb2.AttemptDetail:
        return campaign_pb2.AttemptDetail(
            key=self.key.to_proto(),
            state=ATTEMPT_STATES.to_proto(self.state),
            agent=self.agent,
            slot=self.slot,
            leased_at_ms=self.leased_at_ms,
            ended_at_ms=self.ended_at_ms,
            launches=self.launches,
            failure=optional_failure_to_proto(self.failure),
            command=self.log.command,
            environment=self.log.environment,
            log=self.log.text,
            telemetry_json=self.log.telemetry_json,
            wall_seconds=self.log.wall_seconds,
            facts_json=self.log.facts_json,
            gang=self.gang,
        )

    @classmethod
    def from_proto(cls, message: campaign_pb2.AttemptDetail) -> AttemptDetail:
        key = AttemptKey.from_proto(message.key)
        environment: Mapping[str, str] = dict(message.environment)
        return cls(
            key=key,
            state=ATTEMPT_STATES.from_proto(message.state, str(key)),
            agent=message.agent,
            slot=message.slot,
            leased_at_ms=message.leased_at_ms,
            ended_at_ms=message.ended_at_ms,
            launches=message.launches,
            failure=Failure.from_proto(message.failure) if message.HasField("failure") else None,
            log=AttemptLog(
                tuple(message.command),
                environment,
                message.log,
                message.telemetry_json,
                message.wall_seconds,
                message.facts_json,
            ),
            gang=tuple(message.gang),
        )


@dataclass(frozen=True)
class RunDetail(Record[campaign_pb2.RunDetail]):
    """A run with all its attempts, and the files it published, relative to the server's state folder."""

    run: RunStatus
    attempts: tuple[AttemptDetail, ...]
    files: tuple[str, ...]
