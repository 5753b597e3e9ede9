"""The records of the metadata store, as plain values.

Records that also cross the wire are in :mod:`assay_core.records`; these are only the server's.
All times are Unix milliseconds of the server's clock. States are stored as their strings.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from assay_core.records.attempt import AttemptKey, AttemptLog, Claim
from assay_core.records.campaign import AttemptState, CampaignState, RunState
from assay_core.records.failure import Failure
from assay_core.records.machine import Inventory, Slot
from assay_core.records.runs import RunsAction, RunsRequest
from assay_core.records.upload import Bundle
from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.work import CommandSource, RunSpec
from assay_server.campaign_file.compiled import (
    NOT_PLACED,
    CompiledCampaign,
    Placement,
    SchedulingRules,
    SlicePlan,
)


class SliceState(StrEnum):
    """The state of a slice."""

    WAITING = "waiting"
    LEASED = "leased"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Hold(StrEnum):
    """Why no slot may have a run's waiting slices."""

    AFTER = "after"  # workloads that must end before it have not
    PAUSED = "paused"  # a person paused it, whether or not its campaign is paused too


ACTIVE_ATTEMPTS = (AttemptState.LEASED, AttemptState.PUBLISHING)
OPEN_RUNS = (RunState.WAITING, RunState.RUNNING)
ENDED_RUNS = (RunState.DONE, RunState.FAILED, RunState.CANCELLED)


@dataclass(frozen=True)
class Campaign:
    """A submitted campaign; its id is ``<name>-<number>``.

    ``text`` is kept for people; later steps use ``compiled``. ``owner``: the identity that submitted it, with
    its name at that time. ``paused``: its waiting runs are held.
    ``retried``: how often a person had failed or cancelled runs, or its analysis, tried again.
    ``submission``: by what its submitter tells this submission from others; "": nothing was said.
    """

    campaign_id: str
    name: str
    number: int
    synthetic: bool
    state: CampaignState
    text: str
    file_name: str
    base_directory: str
    compiled: CompiledCampaign
    created_at_ms: int
    ended_at_ms: int = 0
    failure: Failure | None = None
    has_report: bool = False
    owner: str = ""
    owner_name: str = ""
    project: str = ""
    paused: bool = False
    retried: int = 0
    submission: str = ""


@dataclass(frozen=True)
class AnalysisTry:
    """The newest try at the analysis of a campaign.

    ``token`` grows with each try. ``attempts``: tries since one was last ended in order. ``retried``: as the
    campaign's when it began.
    """

    campaign_id: str
    token: int = 0
    attempts: int = 0
    retried: int = 0


@dataclass(frozen=True)
class OpenEnds:
    """What keeps a campaign from ending, and whether any of its waiting slices is held."""

    open_runs: bool
    requests: bool
    held_slices: bool


@dataclass(frozen=True, kw_only=True)
class Run(RunSpec):
    """A run of a campaign: what it measures, and its state.

    ``device_key``: the key that a slot's GPU must have (:func:`assay_sampling.running.identity.device_key`);
    empty: any slot fits. ``plan``: the slices that were chosen for it from a light run; None: it has none.
    ``placement``: what the campaign file asks of the place where it runs. ``holds``: why its waiting slices
    are kept from all slots; empty: they are not.
    """

    run_id: str
    ordinal: int
    device_key: str = ""
    state: RunState = RunState.WAITING
    failure: Failure | None = None
    flags: tuple[ValidityFlag, ...] = ()
    plan: SlicePlan | None = None
    placement: Placement = NOT_PLACED
    holds: tuple[Hold, ...] = ()

    @property
    def paused(self) -> bool:
        """Whether a person paused this run, not only its campaign."""
        return Hold.PAUSED in self.holds

    @property
    def in_windows(self) -> bool:
        """Whether it is measured window by window: each slice starts the command again and skips launches."""
        return self.command is not None and self.level == "detailed"


@dataclass(frozen=True, order=True)
class Need:
    """What a slot must have for a run. Runs of a campaign with one need wait in one lane.

    ``synthetic`` and ``partitions`` (of the SMs) are False for recorded runs, which any player plays.
    ``bundles``: it runs files of its submitter.
    """

    profiler: str
    device_key: str = ""
    synthetic: bool = False
    partitions: bool = False
    bundles: bool = False
    placement: Placement = NOT_PLACED


def need_of(run: Run) -> Need:
    """The need of a run."""
    if not run.device_key:
        return Need(run.profiler, placement=run.placement)
    partitions = run.condition.sm_share == "partition"
    bundles = run.command is not None and run.command.bundle is not None
    return Need(run.profiler, run.device_key, run.synthetic, partitions, bundles, run.placement)


@dataclass(frozen=True)
class Lane:
    """The runs of a campaign with one need; they wait in the order of the campaign."""

    lane_id: int
    need: Need


@dataclass(frozen=True)
class Entrant:
    """A running campaign with waiting slices, for the decision who is next; ``ordinal``: its place by age."""

    campaign_id: str
    ordinal: int
    rules: SchedulingRules
    lanes: tuple[Lane, ...]
    owner: str = ""
    project: str = ""


@dataclass(frozen=True)
class GpuUse:
    """GPU seconds of a campaign that ended by a moment (Unix time, ms), or a lease that is held.

    ``key``: the attempt of a held lease, which began at ``leased_at_ms``; None if the seconds have ended.
    ``gpus``: how many GPUs a held lease has; ``seconds`` are those of all GPUs together.
    """

    campaign_id: str
    owner: str
    project: str
    seconds: float = 0.0
    ended_at_ms: int = 0
    key: AttemptKey | None = None
    leased_at_ms: int = 0
    gpus: int = 1


