"""The two interfaces of the server's store. Implementations are replaceable; one test suite checks all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import AttemptState, RunState
from assay_core.records.failure import Failure
from assay_core.records.lab import AuditEntry
from assay_core.records.runs_request import RunsRequest
from assay_server.record_place import RecordsPlace
from assay_server.store.model import (
    Agent,
    AgentSession,
    Analysis,
    AnalysisPart,
    Attempt,
    Campaign,
    CampaignOverview,
    CampaignProgress,
    Entrant,
    GpuUse,
    HeldSegment,
    Hold,
    Identity,
    KeptBundle,
    LikelyLeases,
    NotedRuns,
    OpenEnds,
    PendingRequest,
    Run,
    RunOverview,
    RunsAlike,
    Segment,
    Slice,
    SliceState,
    SliceTime,
    StoredCertificate,
    StoredToken,
    StoreLoad,
    WebLogin,
    WorkloadCost,
)
from assay_server.store.segments import SegmentContent
from assay_server.store.set_aside import MovedFiles
from assay_server.store.sight import EVERYTHING, Belonging, Sight


class MetadataReader(Protocol):
    """Reads of one consistent moment. Missing records are None or an empty list, never an error."""

    def campaign(self, campaign_id: str) -> Campaign | None: ...

    def belongs_to(self, campaign_id: str) -> Belonging | None:
        """Whose a campaign is; None: there is no such campaign."""

    def campaigns(
        self, *, first: int = 0, most: int | None = None, sight: Sight = EVERYTHING
    ) -> list[CampaignOverview]:
        """Campaigns from the place ``first`` on, oldest first; at most ``most`` (None: all).

        ``sight``: only campaigns that somebody may know of.
        """

    def counts_of_runs(self, campaign_ids: Sequence[str]) -> dict[str, dict[RunState, int]]:
        """How many runs each of these campaigns has in each state."""

    def runs_alike(self, campaign_id: str) -> list[RunsAlike]:
        """The runs of a campaign counted by workload, kind of GPU and state; workloads in its order."""

    def noted_runs(self, campaign_id: str) -> list[NotedRuns]:
        """All runs of a campaign that have failed or carry validity flags, in its order."""

    def campaign_numbers(self, name: str) -> list[int]:
        """Numbers of campaigns of that name that were given: also the highest of those deleted since."""

    def submitted_as(self, owner: str, submission: str) -> str | None:
        """The campaign of an owner that was submitted under this key, not ""; None: there is none."""
        ...

    def arrivals(self) -> list[str]:
        """Campaigns that somebody brings in piece by piece, or brought in before a crash, oldest first."""
        ...

    def is_arriving(self, campaign_id: str, mark: str) -> bool:
        """Whether a campaign is being brought in by whoever has this mark."""
        ...

    def run(self, run_id: str) -> Run | None: ...

    def runs(self, campaign_id: str) -> list[Run]:
        """The runs of a campaign, in its order."""

    def run_counts(self, campaign_id: str) -> dict[RunState, int]:
        """How many runs of a campaign are in each state; states without runs are left out."""

    def campaign_of(self, run_id: str) -> str | None:
        """The campaign of a run; None if there is no such run."""
        ...

    def open_ends(self, campaign_id: str) -> OpenEnds:
        """What keeps a campaign from ending; costs the same for any number of runs."""
        ...

    def open_runs(self, campaign_id: str) -> int:
        """How many runs of a campaign have not ended."""

    def run_overviews(
        self, campaign_id: str, run_id: str | None = None, *, first: int = 0, most: int | None = None
    ) -> list[RunOverview]:
        """The runs of a campaign (or the given one), in its order, with facts of their attempts.

        ``first``: the place in that order to begin at; ``most``: how many (None: all).
        """

    def progress(self, campaign_id: str) -> CampaignProgress:
        """How far a campaign is, and what its open runs need, counted by the database."""

    def workload_costs(self, campaign_id: str, now_ms: int) -> list[WorkloadCost]:
        """What each workload of a campaign has cost, and how much is left, by kind of GPU and level."""

    def slice(self, run_id: str, index: int) -> Slice | None: ...

    def slices(self, run_id: str) -> list[Slice]: ...

    def published_bytes(self) -> int:
        """The bytes of all published files."""
        ...

    def published_slices(self) -> list[Slice]:
        """Every slice of every campaign that has a published file."""

    def entrants(self, campaign_ids: Sequence[str] | None = None) -> list[Entrant]:
        """Running campaigns with waiting slices, due or not, oldest first; None: of all campaigns.

        Slices of held runs do not count.
        """

    def first_waiting(
        self,
        lane_ids: Sequence[int],
        now_ms: int,
        passed: Sequence[tuple[str, int]] = (),
        untried_in: tuple[str, str] | None = None,
    ) -> tuple[Run, Slice] | None:
        """The first slice in these lanes of a campaign, in its order, that waits and is due.

        ``passed``: runs and slices to leave out. ``untried_in``: agent and slot, to leave out slices that
        have failed there.
        """

    def earliest_due_ms(self, lane_id: int) -> int | None:
        """When the first waiting slice of a lane is due; None if none waits."""

    def gpu_uses(self) -> list[GpuUse]:
        """The use of GPUs: of ended attempts by campaign and hour, and each lease that is held."""

    def held_workloads(self, campaign_id: str) -> set[str]:
        """The workloads of a campaign with waiting slices that are held."""

    def open_workloads(self, campaign_id: str) -> set[str]:
        """The workloads of a campaign with runs that have not ended."""

    def is_running(self, campaign_id: str) -> bool:
        """Whether slots may have slices of a campaign: it runs and is not paused."""

    def resting_slices(self, now_ms: int) -> list[Slice]:
        """Slices of any campaign that wait but are not yet due."""

    def states_beside(self, run_id: str, index: int) -> frozenset[SliceState]:
        """The states of a run's other slices."""

    def slice_times(self, most: int) -> list[SliceTime]:
        """The times of the newest published slices of detailed live runs, of any campaign, newest first."""

    def untried_from(self, run_id: str) -> int:
        """The index from which on no slice of a run was ever leased."""

    def seconds_spent(self, run_id: str) -> float:
        """How long all ended attempts of a run ran, with any outcome."""

    def workload_failures(
        self, campaign_id: str, workload: str
    ) -> list[tuple[tuple[str, ...], Failure | None]]:
        """Slots and failure of all failed attempts of a workload, in the order of their tokens."""

    def published_facts(self, run_id: str) -> list[tuple[int, str]]:
        """When the published attempts of a run were leased (Unix time, ms), and their facts, by slice."""

    def attempt(self, run_id: str, slice_index: int, attempt: int) -> Attempt | None: ...

    def attempts(self, run_id: str, slice_index: int | None = None) -> list[Attempt]:
        """The attempts of a run or of one of its slices, in the order of slice and attempt."""

    def attempts_in(
        self,
        states: Sequence[AttemptState],
        *,
        agent_id: str | None = None,
        slot_id: str | None = None,
        lease_ended_before_ms: int | None = None,
    ) -> list[Attempt]:
        """Attempts in one of these states, in the order of their tokens."""

    def segment(self, key: AttemptKey, index: int) -> Segment | None: ...

    def segments(self, key: AttemptKey) -> list[Segment]: ...

    def held_segments(self, key: AttemptKey) -> dict[int, HeldSegment]:
        """The parts of an attempt's segments that are kept here, by the segments' indexes."""
        ...

    def load(self) -> StoreLoad:
        """How much there is to do; states without members are left out."""

    def requested_runs(
        self,
        asked: RunsRequest,
        states: Sequence[RunState],
        *,
        paused: bool | None = None,
        first: int = 0,
        most: int = 1,
    ) -> list[tuple[int, str]]:
        """Ordinal and identifier of at most ``most`` requested runs, from the ordinal ``first`` on.

        Only those in one of ``states``, and, unless ``paused`` is None, those that are (or are not) paused.
        """

    def requested_counts(self, asked: RunsRequest) -> dict[RunState, int]:
        """How many of the requested runs are in each state; states without runs are left out."""

    def requested_attempts(self, asked: RunsRequest, states: Sequence[AttemptState]) -> list[Attempt]:
        """Attempts of the requested runs in one of these states, in the order of their tokens."""

    def attempts_of(self, run_ids: Sequence[str], states: Sequence[AttemptState]) -> list[Attempt]:
        """Attempts of these runs in one of these states, in the order of their tokens."""

    def paused_runs(self, campaign_ids: Sequence[str]) -> dict[str, int]:
        """How many runs of these campaigns are paused themselves; campaigns without any are left out."""

    def pending_requests(self, campaign_id: str | None = None) -> list[PendingRequest]:
        """Requests that are not yet carried out, of all campaigns or one, oldest first."""

    def analysis(self, campaign_id: str, workload: str = "") -> Analysis | None: ...

    def due_analyses(self, now_ms: int) -> list[str]:
        """Campaigns that are to be analysed and whose analysis nobody holds, oldest first.

        Left out are those whose next try is not due yet.
        """
        ...

    def analysis_parts(self, campaign_id: str) -> list[AnalysisPart]:
        """The finished workloads that are kept of a campaign's analysis, by their names."""

    def agent(self, agent_id: str) -> Agent | None: ...

    def sessions(self, agent_ids: Sequence[str]) -> dict[str, AgentSession]:
        """The current processes of those of these agents that are known."""
        ...

    def attempts_by_key(self, keys: Sequence[AttemptKey]) -> list[Attempt]:
        """The attempts with exactly these keys, in no order; keys without an attempt are left out."""
        ...

    def sessions_and_attempts(
        self, agent_ids: Sequence[str], keys: Sequence[AttemptKey]
    ) -> tuple[dict[str, AgentSession], list[Attempt]]:
        """As :meth:`sessions` and :meth:`attempts_by_key`, asked together."""
        ...

    def agents(self) -> list[Agent]:
        """All agents that ever registered, in the order of their identifiers."""

    def identity(self, identity_id: str) -> Identity | None: ...

    def identities(self) -> list[Identity]:
        """All identities, revoked ones too, in the order of their identifiers."""

    def join_tokens(self) -> list[StoredToken]:
        """All join tokens, oldest first."""

    def join_token(self, secret_hash: str) -> StoredToken | None: ...

    def certificates(self, identity_id: str | None = None) -> list[StoredCertificate]:
        """The certificates of an identity (None: of all), oldest first."""

    def bundle(self, sha256: str) -> KeptBundle | None: ...

    def bundles(self) -> list[KeptBundle]:
        """All bundles, in the order of their names."""

    def bundle_bytes(self, holder: str) -> tuple[int, int]:
        """The stored bytes of the bundles that somebody sent, and of all."""

    def web_logins(self) -> list[WebLogin]:
        """All links to the live page and sessions of browsers, the oldest first; also those that ended."""

    def web_login(self, key: str) -> WebLogin | None: ...

    def audit_entries(
        self, *, before: int = 0, most: int = 100, identity: str = "", since_ms: int = 0
    ) -> list[AuditEntry]:
        """Entries of the audit log, newest first.

        ``before``: only those with a smaller number (0: all). ``identity``: an identity's id or name then.
        """


