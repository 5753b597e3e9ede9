"""Campaigns, their runs and their attempts as the server reports them to clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from assay_core.records.attempt import AttemptKey, AttemptLog
from assay_core.records.condition import LEVELS, condition_from_proto, condition_to_proto
from assay_core.records.failure import Failure, optional_failure_to_proto
from assay_core.records.upload import Bundle
from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.wire import ClosedSet
from assay_protos import campaign_pb2, lab_pb2
from assay_sampling.running.identity import Condition, RunLevel


class CampaignState(StrEnum):
    """The state of a campaign."""

    RUNNING = "running"
    ANALYSING = "analysing"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RunState(StrEnum):
    """The state of a run."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class QueueKind(StrEnum):
    """Why runs wait: the reasons of :mod:`assay_server.campaigns.scheduling.waiting`, and two more.

    CAMPAIGN_PAUSED: all of the campaign is; LIGHT_RUN: a light run comes first, which decides their slices.
    """

    CAMPAIGN_PAUSED = "campaign_paused"
    PAUSED = "paused"
    LIGHT_RUN = "light_run"
    AFTER = "after"
    NO_AGENT = "no_agent"
    NOT_OFFERED = "not_offered"
    AGENT_AWAY = "agent_away"
    OUT_OF_SERVICE = "out_of_service"
    MAINTENANCE = "maintenance"
    RESTING = "resting"
    BUDGET = "budget"
    EXCLUSIVE = "exclusive"
    GANG = "gang"
    QUEUED = "queued"


class AttemptState(StrEnum):
    """The state of an attempt.

    ``PUBLISHING``: finished, every segment is durable, its file is being written; its slot is free.
    ``EXPIRED``: its lease ran out, but no newer lease has been given: it may still come back.
    ``SUPERSEDED``: a newer lease has been given.
    """

    LEASED = "leased"
    PUBLISHING = "publishing"
    PUBLISHED = "published"
    FAILED = "failed"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"


class SetAsideReason(StrEnum):
    """Why the server moved files of its state folder aside; the value names the folder."""

    UNKNOWN = "unknown_to_database"  # the database is older than the files, or they belong to another
    CHANGED = "changed"  # the files differ from what was published or staged


class FileChange(StrEnum):
    """How a published file changed."""

    MISSING = "missing"
    CHANGED = "changed"
    UNREADABLE = "unreadable"


class ReportFormat(StrEnum):
    """The formats in which the server returns a report."""

    JSON = "json"
    HTML = "html"


ENDED_CAMPAIGNS = frozenset({CampaignState.DONE, CampaignState.FAILED, CampaignState.CANCELLED})

QUEUE_KINDS = ClosedSet(lab_pb2.WaitKind, QueueKind)
_CAMPAIGN_STATES = ClosedSet(campaign_pb2.CampaignState, CampaignState)
_RUN_STATES = ClosedSet(campaign_pb2.RunState, RunState)
_ATTEMPT_STATES = ClosedSet(campaign_pb2.AttemptState, AttemptState)
_SET_ASIDE_REASONS = ClosedSet(campaign_pb2.SetAsideReason, SetAsideReason)
_FILE_CHANGES = ClosedSet(campaign_pb2.FileChange, FileChange)
_REPORT_FORMATS = ClosedSet(campaign_pb2.ReportFormat, ReportFormat)


@dataclass(frozen=True)
class Submission:
    """A campaign file; its relative paths start from ``base_directory``.

    ``bundles``: for each folder that it names under "bundle", the bundle that was sent. ``asks_for_folders``:
    to be told those folders, if it names any, without submitting it. ``key``: what tells it from the caller's
    other submissions, so that one that is sent twice is one campaign; "": it is one of its own.
    """

    text: str
    file_name: str
    base_directory: str
    bundles: Mapping[str, Bundle] = field(default_factory=dict)
    asks_for_folders: bool = False
    key: str = ""

    def to_proto(self) -> campaign_pb2.SubmitRequest:
        return campaign_pb2.SubmitRequest(
            campaign_yaml=self.text,
            file_name=self.file_name,
            base_directory=self.base_directory,
            bundles={folder: bundle.to_proto() for folder, bundle in self.bundles.items()},
            asks_for_folders=self.asks_for_folders,
            key=self.key,
        )

    @classmethod
    def from_proto(cls, message: campaign_pb2.SubmitRequest) -> Submission:
        bundles = {folder: Bundle.from_proto(bundle) for folder, bundle in message.bundles.items()}
        return cls(
            message.campaign_yaml,
            message.file_name,
            message.base_directory,
            bundles,
            message.asks_for_folders,
            message.key,
        )


