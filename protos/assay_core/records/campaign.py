"""Campaigns, their runs and their attempts as the server reports them to clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from assay_core.records.failure import Failure
from assay_core.records.upload import Bundle
from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.wire import Record, Within, closed_set
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
    PAUSED = "paused"  # until a person resumes it
    LIGHT_RUN = "light_run"
    AFTER = "after"  # for workloads that must end before it
    NO_AGENT = "no_agent"
    NOT_OFFERED = "not_offered"  # no agent ever offered what it needs
    AGENT_AWAY = "agent_away"
    OUT_OF_SERVICE = "out_of_service"
    MAINTENANCE = "maintenance"
    RESTING = "resting"
    BUDGET = "budget"
    EXCLUSIVE = "exclusive"  # for the rest of a GPU or box to be idle
    GANG = "gang"  # for several GPUs of one box to be idle at once
    QUEUED = "queued"  # for a slot: others are measured, or are ahead


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

QUEUE_KINDS = closed_set(lab_pb2.WaitKind, QueueKind)
_CAMPAIGN_STATES = closed_set(campaign_pb2.CampaignState, CampaignState)
_RUN_STATES = closed_set(campaign_pb2.RunState, RunState)
ATTEMPT_STATES = closed_set(campaign_pb2.AttemptState, AttemptState)
_SET_ASIDE_REASONS = closed_set(campaign_pb2.SetAsideReason, SetAsideReason)
_FILE_CHANGES = closed_set(campaign_pb2.FileChange, FileChange)
_REPORT_FORMATS = closed_set(campaign_pb2.ReportFormat, ReportFormat)


@dataclass(frozen=True)
class Submission(Record[campaign_pb2.SubmitRequest], text="campaign_yaml"):
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


@dataclass(frozen=True)
class BundleFolder(Record[campaign_pb2.BundleFolder]):
    """A folder that a campaign file names, as written; ``line`` (from 1) of the first workload that does."""

    folder: str
    workload: str
    line: int


@dataclass(frozen=True)
class Submitted(Record[campaign_pb2.SubmitResponse]):
    """An accepted campaign, with the number of its runs; or ``folders`` whose files must be sent first."""

    campaign_id: str
    runs: int
    folders: tuple[BundleFolder, ...] = ()


@dataclass(frozen=True)
class CampaignsPage(Record[campaign_pb2.ListCampaignsRequest], first="campaigns_from", most="campaigns_most"):
    """A request for at most ``most`` campaigns (0: the server decides) from index ``first`` on."""

    first: int = 0
    most: int = 0


@dataclass(frozen=True)
class StatusRequest(Record[campaign_pb2.GetStatusRequest], first="runs_from", most="runs_most"):
    """A request for a campaign with at most ``most`` runs (0: the server decides) from index ``first`` on.

    ``following``: it is repeated until the campaign has ended, so the answer may be of a moment ago.
    """

    campaign_id: str
    first: int = 0
    most: int = 0
    without_runs: bool = False
    following: bool = False


@dataclass(frozen=True)
class ReportRequest(Record[campaign_pb2.GetReportRequest], form="format"):
    """A request for a campaign's report in one format."""

    campaign_id: str
    form: ReportFormat


@dataclass(frozen=True)
class NamedCampaign(Record[campaign_pb2.CancelRequest]):
    """A request about a campaign as a whole."""

    campaign_id: str


@dataclass(frozen=True)
class SlotRest(Record[campaign_pb2.SlotRest]):
    """A slot that takes no runs for a while: ``failures`` in a row, ``remaining_ms`` until it gets the next
    run, and the last failure."""

    agent: str
    slot: str
    failures: int
    remaining_ms: int
    failure: Failure


@dataclass(frozen=True)
class SetAside(Record[campaign_pb2.SetAside]):
    """Files of the server's state folder that were moved aside together, because they did not match the
    database. ``names`` are the first of them, relative to the state folder and to ``folder``."""

    folder: str
    reason: SetAsideReason
    set_aside_at_ms: int
    files: int
    bytes: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class ChangedFile(Record[campaign_pb2.ChangedFile]):
    """A published file that has changed since; ``file`` is relative to the state folder."""

    run_id: str
    file: str
    what: FileChange


@dataclass(frozen=True)
class WaitingRuns(Record[campaign_pb2.WaitingRuns]):
    """Runs that wait for the same thing; ``reason`` is for people."""

    reason: str
    first_run_id: str
    runs: int
    kind: QueueKind


@dataclass(frozen=True, kw_only=True)
class RunStatus(Record[campaign_pb2.RunStatus]):
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


@dataclass(frozen=True)
class Estimate(Record[lab_pb2.Estimate]):
    """How long work takes yet, from the times of finished slices, with the interval that it is in.

    ``missing``: why it is not ``known`` yet, for people. ``at_least``: more slices may be cut while it runs.
    ``assumed``: in part from other GPUs, earlier campaigns or the assumptions of plans.
    """

    known: bool = False
    remaining_ms: int = 0
    missing: str = ""
    at_least: bool = False
    low_ms: int = 0
    high_ms: int = 0
    assumed: bool = False


NO_ESTIMATE = Estimate()


_ETA = Within(
    known="eta_known",
    remaining_ms="eta_ms",
    missing="eta_missing",
    at_least="eta_at_least",
    low_ms="eta_low_ms",
    high_ms="eta_high_ms",
    assumed="eta_assumed",
)


@dataclass(frozen=True, kw_only=True)
class CampaignStatus(Record[campaign_pb2.CampaignStatus], eta=_ETA):
    """A campaign: its state, counts of its runs and slices, and a page of its runs.

    ``failure``: why the campaign or its analysis failed. ``resting``: slots of the server that rest while it
    runs. ``waiting``: what its open runs need and no agent offers. ``runs_next``: where the next page of runs
    begins; 0 on the last page. ``owner``: the identity that submitted it, with its name then. ``paused``: its
    waiting runs are held; ``runs_paused`` are paused themselves. ``gpu_seconds``: the time that all of its
    attempts have had GPUs. ``eta``: until its runs are done; of one that is analysed, its analysis.
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


@dataclass(frozen=True)
class AgentSpool(Record[campaign_pb2.AgentSpool]):
    """The spool of an agent that a person should look at, as its last heartbeat told it.

    ``waits``: it is full, and no run begins there. ``damaged``: files that the agent quarantined.
    """

    agent: str
    used_bytes: int
    limit_bytes: int
    waits: bool
    damaged: int


@dataclass(frozen=True)
class Shortage(Record[campaign_pb2.Shortage]):
    """Why a server takes no new work: its records are at their limit (0: none), or its disk is full."""

    used_bytes: int
    limit_bytes: int
    free_bytes: int
    minimum_free_bytes: int


@dataclass(frozen=True)
class Overview(Record[campaign_pb2.ListCampaignsResponse]):
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


@dataclass(frozen=True)
class ReportChunk(Record[campaign_pb2.ReportChunk]):
    """A piece of a report; the last one lists the published files that changed since the report was made."""

    data: bytes = b""
    changed: tuple[ChangedFile, ...] = ()
