"""A metadata store of plain dictionaries: the second implementation that the contract suites run over.

A transaction works on a copy of all tables, which takes the place of the original where it ends well. So what
a reader holds never changes, and nothing has to be undone.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any

from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import ENDED_CAMPAIGNS, AttemptState, CampaignState, RunState
from assay_core.records.failure import Failure
from assay_core.records.lab import AuditEntry
from assay_core.records.runs_request import RunsRequest
from assay_sampling.errors import StorageError
from assay_server.store.model import (
    ACTIVE_ATTEMPTS,
    OPEN_RUNS,
    Agent,
    AgentSession,
    Analysis,
    AnalysisPart,
    AnalysisState,
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
    Lane,
    LikelyLeases,
    Need,
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
    need_of,
)
from assay_server.store.plain_values import finite, without_nul
from assay_server.store.sight import EVERYTHING, Belonging, Sight
from assay_server.store.tokens import first_of_epoch

_FRUITLESS = (AttemptState.FAILED, AttemptState.SUPERSEDED, AttemptState.CANCELLED)


@dataclass
class _Tables:
    """All that is kept, by key; records are never changed, only replaced."""

    campaigns: dict[str, Campaign] = field(default_factory=dict)
    arriving: dict[str, str] = field(default_factory=dict)  # by campaign that is not there yet: whose mark
    runs: dict[str, Run] = field(default_factory=dict)
    slices: dict[tuple[str, int], Slice] = field(default_factory=dict)
    attempts: dict[tuple[str, int, int], Attempt] = field(default_factory=dict)
    segments: dict[tuple[str, int, int, int], Segment] = field(default_factory=dict)
    held: dict[tuple[str, int, int, int], HeldSegment] = field(default_factory=dict)
    agents: dict[str, Agent] = field(default_factory=dict)
    identities: dict[str, Identity] = field(default_factory=dict)
    requests: dict[int, PendingRequest] = field(default_factory=dict)
    analyses: dict[tuple[str, str], Analysis] = field(default_factory=dict)
    parts: dict[tuple[str, str], AnalysisPart] = field(default_factory=dict)
    join_tokens: dict[str, StoredToken] = field(default_factory=dict)
    certificates: dict[str, StoredCertificate] = field(default_factory=dict)
    bundles: dict[str, KeptBundle] = field(default_factory=dict)
    web_logins: dict[str, WebLogin] = field(default_factory=dict)
    audit: dict[int, AuditEntry] = field(default_factory=dict)
    audited: int = 0
    deleted_numbers: dict[str, int] = field(default_factory=dict)
    token: int = 0

    def copy(self) -> _Tables:
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return _Tables(**{k: v.copy() if isinstance(v, dict) else v for k, v in values.items()})


class MemoryMetadataStore:
    """A ``MetadataStore`` that is gone with its process."""

    def __init__(self) -> None:
        self._writing = threading.Lock()
        self._tables = _Tables()

    @contextmanager
    def snapshot(self) -> Iterator[MemoryReader]:
        yield MemoryReader(self._tables)

    @contextmanager
    def transaction(self, *, alone: bool = False) -> Iterator[MemoryTransaction]:
        with self._writing:
            tables = self._tables.copy()
            yield MemoryTransaction(tables)
            self._tables = tables

    def close(self) -> None:
        """Nothing is open."""


class MemoryReader:
    """A ``MetadataReader``."""

    def __init__(self, tables: _Tables) -> None:
        self._tables = tables

    def campaign(self, campaign_id: str) -> Campaign | None:
        arriving = campaign_id in self._tables.arriving
        return None if arriving else self._tables.campaigns.get(campaign_id)

    def submitted_as(self, owner: str, submission: str) -> str | None:
        there = (c for c in self._tables.campaigns.values() if c.campaign_id not in self._tables.arriving)
        of_it = (c.campaign_id for c in there if (c.owner, c.submission) == (owner, submission))
        return next(of_it, None)

    def arrivals(self) -> list[str]:
        return [each for each in self._tables.campaigns if each in self._tables.arriving]

    def is_arriving(self, campaign_id: str, mark: str) -> bool:
        return self._tables.arriving.get(campaign_id) == mark

    def belongs_to(self, campaign_id: str) -> Belonging | None:
        found = self.campaign(campaign_id)
        return None if found is None else Belonging(found.owner, found.project)

    def campaigns(
        self, *, first: int = 0, most: int | None = None, sight: Sight = EVERYTHING
    ) -> list[CampaignOverview]:
        names = [item.name for item in fields(CampaignOverview) if item.name != "ordinal"]
        return [
            CampaignOverview(place, **{name: getattr(campaign, name) for name in names})
            for place, campaign in list(enumerate(self._tables.campaigns.values()))[first:]
            if sight.sees(Belonging(campaign.owner, campaign.project))
            and campaign.campaign_id not in self._tables.arriving
        ][:most]

    def counts_of_runs(self, campaign_ids: Sequence[str]) -> dict[str, dict[RunState, int]]:
        return {one: dict(Counter(run.state for run in self.runs(one))) for one in campaign_ids}

    def runs_alike(self, campaign_id: str) -> list[RunsAlike]:
        counted = Counter((run.workload, run.device_kind, run.state) for run in self.runs(campaign_id))
        return [RunsAlike(*key, runs) for key, runs in counted.items()]

    def noted_runs(self, campaign_id: str) -> list[NotedRuns]:
        alike: dict[Any, list[str]] = {}
        for run in self.runs(campaign_id):
            if run.failure is not None or run.flags:
                alike.setdefault((run.failure, run.flags), []).append(run.run_id)
        return [NotedRuns(failure, flags, tuple(runs)) for (failure, flags), runs in alike.items()]

    def campaign_numbers(self, name: str) -> list[int]:
        deleted = self._tables.deleted_numbers.get(name, 0)
        there = [c.number for c in self._tables.campaigns.values() if c.name == name]
        return [*there, *([deleted] if deleted else [])]

    def run(self, run_id: str) -> Run | None:
        return self._tables.runs.get(run_id)

    def runs(self, campaign_id: str) -> list[Run]:
        found = (run for run in self._tables.runs.values() if run.campaign_id == campaign_id)
        return sorted(found, key=lambda run: run.ordinal)

    def run_counts(self, campaign_id: str) -> dict[RunState, int]:
        return self.counts_of_runs([campaign_id])[campaign_id]

    def campaign_of(self, run_id: str) -> str | None:
        found = self.run(run_id)
        return None if found is None else found.campaign_id

    def open_ends(self, campaign_id: str) -> OpenEnds:
        return OpenEnds(
            self.open_runs(campaign_id) > 0,
            bool(self.pending_requests(campaign_id)),
            frozenset(self.held_workloads(campaign_id)),
        )

    def open_runs(self, campaign_id: str) -> int:
        return sum(run.state in OPEN_RUNS for run in self.runs(campaign_id))

    def run_overviews(
        self, campaign_id: str, run_id: str | None = None, *, first: int = 0, most: int | None = None
    ) -> list[RunOverview]:
        found = [r for r in self.runs(campaign_id) if r.ordinal >= first and run_id in (None, r.run_id)]
        return [self._overview(run) for run in found[:most]]

    def _overview(self, run: Run) -> RunOverview:
        attempts = sorted(self.attempts(run.run_id), key=lambda each: each.key.token)
        newest = {each.key.slice_index: each for each in attempts}
        launches = [max(a.launches, a.launches_spooled) for a in newest.values() if a.state not in _FRUITLESS]
        slices = self.slices(run.run_id)
        return RunOverview(
            run,
            len(attempts),
            attempts[-1].agent_name if attempts else "",
            sum(launches),
            slices=len(slices),
            slices_done=sum(piece.state == SliceState.DONE for piece in slices),
            retries=len(attempts) - len(newest),
        )

    def progress(self, campaign_id: str) -> CampaignProgress:
        runs = self.runs(campaign_id)
        slices = [piece for run in runs for piece in self.slices(run.run_id)]
        attempts = [each for run in runs for each in self.attempts(run.run_id)]
        campaign = self.campaign(campaign_id)
        slicing = None if campaign is None else campaign.compiled.slicing
        by_light = slicing is not None and slicing.by_light
        needs: dict[tuple[Any, ...], tuple[Run, int]] = {}
        for run in runs:
            if run.state in OPEN_RUNS:
                sliced = not by_light or bool(self.slices(run.run_id))
                need = (
                    run.profiler, run.device_key, run.device_kind, run.synthetic, run.placement, run.state,
                    run.holds, run.workload if run.holds else "", _partitioned(run),
                    need_of(run).bundles, sliced,
                )  # fmt: skip
                known, count = needs.get(need, (run, 0))
                needs[need] = (known, count + 1)
        done = sum(piece.state == SliceState.DONE for piece in slices)
        retries = sum(each.key.attempt > 1 for each in attempts)
        awaiting = frozenset(run.run_id for need, (run, _) in needs.items() if not need[-1])
        return CampaignProgress(len(slices), done, retries, tuple(needs.values()), awaiting)

    def workload_costs(self, campaign_id: str, now_ms: int) -> list[WorkloadCost]:
        found = []
        runs = self.runs(campaign_id)
        for key in sorted({(run.workload, run.device_key, run.level) for run in runs}):
            of_key = [run for run in runs if (run.workload, run.device_key, run.level) == key]
            slices = [piece for run in of_key for piece in self.slices(run.run_id)]
            attempts = [each for run in of_key for each in self.attempts(run.run_id)]
            published = [each for each in attempts if each.state == AttemptState.PUBLISHED]
            left = sum(piece.state in (SliceState.WAITING, SliceState.LEASED) for piece in slices)
            held_ms = sum(
                ((each.ended_at_ms or now_ms) - each.leased_at_ms) * len(each.slots) for each in attempts
            )
            gpus = max((len(each.slots) for each in attempts), default=1)
            if left or attempts:
                found.append(
                    WorkloadCost(*key, left, len(published), float(sum(map(_seconds, published))),
                                 held_ms / 1000 if key[1] else 0.0, gpus)
                )  # fmt: skip
        return found

    def slice(self, run_id: str, index: int) -> Slice | None:
        return self._tables.slices.get((run_id, index))

    def slices(self, run_id: str) -> list[Slice]:
        found = (piece for piece in self._tables.slices.values() if piece.run_id == run_id)
        return sorted(found, key=lambda piece: piece.index)

    def published_bytes(self) -> int:
        return sum(piece.file_bytes for piece in self._tables.slices.values())

    def published_slices(self) -> list[Slice]:
        return [piece for piece in self._tables.slices.values() if piece.file]

    def entrants(self, campaign_ids: Sequence[str] | None = None) -> list[Entrant]:
        found = []
        for ordinal, campaign in enumerate(self._tables.campaigns.values()):
            named = campaign_ids is None or campaign.campaign_id in campaign_ids
            lanes = self._waiting_lanes(campaign.campaign_id) if named else ()
            if lanes and self.is_running(campaign.campaign_id):
                rules = campaign.compiled.scheduling
                whose = {"owner": campaign.owner, "project": campaign.project}
                found.append(Entrant(campaign.campaign_id, ordinal, rules, lanes, **whose))
        return found

    def _waiting_lanes(self, campaign_id: str) -> tuple[Lane, ...]:
        waiting = {p.run_id for p in self._tables.slices.values() if p.state == SliceState.WAITING}
        needs = {need_of(r) for r in self.runs(campaign_id) if r.run_id in waiting and not r.holds}
        return tuple(Lane(_lane_id(campaign_id, need), need) for need in sorted(needs))

    def first_waiting(
        self,
        lane_ids: Sequence[int],
        now_ms: int,
        passed: Sequence[tuple[str, int]] = (),
        untried_in: tuple[str, str] | None = None,
    ) -> tuple[Run, Slice] | None:
        found = [
            (run, piece)
            for lane in lane_ids
            for run, piece in self._in_lane(lane)
            if piece.not_before_ms <= now_ms
            and (piece.run_id, piece.index) not in passed
            and not (untried_in and self._has_failed(piece, *untried_in))
        ]
        return min(found, key=lambda each: (each[0].ordinal, each[1].index), default=None)

    def _in_lane(self, lane_id: int) -> Iterator[tuple[Run, Slice]]:
        for run in sorted(self._tables.runs.values(), key=lambda run: run.ordinal):
            is_open = run.state in OPEN_RUNS and not run.holds
            if is_open and _lane_id(run.campaign_id, need_of(run)) == lane_id:
                yield from ((run, p) for p in self.slices(run.run_id) if p.state == SliceState.WAITING)

    def earliest_due_ms(self, lane_id: int) -> int | None:
        return min((piece.not_before_ms for _, piece in self._in_lane(lane_id)), default=None)

    def gpu_uses(self) -> list[GpuUse]:
        found = []
        for each in self._tables.attempts.values():
            run = self._tables.runs[each.key.run_id]
            campaign = self._tables.campaigns[run.campaign_id]
            whose = (campaign.campaign_id, campaign.owner, campaign.project)
            if run.device_key and each.state == AttemptState.LEASED:
                held = GpuUse(*whose, key=each.key, leased_at_ms=each.leased_at_ms, gpus=len(each.slots))
                found.append(held)
            elif run.device_key and each.ended_at_ms:
                hour_end_ms = (each.ended_at_ms // 3_600_000 + 1) * 3_600_000
                seconds = len(each.slots) * (each.ended_at_ms - each.leased_at_ms) / 1000
                found.append(GpuUse(*whose, seconds, hour_end_ms))
        return found

    def held_workloads(self, campaign_id: str) -> set[str]:
        waiting = {p.run_id for p in self._tables.slices.values() if p.state == SliceState.WAITING}
        return {run.workload for run in self.runs(campaign_id) if run.holds and run.run_id in waiting}

    def open_workloads(self, campaign_id: str) -> set[str]:
        return {run.workload for run in self.runs(campaign_id) if run.state in OPEN_RUNS}

    def is_running(self, campaign_id: str) -> bool:
        campaign = self.campaign(campaign_id)
        return campaign is not None and campaign.state == CampaignState.RUNNING and not campaign.paused

    def _has_failed(self, piece: Slice, agent_id: str, slot_id: str) -> bool:
        return any(
            (a.state, a.agent_id) == (AttemptState.FAILED, agent_id) and slot_id in ("", a.slot_id)
            for a in self.attempts(piece.run_id, piece.index)
        )

    def resting_slices(self, now_ms: int) -> list[Slice]:
        pieces = self._tables.slices.values()
        found = [p for p in pieces if p.state == SliceState.WAITING and p.not_before_ms > now_ms]
        return sorted(found, key=lambda piece: (piece.run_id, piece.index))

    def states_beside(self, run_id: str, index: int) -> frozenset[SliceState]:
        return frozenset(piece.state for piece in self.slices(run_id) if piece.index != index)

    def slice_times(self, most: int) -> list[SliceTime]:
        found = []
        for each in sorted(self._tables.attempts.values(), key=lambda each: -each.key.token):
            run = self._tables.runs[each.key.run_id]
            live = run.command is not None and run.level == "detailed" and run.device_key
            if each.state == AttemptState.PUBLISHED and live and run.command is not None:
                piece = self._tables.slices[each.key.run_id, each.key.slice_index]
                found.append(
                    SliceTime(run.run_id, run.workload, run.device_key, run.command, run.counters,
                              piece.launch_skip, piece.launches, _seconds(each))
                )  # fmt: skip
        return found[:most]

    def untried_from(self, run_id: str) -> int:
        return max((each.key.slice_index + 1 for each in self.attempts(run_id)), default=0)

    def seconds_spent(self, run_id: str) -> float:
        return sum(_seconds(each) for each in self.attempts(run_id) if each.ended_at_ms > 0)

    def workload_failures(
        self, campaign_id: str, workload: str
    ) -> list[tuple[tuple[str, ...], Failure | None]]:
        runs = {run.run_id for run in self.runs(campaign_id) if run.workload == workload}
        failed = self.attempts_in([AttemptState.FAILED])
        return [(each.slots, each.failure) for each in failed if each.key.run_id in runs]

    def published_facts(self, run_id: str) -> list[tuple[int, str]]:
        published = [a for a in self.attempts(run_id) if a.state == AttemptState.PUBLISHED]
        return [(each.leased_at_ms, each.log.facts) for each in published]

    def attempt(self, run_id: str, slice_index: int, attempt: int) -> Attempt | None:
        return self._tables.attempts.get((run_id, slice_index, attempt))

    def attempts(self, run_id: str, slice_index: int | None = None) -> list[Attempt]:
        found = [
            each
            for each in self._tables.attempts.values()
            if each.key.run_id == run_id and slice_index in (None, each.key.slice_index)
        ]
        return sorted(found, key=lambda each: (each.key.slice_index, each.key.attempt))

    def attempts_in(
        self,
        states: Sequence[AttemptState],
        *,
        agent_id: str | None = None,
        slot_id: str | None = None,
        lease_ended_before_ms: int | None = None,
    ) -> list[Attempt]:
        found = [
            each
            for each in self._tables.attempts.values()
            if each.state in states
            and agent_id in (None, each.agent_id)
            and slot_id in (None, each.slot_id)
            and (lease_ended_before_ms is None or each.lease_ends_at_ms < lease_ended_before_ms)
        ]
        return sorted(found, key=lambda each: each.key.token)

    def segment(self, key: AttemptKey, index: int) -> Segment | None:
        return self._tables.segments.get((key.run_id, key.slice_index, key.attempt, index))

    def segments(self, key: AttemptKey) -> list[Segment]:
        of = (key.run_id, key.slice_index, key.attempt)
        found = [segment for place, segment in self._tables.segments.items() if place[:3] == of]
        return sorted(found, key=lambda segment: segment.index)

    def held_segments(self, key: AttemptKey) -> dict[int, HeldSegment]:
        of = (key.run_id, key.slice_index, key.attempt)
        return {place[3]: parts for place, parts in self._tables.held.items() if place[:3] == of}

    def _requested(self, asked: RunsRequest) -> list[Run]:
        return [
            run
            for run in self.runs(asked.campaign_id)
            if asked.run_id in ("", run.run_id) and asked.workload in ("", run.workload)
        ]

    def requested_runs(
        self,
        asked: RunsRequest,
        states: Sequence[RunState],
        *,
        paused: bool | None = None,
        first: int = 0,
        most: int = 1,
    ) -> list[tuple[int, str]]:
        found = [
            (run.ordinal, run.run_id)
            for run in self._requested(asked)
            if run.state in states and run.ordinal >= first and paused in (None, run.paused)
        ]
        return found[:most]

    def requested_counts(self, asked: RunsRequest) -> dict[RunState, int]:
        return dict(Counter(run.state for run in self._requested(asked)))

    def requested_attempts(self, asked: RunsRequest, states: Sequence[AttemptState]) -> list[Attempt]:
        run_ids = {run.run_id for run in self._requested(asked)}
        return [each for each in self.attempts_in(states) if each.key.run_id in run_ids]

    def attempts_of(self, run_ids: Sequence[str], states: Sequence[AttemptState]) -> list[Attempt]:
        return [each for each in self.attempts_in(states) if each.key.run_id in set(run_ids)]

    def paused_runs(self, campaign_ids: Sequence[str]) -> dict[str, int]:
        counted = {one: sum(run.paused for run in self.runs(one)) for one in campaign_ids}
        return {campaign_id: runs for campaign_id, runs in counted.items() if runs}

    def pending_requests(self, campaign_id: str | None = None) -> list[PendingRequest]:
        pending = self._tables.requests.values()
        return [each for each in pending if campaign_id in (None, each.asked.campaign_id)]

    def analysis(self, campaign_id: str, workload: str = "") -> Analysis | None:
        return self._tables.analyses.get((campaign_id, workload))

    def due_analyses(self, now_ms: int) -> list[str]:
        asked = [c for c in self._tables.campaigns.values() if c.state is CampaignState.ANALYSING]
        return [c.campaign_id for c in asked if _is_due(self.analysis(c.campaign_id), now_ms)]

    def analysis_parts(self, campaign_id: str) -> list[AnalysisPart]:
        return [part for key, part in sorted(self._tables.parts.items()) if key[0] == campaign_id]

    def agent(self, agent_id: str) -> Agent | None:
        agent, identity = self._tables.agents.get(agent_id), self._tables.identities.get(agent_id)
        if agent is None or identity is None:
            return agent
        return replace(agent, labels=identity.labels)

    def load(self) -> StoreLoad:
        there = [c for c in self._tables.campaigns.values() if c.campaign_id not in self._tables.arriving]
        running = {c.campaign_id for c in there if c.state is CampaignState.RUNNING}
        opened = [r for r in self._tables.runs.values() if r.campaign_id in running and r.state in OPEN_RUNS]
        active = [a for a in self._tables.attempts.values() if a.state in ACTIVE_ATTEMPTS]
        return StoreLoad(
            Counter(c.state for c in there),
            Counter(r.state for r in opened),
            Counter(a.state for a in active),
            sum(len(a.slots) for a in active if a.state is AttemptState.LEASED),
        )

    def sessions(self, agent_ids: Sequence[str]) -> dict[str, AgentSession]:
        known = [agent for agent in self.agents() if agent.agent_id in agent_ids]
        return {agent.agent_id: AgentSession(agent.session_id, agent.seen_at_ms) for agent in known}

    def attempts_by_key(self, keys: Sequence[AttemptKey]) -> list[Attempt]:
        found = [self.attempt(key.run_id, key.slice_index, key.attempt) for key in set(keys)]
        return [attempt for attempt in found if attempt is not None and attempt.key in keys]

    def sessions_and_attempts(
        self, agent_ids: Sequence[str], keys: Sequence[AttemptKey]
    ) -> tuple[dict[str, AgentSession], list[Attempt]]:
        return self.sessions(agent_ids), self.attempts_by_key(keys)

    def agents(self) -> list[Agent]:
        found = (self.agent(agent_id) for agent_id in sorted(self._tables.agents))
        return [agent for agent in found if agent is not None]

    def identity(self, identity_id: str) -> Identity | None:
        return self._tables.identities.get(identity_id)

    def identities(self) -> list[Identity]:
        return sorted(self._tables.identities.values(), key=lambda identity: identity.identity_id)

    def join_tokens(self) -> list[StoredToken]:
        return sorted(self._tables.join_tokens.values(), key=lambda t: (t.created_at_ms, t.token_id))

    def join_token(self, secret_hash: str) -> StoredToken | None:
        return next((t for t in self._tables.join_tokens.values() if t.secret_hash == secret_hash), None)

    def bundle(self, sha256: str) -> KeptBundle | None:
        return self._tables.bundles.get(sha256)

    def bundles(self) -> list[KeptBundle]:
        return [kept for _, kept in sorted(self._tables.bundles.items())]

    def bundle_bytes(self, holder: str) -> tuple[int, int]:
        every = self._tables.bundles.values()
        return sum(b.stored_bytes for b in every if holder in b.holders), sum(b.stored_bytes for b in every)

    def web_logins(self) -> list[WebLogin]:
        return sorted(self._tables.web_logins.values(), key=lambda one: (one.made_at_ms, one.key))

    def web_login(self, key: str) -> WebLogin | None:
        return self._tables.web_logins.get(key)

    def certificates(self, identity_id: str | None = None) -> list[StoredCertificate]:
        chosen = [c for c in self._tables.certificates.values() if identity_id in (None, c.identity_id)]
        return sorted(chosen, key=lambda c: (c.issued_at_ms, c.serial))

    def audit_entries(
        self, *, before: int = 0, most: int = 100, identity: str = "", since_ms: int = 0
    ) -> list[AuditEntry]:
        found = [
            entry
            for number, entry in sorted(self._tables.audit.items(), reverse=True)
            if entry.at_ms >= since_ms
            and (not before or number < before)
            and (not identity or identity in {entry.identity_id, entry.name})
        ]
        return found[:most]


class MemoryTransaction(MemoryReader):
    """A ``MetadataTransaction``."""

    def add_campaign(self, campaign: Campaign, runs: Sequence[Run], slices: Sequence[Slice]) -> None:
        _require(campaign.number not in self.campaign_numbers(campaign.name), "its number is taken")
        _add(self._tables.campaigns, campaign.campaign_id, campaign)
        self.add_runs(runs, slices)

    def begin_arrival(self, campaign: Campaign, mark: str) -> None:
        self.add_campaign(campaign, (), ())
        self._tables.arriving[campaign.campaign_id] = mark

    def end_arrival(self, campaign_id: str) -> None:
        self._tables.arriving.pop(campaign_id, None)

    def give_up_arrival(self, campaign_id: str, most: int) -> bool:
        if campaign_id not in self._tables.arriving:
            return True
        self._tables.arriving[campaign_id] = "given up"
        if runs := [run.run_id for run in self.runs(campaign_id)][:most]:
            self.delete_runs(runs)
            return False
        del self._tables.arriving[campaign_id], self._tables.campaigns[campaign_id]
        return True

    def add_runs(self, runs: Sequence[Run], slices: Sequence[Slice]) -> None:
        for run in runs:
            _require(run.campaign_id in self._tables.campaigns, "there is no such campaign")
            taken = {each.ordinal for each in self.runs(run.campaign_id)}
            _require(run.ordinal not in taken, "its place in the campaign is taken")
            _add(self._tables.runs, run.run_id, run)
        self._add_slices(slices)

    def _add_slices(self, slices: Iterable[Slice]) -> None:
        for piece in slices:
            _require(piece.run_id in self._tables.runs, "there is no such run")
            _add(self._tables.slices, (piece.run_id, piece.index), piece)

    def save_campaign(self, campaign: Campaign) -> None:
        _replace(self._tables.campaigns, campaign.campaign_id, campaign, "campaign_id")

    def save_run(self, run: Run) -> None:
        known = self._tables.runs.get(run.run_id, run)
        _replace(self._tables.runs, run.run_id, replace(run, holds=known.holds), "run_id")

    def set_holds(self, run_ids: Sequence[str], holds: Collection[Hold]) -> None:
        for run_id in run_ids:
            held = replace(self._tables.runs[run_id], holds=tuple(sorted(set(holds))))
            self._tables.runs[run_id] = held

    def save_slice(self, piece: Slice) -> None:
        _replace(self._tables.slices, (piece.run_id, piece.index), piece, "slice")

    def replace_slices(self, run_id: str, index: int, slices: Sequence[Slice]) -> None:
        _require(self.untried_from(run_id) <= index, "one of the slices was tried")
        for piece in self.slices(run_id):
            if piece.index >= index:
                del self._tables.slices[run_id, piece.index]
        self._add_slices(slices)

    def pause_runs(self, run_ids: Sequence[str], paused: bool) -> None:
        for run_id in run_ids:
            others = set(self._tables.runs[run_id].holds) - {Hold.PAUSED}
            self.set_holds([run_id], others | {Hold.PAUSED} if paused else others)

    def cancel_runs(self, run_ids: Sequence[str]) -> None:
        self.pause_runs(run_ids, False)
        for run_id in run_ids:
            for piece in self.slices(run_id):
                if piece.state in (SliceState.WAITING, SliceState.LEASED):
                    self.save_slice(replace(piece, state=SliceState.CANCELLED))
            run = self._tables.runs[run_id]
            self.save_run(replace(run, state=RunState.CANCELLED, failure=None))

    def retry_runs(self, run_ids: Sequence[str]) -> None:
        for run_id in run_ids:
            slices = self.slices(run_id)
            for piece in slices:
                if piece.state in (SliceState.FAILED, SliceState.CANCELLED):
                    earlier = self.attempts(run_id, piece.index)
                    tries_from = earlier[-1].key.attempt + 1 if earlier else 1
                    waiting = replace(piece, state=SliceState.WAITING, not_before_ms=0, tries_from=tries_from)
                    self.save_slice(waiting)
            begun = any(piece.state is SliceState.DONE for piece in slices)
            state = RunState.RUNNING if begun else RunState.WAITING
            self.save_run(replace(self._tables.runs[run_id], state=state, failure=None))

    def add_request(self, request: PendingRequest) -> PendingRequest:
        numbered = replace(request, request_id=max(self._tables.requests, default=0) + 1)
        _add(self._tables.requests, numbered.request_id, numbered)
        return numbered

    def save_request(self, request: PendingRequest) -> None:
        _replace(self._tables.requests, request.request_id, request, "request_id")

    def end_request(self, request_id: int) -> None:
        del self._tables.requests[request_id]

    def save_analysis(self, analysis: Analysis, after_token: int) -> bool:
        _require(analysis.campaign_id in self._tables.campaigns, "there is no such campaign")
        known = self.analysis(analysis.campaign_id, analysis.workload)
        if (0 if known is None else known.token) != after_token:
            return False
        self._tables.analyses[(analysis.campaign_id, analysis.workload)] = analysis
        return True

    def free_analyses(self) -> None:
        for key, each in self._tables.analyses.items():
            if each.state is AnalysisState.LEASED:
                self._tables.analyses[key] = replace(each, lease_ends_at_ms=0)

    def keep_analysis_part(self, part: AnalysisPart) -> None:
        _require(part.campaign_id in self._tables.campaigns, "there is no such campaign")
        self._tables.parts[(part.campaign_id, part.workload)] = part

    def forget_analysis_parts(self, campaign_id: str) -> None:
        for key in [key for key in self._tables.parts if key[0] == campaign_id]:
            del self._tables.parts[key]

    def forget_old_analysis_parts(self, before_ms: int) -> None:
        for key, part in list(self._tables.parts.items()):
            analysing = self._tables.campaigns[key[0]].state is CampaignState.ANALYSING
            if part.kept_at_ms < before_ms and not analysing:
                del self._tables.parts[key]

    def next_token(self) -> int:
        self._tables.token += 1
        return self._tables.token

    def begin_epoch(self, now_ms: int) -> int:
        epoch, self._tables.token = first_of_epoch(self._tables.token, now_ms)
        return epoch

    def fetch_attempts(self, keys: Sequence[AttemptKey], *, ending: bool = False) -> None:
        """Everything is at hand."""

    def fetch_slots(
        self, places: Sequence[tuple[str, str]], likely: Callable[[], Sequence[LikelyLeases]], now_ms: int
    ) -> None:
        """Everything is at hand."""

    def next_attempt(self, run_id: str, slice_index: int) -> tuple[list[Attempt], int]:
        return self.attempts(run_id, slice_index), self.next_token()

    def add_attempt(self, attempt: Attempt) -> None:
        key = attempt.key
        _require((key.run_id, key.slice_index) in self._tables.slices, "there is no such slice")
        tokens = {each.key.token for each in self._tables.attempts.values()}
        _require(key.token not in tokens, "its token is taken")
        _add(self._tables.attempts, (key.run_id, key.slice_index, key.attempt), _as_stored(attempt))
        self._check_leases(attempt)

    def save_attempt(self, attempt: Attempt) -> None:
        key = attempt.key
        stored = _as_stored(attempt)
        _replace(self._tables.attempts, (key.run_id, key.slice_index, key.attempt), stored, "attempt")
        self._check_leases(attempt)

    def _check_leases(self, attempt: Attempt) -> None:
        others = [each for each in self._tables.attempts.values() if each.key != attempt.key]
        same_slice = [
            a
            for a in others
            if (a.key.run_id, a.key.slice_index) == (attempt.key.run_id, attempt.key.slice_index)
        ]
        same_slot = [a for a in others if (a.agent_id, a.slot_id) == (attempt.agent_id, attempt.slot_id)]
        rules: list[tuple[list[Attempt], tuple[AttemptState, ...], str]] = [
            (same_slice, ACTIVE_ATTEMPTS, "its slice has an active attempt"),
            (same_slot, (AttemptState.LEASED,), "its slot has a lease"),
            (same_slice, (AttemptState.PUBLISHED,), "its slice is published"),
        ]
        for rivals, states, cause in rules:
            _require(attempt.state not in states or all(a.state not in states for a in rivals), cause)

    def add_segments(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            of = (segment.run_id, segment.slice, segment.attempt)
            _require(of in self._tables.attempts, "there is no such attempt")
            _add(self._tables.segments, (*of, segment.index), segment)

    def hold_segment(self, segment: Segment, parts: HeldSegment) -> None:
        place = (segment.run_id, segment.slice, segment.attempt, segment.index)
        _require(place in self._tables.segments, "there is no such segment")
        _add(self._tables.held, place, parts)

    def release_segments(self, key: AttemptKey) -> None:
        of, held = (key.run_id, key.slice_index, key.attempt), self._tables.held
        self._tables.held = {place: parts for place, parts in held.items() if place[:3] != of}

    def release_ended(self) -> None:
        unended = (AttemptState.LEASED, AttemptState.PUBLISHING, AttemptState.EXPIRED)
        for place in list(self._tables.held):
            if self._tables.attempts[place[:3]].state not in unended:
                del self._tables.held[place]

    def delete_runs(self, run_ids: Sequence[str]) -> None:
        tables = self._tables
        gone = set(run_ids)
        tables.held = {place: parts for place, parts in tables.held.items() if place[0] not in gone}
        tables.segments = {k: v for k, v in tables.segments.items() if v.run_id not in gone}
        tables.attempts = {k: v for k, v in tables.attempts.items() if v.key.run_id not in gone}
        tables.slices = {k: v for k, v in tables.slices.items() if v.run_id not in gone}
        tables.runs = {k: v for k, v in tables.runs.items() if v.run_id not in gone}

    def delete_campaign(self, campaign: Campaign) -> None:
        _require(not self.runs(campaign.campaign_id), "it has runs")
        self._tables.campaigns.pop(campaign.campaign_id, None)
        for key in [key for key in self._tables.analyses if key[0] == campaign.campaign_id]:
            del self._tables.analyses[key]
        self.forget_analysis_parts(campaign.campaign_id)
        last = max(self._tables.deleted_numbers.get(campaign.name, 0), campaign.number)
        self._tables.deleted_numbers[campaign.name] = last

    def forget_logs(self, before_ms: int, most: int, told: str) -> int:
        old = []
        for each in self._tables.attempts.values():
            campaign = self._tables.campaigns[self._tables.runs[each.key.run_id].campaign_id]
            ended = campaign.state in ENDED_CAMPAIGNS and campaign.ended_at_ms < before_ms
            if (
                ended
                and each.state in (*_FRUITLESS, AttemptState.EXPIRED)
                and each.log.text not in ("", told)
            ):
                old.append(each)
        for each in old[:most]:
            self.save_attempt(replace(each, log=replace(each.log, text=told, telemetry_json="")))
        return len(old[:most])

    def put_agent(self, agent: Agent) -> None:
        self._tables.agents[agent.agent_id] = agent

    def put_identity(self, identity: Identity) -> None:
        self._tables.identities[identity.identity_id] = identity

    def saw_agents(self, agent_ids: Sequence[str], now_ms: int) -> None:
        for agent_id in agent_ids:
            known = self._tables.agents[agent_id]
            self._tables.agents[agent_id] = replace(known, seen_at_ms=now_ms)

    def extend_attempts(self, progress: Sequence[tuple[AttemptKey, int]], lease_ends_at_ms: int) -> None:
        for key, spooled in progress:
            known = self.attempt(key.run_id, key.slice_index, key.attempt)
            assert known is not None
            more = max(known.launches_spooled, spooled)
            self.save_attempt(
                replace(known, lease_ends_at_ms=lease_ends_at_ms, confirmed=True, launches_spooled=more)
            )

    def put_join_token(self, token: StoredToken) -> None:
        same = self.join_token(token.secret_hash)
        if same is not None and same.token_id != token.token_id:
            raise StorageError("metadata", "two tokens with one secret")
        self._tables.join_tokens[token.token_id] = token

    def forget_join_tokens(self, expired_before_ms: int) -> None:
        kept = self._tables.join_tokens.items()
        self._tables.join_tokens = {k: t for k, t in kept if t.expires_at_ms >= expired_before_ms}

    def put_certificate(self, certificate: StoredCertificate) -> None:
        self._tables.certificates[certificate.serial] = certificate

    def put_bundle(self, kept: KeptBundle) -> None:
        self._tables.bundles[kept.bundle.sha256] = kept

    def delete_bundle(self, sha256: str) -> None:
        self._tables.bundles.pop(sha256, None)

    def put_web_login(self, login: WebLogin) -> None:
        self._tables.web_logins[login.key] = login

    def forget_web_logins(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._tables.web_logins.pop(key, None)

    def forget_certificate(self, serial: str) -> None:
        self._tables.certificates.pop(serial, None)

    def add_audit(self, entry: AuditEntry) -> None:
        self._tables.audited += 1
        self._tables.audit[self._tables.audited] = replace(entry, entry_id=self._tables.audited)

    def forget_audit(self, before_ms: int) -> None:
        for number, entry in list(self._tables.audit.items()):
            if entry.at_ms < before_ms:
                del self._tables.audit[number]

    def forget_agents(self, most: int) -> None:
        seen = sorted(self._tables.agents.values(), key=lambda agent: (-agent.seen_at_ms, agent.agent_id))
        busy = {each.agent_id for each in self.attempts_in([AttemptState.LEASED])}
        for agent in seen[most:]:
            if agent.agent_id not in busy:
                del self._tables.agents[agent.agent_id]


def _partitioned(run: Run) -> bool:
    return run.condition.sm_share == "partition"


def _lane_id(campaign_id: str, need: Need) -> int:
    return hash((campaign_id, need))


def _seconds(attempt: Attempt) -> float:
    """How long its tools ran; where its agent did not say, how long it had its lease."""
    return attempt.log.wall_seconds or (attempt.ended_at_ms - attempt.leased_at_ms) / 1000.0


def _is_due(analysis: Analysis | None, now_ms: int) -> bool:
    if analysis is None:
        return True
    leased = analysis.state is AnalysisState.LEASED
    return (analysis.lease_ends_at_ms if leased else analysis.not_before_ms) <= now_ms


def _require(holds: bool, cause: str) -> None:
    if not holds:
        raise StorageError("metadata in memory", cause)


def _add(table: dict[Any, Any], key: object, record: object) -> None:
    _require(key not in table, f"{key} is there already")
    table[key] = record


def _replace(table: dict[Any, Any], key: object, record: object, named: str) -> None:
    _require(key in table, f"there is no record {named}={key} to replace")
    table[key] = record


def _as_stored(attempt: Attempt) -> Attempt:
    """The attempt as databases keep it: no NUL in texts, no number that is not finite."""
    finite(attempt.log.wall_seconds)
    failure = attempt.failure
    if failure is not None:
        failure = replace(failure, cause=without_nul(failure.cause))
    return replace(attempt, failure=failure, log=replace(attempt.log, text=without_nul(attempt.log.text)))