@dataclass(frozen=True)
class BundleFolder:
    """A folder that a campaign file names, as written; ``line`` (from 1) of the first workload that does."""

    folder: str
    workload: str
    line: int

    def to_proto(self) -> campaign_pb2.BundleFolder:
        return campaign_pb2.BundleFolder(folder=self.folder, workload=self.workload, line=self.line)

    @classmethod
    def from_proto(cls, message: campaign_pb2.BundleFolder) -> BundleFolder:
        return cls(message.folder, message.workload, message.line)


@dataclass(frozen=True)
class Submitted:
    """An accepted campaign, with the number of its runs; or ``folders`` whose files must be sent first."""

    campaign_id: str
    runs: int
    folders: tuple[BundleFolder, ...] = ()

    def to_proto(self) -> campaign_pb2.SubmitResponse:
        folders = [each.to_proto() for each in self.folders]
        return campaign_pb2.SubmitResponse(campaign_id=self.campaign_id, runs=self.runs, folders=folders)

    @classmethod
    def from_proto(cls, message: campaign_pb2.SubmitResponse) -> Submitted:
        folders = tuple(BundleFolder.from_proto(each) for each in message.folders)
        return cls(message.campaign_id, message.runs, folders)


@dataclass(frozen=True)
class CampaignsPage:
    """A request for at most ``most`` campaigns (0: the server decides) from index ``first`` on."""

    first: int = 0
    most: int = 0

    def to_proto(self) -> campaign_pb2.ListCampaignsRequest:
        return campaign_pb2.ListCampaignsRequest(campaigns_from=self.first, campaigns_most=self.most)

    @classmethod
    def from_proto(cls, message: campaign_pb2.ListCampaignsRequest) -> CampaignsPage:
        return cls(message.campaigns_from, message.campaigns_most)


@dataclass(frozen=True)
class StatusRequest:
    """A request for a campaign with at most ``most`` runs (0: the server decides) from index ``first`` on."""

    campaign_id: str
    first: int = 0
    most: int = 0
    without_runs: bool = False

    def to_proto(self) -> campaign_pb2.GetStatusRequest:
        return campaign_pb2.GetStatusRequest(
            campaign_id=self.campaign_id,
            runs_from=self.first,
            runs_most=self.most,
            without_runs=self.without_runs,
        )

    @classmethod
    def from_proto(cls, message: campaign_pb2.GetStatusRequest) -> StatusRequest:
        return cls(message.campaign_id, message.runs_from, message.runs_most, message.without_runs)


@dataclass(frozen=True)
class ReportRequest:
    """A request for a campaign's report in one format."""

    campaign_id: str
    form: ReportFormat

    def to_proto(self) -> campaign_pb2.GetReportRequest:
        return campaign_pb2.GetReportRequest(
            campaign_id=self.campaign_id, format=_REPORT_FORMATS.to_proto(self.form)
        )

    @classmethod
    def from_proto(cls, message: campaign_pb2.GetReportRequest) -> ReportRequest:
        return cls(message.campaign_id, _REPORT_FORMATS.from_proto(message.format, "report"))


@dataclass(frozen=True)
class NamedCampaign:
    """A request about a campaign as a whole."""

    campaign_id: str

    def to_proto(self) -> campaign_pb2.CancelRequest:
        return campaign_pb2.CancelRequest(campaign_id=self.campaign_id)

    @classmethod
    def from_proto(cls, message: campaign_pb2.CancelRequest) -> NamedCampaign:
        return cls(message.campaign_id)


@dataclass(frozen=True)
class NamedRun:
    """A request about a run."""

    run_id: str

    def to_proto(self) -> campaign_pb2.GetRunRequest:
        return campaign_pb2.GetRunRequest(run_id=self.run_id)

    @classmethod
    def from_proto(cls, message: campaign_pb2.GetRunRequest) -> NamedRun:
        return cls(message.run_id)


@dataclass(frozen=True)
class SlotRest:
    """A slot that takes no runs for a while: ``failures`` in a row, ``remaining_ms`` until it gets the next
    run, and the last failure."""

    agent: str
    slot: str
    failures: int
    remaining_ms: int
    failure: Failure

    def to_proto(self) -> campaign_pb2.SlotRest:
        return campaign_pb2.SlotRest(
            agent=self.agent,
            slot=self.slot,
            failures=self.failures,
            remaining_ms=self.remaining_ms,
            failure=self.failure.to_proto(),
        )

    @classmethod
    def from_proto(cls, message: campaign_pb2.SlotRest) -> SlotRest:
        failure = Failure.from_proto(message.failure)
        return cls(message.agent, message.slot, message.failures, message.remaining_ms, failure)