class MetadataTransaction(MetadataReader, Protocol):
    """Reads and writes that happen completely or not at all, one transaction at a time.

    ``save_*`` replaces an existing record. A write that breaks a rule of the data (a second active attempt
    of a slot or slice, a second published attempt of a slice, an existing key) raises StorageError.
    """

    def add_campaign(self, campaign: Campaign, runs: Sequence[Run], slices: Sequence[Slice]) -> None: ...

    def begin_arrival(self, campaign: Campaign, mark: str) -> None:
        """Add a campaign that is brought in piece by piece by whoever has this mark.

        Until :meth:`end_arrival` it takes its number, and nothing else: no list, count or search of
        campaigns shows it, and no slot is given its slices.
        """

    def end_arrival(self, campaign_id: str) -> None:
        """All runs of a campaign are there: from now on everybody sees it."""

    def give_up_arrival(self, campaign_id: str, most: int) -> bool:
        """Delete at most ``most`` runs of a campaign that was never brought in whole, then itself.

        Returns whether it is gone. Its number may be given again, and nobody's mark is valid any more.
        """
        ...

    def add_runs(self, runs: Sequence[Run], slices: Sequence[Slice]) -> None:
        """Add runs to existing campaigns."""
        ...

    def save_campaign(self, campaign: Campaign) -> None: ...

    def save_run(self, run: Run) -> None: ...

    def set_holds(self, run_ids: Sequence[str], holds: Collection[Hold]) -> None:
        """Keep the waiting slices of runs from all slots for these reasons; no reason: no longer.

        ``save_run`` leaves the holds as they are.
        """
        ...

    def save_slice(self, piece: Slice) -> None: ...

    def replace_slices(self, run_id: str, index: int, slices: Sequence[Slice]) -> None:
        """Replace the slices of a run from an index on, none of which was ever tried."""

    def pause_runs(self, run_ids: Sequence[str], paused: bool) -> None:
        """Pause these runs, or let them go on."""
        ...

    def cancel_runs(self, run_ids: Sequence[str]) -> None:
        """Cancel these runs and their slices that have not ended; their attempts stay as they are.

        None of them is paused any more.
        """
        ...

    def retry_runs(self, run_ids: Sequence[str]) -> None:
        """Let the failed and cancelled slices of these runs wait, and the runs continue.

        Each of the slices has all its tries again (``tries_from``), and is due.
        """
        ...

    def add_request(self, request: PendingRequest) -> PendingRequest:
        """Add a request; returns it with its number."""

    def save_request(self, request: PendingRequest) -> None: ...

    def end_request(self, request_id: int) -> None:
        """Forget a request that was carried out."""
        ...

    def save_analysis(self, analysis: Analysis, after_token: int) -> bool:
        """Add or replace an analysis, if its token still is this one (0: there is none yet); whether it was.

        So of two that want the same analysis, one gets it.
        """
        ...

    def free_analyses(self) -> None:
        """End the leases of all analyses: whoever had them is gone."""

    def keep_analysis_part(self, part: AnalysisPart) -> None:
        """Add or replace a finished workload of an analysis."""

    def forget_analysis_parts(self, campaign_id: str) -> None:
        """Remove the finished workloads of a campaign's analysis."""

    def forget_old_analysis_parts(self, before_ms: int) -> None:
        """Remove those that were kept before this moment, except of campaigns that are being analysed."""

    def next_token(self) -> int:
        """A fencing token larger than all earlier ones, including those before a restart."""

    def begin_epoch(self, now_ms: int) -> int:
        """Begin a later epoch for all further tokens; returns it. ``now_ms``: by the wall clock.

        Tokens of a state that a restored backup replaced never come again: the epoch is at least the
        millisecond of the start, and its first token is chosen at random.
        """
        ...

    def fetch_attempts(self, keys: Sequence[AttemptKey], *, ending: bool = False) -> None:
        """Read attempts, their slices and their runs at once, because all of them will be asked for.

        ``ending``: their slices will be done, so what else that asks for, too.
        """
        ...

    def fetch_slots(
        self, places: Sequence[tuple[str, str]], likely: Callable[[], Sequence[LikelyLeases]], now_ms: int
    ) -> None:
        """Read agents and what is leased in their slots at once, because it will be asked for.

        ``likely``: what these slots will be given at this moment, for a store where it is worth reading all
        that is asked for it at once, too.
        """
        ...

    def next_attempt(self, run_id: str, slice_index: int) -> tuple[list[Attempt], int]:
        """The attempts at a slice so far, and the token of the next one, as :meth:`next_token` gives it."""
        ...

    def add_attempt(self, attempt: Attempt) -> None: ...

    def save_attempt(self, attempt: Attempt) -> None: ...

    def add_segments(self, segments: Sequence[Segment]) -> None: ...

    def hold_segment(self, segment: Segment, parts: HeldSegment) -> None:
        """Keep the parts of a segment that was added, until its attempt has ended."""
        ...

    def release_segments(self, key: AttemptKey) -> None:
        """Remove what is held for an attempt."""

    def release_ended(self) -> None:
        """Remove what is held for attempts that have ended."""

    def delete_runs(self, run_ids: Sequence[str]) -> None:
        """Delete runs with their slices, attempts and segments."""

    def delete_campaign(self, campaign: Campaign) -> None:
        """Delete a campaign whose runs were deleted. Its number is not given again."""

    def forget_logs(self, before_ms: int, most: int, told: str) -> int:
        """Replace by ``told`` the logs of attempts without a result of campaigns that ended before then.

        At most ``most`` of them; returns how many it was.
        """
        ...

    def put_agent(self, agent: Agent) -> None:
        """Add or replace an agent with its slots."""

    def put_identity(self, identity: Identity) -> None:
        """Add or replace an identity."""

    def saw_agents(self, agent_ids: Sequence[str], now_ms: int) -> None:
        """Note that these agents were seen now."""

    def extend_attempts(self, progress: Sequence[tuple[AttemptKey, int]], lease_ends_at_ms: int) -> None:
        """Note that leased attempts live: their leases end later, and they are confirmed.

        ``progress``: with each, how many launches its agent has spooled; the number never falls.
        """

    def put_join_token(self, token: StoredToken) -> None:
        """Add or replace a join token; StorageError if another one has its secret."""

    def forget_join_tokens(self, expired_before_ms: int) -> None:
        """Remove join tokens that expired before a moment."""

    def put_certificate(self, certificate: StoredCertificate) -> None:
        """Add or replace a certificate."""

    def forget_certificate(self, serial: str) -> None:
        """Remove a certificate, if it is there."""

    def put_bundle(self, kept: KeptBundle) -> None:
        """Add or replace a bundle with its holders."""

    def delete_bundle(self, sha256: str) -> None:
        """Remove a bundle, if it is there."""

    def put_web_login(self, login: WebLogin) -> None:
        """Add or replace a link to the live page, or a session."""

    def forget_web_logins(self, keys: Sequence[str]) -> None:
        """Remove those links and sessions, if they are there."""

    def add_audit(self, entry: AuditEntry) -> None:
        """Add an entry to the audit log; the store numbers it."""

    def forget_audit(self, before_ms: int) -> None:
        """Remove the entries older than this moment."""

    def forget_agents(self, most: int) -> None:
        """Keep only the ``most`` agents that were seen last, and all that hold a lease."""


