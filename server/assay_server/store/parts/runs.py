"""Runs of campaigns, their slices with their lanes of the queue, and requests about many runs, in SQL.

Requests of people are carried out piece by piece.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from pydantic import TypeAdapter

from assay_core.records.campaign import AttemptState, RunState
from assay_core.records.failure import Failure
from assay_core.records.runs import RunsRequest
from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.work import RecordedSource
from assay_server.campaign_file.compiled import Placement, SlicePlan
from assay_server.store import tables
from assay_server.store.column_values import Row, flags_of, parsed, shallow
from assay_server.store.model import (
    Attempt,
    Hold,
    Need,
    PendingRequest,
    Run,
    Slice,
    SliceState,
    SliceTime,
    need_of,
)
from assay_server.store.parts.attempts import attempt_of
from assay_server.store.parts.record_cache import CachedRecords
from assay_server.store.statements import ATTEMPT_SECONDS, IS_OPEN, IS_PAUSED, OF_CAMPAIGN, SLICE

# What the need of a run is made of, besides whether it brings a bundle.
_of_need = attrgetter("campaign_id", "profiler", "device_key", "synthetic", "condition", "placement")


_A, _Q, _R, _S = tables.attempts.c, tables.requests.c, tables.runs.c, tables.slices.c
_RUNS_OF = sa.select(tables.runs).where(OF_CAMPAIGN).order_by(_R.ordinal)
_CAMPAIGN_OF = sa.select(_R.campaign_id).where(_R.run_id == sa.bindparam("run_id"))
_SLICES_OF = sa.select(*SLICE).where(_S.run_id == sa.bindparam("run_id")).order_by(_S.index)
_STATES_BESIDE = (
    sa.select(_S.state)
    .where(_S.run_id == sa.bindparam("run_id"), _S.index != sa.bindparam("slice", type_=sa.BigInteger))
    .distinct()
)
_OF_TIME = (_R.run_id, _R.workload, _R.device_key, _R.command, _R.counters, _S.launch_skip, _S.launches)
_SLICE_TIMES = (
    sa.select(*_OF_TIME, ATTEMPT_SECONDS.label("seconds"))
    .join_from(tables.attempts, tables.runs, _A.run_id == _R.run_id)
    .join(tables.slices, sa.and_(_S.run_id == _A.run_id, _S.index == _A.slice))
    .where(_A.state == AttemptState.PUBLISHED, _R.level == "detailed", _R.device_key != "")
    .order_by(_A.token.desc())
    .limit(sa.bindparam("most"))
)


@dataclass(frozen=True)
class RunsAlike:
    """How many runs of a workload on one kind of GPU are in one state."""

    workload: str
    device_kind: str
    state: RunState
    runs: int


@dataclass(frozen=True)
class NotedRuns:
    """Runs with the same failure (None: they have not failed) and the same validity flags."""

    failure: Failure | None
    flags: tuple[ValidityFlag, ...]
    run_ids: tuple[str, ...]


class RunRows(CachedRecords):
    """Runs of campaigns, their slices, and the slices' lanes of the queue, in SQL."""

    def run(self, run_id: str) -> Run | None:
        return self.by_key(tables.runs, (run_id,), run_of)

    def runs(self, campaign_id: str) -> list[Run]:
        """The runs of a campaign, in its order."""
        return [run_of(row) for row in self.rows(_RUNS_OF, {"campaign_id": campaign_id})]

    def campaign_of(self, run_id: str) -> str | None:
        """The campaign of a run; None if there is no such run."""
        if (run := self.cached(tables.runs, (run_id,))) is not None:
            return str(run.campaign_id)
        campaign_id: str | None = self.connection.scalar(_CAMPAIGN_OF, {"run_id": run_id})
        return campaign_id

    def run_counts(self, campaign_id: str) -> dict[RunState, int]:
        """How many runs of a campaign are in each state; states without runs are left out."""
        return self.counts_of_runs([campaign_id])[campaign_id]

    def counts_of_runs(self, campaign_ids: Sequence[str]) -> dict[str, dict[RunState, int]]:
        """How many runs each of these campaigns has in each state."""
        query = sa.select(_R.campaign_id, _R.state, sa.func.count().label("runs"))
        query = query.where(_R.campaign_id.in_(campaign_ids)).group_by(_R.campaign_id, _R.state)
        counts: dict[str, dict[RunState, int]] = {campaign_id: {} for campaign_id in campaign_ids}
        for row in self.rows(query):
            counts[row["campaign_id"]][row["state"]] = int(row["runs"])
        return counts

    def runs_alike(self, campaign_id: str) -> list[RunsAlike]:
        """The runs of a campaign counted by workload, kind of GPU and state; workloads in its order."""
        kind = (_R.workload, _R.device_kind, _R.state)
        first = sa.func.min(_R.ordinal)
        query = sa.select(*kind, sa.func.count().label("runs")).where(_R.campaign_id == campaign_id)
        return [RunsAlike(**row) for row in self.rows(query.group_by(*kind).order_by(first))]

    def noted_runs(self, campaign_id: str) -> list[NotedRuns]:
        """All runs of a campaign that have failed or carry validity flags, in its order."""
        flags = sa.cast(_R.flags, sa.Text).label("flags")
        query = sa.select(_R.run_id, sa.cast(_R.failure, sa.Text).label("failure"), flags)
        query = query.where(_R.campaign_id == campaign_id, sa.or_(_R.failure.is_not(None), flags != "[]"))
        # Most runs share their texts with others, and each text is read once.
        alike: dict[tuple[Any, str], list[str]] = {}
        for row in self.rows(query.order_by(_R.ordinal)):
            alike.setdefault((row["failure"], row["flags"]), []).append(row["run_id"])
        return [
            NotedRuns(failure and Failure(**json.loads(failure)), flags_of(json.loads(flags)), tuple(run_ids))
            for (failure, flags), run_ids in alike.items()
        ]

    def open_workloads(self, campaign_id: str) -> set[str]:
        """The workloads of a campaign with runs that have not ended."""
        query = sa.select(_R.workload).where(_R.campaign_id == campaign_id, IS_OPEN)
        return set(self.connection.scalars(query.distinct()))

    def save_run(self, run: Run) -> None:
        """Save a run, whose holds stay as they are."""
        if (cached := self.run(run.run_id)) is not None:
            run = dataclasses.replace(run, holds=cached.holds)
        self.save(tables.runs, (run.run_id,), run, run_values)

    def set_holds(self, run_ids: Sequence[str], holds: Collection[Hold]) -> None:
        """Keep the waiting slices of runs from all slots for these reasons; no reason: no longer.

        ``save_run`` leaves the holds as they are.
        """
        self.write(sa.update(tables.runs).where(_R.run_id.in_(run_ids)).values(holds=sorted(set(holds))))
        lane = sa.func.abs(_S.lane)
        values = {"lane": -lane if holds else lane}
        self.write(sa.update(tables.slices).where(_S.run_id.in_(run_ids)).values(values))

    def delete_runs(self, run_ids: Sequence[str]) -> None:
        """Delete runs with their slices, attempts and segments."""
        for table in (tables.segments, tables.attempts, tables.slices, tables.runs):
            self.write(sa.delete(table).where(table.c.run_id.in_(run_ids)))

    def slice(self, run_id: str, index: int) -> Slice | None:
        return self.by_key(tables.slices, (run_id, index), slice_of)

    def slices(self, run_id: str) -> list[Slice]:
        return [slice_of(row) for row in self.rows(_SLICES_OF, {"run_id": run_id})]

    def published_slices(self) -> list[Slice]:
        """Every slice of every campaign that has a published file."""
        query = sa.select(*SLICE).where(tables.slices.c.file != "")
        return [slice_of(row) for row in self.rows(query)]

    def published_bytes(self) -> int:
        """The bytes of all published files."""
        return int(self.connection.scalar(sa.select(sa.func.sum(_S.file_bytes))) or 0)

    def resting_slices(self, now_ms: int) -> list[Slice]:
        """Slices of any campaign that wait but are not yet due."""
        query = sa.select(*SLICE).where(_S.state == SliceState.WAITING, _S.not_before_ms > now_ms)
        return [slice_of(row) for row in self.rows(query.order_by(_S.run_id, _S.index))]

    def states_beside(self, run_id: str, index: int) -> frozenset[SliceState]:
        """The states of a run's other slices."""
        rows = self.rows(_STATES_BESIDE, {"run_id": run_id, "slice": index})
        return frozenset(row["state"] for row in rows)

    def slice_times(self, most: int) -> list[SliceTime]:
        """The times of the newest published slices of detailed live runs, of any campaign, newest first."""
        return [SliceTime(**row) for row in self.rows(_SLICE_TIMES, {"most": most})]

    def save_slice(self, piece: Slice) -> None:
        self.save(tables.slices, (piece.run_id, piece.index), piece, shallow)

    def replace_slices(self, run_id: str, index: int, slices: Sequence[Slice]) -> None:
        """Replace the slices of a run from an index on, none of which was ever tried."""
        self.write(sa.delete(tables.slices).where(_S.run_id == run_id, _S.index >= index))
        run = self.run(run_id)
        self._add_slices(slices, [] if run is None else [run])

    def add_runs(self, runs: Sequence[Run], slices: Sequence[Slice]) -> None:
        """Add runs to existing campaigns."""
        self.write(sa.insert(tables.runs), [run_values(run) for run in runs])
        self._add_slices(slices, runs)

    def _add_slices(self, slices: Sequence[Slice], runs: Sequence[Run]) -> None:
        """Insert slices of these runs into their lanes."""
        lanes: dict[tuple[int, ...], int] = {}
        places = {}
        for run in runs:
            # Most runs of a campaign share these very objects; to compare them by value takes long.
            bundled = run.command is not None and run.command.bundle is not None
            alike = (bundled, *map(id, _of_need(run)))
            if alike not in lanes:
                lanes[alike] = self._lane(run.campaign_id, need_of(run))
            lane = -lanes[alike] if run.holds else lanes[alike]
            places[run.run_id] = {"lane": lane, "ordinal": run.ordinal}
        self.write(sa.insert(tables.slices), [shallow(piece) | places[piece.run_id] for piece in slices])

    def _lane(self, campaign_id: str, need: Need) -> int:
        """The lane of a need in a campaign, made at its first use."""
        # Without what it does not ask for, and sorted: equal needs have equal texts.
        document = need_adapter().dump_python(need, mode="json", exclude_defaults=True)
        text, lane = json.dumps(document, sort_keys=True), tables.lanes.c
        query = sa.select(lane.lane_id).where(lane.campaign_id == campaign_id, lane.need == text)
        lane_id = self.connection.scalar(query)
        if lane_id is None:
            self.write(sa.insert(tables.lanes), [{"campaign_id": campaign_id, "need": text}])
            lane_id = self.connection.scalar(query)
        return int(lane_id or 0)

    def pending_requests(self, campaign_id: str | None = None) -> list[PendingRequest]:
        """Requests that are not yet carried out, of all campaigns or one, oldest first."""
        query = sa.select(tables.requests).order_by(_Q.request_id)
        if campaign_id is not None:
            query = query.where(_Q.campaign_id == campaign_id)
        return [_request_of(row) for row in self.rows(query)]

    def add_request(self, request: PendingRequest) -> PendingRequest:
        """Add a request; returns it with its number."""
        last = self.connection.scalar(sa.select(sa.func.max(_Q.request_id)))
        numbered = dataclasses.replace(request, request_id=1 if last is None else int(last) + 1)
        self.write(sa.insert(tables.requests), [_request_values(numbered)])
        return numbered

    def save_request(self, request: PendingRequest) -> None:
        self.replace(tables.requests, _request_values(request), (request.request_id,))

    def end_request(self, request_id: int) -> None:
        """Forget a request that was carried out."""
        self.write(sa.delete(tables.requests).where(_Q.request_id == request_id))

    def requested_runs(
        self,
        request: RunsRequest,
        states: Sequence[RunState],
        *,
        paused: bool | None = None,
        first: int = 0,
        most: int = 1,
    ) -> list[tuple[int, str]]:
        """Ordinal and identifier of at most ``most`` requested runs, from the ordinal ``first`` on.

        Only those in one of ``states``, and, unless ``paused`` is None, those that are (or are not) paused.
        """
        # Concatenated, so that the database reads on from ``first`` in the order of the campaign: by the
        # index of states it would sort all open runs of the campaign for each piece of a request.
        state = _R.state.concat("")
        within = [*_requested(request), state.in_(states), _R.ordinal >= first]
        if paused is not None:
            within.append(IS_PAUSED if paused else sa.not_(IS_PAUSED))
        query = sa.select(_R.ordinal, _R.run_id).where(*within).order_by(_R.ordinal).limit(most)
        return [(int(row["ordinal"]), row["run_id"]) for row in self.rows(query)]

    def requested_counts(self, request: RunsRequest) -> dict[RunState, int]:
        """How many of the requested runs are in each state; states without runs are left out."""
        query = sa.select(_R.state, sa.func.count().label("runs")).where(*_requested(request))
        rows = self.rows(query.group_by(_R.state))
        return {row["state"]: int(row["runs"]) for row in rows}

    def requested_attempts(self, request: RunsRequest, states: Sequence[AttemptState]) -> list[Attempt]:
        """Attempts of the requested runs in one of these states, in the order of their tokens."""
        joined = sa.select(tables.attempts).join_from(tables.attempts, tables.runs, _A.run_id == _R.run_id)
        within = (_A.state.in_(states), *_requested(request))
        return [attempt_of(row) for row in self.rows(joined.where(*within).order_by(_A.token))]

    def paused_runs(self, campaign_ids: Sequence[str]) -> dict[str, int]:
        """How many runs of these campaigns are paused themselves; campaigns without any are left out."""
        within = (_R.campaign_id.in_(campaign_ids), IS_OPEN, IS_PAUSED)
        query = sa.select(_R.campaign_id, sa.func.count().label("runs")).where(*within)
        rows = self.rows(query.group_by(_R.campaign_id))
        return {row["campaign_id"]: int(row["runs"]) for row in rows}

    def pause_runs(self, run_ids: Sequence[str], paused: bool) -> None:
        """Pause these runs, or let them go on."""
        # Runs with the same holds are changed together.
        changed: dict[frozenset[Hold], list[str]] = {}
        for row in self.rows(sa.select(_R.run_id, _R.holds).where(_R.run_id.in_(run_ids))):
            holds = frozenset(row["holds"])
            if (Hold.PAUSED in holds) is not paused:
                changed.setdefault(holds ^ {Hold.PAUSED}, []).append(row["run_id"])
        for holds, of_these in changed.items():
            self.set_holds(of_these, holds)

    def cancel_runs(self, run_ids: Sequence[str]) -> None:
        """Cancel these runs and their slices that have not ended; their attempts stay as they are.

        None of them is paused any more.
        """
        self.pause_runs(run_ids, False)
        open_slices = _S.state.in_([SliceState.WAITING, SliceState.LEASED])
        slices = sa.update(tables.slices).where(_S.run_id.in_(run_ids), open_slices)
        self.write(slices.values(state=SliceState.CANCELLED))
        runs = sa.update(tables.runs).where(_R.run_id.in_(run_ids))
        self.write(runs.values(state=RunState.CANCELLED, failure=sa.null()))

    def retry_runs(self, run_ids: Sequence[str]) -> None:
        """Let the failed and cancelled slices of these runs wait, and the runs continue.

        Each of the slices has all its tries again (``tries_from``), and is due.
        """
        ended = _S.state.in_([SliceState.FAILED, SliceState.CANCELLED])
        of_slice = (_A.run_id == _S.run_id, _A.slice == _S.index)
        last = sa.select(sa.func.max(_A.attempt)).where(*of_slice).scalar_subquery()
        tries_from = sa.func.coalesce(last, 0) + 1
        slices = sa.update(tables.slices).where(_S.run_id.in_(run_ids), ended)
        self.write(slices.values(state=SliceState.WAITING, not_before_ms=0, tries_from=tries_from))
        begun = sa.exists().where(_S.run_id == _R.run_id, _S.state == SliceState.DONE)
        state = sa.case((begun, str(RunState.RUNNING)), else_=str(RunState.WAITING))
        runs = sa.update(tables.runs).where(_R.run_id.in_(run_ids))
        self.write(runs.values(state=state, failure=sa.null()))