@dataclass(frozen=True)
class Slice:
    """A window of launches of a run; ``launch_count`` 0 is "to the end".

    ``file`` (relative to the records), ``content_hash``, ``file_bytes`` and ``launches`` are those of the
    published attempt. ``tries_from``: the number of the first attempt that counts when its tries are counted:
    a person who has it tried again gives it all its tries again.
    """

    run_id: str
    index: int
    launch_skip: int = 0
    launch_count: int = 0
    state: SliceState = SliceState.WAITING
    not_before_ms: int = 0
    file: str = ""
    file_bytes: int = 0
    content_hash: str = ""
    launches: int = 0
    tries_from: int = 1


@dataclass(frozen=True)
class PublishedFile:
    """A published slice: path relative to the records, size, launches, and BLAKE2b-256 in hexadecimal."""

    file: str
    file_bytes: int
    launches: int
    content_hash: str


@dataclass(frozen=True)
class SliceTime:
    """A published slice of a detailed live run, and how long the commands that measured it ran."""

    run_id: str
    workload: str
    device_key: str
    command: CommandSource
    counters: tuple[str, ...]
    launch_skip: int
    launches: int
    seconds: float


@dataclass(frozen=True)
class Attempt:
    """An attempt with its durable data: ``segments`` and ``launches`` count acknowledged segments.

    ``confirmed``: its agent has shown that it knows the attempt, so the answer to its lease was not lost.
    ``write_secret`` proves who holds the lease.
    ``gang``: the slots that a run over several GPUs has besides ``slot_id``, which leads it.
    """

    key: AttemptKey
    state: AttemptState
    agent_id: str
    agent_name: str
    session_id: str
    slot_id: str
    leased_at_ms: int
    lease_ends_at_ms: int
    confirmed: bool = False
    ended_at_ms: int = 0
    segments: int = 0
    launches: int = 0
    launches_spooled: int = 0
    failure: Failure | None = None
    flags: tuple[ValidityFlag, ...] = ()
    log: AttemptLog = field(default_factory=AttemptLog)
    write_secret: bytes = field(default=b"", repr=False)
    gang: tuple[str, ...] = ()

    @property
    def slots(self) -> tuple[str, ...]:
        """Every slot that it has, the leading one first."""
        return (self.slot_id, *self.gang)

    def belongs_to(self, agent_id: str, secret: bytes) -> bool:
        """Whether this agent got the lease, in any session."""
        proved = bool(self.write_secret) and hmac.compare_digest(self.write_secret, secret)
        return proved and self.agent_id == agent_id

    def is_held_by(self, claim: Claim) -> bool:
        """Whether the claim is from the process that holds the lease, or held it last."""
        mine = self.key == claim.key and self.belongs_to(claim.agent_id, claim.secret)
        return mine and bool(claim.session_id) and self.session_id == claim.session_id

    def takes_segments_from(self, claim: Claim) -> bool:
        """Whether the claim is from the process that holds the lease, and more segments may come."""
        return self.is_held_by(claim) and self.state in (AttemptState.LEASED, AttemptState.EXPIRED)


@dataclass(frozen=True)
class PendingRequest:
    """A person's request about runs that is carried out piece by piece.

    ``next_ordinal``: the place in the campaign of the first run that it has not seen yet.
    """

    request_id: int
    action: RunsAction
    asked: RunsRequest
    asked_at_ms: int
    next_ordinal: int = 0
    runs_changed: int = 0
    attempts_ended: int = 0


@dataclass(frozen=True)
class Segment:
    """A durable segment of an attempt: sizes and BLAKE2b-256 of its two compressed parts.

    ``offset_bytes``: bytes of the attempt's segments before it.
    """

    run_id: str
    slice: int
    attempt: int
    index: int
    offset_bytes: int
    launches: int
    names_bytes: int
    launches_bytes: int
    names_hash: bytes
    launches_hash: bytes

    @property
    def key(self) -> AttemptKey:
        """The key of its attempt, without a token."""
        return AttemptKey(self.run_id, self.slice, self.attempt, 0)

    @property
    def end_bytes(self) -> int:
        return self.offset_bytes + self.names_bytes + self.launches_bytes


@dataclass(frozen=True)
class SegmentParts:
    """The two compressed parts of a segment."""

    names: bytes
    launches: bytes


@dataclass(frozen=True)
class Agent:
    """A registered agent; ``session_id`` is that of its current process, ``place`` as in Registration.

    ``labels``: those of its identity, which campaigns may require; ``put_agent`` leaves them as they are.
    ``since_ms``: when this process registered.
    """

    agent_id: str
    session_id: str
    name: str
    inventory: Inventory
    slots: tuple[Slot, ...]
    seen_at_ms: int
    place: str = ""
    labels: tuple[str, ...] = ()
    since_ms: int = 0


@dataclass(frozen=True)
class AgentSession:
    """The current process of an agent, and when the agent was last seen."""

    session_id: str
    seen_at_ms: int


@dataclass(frozen=True)
class KeptBundle:
    """A bundle that the servers have.

    Args:
        bundle: its name and sizes.
        file: the name of its file in the place of records.
        stored_bytes: of that file, which is compressed.
        holders: when each of those who sent it last asked for it (Unix ms).
    """

    bundle: Bundle
    file: str
    stored_bytes: int
    holders: Mapping[str, int]


@dataclass(frozen=True)
class Belonging:
    """Whose a campaign is: the identity that submitted it, and its project, "" for none."""

    owner: str
    project: str


@dataclass(frozen=True)
class Sight:
    """The campaigns that somebody may know of: all of them, or their own and those of their project."""

    everything: bool = True
    identity_id: str = ""
    project: str = ""

    def sees(self, whose: Belonging) -> bool:
        return self.everything or whose.owner == self.identity_id or whose.project == self.project


EVERYTHING = Sight()
