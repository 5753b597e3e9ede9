"""The metadata store's transaction over SQL: plain SQLAlchemy Core, without dialects.

Records that a transaction has read or written it need not read again, because nobody else writes meanwhile.
So a record that is saved changes only the columns that differ.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from assay_core.records.attempt import AttemptKey, AttemptLog
from assay_core.records.campaign import AttemptState, CampaignState, RunState
from assay_core.records.failure import Failure
from assay_core.records.lab import AuditEntry
from assay_core.records.machine import InstalledDevice, Inventory, Slot
from assay_core.records.runs_request import RunsRequest
from assay_core.records.upload import Bundle
from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.work import CommandSource, RecordedSource
from assay_sampling.errors import StorageError
from assay_sampling.launches.table import Condition
from assay_server.campaign_file.compiled import CompiledCampaign
from assay_server.campaign_file.placement import Placement
from assay_server.campaign_file.slices.chosen import SlicePlan
from assay_server.store import heartbeats, statements, tables
from assay_server.store.access import audit, certificates, identities
from assay_server.store.connections.prepared import Driver
from assay_server.store.model import (
    OPEN_RUNS,
    Agent,
    AgentSession,
    Attempt,
    Campaign,
    CampaignOverview,
    CampaignProgress,
    Entrant,
    GpuUse,
    Hold,
    Identity,
    Need,
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
    WorkloadCost,
    need_of,
)
from assay_server.store.rows import costing, deleting, queue, selected_runs
from assay_server.store.sight import EVERYTHING, Belonging, Sight
from assay_server.store.tokens import first_of_epoch

Row = Mapping[Any, Any]
Record = TypeVar("Record")


class SqlTransaction:
    """A ``MetadataTransaction``: reads and writes inside one connection's current transaction."""

    def __init__(self, connection: sa.Connection, driver: Driver) -> None:
        self._connection = connection
        self._driver = driver
        self._known: dict[tuple[Any, ...], Any] = {}  # by table and key

    def campaign(self, campaign_id: str) -> Campaign | None:
        return self._by_key(tables.campaigns, (campaign_id,), _campaign)

    def belongs_to(self, campaign_id: str) -> Belonging | None:
        c = tables.campaigns.c
        query = sa.select(c.owner, c.project).where(c.campaign_id == campaign_id)
        return next((Belonging(**row) for row in self._rows(query)), None)

    def campaigns(
        self, *, first: int = 0, most: int | None = None, sight: Sight = EVERYTHING
    ) -> list[CampaignOverview]:
        c = tables.campaigns.c
        columns = [c[item.name] for item in dataclasses.fields(CampaignOverview)]
        query = sa.select(*columns).where(c.ordinal >= first).order_by(c.ordinal).limit(most)
        if not sight.everything:
            query = query.where(sa.or_(c.owner == sight.identity_id, c.project == sight.project))
        return [_campaign_overview(row) for row in self._rows(query)]

    def campaign_numbers(self, name: str) -> list[int]:
        query = sa.select(tables.campaigns.c.number).where(tables.campaigns.c.name == name)
        deleted = deleting.deleted_number(self._connection, name)
        return [*self._connection.scalars(query), *([deleted] if deleted else [])]

    def run(self, run_id: str) -> Run | None:
        return self._by_key(tables.runs, (run_id,), _run)

    def runs(self, campaign_id: str) -> list[Run]:
        query = sa.select(tables.runs).where(tables.runs.c.campaign_id == campaign_id)
        return [_run(row) for row in self._rows(query.order_by(tables.runs.c.ordinal))]

    def campaign_of(self, run_id: str) -> str | None:
        known: Run | None = self._known.get((tables.runs.name, run_id))
        if known is not None:
            return known.campaign_id
        found: str | None = self._driver.scalar(statements.campaign_of(), {"run_id": run_id})
        return found

    def run_counts(self, campaign_id: str) -> dict[RunState, int]:
        return self.counts_of_runs([campaign_id])[campaign_id]

    def counts_of_runs(self, campaign_ids: Sequence[str]) -> dict[str, dict[RunState, int]]:
        r = tables.runs.c
        query = sa.select(r.campaign_id, r.state, sa.func.count().label("runs"))
        query = query.where(r.campaign_id.in_(campaign_ids)).group_by(r.campaign_id, r.state)
        counts: dict[str, dict[RunState, int]] = {campaign_id: {} for campaign_id in campaign_ids}
        for row in self._rows(query):
            counts[row["campaign_id"]][RunState(row["state"])] = int(row["runs"])
        return counts

    def runs_alike(self, campaign_id: str) -> list[RunsAlike]:
        r = tables.runs.c
        kind = (r.workload, r.device_kind, r.state)
        first = sa.func.min(r.ordinal)
        query = sa.select(*kind, sa.func.count().label("runs")).where(r.campaign_id == campaign_id)
        found = self._rows(query.group_by(*kind).order_by(first))
        return [
            RunsAlike(f["workload"], f["device_kind"], RunState(f["state"]), int(f["runs"])) for f in found
        ]

    def noted_runs(self, campaign_id: str, most: int) -> list[Run]:
        r = tables.runs.c
        noted = sa.or_(r.failure.is_not(None), sa.cast(r.flags, sa.Text) != "[]")
        query = sa.select(tables.runs).where(r.campaign_id == campaign_id, noted)
        return [_run(row) for row in self._rows(query.order_by(r.ordinal).limit(most))]

    def open_runs(self, campaign_id: str) -> int:
        r = tables.runs.c
        query = sa.select(sa.func.count()).where(
            r.campaign_id == campaign_id, r.state.in_([str(state) for state in OPEN_RUNS])
        )
        return int(self._connection.scalar(query) or 0)

    def has_open_runs(self, campaign_id: str) -> bool:
        return self._driver.scalar(statements.an_open_run(), {"campaign_id": campaign_id}) is not None

    def run_overviews(
        self, campaign_id: str, run_id: str | None = None, *, first: int = 0, most: int | None = None
    ) -> list[RunOverview]:
        r = tables.runs.c
        within = [r.campaign_id == campaign_id, r.ordinal >= first]
        if run_id is not None:
            within.append(r.run_id == run_id)
        query = sa.select(tables.runs).where(*within).order_by(r.ordinal).limit(most)
        runs = [_run(row) for row in self._rows(query)]
        if not runs:
            return []
        chosen = sa.select(r.run_id).where(*within, r.ordinal <= runs[-1].ordinal)
        a = tables.attempts.c
        columns = (a.run_id, a.slice, a.token, a.state, a.agent_name, a.launches, a.launches_spooled)
        attempts: dict[str, list[Row]] = {}
        query = sa.select(*columns).where(a.run_id.in_(chosen)).order_by(a.token)
        for row in self._rows(query):
            attempts.setdefault(row["run_id"], []).append(row)
        s, slices = tables.slices.c, dict[str, dict[str, int]]()
        query = sa.select(s.run_id, s.state, sa.func.count().label("slices")).where(s.run_id.in_(chosen))
        for row in self._rows(query.group_by(s.run_id, s.state)):
            slices.setdefault(row["run_id"], {})[row["state"]] = row["slices"]
        return [_overview(run, attempts.get(run.run_id, []), slices.get(run.run_id, {})) for run in runs]

    def progress(self, campaign_id: str) -> CampaignProgress:
        given = {"campaign_id": campaign_id}
        [counted] = self._rows(statements.slice_counts(), given)
        campaign = self.campaign(campaign_id)
        slicing = None if campaign is None else campaign.compiled.slicing
        by_light = slicing is not None and slicing.by_light
        found = self._rows(statements.needs_of_open_runs(by_light), given)
        needs = [(run, int(row["runs"])) for row in found if (run := self.run(row["run_id"])) is not None]
        return CampaignProgress(
            int(counted["slices"]),
            int(counted["slices_done"] or 0),
            int(self._connection.scalar(statements.retries(), given) or 0),
            tuple(needs),
            frozenset(row["run_id"] for row in found if row["awaits"]),
        )

    def workload_costs(self, campaign_id: str, now_ms: int) -> list[WorkloadCost]:
        given = {"campaign_id": campaign_id}
        costs: dict[tuple[str, str, str], WorkloadCost] = {}
        for row in self._rows(costing.open_slices(), given):
            key = (row["workload"], row["device_key"], row["level"])
            costs[key] = WorkloadCost(*key, open_slices=int(row["slices"]))
        for row in self._rows(costing.spent(), {**given, "now_ms": now_ms}):
            key = (row["workload"], row["device_key"], row["level"])
            costs[key] = dataclasses.replace(
                costs.get(key, WorkloadCost(*key)),
                published=int(row["published"]),
                published_seconds=float(row["published_seconds"]),
                gpu_seconds=float(row["held_ms"]) / 1000 if row["device_key"] else 0.0,
                gpus=int(row["gpus"]),
            )
        return [costs[key] for key in sorted(costs)]

    def slice(self, run_id: str, index: int) -> Slice | None:
        return self._by_key(tables.slices, (run_id, index), _slice)

    def slices(self, run_id: str) -> list[Slice]:
        return [_slice(row) for row in self._driver.rows(statements.slices_of(), {"run_id": run_id})]

    def published_slices(self) -> list[Slice]:
        query = sa.select(*_SLICE).where(tables.slices.c.file != "")
        return [_slice(row) for row in self._rows(query)]

    def entrants(self, campaign_ids: Sequence[str] | None = None) -> list[Entrant]:
        given = {} if campaign_ids is None else {"campaign_ids": list(campaign_ids)}
        return queue.entrants_from(list(self._rows(queue.entrants(bool(given)), given)))

    def first_waiting(
        self,
        lane_ids: Sequence[int],
        now_ms: int,
        passed: Sequence[tuple[str, int]] = (),
        untried_in: tuple[str, str] | None = None,
    ) -> tuple[Run, Slice] | None:
        given: dict[str, Any] = {"now_ms": now_ms}
        if passed:
            given["passed"] = list(passed)
        if untried_in:
            given |= {"untried_agent": untried_in[0], "untried_slot": untried_in[1]}
        query = queue.first_of_lane(bool(passed), bool(untried_in))
        # A list of slices in a statement has another length each time, so that only SQLAlchemy can run it.
        rows = self._rows if passed else self._driver.rows
        found = [row for lane in lane_ids for row in rows(query, {**given, "lane": lane})]
        if not found:
            return None
        first = min(found, key=lambda row: int(row["ordinal"]))
        run, piece = self.run(first["run_id"]), self.slice(first["run_id"], first["index"])
        return None if run is None or piece is None else (run, piece)

    def earliest_due_ms(self, lane_id: int) -> int | None:
        found = self._driver.scalar(queue.earliest_of_lane(), {"lane": lane_id})
        return None if found is None else int(found)

    def gpu_uses(self) -> list[GpuUse]:
        ended, held = self._rows(queue.gpu_seconds()), self._rows(queue.gpus_held())
        return queue.gpu_uses_from(list(ended), list(held))

    def held_workloads(self, campaign_id: str) -> set[str]:
        rows = self._driver.rows(queue.held_workloads(), {"campaign_id": campaign_id})
        return {row["workload"] for row in rows}

    def open_workloads(self, campaign_id: str) -> set[str]:
        r = tables.runs.c
        query = sa.select(r.workload).where(
            r.campaign_id == campaign_id, r.state.in_([str(state) for state in OPEN_RUNS])
        )
        return set(self._connection.scalars(query.distinct()))

    def is_running(self, campaign_id: str) -> bool:
        found = self._driver.first(statements.course_of_campaign(), {"campaign_id": campaign_id})
        return found is not None and found["state"] == CampaignState.RUNNING and not found["paused"]

    def resting_slices(self, now_ms: int) -> list[Slice]:
        s = tables.slices.c
        query = sa.select(*_SLICE).where(s.state == str(SliceState.WAITING), s.not_before_ms > now_ms)
        return [_slice(row) for row in self._rows(query.order_by(s.run_id, s.index))]

    def slice_states(self, run_id: str) -> list[SliceState]:
        rows = self._driver.rows(statements.slice_states(), {"run_id": run_id})
        return [SliceState(row["state"]) for row in rows]

    def slice_times(self, most: int) -> list[SliceTime]:
        return [_slice_time(row) for row in self._rows(statements.slice_times(), {"most": most})]

    def untried_from(self, run_id: str) -> int:
        a = tables.attempts.c
        last = self._connection.scalar(sa.select(sa.func.max(a.slice)).where(a.run_id == run_id))
        return 0 if last is None else int(last) + 1

    def seconds_spent(self, run_id: str) -> float:
        return float(self._connection.scalar(statements.seconds_spent(), {"run_id": run_id}) or 0.0)

    def workload_failures(
        self, campaign_id: str, workload: str
    ) -> list[tuple[tuple[str, ...], Failure | None]]:
        given = {"campaign_id": campaign_id, "workload": workload}
        rows = self._rows(statements.workload_failures(), given)
        return [((row["slot_id"], *row["gang"]), _failure(row["failure"])) for row in rows]

    def published_facts(self, run_id: str) -> list[tuple[int, str]]:
        rows = self._rows(statements.published_facts(), {"run_id": run_id})
        return [(int(row["leased_at_ms"]), row["facts"]) for row in rows]

    def attempt(self, run_id: str, slice_index: int, attempt: int) -> Attempt | None:
        return self._by_key(tables.attempts, (run_id, slice_index, attempt), _attempt)

    def attempts(self, run_id: str, slice_index: int | None = None) -> list[Attempt]:
        given = {"run_id": run_id} if slice_index is None else {"run_id": run_id, "slice": slice_index}
        return self._attempts(self._driver.rows(statements.attempts_of(tuple(given)), given))

    def attempts_in(
        self,
        states: Sequence[AttemptState],
        *,
        agent_id: str | None = None,
        slot_id: str | None = None,
        lease_ended_before_ms: int | None = None,
    ) -> list[Attempt]:
        wanted = {"agent_id": agent_id, "slot_id": slot_id, "lease_ended_before_ms": lease_ended_before_ms}
        given = {name: value for name, value in wanted.items() if value is not None}
        if agent_id is not None and tuple(states) == (AttemptState.LEASED,):
            return self._attempts(self._driver.rows(statements.leases_of(tuple(given)), given))
        rows = self._rows(statements.attempts_in(tuple(given)), {"states": [str(s) for s in states], **given})
        return [_attempt(row) for row in rows]

    def segment(self, key: AttemptKey, index: int) -> Segment | None:
        return self._by_key(tables.segments, (key.run_id, key.slice_index, key.attempt, index), _segment)

    def segments(self, key: AttemptKey) -> list[Segment]:
        given = {"run_id": key.run_id, "slice": key.slice_index, "attempt": key.attempt}
        return [_segment(row) for row in self._driver.rows(statements.segments_of(), given)]

    def requested_runs(
        self,
        asked: RunsRequest,
        states: Sequence[RunState],
        *,
        paused: bool | None = None,
        first: int = 0,
        most: int = 1,
    ) -> list[tuple[int, str]]:
        query = selected_runs.select_places(asked, states, paused=paused, first=first, most=most)
        return [(int(row["ordinal"]), row["run_id"]) for row in self._rows(query)]

    def requested_counts(self, asked: RunsRequest) -> dict[RunState, int]:
        rows = self._rows(selected_runs.select_counts(asked))
        return {RunState(row["state"]): int(row["runs"]) for row in rows}

    def requested_attempts(self, asked: RunsRequest, states: Sequence[AttemptState]) -> list[Attempt]:
        return [_attempt(row) for row in self._rows(selected_runs.select_attempts(asked, states))]

    def attempts_of(self, run_ids: Sequence[str], states: Sequence[AttemptState]) -> list[Attempt]:
        return [_attempt(row) for row in self._rows(selected_runs.select_attempts_of(run_ids, states))]

    def paused_runs(self, campaign_ids: Sequence[str]) -> dict[str, int]:
        rows = self._rows(selected_runs.select_paused(campaign_ids))
        return {row["campaign_id"]: int(row["runs"]) for row in rows}

    def pending_requests(self, campaign_id: str | None = None) -> list[PendingRequest]:
        q = tables.requests.c
        query = sa.select(tables.requests).order_by(q.request_id)
        if campaign_id is not None:
            query = query.where(q.campaign_id == campaign_id)
        return [selected_runs.request_of(row) for row in self._rows(query)]

    def agent(self, agent_id: str) -> Agent | None:
        found: Agent | None = self._known.get((tables.agents.name, agent_id))
        if found is None:
            row = self._driver.first(statements.agent_with_labels(), {"agent_id": agent_id})
            found = None if row is None else self._keep(tables.agents, (agent_id,), _agent(row))
        return found

    def load(self) -> StoreLoad:
        def counted(query: sa.Select[Any]) -> dict[str, int]:
            return {row["state"]: int(row["number"]) for row in self._rows(query)}

        active = {
            AttemptState(row["state"]): row for row in self._rows(statements.active_attempts_by_state())
        }
        leased = active.get(AttemptState.LEASED)
        return StoreLoad(
            {CampaignState(s): n for s, n in counted(statements.campaigns_by_state()).items()},
            {RunState(s): n for s, n in counted(statements.open_runs_by_state()).items()},
            {state: int(row["number"]) for state, row in active.items()},
            0 if leased is None else int(leased["number"]) + int(leased["others"]),
        )

    def sessions(self, agent_ids: Sequence[str]) -> dict[str, AgentSession]:
        return heartbeats.sessions(self._connection, agent_ids)

    def attempts_by_key(self, keys: Sequence[AttemptKey]) -> list[Attempt]:
        found = [_attempt(row) for row in heartbeats.attempts_by_key(self._connection, keys)]
        wanted = set(keys)
        return [attempt for attempt in found if attempt.key in wanted]

    def agents(self) -> list[Agent]:
        query = statements.agents_with_labels().order_by(tables.agents.c.agent_id)
        return [_agent(row) for row in self._rows(query)]

    def identity(self, identity_id: str) -> Identity | None:
        return identities.identity(self._connection, identity_id)

    def identities(self) -> list[Identity]:
        return identities.all_identities(self._connection)

    def join_tokens(self) -> list[StoredToken]:
        return certificates.all_tokens(self._connection)

    def join_token(self, secret_hash: str) -> StoredToken | None:
        return certificates.token_of(self._connection, secret_hash)

    def certificates(self, identity_id: str | None = None) -> list[StoredCertificate]:
        return certificates.certificates(self._connection, identity_id)

    def audit_entries(
        self, *, before: int = 0, most: int = 100, identity: str = "", since_ms: int = 0
    ) -> list[AuditEntry]:
        return audit.entries(self._connection, before, most, identity, since_ms)

    def add_campaign(self, campaign: Campaign, runs: Sequence[Run], slices: Sequence[Slice]) -> None:
        self._known.clear()
        last = self._connection.scalar(sa.select(sa.func.max(tables.campaigns.c.ordinal)))
        values = {**_campaign_values(campaign), "ordinal": 0 if last is None else last + 1}
        self._write(sa.insert(tables.campaigns), [values])
        self.add_runs(runs, slices)

    def add_runs(self, runs: Sequence[Run], slices: Sequence[Slice]) -> None:
        self._known.clear()
        insert = statements.insert_into(tables.runs)
        self._driver.insert_copies(insert, runs, _new_run_values, ("run_id", "ordinal", "repeat"))
        self._add_slices(slices, runs)

    def _add_slices(self, slices: Sequence[Slice], runs: Sequence[Run]) -> None:
        """Insert slices of these runs into their lanes."""
        lanes: dict[tuple[int, ...], int] = {}
        places = {}
        for run in runs:
            # Most runs of a campaign share these very objects; to compare them by value takes long.
            alike = tuple(map(id, _OF_NEED(run)))
            if alike not in lanes:
                lanes[alike] = self._lane(run.campaign_id, need_of(run))
            lane = -lanes[alike] if run.holds else lanes[alike]
            places[run.run_id] = {"lane": lane, "ordinal": run.ordinal}
        rows = (_slice_values(piece) | places[piece.run_id] for piece in slices)
        self._driver.insert(statements.insert_into(tables.slices), tables.slices.c.keys(), rows)

    def _lane(self, campaign_id: str, need: Need) -> int:
        """The lane of a need in a campaign, made at its first use."""
        lane, values = tables.lanes.c, {"campaign_id": campaign_id, "need": queue.need_text(need)}
        where = (lane.campaign_id == values["campaign_id"], lane.need == values["need"])
        query = sa.select(lane.lane_id).where(*where)
        found = self._connection.scalar(query)
        if found is None:
            self._write(sa.insert(tables.lanes), [values])
            found = self._connection.scalar(query)
        return int(found or 0)

    def set_holds(self, run_ids: Sequence[str], holds: Collection[Hold]) -> None:
        r, s = tables.runs.c, tables.slices.c
        kept = sorted(str(hold) for hold in set(holds))
        self._write(sa.update(tables.runs).where(r.run_id.in_(run_ids)).values(holds=kept))
        lane = queue.lane_of_holds(bool(kept))
        self._write(sa.update(tables.slices).where(s.run_id.in_(run_ids)).values(lane=lane))

    def save_campaign(self, campaign: Campaign) -> None:
        self._save(tables.campaigns, (campaign.campaign_id,), campaign, _campaign_values)

    def save_run(self, run: Run) -> None:
        known: Run | None = self._known.get((tables.runs.name, run.run_id))
        if known is not None:  # its holds stay as they are
            run = dataclasses.replace(run, holds=known.holds)
        self._save(tables.runs, (run.run_id,), run, _run_values)

    def save_slice(self, piece: Slice) -> None:
        self._save(tables.slices, (piece.run_id, piece.index), piece, _slice_values)

    def replace_slices(self, run_id: str, index: int, slices: Sequence[Slice]) -> None:
        s = tables.slices.c
        self._write(sa.delete(tables.slices).where(s.run_id == run_id, s.index >= index))
        run = self.run(run_id)
        self._add_slices(slices, [] if run is None else [run])

    def pause_runs(self, run_ids: Sequence[str], paused: bool) -> None:
        # Runs with the same holds are changed together.
        changed: dict[frozenset[Hold], list[str]] = {}
        for row in self._rows(selected_runs.select_holds(run_ids)):
            holds = frozenset(Hold(hold) for hold in row["holds"])
            if (Hold.PAUSED in holds) is not paused:
                changed.setdefault(holds ^ {Hold.PAUSED}, []).append(row["run_id"])
        for holds, of_these in changed.items():
            self.set_holds(of_these, holds)

    def cancel_runs(self, run_ids: Sequence[str]) -> None:
        self.pause_runs(run_ids, False)
        for statement in selected_runs.cancelling(run_ids):
            self._write(statement)

    def retry_runs(self, run_ids: Sequence[str]) -> None:
        for statement in selected_runs.retrying(run_ids):
            self._write(statement)

    def add_request(self, request: PendingRequest) -> PendingRequest:
        last = self._connection.scalar(sa.select(sa.func.max(tables.requests.c.request_id)))
        numbered = dataclasses.replace(request, request_id=1 if last is None else int(last) + 1)
        self._write(sa.insert(tables.requests), [selected_runs.request_values(numbered)])
        return numbered

    def save_request(self, request: PendingRequest) -> None:
        self._replace(tables.requests, selected_runs.request_values(request), (request.request_id,))

    def end_request(self, request_id: int) -> None:
        self._write(sa.delete(tables.requests).where(tables.requests.c.request_id == request_id))

    def next_token(self) -> int:
        token = self._last_token() + 1
        self._keep_token(token)
        return token

    def begin_epoch(self, now_ms: int) -> int:
        epoch, token = first_of_epoch(self._last_token(), now_ms)
        self._keep_token(token)
        return epoch

    def _last_token(self) -> int:
        return int(self._driver.scalar(statements.last_token(), {}) or 0)

    def _keep_token(self, token: int) -> None:
        if not self._driver.write(statements.keep_token(), {"value": token}):
            self._driver.write(statements.insert_into(tables.tokens), {"name": "lease", "value": token})

    def add_attempt(self, attempt: Attempt) -> None:
        self._driver.write(statements.insert_into(tables.attempts), _attempt_values(attempt))
        self._attempts_known([attempt])

    def save_attempt(self, attempt: Attempt) -> None:
        key = attempt.key
        self._save(tables.attempts, (key.run_id, key.slice_index, key.attempt), attempt, _attempt_values)

    def add_segments(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            self._driver.write(statements.insert_into(tables.segments), _shallow(segment))

    def published_bytes(self) -> int:
        return deleting.published_bytes(self._connection)

    def delete_runs(self, run_ids: Sequence[str]) -> None:
        self._known.clear()
        deleting.delete_runs(self._connection, run_ids)

    def delete_campaign(self, campaign: Campaign) -> None:
        self._known.clear()
        deleting.delete_campaign(self._connection, campaign.campaign_id, campaign.name, campaign.number)

    def forget_logs(self, before_ms: int, most: int, told: str) -> int:
        self._known.clear()
        return deleting.forget_logs(self._connection, before_ms, most, told)

    def put_agent(self, agent: Agent) -> None:
        self._write(sa.delete(tables.agents).where(tables.agents.c.agent_id == agent.agent_id))
        self._write(sa.insert(tables.agents), [_agent_values(agent)])

    def put_identity(self, identity: Identity) -> None:
        self._known.clear()
        identities.put(self._connection, identity)

    def saw_agents(self, agent_ids: Sequence[str], now_ms: int) -> None:
        self._known.clear()
        heartbeats.saw_agents(self._connection, agent_ids, now_ms)

    def extend_attempts(self, progress: Sequence[tuple[AttemptKey, int]], lease_ends_at_ms: int) -> None:
        self._known.clear()
        heartbeats.extend_attempts(self._connection, progress, lease_ends_at_ms)

    def put_join_token(self, token: StoredToken) -> None:
        certificates.put_token(self._connection, token)

    def forget_join_tokens(self, expired_before_ms: int) -> None:
        certificates.forget_tokens(self._connection, expired_before_ms)

    def put_certificate(self, certificate: StoredCertificate) -> None:
        certificates.put_certificate(self._connection, certificate)

    def forget_certificate(self, serial: str) -> None:
        certificates.forget_certificate(self._connection, serial)

    def add_audit(self, entry: AuditEntry) -> None:
        audit.add(self._connection, entry)

    def forget_audit(self, before_ms: int) -> None:
        audit.forget(self._connection, before_ms)

    def forget_agents(self, most: int) -> None:
        g, a = tables.agents.c, tables.attempts.c
        kept = sa.select(g.agent_id).order_by(g.seen_at_ms.desc(), g.agent_id).limit(most)
        busy = sa.select(a.agent_id).where(a.state == str(AttemptState.LEASED))
        self._write(sa.delete(tables.agents).where(g.agent_id.not_in(kept), g.agent_id.not_in(busy)))

    def _rows(self, query: sa.Select[Any], values: Mapping[str, Any] | None = None) -> Sequence[Row]:
        return self._connection.execute(query, values).mappings().all()

    def _write(
        self, statement: sa.Insert | sa.Update | sa.Delete, values: Sequence[Mapping[str, Any]] | None = None
    ) -> int:
        if values is not None and not values:
            return 0
        self._known.clear()
        return int(self._connection.execute(statement, list(values) if values else None).rowcount)

    def _save(
        self,
        table: sa.Table,
        key: tuple[Any, ...],
        record: Any,
        values_of: Callable[[Any], dict[str, Any]],
    ) -> None:
        """Save a record; only what differs from the known one is written."""
        known = self._known.get((table.name, *key))
        if known is None:
            self._replace(table, values_of(record), key)
            return
        changed = [
            item.name
            for item in dataclasses.fields(record)
            if getattr(record, item.name) != getattr(known, item.name)
        ]
        if changed:
            names = {column for name in changed for column in _COLUMNS.get(name, (name,))}
            values = values_of(record)
            self._replace(table, {name: values[name] for name in values if name in names}, key)
            self._known[(table.name, *key)] = record

    def _replace(self, table: sa.Table, values: Mapping[str, Any], key: tuple[Any, ...]) -> None:
        names = tuple(name for name in values if not table.c[name].primary_key)
        keys = {statements.KEY + k.name: value for k, value in zip(table.primary_key, key, strict=True)}
        if self._driver.write(statements.update_of(table, names), {**values, **keys}) != 1:
            named = ", ".join(f"{k.name}={value}" for k, value in zip(table.primary_key, key, strict=True))
            raise StorageError("metadata", f"{table.name} has no record {named} to replace")

    def _by_key(self, table: sa.Table, key: tuple[Any, ...], make: Callable[[Row], Record]) -> Record | None:
        known: Record | None = self._known.get((table.name, *key))
        if known is not None:
            return known
        names = [column.name for column in table.primary_key]
        row = self._driver.first(statements.select_of(table), dict(zip(names, key, strict=True)))
        return None if row is None else self._keep(table, key, make(row))

    def _keep(self, table: sa.Table, key: tuple[Any, ...], record: Record) -> Record:
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[(table.name, *key)] = record
        return record

    def _attempts(self, rows: Sequence[Row]) -> list[Attempt]:
        """The attempts of these rows, which need not be read again."""
        found = [_attempt(row) for row in rows]
        self._attempts_known(found)
        return found

    def _attempts_known(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            key = attempt.key
            self._keep(tables.attempts, (key.run_id, key.slice_index, key.attempt), attempt)


# The columns of fields that are not columns themselves, or are several.
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "recorded": ("recorded_path", "recorded_time"),
    "lease_ends_at_ms": ("deadline_ms",),
    "key": ("token",),
    "log": ("command", "environment", "log", "telemetry", "wall_seconds", "facts"),
}
_MOST_KNOWN = 1_000


def _failure(document: Any) -> Failure | None:
    return None if document is None else Failure(**document)


def _flags(documents: Any) -> tuple[ValidityFlag, ...]:
    return tuple(ValidityFlag(**document) for document in documents)


def _campaign(row: Row) -> Campaign:
    values = {name: row[name] for name in row if name != "ordinal"}
    try:
        values["compiled"] = CompiledCampaign.from_document(row["compiled"])
    except ValueError as error:
        cause = "its compiled form is damaged, or of a newer release"
        raise StorageError(f"campaign {row['campaign_id']}", cause, "restore a backup") from error
    values["state"] = CampaignState(row["state"])
    values["failure"] = _failure(row["failure"])
    return Campaign(**values)


def _campaign_overview(row: Row) -> CampaignOverview:
    values = {**row, "state": CampaignState(row["state"]), "failure": _failure(row["failure"])}
    return CampaignOverview(**values)


def _campaign_values(campaign: Campaign) -> dict[str, Any]:
    documents = {"compiled": campaign.compiled.to_document(), **_json(campaign, "failure")}
    return {**_shallow(campaign), "state": str(campaign.state), **documents}


def _run(row: Row) -> Run:
    values = dict(row)
    values["condition"] = Condition(**row["condition"])
    if row["command"] is not None:
        values["command"] = _command(row["command"])
    path, recorded_time = values.pop("recorded_path"), values.pop("recorded_time")
    values["recorded"] = RecordedSource(Path(path), recorded_time) if path else None
    values["counters"] = tuple(row["counters"])
    values["state"] = RunState(row["state"])
    values["failure"] = _failure(row["failure"])
    values["flags"] = _flags(row["flags"])
    values["plan"] = _plan(row)
    values["placement"] = _placement(row)
    values["holds"] = tuple(Hold(hold) for hold in row["holds"])
    return Run(**values)


def _plan(row: Row) -> SlicePlan | None:
    try:
        return None if row["plan"] is None else SlicePlan.from_document(row["plan"])
    except ValueError as error:
        cause = "its plan of slices is damaged, or of a newer release"
        raise StorageError(f"run {row['run_id']}", cause, "restore a backup") from error


def _placement(row: Row) -> Placement:
    try:
        return Placement.from_document(row["placement"])
    except ValueError as error:
        cause = "what it asks of its place is damaged, or of a newer release"
        raise StorageError(f"run {row['run_id']}", cause, "restore a backup") from error


def _run_values(run: Run) -> dict[str, Any]:
    """The run without its holds, which only ``set_holds`` changes, together with the lane of its slices."""
    values = _shallow(run)
    recorded = values.pop("recorded")
    del values["holds"]
    return {
        **values,
        "state": str(run.state),
        "counters": list(run.counters),
        "recorded_path": str(recorded.path) if recorded is not None else "",
        "recorded_time": recorded is not None and recorded.recorded_time,
        "plan": None if run.plan is None else run.plan.to_document(),
        "placement": run.placement.to_document(),
        **_json(run, "condition", "command", "failure", "flags"),
    }


def _new_run_values(run: Run) -> dict[str, Any]:
    return {**_run_values(run), "holds": [str(hold) for hold in run.holds]}


# What the need of a run is made of.
_OF_NEED = attrgetter("campaign_id", "profiler", "device_key", "synthetic", "condition", "placement")


def _command(document: Mapping[str, Any]) -> CommandSource:
    bundle = document.get("bundle")
    read = {"argv": tuple(document["argv"]), "bundle": None if bundle is None else Bundle(**bundle)}
    return CommandSource(**{**document, **read})


def _slice_time(row: Row) -> SliceTime:
    values = {**row, "command": _command(row["command"]), "counters": tuple(row["counters"])}
    return SliceTime(**values)


# The columns of a slice without its place in the queue.
_SLICE = statements.SLICE


def _slice_values(piece: Slice) -> dict[str, Any]:
    return {**vars(piece), "state": str(piece.state)}


def _slice(row: Row) -> Slice:
    values = {column.name: row[column.name] for column in _SLICE}
    return Slice(**{**values, "state": SliceState(row["state"])})


def _attempt(row: Row) -> Attempt:
    values = dict(row)
    key = AttemptKey(*(values.pop(name) for name in ("run_id", "slice", "attempt", "token")))
    log = AttemptLog(
        tuple(values.pop("command")),
        dict(values.pop("environment")),
        values.pop("log"),
        values.pop("telemetry"),
        values.pop("wall_seconds"),
        values.pop("facts"),
    )
    values["state"] = AttemptState(values["state"])
    values["failure"] = _failure(values["failure"])
    values["flags"] = _flags(values["flags"])
    values["write_secret"] = bytes.fromhex(values["write_secret"])
    values["lease_ends_at_ms"] = values.pop("deadline_ms")
    values["gang"] = tuple(values["gang"])
    return Attempt(key=key, log=log, **values)


def _attempt_values(attempt: Attempt) -> dict[str, Any]:
    values = {**_shallow(attempt), "state": str(attempt.state), **_json(attempt, "failure", "flags")}
    del values["key"], values["lease_ends_at_ms"]
    key = attempt.key
    return {
        **values,
        "deadline_ms": attempt.lease_ends_at_ms,
        "run_id": key.run_id,
        "slice": key.slice_index,
        "attempt": key.attempt,
        "token": key.token,
        "command": list(attempt.log.command),
        "environment": dict(attempt.log.environment),
        "log": attempt.log.text,
        "telemetry": attempt.log.telemetry_json,
        "wall_seconds": attempt.log.wall_seconds,
        "facts": attempt.log.facts_json,
        "write_secret": attempt.write_secret.hex(),
        "gang": list(attempt.gang),
    }


def _segment(row: Row) -> Segment:
    return Segment(**row)


def _agent(row: Row) -> Agent:
    inventory = row["inventory"]
    slots = tuple(_slot(slot) for slot in row["slots"])
    kept = {
        "place": str(inventory.get("place", "")),
        "labels": tuple(row["labels"] or ()),
        "since_ms": int(inventory.get("since_ms", 0)),
    }
    return Agent(**{**row, "inventory": Inventory.from_dict(inventory), "slots": slots, **kept})


def _slot(document: Mapping[str, Any]) -> Slot:
    device = InstalledDevice(**document["device"]) if document.get("device") else None
    return Slot(**{**document, "profilers": tuple(document["profilers"]), "device": device})


def _agent_values(agent: Agent) -> dict[str, Any]:
    inventory = {**agent.inventory.to_dict(), "place": agent.place, "since_ms": agent.since_ms}
    slots = [dataclasses.asdict(slot) for slot in agent.slots]
    values = {**_shallow(agent), "inventory": inventory, "slots": slots}
    del values["place"], values["labels"], values["since_ms"]
    return values


def _overview(run: Run, attempts: Sequence[Row], slices: Mapping[str, int]) -> RunOverview:
    """``slices``: their number by state.

    Launches are those of each slice's newest attempt, if known.
    """
    newest = {row["slice"]: row for row in attempts}
    live = [row for row in newest.values() if row["state"] not in _FRUITLESS]
    launches = sum(max(row["launches"], row["launches_spooled"]) for row in live)
    agent = attempts[-1]["agent_name"] if attempts else ""
    return RunOverview(
        run,
        len(attempts),
        agent,
        launches,
        slices=sum(slices.values()),
        slices_done=slices.get(SliceState.DONE, 0),
        retries=len(attempts) - len(newest),
    )


_FRUITLESS = (AttemptState.FAILED, AttemptState.SUPERSEDED, AttemptState.CANCELLED)


def _shallow(record: Any) -> dict[str, Any]:
    return {item.name: getattr(record, item.name) for item in dataclasses.fields(record)}


def _document(value: Any) -> dict[str, Any]:
    return value.to_dict() if isinstance(value, Condition | Failure) else dataclasses.asdict(value)


def _json(record: Any, *names: str) -> dict[str, Any]:
    """These fields as JSON documents; None stays None."""
    documents: dict[str, Any] = {}
    for name in names:
        value = getattr(record, name)
        if isinstance(value, tuple):
            documents[name] = [dataclasses.asdict(item) for item in value]
        else:
            documents[name] = None if value is None else _document(value)
    return documents