def run_of(row: Row) -> Run:
    """The run of a row; raises StorageError if its plan or placement cannot be read."""
    values, subject = dict(row), f"run {row['run_id']}"
    path, recorded_time = values.pop("recorded_path"), values.pop("recorded_time")
    values["recorded"] = RecordedSource(Path(path), recorded_time) if path else None
    if (plan := row["plan"]) is not None:
        values["plan"] = parsed(SlicePlan.from_document, plan, subject, "its plan of slices")
    place = row["placement"]
    values["placement"] = parsed(Placement.from_document, place, subject, "what it asks of its place")
    return Run(**values)


@cache
def need_adapter() -> TypeAdapter[Need]:
    """Reads and writes needs."""
    return TypeAdapter(Need)


def run_values(run: Run) -> dict[str, Any]:
    """The row of a run."""
    values = shallow(run)
    recorded = values.pop("recorded")
    path, recorded_time = ("", False) if recorded is None else (str(recorded.path), recorded.recorded_time)
    return {**values, "recorded_path": path, "recorded_time": recorded_time}


def slice_of(row: Row) -> Slice:
    """The slice of a row that may have other columns too."""
    return Slice(**{column.name: row[column.name] for column in SLICE})


def _requested(request: RunsRequest) -> list[sa.ColumnElement[bool]]:
    within = [_R.campaign_id == request.campaign_id]
    if request.run_id:
        within.append(_R.run_id == request.run_id)
    if request.workload:
        within.append(_R.workload == request.workload)
    return within


def _request_values(request: PendingRequest) -> dict[str, Any]:
    values = shallow(request)
    runs_request = values.pop("asked")
    return {**values, **shallow(runs_request)}


def _request_of(row: Row) -> PendingRequest:
    values = dict(row)
    runs_request = RunsRequest(*(values.pop(item.name) for item in dataclasses.fields(RunsRequest)))
    return PendingRequest(**values, asked=runs_request)