@dataclass(frozen=True)
class SetAside:
    """Files of the server's state folder that were moved aside together, because they did not match the
    database. ``names`` are the first of them, relative to the state folder and to ``folder``."""

    folder: str
    reason: SetAsideReason
    set_aside_at_ms: int
    files: int
    bytes: int
    names: tuple[str, ...]

    def to_proto(self) -> campaign_pb2.SetAside:
        return campaign_pb2.SetAside(
            folder=self.folder,
            reason=_SET_ASIDE_REASONS.to_proto(self.reason),
            set_aside_at_ms=self.set_aside_at_ms,
            files=self.files,
            bytes=self.bytes,
            names=self.names,
        )

    @classmethod
    def from_proto(cls, message: campaign_pb2.SetAside) -> SetAside:
        return cls(
            message.folder,
            _SET_ASIDE_REASONS.from_proto(message.reason, message.folder),
            message.set_aside_at_ms,
            message.files,
            message.bytes,
            tuple(message.names),
        )


@dataclass(frozen=True)
class ChangedFile:
    """A published file that has changed since; ``file`` is relative to the state folder."""

    run_id: str
    file: str
    what: FileChange

    def to_proto(self) -> campaign_pb2.ChangedFile:
        return campaign_pb2.ChangedFile(
            run_id=self.run_id, file=self.file, what=_FILE_CHANGES.to_proto(self.what)
        )

    @classmethod
    def from_proto(cls, message: campaign_pb2.ChangedFile) -> ChangedFile:
        return cls(message.run_id, message.file, _FILE_CHANGES.from_proto(message.what, message.file))


@dataclass(frozen=True)
class WaitingRuns:
    """Runs that wait for the same thing; ``reason`` is for people."""

    reason: str
    first_run_id: str
    runs: int
    kind: QueueKind

    def to_proto(self) -> campaign_pb2.WaitingRuns:
        return campaign_pb2.WaitingRuns(
            reason=self.reason,
            first_run_id=self.first_run_id,
            runs=self.runs,
            kind=QUEUE_KINDS.to_proto(self.kind),
        )

    @classmethod
    def from_proto(cls, message: campaign_pb2.WaitingRuns) -> WaitingRuns:
        kind = QUEUE_KINDS.from_proto(message.kind, message.first_run_id)
        return cls(message.reason, message.first_run_id, message.runs, kind)


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """A run: what it measures, its state, its validity flags and why it failed.

    ``waiting_for``: what a waiting run needs and no agent offers, for people. ``retries``: attempts beyond
    the first of each slice. ``paused``: itself, not by a pause of its campaign.
    """

    run_id: str
    workload: str
    device_kind: str
    level: RunLevel
    condition: Condition
    repeat: int
    state: RunState
    launches: int
    attempts: int
    flags: tuple[ValidityFlag, ...]
    failure: Failure | None
    agent: str
    waiting_for: str
    slices: int
    slices_done: int
    retries: int
    paused: bool = False

    def to_proto(self) -> campaign_pb2.RunStatus:
        return campaign_pb2.RunStatus(
            run_id=self.run_id,
            workload=self.workload,
            device_kind=self.device_kind,
            level=LEVELS.to_proto(self.level),
            condition=condition_to_proto(self.condition),
            repeat=self.repeat,
            state=_RUN_STATES.to_proto(self.state),
            launches=self.launches,
            attempts=self.attempts,
            flags=[flag.to_proto() for flag in self.flags],
            failure=optional_failure_to_proto(self.failure),
            agent=self.agent,
            waiting_for=self.waiting_for,
            slices=self.slices,
            slices_done=self.slices_done,
            retries=self.retries,
            paused=self.paused,
        )

    @classmethod
    def from_proto(cls, message: campaign_pb2.RunStatus) -> RunStatus:
        return cls(
            run_id=message.run_id,
            workload=message.workload,
            device_kind=message.device_kind,
            level=LEVELS.from_proto(message.level, message.run_id),
            condition=condition_from_proto(message.condition, message.run_id),
            repeat=message.repeat,
            state=_RUN_STATES.from_proto(message.state, message.run_id),
            launches=message.launches,
            attempts=message.attempts,
            flags=tuple(ValidityFlag.from_proto(flag) for flag in message.flags),
            failure=Failure.from_proto(message.failure) if message.HasField("failure") else None,
            agent=message.agent,
            waiting_for=message.waiting_for,
            slices=message.slices,
            slices_done=message.slices_done,
            retries=message.retries,
            paused=message.paused,
        )


