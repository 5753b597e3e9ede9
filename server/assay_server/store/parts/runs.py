"""Runs of campaigns, their slices, and the slices' lanes of the queue, in SQL."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from assay_core.records.campaign import RunState
from assay_core.records.runs import RunsRequest
from assay_core.records.upload import Bundle
from assay_core.records.work import CommandSource, RecordedSource
from assay_sampling.errors import StorageError
from assay_sampling.launches.table import Condition
from assay_server.campaign_file.placement import Placement
from assay_server.campaign_file.slices.chosen import SlicePlan
from assay_server.store import statements, tables
from assay_server.store.column_values import Row, documents_of, failure_of, flags_of, shallow
from assay_server.store.model import (
    OPEN_RUNS,
    Hold,
    Need,
    Run,
    Slice,
    SliceState,
    SliceTime,
    need_of,
)
from assay_server.store.overviews import NotedRuns, RunsAlike
from assay_server.store.parts.known import KnownRows
from assay_server.store.rows import deleting, queue, selected_runs

# What the need of a run is made of, besides whether it brings a bundle.
_of_need = attrgetter("campaign_id", "profiler", "device_key", "synthetic", "condition", "placement")


class RunRows(KnownRows):
    """Runs of campaigns, their slices, and the slices' lanes of the queue, in SQL."""

    def run(self, run_id: str) -> Run | None:
        return self.by_key(tables.runs, (run_id,), run_of)

    def runs(self, campaign_id: str) -> list[Run]:
        """The runs of a campaign, in its order."""
        rows = self.driver.rows(statements.runs_of(), {"campaign_id": campaign_id})
        return [run_of(row) for row in rows]

    def campaign_of(self, run_id: str) -> str | None:
        """The campaign of a run; None if there is no such run."""
        known: Run | None = self.known.get((tables.runs.name, run_id))
        if known is not None:
            return known.campaign_id
        campaign_id: str | None = self.driver.scalar(statements.campaign_of(), {"run_id": run_id})
        return campaign_id

    def run_counts(self, campaign_id: str) -> dict[RunState, int]:
        """How many runs of a campaign are in each state; states without runs are left out."""
        return self.counts_of_runs([campaign_id])[campaign_id]

    def counts_of_runs(self, campaign_ids: Sequence[str]) -> dict[str, dict[RunState, int]]:
        """How many runs each of these campaigns has in each state."""
        r = tables.runs.c
        query = sa.select(r.campaign_id, r.state, sa.func.count().label("runs"))
        query = query.where(r.campaign_id.in_(campaign_ids)).group_by(r.campaign_id, r.state)
        counts: dict[str, dict[RunState, int]] = {campaign_id: {} for campaign_id in campaign_ids}
        for row in self.rows(query):
            counts[row["campaign_id"]][RunState(row["state"])] = int(row["runs"])
        return counts

    def runs_alike(self, campaign_id: str) -> list[RunsAlike]:
        """The runs of a campaign counted by workload, kind of GPU and state; workloads in its order."""
        r = tables.runs.c
        kind = (r.workload, r.device_kind, r.state)
        first = sa.func.min(r.ordinal)
        query = sa.select(*kind, sa.func.count().label("runs")).where(r.campaign_id == campaign_id)
        rows = self.rows(query.group_by(*kind).order_by(first))
        return [
            RunsAlike(row["workload"], row["device_kind"], RunState(row["state"]), int(row["runs"]))
            for row in rows
        ]

    def noted_runs(self, campaign_id: str) -> list[NotedRuns]:
        """All runs of a campaign that have failed or carry validity flags, in its order."""
        r = tables.runs.c
        flags = sa.cast(r.flags, sa.Text).label("flags")
        query = sa.select(r.run_id, sa.cast(r.failure, sa.Text).label("failure"), flags)
        query = query.where(r.campaign_id == campaign_id, sa.or_(r.failure.is_not(None), flags != "[]"))
        # Most runs share their texts with others, and each text is read once.
        alike: dict[tuple[str | None, str], list[str]] = {}
        for row in self.rows(query.order_by(r.ordinal)):
            alike.setdefault((row["failure"], row["flags"]), []).append(row["run_id"])
        return [
            NotedRuns(failure_of(failure and json.loads(failure)), flags_of(json.loads(flags)), tuple(runs))
            for (failure, flags), runs in alike.items()
        ]

    def open_runs(self, campaign_id: str) -> int:
        """How many runs of a campaign have not ended."""
        return int(self.driver.scalar(statements.open_runs_of(), {"campaign_id": campaign_id}) or 0)

    def open_workloads(self, campaign_id: str) -> set[str]:
        """The workloads of a campaign with runs that have not ended."""
        r = tables.runs.c
        query = sa.select(r.workload).where(
            r.campaign_id == campaign_id, r.state.in_([str(state) for state in OPEN_RUNS])
        )
        return set(self.connection.scalars(query.distinct()))

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
        query = selected_runs.select_places(request, states, paused=paused, first=first, most=most)
        return [(int(row["ordinal"]), row["run_id"]) for row in self.rows(query)]

    def requested_counts(self, request: RunsRequest) -> dict[RunState, int]:
        """How many of the requested runs are in each state; states without runs are left out."""
        rows = self.rows(selected_runs.select_counts(request))
        return {RunState(row["state"]): int(row["runs"]) for row in rows}

    def paused_runs(self, campaign_ids: Sequence[str]) -> dict[str, int]:
        """How many runs of these campaigns are paused themselves; campaigns without any are left out."""
        rows = self.rows(selected_runs.select_paused(campaign_ids))
        return {row["campaign_id"]: int(row["runs"]) for row in rows}

    def save_run(self, run: Run) -> None:
        known: Run | None = self.known.get((tables.runs.name, run.run_id))
        if known is not None:  # its holds stay as they are
            run = dataclasses.replace(run, holds=known.holds)
        self.save(tables.runs, (run.run_id,), run, run_values)

    def set_holds(self, run_ids: Sequence[str], holds: Collection[Hold]) -> None:
        """Keep the waiting slices of runs from all slots for these reasons; no reason: no longer.

        ``save_run`` leaves the holds as they are.
        """
        r, s = tables.runs.c, tables.slices.c
        hold_names = sorted(str(hold) for hold in set(holds))
        self.write(sa.update(tables.runs).where(r.run_id.in_(run_ids)).values(holds=hold_names))
        lane = queue.lane_of_holds(bool(hold_names))
        self.write(sa.update(tables.slices).where(s.run_id.in_(run_ids)).values(lane=lane))

    def pause_runs(self, run_ids: Sequence[str], paused: bool) -> None:
        """Pause these runs, or let them go on."""
        # Runs with the same holds are changed together.
        changed: dict[frozenset[Hold], list[str]] = {}
        for row in self.rows(selected_runs.select_holds(run_ids)):
            holds = frozenset(Hold(hold) for hold in row["holds"])
            if (Hold.PAUSED in holds) is not paused:
                changed.setdefault(holds ^ {Hold.PAUSED}, []).append(row["run_id"])
        for holds, of_these in changed.items():
            self.set_holds(of_these, holds)

    def cancel_runs(self, run_ids: Sequence[str]) -> None:
        """Cancel these runs and their slices that have not ended; their attempts stay as they are.

        None of them is paused any more.
        """
        self.pause_runs(run_ids, False)
        for statement in selected_runs.cancelling(run_ids):
            self.write(statement)

    def retry_runs(self, run_ids: Sequence[str]) -> None:
        """Let the failed and cancelled slices of these runs wait, and the runs continue.

        Each of the slices has all its tries again (``tries_from``), and is due.
        """
        for statement in selected_runs.retrying(run_ids):
            self.write(statement)

    def delete_runs(self, run_ids: Sequence[str]) -> None:
        """Delete runs with their slices, attempts and segments."""
        self.known.clear()
        deleting.delete_runs(self.connection, run_ids)

    def slice(self, run_id: str, index: int) -> Slice | None:
        return self.by_key(tables.slices, (run_id, index), slice_of)

    def slices(self, run_id: str) -> list[Slice]:
        return [slice_of(row) for row in self.driver.rows(statements.slices_of(), {"run_id": run_id})]

    def published_slices(self) -> list[Slice]:
        """Every slice of every campaign that has a published file."""
        query = sa.select(*statements.SLICE).where(tables.slices.c.file != "")
        return [slice_of(row) for row in self.rows(query)]

    def published_bytes(self) -> int:
        """The bytes of all published files."""
        return deleting.published_bytes(self.connection)

    def resting_slices(self, now_ms: int) -> list[Slice]:
        """Slices of any campaign that wait but are not yet due."""
        s = tables.slices.c
        query = sa.select(*statements.SLICE).where(
            s.state == str(SliceState.WAITING), s.not_before_ms > now_ms
        )
        return [slice_of(row) for row in self.rows(query.order_by(s.run_id, s.index))]

    def states_beside(self, run_id: str, index: int) -> frozenset[SliceState]:
        """The states of a run's other slices."""
        rows = self.driver.rows(statements.states_beside(), {"run_id": run_id, "slice": index})
        return states_of(rows)

    def slice_times(self, most: int) -> list[SliceTime]:
        """The times of the newest published slices of detailed live runs, of any campaign, newest first."""
        return [slice_time_of(row) for row in self.rows(statements.slice_times(), {"most": most})]

    def save_slice(self, piece: Slice) -> None:
        self.save(tables.slices, (piece.run_id, piece.index), piece, slice_values)

    def replace_slices(self, run_id: str, index: int, slices: Sequence[Slice]) -> None:
        """Replace the slices of a run from an index on, none of which was ever tried."""
        s = tables.slices.c
        self.write(sa.delete(tables.slices).where(s.run_id == run_id, s.index >= index))
        run = self.run(run_id)
        self._add_slices(slices, [] if run is None else [run])

    def add_runs(self, runs: Sequence[Run], slices: Sequence[Slice]) -> None:
        """Add runs to existing campaigns."""
        self.known.clear()
        insert = statements.insert_into(tables.runs)
        self.driver.insert_copies(insert, runs, new_run_values, ("run_id", "ordinal", "repeat"))
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
        rows = (slice_values(piece) | places[piece.run_id] for piece in slices)
        self.driver.insert(statements.insert_into(tables.slices), tables.slices.c.keys(), rows)

    def _lane(self, campaign_id: str, need: Need) -> int:
        """The lane of a need in a campaign, made at its first use."""
        lane, values = tables.lanes.c, {"campaign_id": campaign_id, "need": queue.need_text(need)}
        where = (lane.campaign_id == values["campaign_id"], lane.need == values["need"])
        query = sa.select(lane.lane_id).where(*where)
        lane_id = self.connection.scalar(query)
        if lane_id is None:
            self.write(sa.insert(tables.lanes), [values])
            lane_id = self.connection.scalar(query)
        return int(lane_id or 0)