class MetadataStore(Protocol):
    """Campaigns, runs, slices, attempts, segments and agents. Thread-safe."""

    def snapshot(self) -> AbstractContextManager[MetadataReader]:
        """Read; raises StorageError if the disk or the data cannot be read."""

    def transaction(self, *, alone: bool = False) -> AbstractContextManager[MetadataTransaction]:
        """Write: durable when the block ends, undone when it raises. Raises StorageError.

        Transactions may become durable together. ``alone``: it takes long, so others need not wait for it.
        """

    def close(self) -> None: ...


@dataclass(frozen=True)
class PublishedFile:
    """A published slice: path relative to the records, size, launches, and BLAKE2b-256 in hexadecimal."""

    file: str
    file_bytes: int
    launches: int
    content_hash: str


# Of one attempt, by the segments' indexes.
Held = Mapping[int, HeldSegment]
NOTHING_HELD: Held = MappingProxyType({})


@dataclass(frozen=True)
class KnownFiles:
    """The files of a record store that the metadata know.

    Args:
        live: attempts whose staged segments may still be needed.
        publishing: those whose published file may already be in place though the metadata do not know it.
        published: files of published slices, relative to the records.
        campaigns: all campaigns, which may have reports.
        has_attempt: whether an attempt ever existed, by run, slice and number.
        bundles: files of bundles.
    """

    live: Collection[AttemptKey]
    publishing: Collection[AttemptKey]
    published: Collection[str]
    campaigns: Collection[str]
    has_attempt: Callable[[str, int, int], bool]
    bundles: Collection[str] = ()