@dataclass(frozen=True)
class Estimate:
    """How long work takes yet, from the measured times of finished slices.

    ``missing``: why it is not ``known`` yet, for people. ``at_least``: more slices may be cut while it runs.
    """

    known: bool = False
    remaining_ms: int = 0
    missing: str = ""
    at_least: bool = False


NO_ESTIMATE = Estimate()


@dataclass(frozen=True, kw_only=True)
class CampaignStatus:
    """A campaign: its state, counts of its runs and slices, and a page of its runs.

    ``failure``: why the campaign or its analysis failed. ``resting``: slots of the server that rest while it
    runs. ``waiting``: what its open runs need and no agent offers. ``runs_next``: where the next page of runs
    begins; 0 on the last page. ``owner``: the identity that submitted it, with its name then. ``paused``: its
    waiting runs are held; ``runs_paused`` are paused themselves. ``gpu_seconds``: the time that all of its
    attempts have had GPUs. ``eta``: until its runs are done.
    """

    campaign_id: str
    name: str
    state: CampaignState
    synthetic: bool = False
    failure: Failure | None = None
    runs_total: int = 0
    runs_done: int = 0
    runs_failed: int = 0
    runs_running: int = 0
    runs_cancelled: int = 0
    runs_paused: int = 0
    paused: bool = False
    gpu_seconds: float = 0.0
    eta: Estimate = NO_ESTIMATE
    slices: int = 0
    slices_done: int = 0
    retries: int = 0
    resting: tuple[SlotRest, ...] = ()
    waiting: tuple[WaitingRuns, ...] = ()
    runs: tuple[RunStatus, ...] = ()
    runs_next: int = 0
    owner: str = ""
    owner_name: str = ""
    project: str = ""

    @property
    def ended(self) -> bool:
        """Whether the campaign is finished and will not change any more."""
        return self.state in ENDED_CAMPAIGNS

    def to_proto(self) -> campaign_pb2.CampaignStatus:
        return campaign_pb2.CampaignStatus(
            campaign_id=self.campaign_id,
            name=self.name,
            state=_CAMPAIGN_STATES.to_proto(self.state),
            synthetic=self.synthetic,
            failure=optional_failure_to_proto(self.failure),
            runs_total=self.runs_total,
            runs_done=self.runs_done,
            runs_failed=self.runs_failed,
            runs_running=self.runs_running,
            runs_cancelled=self.runs_cancelled,
            runs_paused=self.runs_paused,
            paused=self.paused,
            gpu_seconds=self.gpu_seconds,
            eta_known=self.eta.known,
            eta_ms=self.eta.remaining_ms,
            eta_missing=self.eta.missing,
            eta_at_least=self.eta.at_least,
            slices=self.slices,
            slices_done=self.slices_done,
            retries=self.retries,
            resting=[rest.to_proto() for rest in self.resting],
            waiting=[each.to_proto() for each in self.waiting],
            runs=[run.to_proto() for run in self.runs],
            runs_next=self.runs_next,
            owner=self.owner,
            owner_name=self.owner_name,
            project=self.project,
        )

    @classmethod
    def from_proto(cls, message: campaign_pb2.CampaignStatus) -> CampaignStatus:
        return cls(
            campaign_id=message.campaign_id,
            name=message.name,
            state=_CAMPAIGN_STATES.from_proto(message.state, message.campaign_id),
            synthetic=message.synthetic,
            failure=Failure.from_proto(message.failure) if message.HasField("failure") else None,
            runs_total=message.runs_total,
            runs_done=message.runs_done,
            runs_failed=message.runs_failed,
            runs_running=message.runs_running,
            runs_cancelled=message.runs_cancelled,
            runs_paused=message.runs_paused,
            paused=message.paused,
            gpu_seconds=message.gpu_seconds,
            eta=Estimate(message.eta_known, message.eta_ms, message.eta_missing, message.eta_at_least),
            slices=message.slices,
            slices_done=message.slices_done,
            retries=message.retries,
            resting=tuple(SlotRest.from_proto(rest) for rest in message.resting),
            waiting=tuple(WaitingRuns.from_proto(each) for each in message.waiting),
            runs=tuple(RunStatus.from_proto(run) for run in message.runs),
            runs_next=message.runs_next,
            owner=message.owner,
            owner_name=message.owner_name,
            project=message.project,
        )