def run_of(row: Row) -> Run:
    """The run of a row; raises StorageError if its plan or placement cannot be read."""
    values = dict(row)
    values["condition"] = Condition(**row["condition"])
    if row["command"] is not None:
        values["command"] = command_of(row["command"])
    path, recorded_time = values.pop("recorded_path"), values.pop("recorded_time")
    values["recorded"] = RecordedSource(Path(path), recorded_time) if path else None
    values["counters"] = tuple(row["counters"])
    values["state"] = RunState(row["state"])
    values["failure"] = failure_of(row["failure"])
    values["flags"] = flags_of(row["flags"])
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


def run_values(run: Run) -> dict[str, Any]:
    """The run without its holds, which only ``set_holds`` changes, together with the lane of its slices."""
    values = shallow(run)
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
        **documents_of(run, "condition", "command", "failure", "flags"),
    }


def new_run_values(run: Run) -> dict[str, Any]:
    """The row of a new run, with its holds."""
    return {**run_values(run), "holds": [str(hold) for hold in run.holds]}


def command_of(document: Mapping[str, Any]) -> CommandSource:
    """The command of a JSON document."""
    bundle = document.get("bundle")
    read = {"argv": tuple(document["argv"]), "bundle": None if bundle is None else Bundle(**bundle)}
    return CommandSource(**{**document, **read})


def slice_of(row: Row) -> Slice:
    """The slice of a row that may have other columns too."""
    values = {column.name: row[column.name] for column in statements.SLICE}
    return Slice(**{**values, "state": SliceState(row["state"])})


def slice_values(piece: Slice) -> dict[str, Any]:
    """The row of a slice without its place in the queue."""
    return {**vars(piece), "state": str(piece.state)}


def slice_time_of(row: Row) -> SliceTime:
    """The time of a slice, of a row."""
    values = {**row, "command": command_of(row["command"]), "counters": tuple(row["counters"])}
    return SliceTime(**values)


def states_of(rows: Sequence[Row]) -> frozenset[SliceState]:
    """The states in these rows."""
    return frozenset(SliceState(row["state"]) for row in rows)
