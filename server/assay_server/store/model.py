"""What the metadata store holds, as plain values.

All times are Unix milliseconds of the server's clock. States are strings, because they go to disk and
over the wire as they are.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from assay_sampling.identity import RunLevel, device_key
from assay_sampling.launch_table import BASELINE, Condition


class CampaignState(StrEnum):
    """Where a campaign stands."""

    RUNNING = "running"
    ANALYSING = "analysing"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RunState(StrEnum):
    """Where a run stands."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class SliceState(StrEnum):
    """Where a slice stands."""

    WAITING = "waiting"
    LEASED = "leased"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class AttemptState(StrEnum):
    """Where an attempt stands.

    ``PUBLISHING``: finished, every segment is durable, its file is being written; its slot is free.
    ``EXPIRED``: its lease
    ran out, but no newer lease has been given: it may still come back. ``SUPERSEDED``: a newer one has.
    """

    LEASED = "leased"
    PUBLISHING = "publishing"
    PUBLISHED = "published"
    FAILED = "failed"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"


ACTIVE_ATTEMPTS = (AttemptState.LEASED, AttemptState.PUBLISHING)
ENDED_CAMPAIGNS = (CampaignState.DONE, CampaignState.FAILED, CampaignState.CANCELLED)
OPEN_RUNS = (RunState.WAITING, RunState.RUNNING)
ENDED_RUNS = (RunState.DONE, RunState.FAILED, RunState.CANCELLED)


@dataclass(frozen=True)
class FailureRecord:
    """Why something failed; ``failure_class`` is one of docs/failures.md."""

    failure_class: str
    subject: str
    cause: str
    remedy: str = ""
    retryable: bool = False


@dataclass(frozen=True)
class Flag:
    """A validity flag of docs/validity.md."""

    name: str
    detail: str = ""
    invalidates: bool = False


@dataclass(frozen=True)
class AnalysisSettings:
    """How a campaign's runs are analysed; ``methods`` are (name, parameters) in the order of the report."""

    seed: int
    methods: tuple[tuple[str, dict[str, Any]], ...]
    reference: str | None
    memory_limit_bytes: int


@dataclass(frozen=True)
class Campaign:
    """A submitted campaign; its id is ``<name>-<number>``."""

    campaign_id: str
    name: str
    number: int
    synthetic: bool
    state: CampaignState
    text: str
    file_name: str
    base_directory: str
    analysis: AnalysisSettings
    created_at_ms: int
    ended_at_ms: int = 0
    failure: FailureRecord | None = None
    has_report: bool = False


@dataclass(frozen=True)
class CampaignOverview:
    """A campaign as one of many, without its file, which may be long; ``ordinal``: its place among all."""

    ordinal: int
    campaign_id: str
    name: str
    number: int
    synthetic: bool
    state: CampaignState
    failure: FailureRecord | None


@dataclass(frozen=True)
class Command:
    """What a live run executes; ``timeout_s`` 0 leaves the limit to the agent.

    ``memory_limit_bytes`` is for all processes of the workload and its profiler; 0: no limit.
    ``kineto_file``: the trace that the workload itself writes, relative to its working directory; "": none.
    """

    argv: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    working_directory: str = ""
    timeout_s: float = 0.0
    memory_limit_bytes: int = 0
    kineto_file: str = ""


@dataclass(frozen=True)
class Run:
    """A workload on a kind of GPU at one level under one condition, one repeat.

    A bare run is a light one without its profiler: it has no launches, only wall time.
    A recorded run has ``recorded_path``, a live one ``command``. ``device_key`` is what a slot's GPU must
    be called (:func:`device_key`); empty: any slot will do. ``counters`` are the canonical names to
    collect, ``under_mps`` is the run at 100 % that those at an SM share are compared with, and they.
    """

    run_id: str
    campaign_id: str
    ordinal: int
    workload: str
    device_kind: str
    level: RunLevel
    profiler: str
    condition: Condition = BASELINE
    repeat: int = 0
    synthetic: bool = False
    recorded_path: str = ""
    recorded_time: bool = False
    device_key: str = ""
    command: Command | None = None
    counters: tuple[str, ...] = ()
    under_mps: bool = False
    state: RunState = RunState.WAITING
    failure: FailureRecord | None = None
    flags: tuple[Flag, ...] = ()