@dataclass(frozen=True)
class AgentSpool:
    """The spool of an agent that a person should look at, as its last heartbeat told it.

    ``waits``: it is full, and no run begins there. ``damaged``: files that the agent quarantined.
    """

    agent: str
    used_bytes: int
    limit_bytes: int
    waits: bool
    damaged: int

    def to_proto(self) -> campaign_pb2.AgentSpool:
        return campaign_pb2.AgentSpool(
            agent=self.agent,
            used_bytes=self.used_bytes,
            limit_bytes=self.limit_bytes,
            waits=self.waits,
            damaged=self.damaged,
        )

    @classmethod
    def from_proto(cls, message: campaign_pb2.AgentSpool) -> AgentSpool:
        return cls(message.agent, message.used_bytes, message.limit_bytes, message.waits, message.damaged)


@dataclass(frozen=True)
class Shortage:
    """Why a server takes no new work: its records are at their limit (0: none), or its disk is full."""

    used_bytes: int
    limit_bytes: int
    free_bytes: int
    minimum_free_bytes: int

    def to_proto(self) -> campaign_pb2.Shortage:
        return campaign_pb2.Shortage(
            used_bytes=self.used_bytes,
            limit_bytes=self.limit_bytes,
            free_bytes=self.free_bytes,
            minimum_free_bytes=self.minimum_free_bytes,
        )

    @classmethod
    def from_proto(cls, message: campaign_pb2.Shortage) -> Shortage:
        return cls(message.used_bytes, message.limit_bytes, message.free_bytes, message.minimum_free_bytes)


@dataclass(frozen=True)
class Overview:
    """A page of campaigns without their runs, and the state of the server as a whole.

    ``changed``: published files of ended campaigns that have changed since, as far as the server checked:
    at its start (missing, other size), and when somebody asked for a report (by hash).
    ``campaigns_next``: where the next page begins; 0 on the last page. ``spools``: those of agents that are
    full or found damaged files. ``shortage``: why no new work is taken.
    """

    campaigns: tuple[CampaignStatus, ...] = ()
    resting: tuple[SlotRest, ...] = ()
    set_aside: tuple[SetAside, ...] = ()
    changed: tuple[ChangedFile, ...] = ()
    campaigns_next: int = 0
    spools: tuple[AgentSpool, ...] = ()
    shortage: Shortage | None = None

    def to_proto(self) -> campaign_pb2.ListCampaignsResponse:
        return campaign_pb2.ListCampaignsResponse(
            campaigns=[campaign.to_proto() for campaign in self.campaigns],
            resting=[rest.to_proto() for rest in self.resting],
            set_aside=[moved.to_proto() for moved in self.set_aside],
            changed=[each.to_proto() for each in self.changed],
            campaigns_next=self.campaigns_next,
            spools=[spool.to_proto() for spool in self.spools],
            shortage=None if self.shortage is None else self.shortage.to_proto(),
        )

    @classmethod
    def from_proto(cls, message: campaign_pb2.ListCampaignsResponse) -> Overview:
        return cls(
            tuple(CampaignStatus.from_proto(campaign) for campaign in message.campaigns),
            tuple(SlotRest.from_proto(rest) for rest in message.resting),
            tuple(SetAside.from_proto(moved) for moved in message.set_aside),
            tuple(ChangedFile.from_proto(each) for each in message.changed),
            message.campaigns_next,
            tuple(AgentSpool.from_proto(spool) for spool in message.spools),
            Shortage.from_proto(message.shortage) if message.HasField("shortage") else None,
        )


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
            state=_ATTEMPT_STATES.to_proto(self.state),
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
            state=_ATTEMPT_STATES.from_proto(message.state, str(key)),
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
class RunDetail:
    """A run with all its attempts, and the files it published, relative to the server's state folder."""

    run: RunStatus
    attempts: tuple[AttemptDetail, ...]
    files: tuple[str, ...]

    def to_proto(self) -> campaign_pb2.RunDetail:
        return campaign_pb2.RunDetail(
            run=self.run.to_proto(),
            attempts=[attempt.to_proto() for attempt in self.attempts],
            files=self.files,
        )

    @classmethod
    def from_proto(cls, message: campaign_pb2.RunDetail) -> RunDetail:
        return cls(
            RunStatus.from_proto(message.run),
            tuple(AttemptDetail.from_proto(attempt) for attempt in message.attempts),
            tuple(message.files),
        )


@dataclass(frozen=True)
class ReportChunk:
    """A piece of a report; the last one lists the published files that changed since the report was made."""

    data: bytes = b""
    changed: tuple[ChangedFile, ...] = ()

    def to_proto(self) -> campaign_pb2.ReportChunk:
        return campaign_pb2.ReportChunk(data=self.data, changed=[each.to_proto() for each in self.changed])

    @classmethod
    def from_proto(cls, message: campaign_pb2.ReportChunk) -> ReportChunk:
        return cls(message.data, tuple(ChangedFile.from_proto(each) for each in message.changed))
