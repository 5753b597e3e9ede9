"""Statements about many runs of a campaign at a time, for requests of people."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from assay_core.records.campaign import AttemptState, RunState
from assay_core.records.runs import RunsAction, RunsRequest
from assay_server.store import tables
from assay_server.store.model import OPEN_RUNS, Hold, PendingRequest, SliceState
from assay_server.store.overviews import RunFilter


def select_places(
    request: RunsRequest, states: Sequence[RunState], *, paused: bool | None, first: int, most: int
) -> sa.Select[Any]:
    """Ordinal and identifier of the requested runs in these states, in the order of the campaign."""
    r = tables.runs.c
    # Concatenated, so that the database reads on from ``first`` in the order of the campaign: by the index of
    # states it would sort all open runs of the campaign for each piece of a request.
    state = r.state.concat("")
    within = [*_requested(request), state.in_([str(state) for state in states]), r.ordinal >= first]
    if paused is not None:
        within.append(_paused() if paused else sa.not_(_paused()))
    return sa.select(r.ordinal, r.run_id).where(*within).order_by(r.ordinal).limit(most)


def select_counts(request: RunsRequest) -> sa.Select[Any]:
    """How many of the requested runs are in each state."""
    r = tables.runs.c
    return sa.select(r.state, sa.func.count().label("runs")).where(*_requested(request)).group_by(r.state)


def select_paused(campaign_ids: Sequence[str]) -> sa.Select[Any]:
    """How many runs of each of these campaigns are paused themselves."""
    r = tables.runs.c
    within = (r.campaign_id.in_(campaign_ids), r.state.in_([str(state) for state in OPEN_RUNS]), _paused())
    return sa.select(r.campaign_id, sa.func.count().label("runs")).where(*within).group_by(r.campaign_id)


def select_attempts(request: RunsRequest, states: Sequence[AttemptState]) -> sa.Select[Any]:
    """The attempts of the requested runs in these states, in the order of their tokens."""
    a, r = tables.attempts.c, tables.runs.c
    within = (a.state.in_([str(state) for state in states]), *_requested(request))
    joined = sa.select(tables.attempts).join_from(tables.attempts, tables.runs, a.run_id == r.run_id)
    return joined.where(*within).order_by(a.token)


def select_attempts_of(run_ids: Sequence[str], states: Sequence[AttemptState]) -> sa.Select[Any]:
    """The attempts of these runs in these states, in the order of their tokens."""
    a = tables.attempts.c
    within = (a.run_id.in_(run_ids), a.state.in_([str(state) for state in states]))
    return sa.select(tables.attempts).where(*within).order_by(a.token)


def _requested(request: RunsRequest) -> list[sa.ColumnElement[bool]]:
    r = tables.runs.c
    within = [r.campaign_id == request.campaign_id]
    if request.run_id:
        within.append(r.run_id == request.run_id)
    if request.workload:
        within.append(r.workload == request.workload)
    return within


def shown(campaign_id: str, chosen: RunFilter) -> list[sa.ColumnElement[bool]]:
    """Conditions of the runs of a campaign that somebody wants to see."""
    r = tables.runs.c
    within: list[sa.ColumnElement[bool]] = [r.campaign_id == campaign_id]
    if chosen.search:
        search_text = chosen.search.lower()
        names = (r.workload, r.run_id)
        within.append(sa.or_(*(sa.func.lower(name).contains(search_text, autoescape=True) for name in names)))
    if chosen.device_kind:
        within.append(r.device_kind == chosen.device_kind)
    if chosen.state is not None:
        within.append(r.state == str(chosen.state))
    if chosen.flag:
        # Flags are JSON; a quote within a value has a backslash before it, so this is a whole value.
        within.append(sa.cast(r.flags, sa.Text).contains(json.dumps(chosen.flag), autoescape=True))
    if chosen.paused:
        within.append(_paused())
    return within


def _paused() -> sa.ColumnElement[bool]:
    """Whether a run is paused itself: its holds are a JSON list of names."""
    return sa.cast(tables.runs.c.holds, sa.Text).contains(f'"{Hold.PAUSED}"')


def select_holds(run_ids: Sequence[str]) -> sa.Select[Any]:
    """Why each of these runs is held."""
    r = tables.runs.c
    return sa.select(r.run_id, r.holds).where(r.run_id.in_(run_ids))


def cancelling(run_ids: Sequence[str]) -> list[sa.Update]:
    """Cancel these runs and their slices that have not ended; their attempts are the caller's."""
    r, s = tables.runs.c, tables.slices.c
    open_slices = s.state.in_([str(SliceState.WAITING), str(SliceState.LEASED)])
    return [
        sa.update(tables.slices).where(s.run_id.in_(run_ids), open_slices).values(state=SliceState.CANCELLED),
        sa.update(tables.runs)
        .where(r.run_id.in_(run_ids))
        .values(state=str(RunState.CANCELLED), failure=sa.null()),
    ]


def retrying(run_ids: Sequence[str]) -> list[sa.Update]:
    """Let failed and cancelled slices of these runs wait, with all their tries again; the runs follow."""
    r, s, a = tables.runs.c, tables.slices.c, tables.attempts.c
    ended = s.state.in_([str(SliceState.FAILED), str(SliceState.CANCELLED)])
    last = sa.select(sa.func.max(a.attempt)).where(a.run_id == s.run_id, a.slice == s.index).scalar_subquery()
    begun = sa.exists().where(s.run_id == r.run_id, s.state == str(SliceState.DONE))
    state = sa.case((begun, str(RunState.RUNNING)), else_=str(RunState.WAITING))
    return [
        sa.update(tables.slices)
        .where(s.run_id.in_(run_ids), ended)
        .values(
            state=str(SliceState.WAITING), not_before_ms=0, tries_from=sa.func.coalesce(last, 0) + 1,
        ),
        sa.update(tables.runs)
        .where(r.run_id.in_(run_ids))
        .values(state=state, failure=sa.null()),
    ]  # fmt: skip


def request_values(request: PendingRequest) -> dict[str, Any]:
    """The row of a request."""
    values = {item.name: getattr(request, item.name) for item in dataclasses.fields(request)}
    runs_request = values.pop("asked")
    return {**values, **dataclasses.asdict(runs_request), "action": str(request.action)}


def request_of(row: Mapping[Any, Any]) -> PendingRequest:
    """The request of a row."""
    values = dict(row)
    runs_request = RunsRequest(*(values.pop(item.name) for item in dataclasses.fields(RunsRequest)))
    return PendingRequest(**{**values, "action": RunsAction(values["action"])}, asked=runs_request)