@dataclass(frozen=True)
class Slice:
    """A window of launches of a run; ``launch_count`` 0 is "to the end".

    ``file`` (relative to the records), ``content_hash``, ``file_bytes`` and ``launches`` are those of the
    published attempt.
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


@dataclass(frozen=True)
class SliceTime:
    """A published slice of a detailed live run, and how long the commands that measured it ran."""

    run_id: str
    workload: str
    device_key: str
    command: Command
    counters: tuple[str, ...]
    launch_skip: int
    launches: int
    seconds: float


@dataclass(frozen=True)
class AttemptKey:
    """One execution under one lease.

    ``token`` grows with every lease that this store ever gave, and by an epoch with every start of a server.
    """

    run_id: str
    slice: int
    attempt: int
    token: int

    def __str__(self) -> str:
        return f"run {self.run_id}, slice {self.slice}, attempt {self.attempt}"


@dataclass(frozen=True)
class Claim:
    """Somebody says that it holds the lease of an attempt; ``secret`` is what the lease came with."""

    key: AttemptKey
    agent_id: str
    session_id: str
    secret: bytes = field(repr=False)


@dataclass(frozen=True)
class AttemptLog:
    """What an attempt ran, in which environment (scrubbed of secrets), and what it said (bounded).

    ``telemetry``: what the GPU's sensors told while it measured, a JSON object as text, or "".
    ``wall_seconds``: how long the commands that measure ran. ``facts``: what the numbers rest on beside the
    GPU (:mod:`assay_sampling.attempt_facts`) as text, or "".
    """

    command: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    text: str = ""
    telemetry: str = ""
    wall_seconds: float = 0.0
    facts: str = ""


@dataclass(frozen=True)
class Attempt:
    """An attempt with what is durable of it: ``segments`` and ``launches`` count acknowledged segments.

    ``confirmed``: its agent has shown that it knows of it, so the answer to its lease was not lost.
    ``write_secret`` proves who holds the lease; b"" of attempts of releases that gave none: nobody does.
    """

    key: AttemptKey
    state: AttemptState
    agent_id: str
    agent_name: str
    session_id: str
    slot_id: str
    leased_at_ms: int
    deadline_ms: int
    confirmed: bool = False
    ended_at_ms: int = 0
    segments: int = 0
    launches: int = 0
    launches_spooled: int = 0
    failure: FailureRecord | None = None
    flags: tuple[Flag, ...] = ()
    log: AttemptLog = field(default_factory=AttemptLog)
    write_secret: bytes = field(default=b"", repr=False)

    def belongs_to(self, agent_id: str, secret: bytes) -> bool:
        """Whether this agent was given the lease, in whatever session."""
        proved = bool(self.write_secret) and hmac.compare_digest(self.write_secret, secret)
        return proved and self.agent_id == agent_id

    def is_held_by(self, claim: Claim) -> bool:
        """Whether the claim is that of the process that holds the lease, or held it last."""
        mine = self.key == claim.key and self.belongs_to(claim.agent_id, claim.secret)
        return mine and bool(claim.session_id) and self.session_id == claim.session_id


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
    def end_bytes(self) -> int:
        return self.offset_bytes + self.names_bytes + self.launches_bytes


@dataclass(frozen=True)
class Slot:
    """A place of an agent that takes one run at a time. ``device`` is empty for a player of recordings.

    ``quarantine_reason``: why it is out of service; "": it takes runs. ``sm_partitions``: its SMs can be
    partitioned.
    """

    slot_id: str
    profilers: tuple[str, ...]
    synthetic: bool = False
    device: dict[str, Any] = field(default_factory=dict)
    quarantine_reason: str = ""
    sm_partitions: bool = False

    @property
    def device_key(self) -> str:
        """The key of its GPU's name; empty where it has none."""
        return device_key(str(self.device.get("name", "")))


@dataclass(frozen=True)
class Agent:
    """A registered agent; ``session_id`` is that of its present process."""

    agent_id: str
    session_id: str
    name: str
    inventory: dict[str, Any]
    slots: tuple[Slot, ...]
    seen_at_ms: int


@dataclass(frozen=True)
class CampaignProgress:
    """How far a campaign is. ``needs``: an open run for each different thing that such runs need, and how
    many need it. ``retries``: attempts beyond the first of each slice."""

    slices: int
    slices_done: int
    retries: int
    needs: tuple[tuple[Run, int], ...]


@dataclass(frozen=True)
class RunOverview:
    """A run with what its slices and attempts tell: how many there are, the newest's agent, launches so far.

    ``retries``: attempts beyond the first of each slice.
    """

    run: Run
    attempts: int
    agent: str
    launches: int
    slices: int = 0
    slices_done: int = 0
    retries: int = 0