class RecordStore(Protocol):
    """Launch records: staged segments on their way, published files, and reports.

    Every write is durable when the method returns. StorageError: the disk refused it, earlier writes are
    safe. DamagedSegmentError: a staged segment is missing or changed.

    ``place``: the bucket that has them; None: they are in a folder.
    """

    @property
    def place(self) -> RecordsPlace | None: ...

    def probe(self) -> None:
        """Try whether something can be written. Raises StorageError."""

    def stage(self, segments: Sequence[tuple[Segment, bytes, bytes]]) -> None:
        """Write segments durably at their offsets, each with its compressed names and launches."""

    def write_ahead(self, segment: Segment, content: SegmentContent) -> None:
        """Use a checked segment, the next of its attempt, to write the attempt's file already.

        Neither durable nor visible; :meth:`publish` writes the same bytes without it.
        """

    def forget_ahead(self, key: AttemptKey) -> None:
        """Drop what was written ahead for an attempt, if anything was."""

    def staged(self, segment: Segment, held: Held = NOTHING_HELD) -> HeldSegment:
        """The compressed parts of a segment, held or staged, checked against its hashes."""

    def publish(
        self, key: AttemptKey, segments: Sequence[Segment], held: Held = NOTHING_HELD
    ) -> PublishedFile:
        """Write all segments of an attempt, in order, as its slice's one file; atomic, repeatable.

        ``held``: the segments that the metadata hold; the others were staged.
        """
        ...

    def publish_small(
        self, attempts: Sequence[tuple[AttemptKey, Sequence[Segment], Held]]
    ) -> dict[AttemptKey, PublishedFile]:
        """As :meth:`publish` for each attempt that has few launches; the others are left out.

        The files become durable together. After an error, some of them may be in their place.
        """
        ...

    def withdraw(self, file: str) -> None:
        """Remove the file of a publication that the metadata do not want, if there is one."""

    def discard(self, key: AttemptKey) -> None:
        """Remove the staged segments of an attempt, if there are any."""

    def sweep(self, known: KnownFiles, least_age_seconds: float = 0.0) -> MovedFiles | None:
        """Remove leftovers of our own crashes and of ended attempts.

        Other files that the metadata do not know are set aside, never removed; None if there are none.
        ``least_age_seconds``: what is younger stays as it is, because other servers may be about to commit
        it; 0 only while nothing else writes.
        """

    def set_aside(self, file: str) -> MovedFiles | None:
        """Set aside a published file that changed since it was published; None if it is gone."""

    def make_way(self, key: AttemptKey) -> MovedFiles | None:
        """Set aside a file that lies where this attempt's would be, though the metadata do not know it."""

    def set_aside_staged(self, key: AttemptKey) -> MovedFiles | None:
        """Set aside the staged segments of an attempt, which changed on the disk; None if they are gone."""

    def all_set_aside(self) -> list[MovedFiles]:
        """The files that were set aside and are still there, oldest first."""
        ...

    def reading(self, file: str) -> AbstractContextManager[Path]:
        """Where a published file can be read on this machine, until the block ends.

        If it is gone, there is nothing at that path. Raises StorageError if it cannot be brought here.
        """
        ...

    def let_go(self, file: str) -> None:
        """Forget a copy of a published file on this machine, if there is one."""

    def location(self, file: str) -> str:
        """Where workers of an analysis find a published file: a path, or a URI that ``place`` explains."""
        ...

    def keep_bundle(self, file: str, source: Path) -> None:
        """Store the content of a file as a bundle's file of a new name; the source stays."""

    def reading_bundle(self, file: str) -> AbstractContextManager[Path]:
        """As :meth:`reading`, for a bundle's file."""
        ...

    def has_bundle(self, file: str) -> bool:
        """Whether a bundle's file is there. Raises StorageError."""
        ...

    def remove_bundle(self, file: str) -> None:
        """Remove a bundle's file, if it is there."""

    def listed(self) -> Iterator[str]:
        """The published files that are there, and what else lies among them; nothing half-written."""
        ...

    def sizes(self, files: Collection[str]) -> dict[str, int]:
        """The sizes in bytes of those of these published files that are there. Raises StorageError."""
        ...

    def delete_run(self, run_id: str) -> None:
        """Remove the files of a run that the metadata no longer know."""

    def delete_report(self, campaign_id: str) -> None:
        """Remove the reports of a campaign that the metadata no longer know."""

    def take_in(self, source: Path, file: str) -> None:
        """Move a file, durable and on the same disk, to the place of a published one that is not there."""

    def write_report(self, campaign_id: str, form: str, data: bytes) -> None:
        """Store a report; ``form`` is "json" or "html"."""

    def stage_report(self, campaign_id: str, name: str, forms: Mapping[str, bytes]) -> None:
        """Write a report, by form, where nobody sees it yet; another ``name`` is another report.

        It may be written again, with the same bytes.
        """

    def put_report(self, campaign_id: str, name: str, forms: Collection[str]) -> None:
        """Make a staged report the campaign's, and remove every other one that is staged.

        StorageError if it is gone, for instance because another report was put since: then nothing changes.
        """

    def report_path(self, campaign_id: str, form: str) -> Path:
        """Where a report can be read on this machine now; the path is empty before the report is made."""
        ...


__all__ = [
    "KnownFiles",
    "MetadataReader",
    "MetadataStore",
    "MetadataTransaction",
    "PublishedFile",
    "RecordStore",
]
