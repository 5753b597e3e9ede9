"""Requests of people about many runs of a campaign at a time, carried out piece by piece, in SQL."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from assay_core.records.campaign import AttemptState, RunState
from assay_core.records.runs import RunsRequest
from assay_server.store import tables
from assay_server.store.column_values import Row, shallow
from assay_server.store.model import Attempt, Hold, PendingRequest, SliceState
from assay_server.store.parts.attempts import attempt_of
from assay_server.store.parts.runs import RunRows
from assay_server.store.statements import IS_OPEN, IS_PAUSED

_A, _Q, _R, _S = tables.attempts.c, tables.requests.c, tables.runs.c, tables.slices.c


class RequestRows(RunRows):
    """Requests of people about many runs of a campaign at a time, carried out piece by piece, in SQL."""

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
