"""The queue in the store: lanes of waiting slices, and the statements that find the first of a lane.

A slice stands in a lane from its insertion on. The index of waiting slices holds only those that wait, so it
follows every change of a slice's state, whoever makes it. The slices of a held run stand in the negative of
their lane, where nobody looks. Finding the first of a lane costs the same in
campaigns of any number and size.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import sqlalchemy as sa
from pydantic import TypeAdapter

from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import AttemptState
from assay_sampling.errors import StorageError
from assay_server.campaign_file.compiled import SchedulingRules
from assay_server.store import statements, tables
from assay_server.store.model import OPEN_RUNS, Entrant, GpuUse, Lane, Need

OF_RUN = "of_run_"
_HOUR_MS = 3_600_000


def need_text(need: Need) -> str:
    """The need as it is stored: JSON without what it does not ask for; equal needs have equal texts."""
    document = _adapter().dump_python(need, mode="json", exclude_defaults=True)
    return json.dumps(document, sort_keys=True)


def need_from(text: str, campaign_id: str) -> Need:
    """The need from its text; raises StorageError if a newer release wrote it."""
    try:
        return _adapter().validate_json(text)
    except ValueError as error:
        cause = "a need of its runs is damaged, or of a newer release"
        raise StorageError(f"campaign {campaign_id}", cause, "restore a backup") from error


@cache
def _adapter() -> TypeAdapter[Need]:
    return TypeAdapter(Need)


def lane_of_holds(held: bool) -> sa.ColumnElement[int]:
    """The value of a slice's lane when its run is held from now on, or no longer."""
    lane = sa.func.abs(tables.slices.c.lane)
    return -lane if held else lane


def _waits() -> sa.ColumnElement[bool]:
    # Literal, because the database uses a partial index only if the statement repeats its condition.
    return tables.slices.c.state == sa.literal_column("'waiting'")


def _of_open_run() -> sa.ColumnElement[bool]:
    """A slice's run, unless it has ended; the slices of an ended run do not wait, whoever ended it."""
    s, r = tables.slices.c, tables.runs.c
    return sa.and_(s.run_id == r.run_id, statements.one_of(r.state, OPEN_RUNS))


@cache
def first_of_lane(passing: bool, untried: bool) -> sa.Select[Any]:
    """The first slice of a lane that waits and is due, if its campaign runs.

    Its run is in columns that begin with OF_RUN.

    ``passing``: leave out the slices ``passed`` (pairs of run and index); ``untried``: also leave out those
    that have failed in the slot ``untried_slot`` ("": any) of the agent ``untried_agent``.
    """
    s, a = tables.slices.c, tables.attempts.c
    due = _due_in_lane()
    if passing:
        due.append(sa.tuple_(s.run_id, s.index).not_in(sa.bindparam("passed", expanding=True)))
    if untried:
        of_slice = (a.run_id == s.run_id, a.slice == s.index, a.state == str(AttemptState.FAILED))
        slot = sa.bindparam("untried_slot", type_=sa.Text)
        place = (a.agent_id == sa.bindparam("untried_agent"), sa.or_(a.slot_id == slot, slot == ""))
        due.append(~sa.exists().where(*of_slice, *place))
    of_run = (column.label(OF_RUN + column.name) for column in tables.runs.c)
    query = (
        sa.select(tables.slices, *of_run)
        .join_from(tables.slices, tables.runs, _of_open_run())
        .join(tables.campaigns, tables.runs.c.campaign_id == tables.campaigns.c.campaign_id)
    )
    return query.where(*due, statements.runs_now()).order_by(s.ordinal, s.index).limit(1)


def _due_in_lane() -> list[sa.ColumnElement[bool]]:
    s = tables.slices.c
    return [_waits(), s.lane == sa.bindparam("lane"), s.not_before_ms <= sa.bindparam("now_ms")]


@cache
def earliest_of_lane() -> sa.Select[Any]:
    """When the first waiting slice of a lane is due (Unix time, ms); None if none waits."""
    s = tables.slices.c
    query = sa.select(sa.func.min(s.not_before_ms)).join_from(tables.slices, tables.runs, _of_open_run())
    return query.where(_waits(), s.lane == sa.bindparam("lane"))


@cache
def entrants(of_some: bool) -> sa.Select[Any]:
    """The lanes with waiting slices of running campaigns; ``of_some``: only of those in ``campaign_ids``."""
    lane, c, s = tables.lanes.c, tables.campaigns.c, tables.slices.c
    rules = sa.type_coerce(c.compiled, sa.JSON)["scheduling"].label("rules")
    query = (
        sa.select(lane.lane_id, lane.need, c.campaign_id, c.ordinal, c.owner, c.project, rules)
        .join_from(tables.lanes, tables.campaigns, lane.campaign_id == c.campaign_id)
        .where(
            statements.runs_now(),
            sa.exists().where(_waits(), s.lane == lane.lane_id),
        )
        .order_by(c.ordinal, lane.lane_id)
    )
    return query.where(c.campaign_id.in_(sa.bindparam("campaign_ids", expanding=True))) if of_some else query


@cache
def held_workloads() -> sa.Select[Any]:
    """The workloads of a campaign with waiting slices that are held.

    By the campaign's lanes: its runs may be many, and mostly none is held.
    """
    lane, r, s = tables.lanes.c, tables.runs.c, tables.slices.c
    return (
        sa.select(r.workload)
        .join_from(tables.lanes, tables.slices, s.lane == -lane.lane_id)
        .join(tables.runs, s.run_id == r.run_id)
        # Without the second condition PostgreSQL reads all slices that wait, of all campaigns.
        .where(_waits(), s.lane < sa.literal_column("0"), lane.campaign_id == sa.bindparam("campaign_id"))
        .distinct()
    )


@cache
def open_ends() -> Any:
    """What keeps a campaign from ending. Nothing is counted, which would take longer in a large campaign."""
    r, q = tables.runs.c, tables.requests.c
    campaign: sa.BindParameter[str] = sa.bindparam("campaign_id")
    return sa.select(
        sa.exists()
        .where(r.campaign_id == campaign, statements.one_of(r.state, OPEN_RUNS))
        .label("open_runs"),
        sa.exists().where(q.campaign_id == campaign).label("requests"),
        held_workloads().exists().label("held_slices"),
    )


@cache
def gpu_seconds() -> sa.Select[Any]:
    """GPU seconds of ended attempts by campaign and by the hour (Unix time) in which they ended."""
    a, r, c = tables.attempts.c, tables.runs.c, tables.campaigns.c
    hour = (a.ended_at_ms // _HOUR_MS).label("hour")
    gpus = 1 + sa.func.json_array_length(a.gang)
    total = sa.func.sum((a.ended_at_ms - a.leased_at_ms) * gpus).label("ms")
    return (
        sa.select(c.campaign_id, c.owner, c.project, hour, total)
        .join_from(tables.attempts, tables.runs, a.run_id == r.run_id)
        .join(tables.campaigns, r.campaign_id == c.campaign_id)
        .where(r.device_key != "", a.ended_at_ms > 0)
        # By its name: PostgreSQL does not see that two expressions with parameters are one.
        .group_by(c.campaign_id, sa.column(hour.name))
    )


@cache
def gpus_held() -> sa.Select[Any]:
    """The attempts that hold a GPU, and whose they are."""
    a, r, c = tables.attempts.c, tables.runs.c, tables.campaigns.c
    key = (a.run_id, a.slice, a.attempt, a.token)
    return (
        sa.select(c.campaign_id, c.owner, c.project, *key, a.leased_at_ms, a.gang)
        .join_from(tables.attempts, tables.runs, a.run_id == r.run_id)
        .join(tables.campaigns, r.campaign_id == c.campaign_id)
        .where(r.device_key != "", a.state == sa.literal_column("'leased'"))
    )


def gpu_uses_from(ended: list[Mapping[Any, Any]], held: list[Mapping[Any, Any]]) -> list[GpuUse]:
    """The uses of these rows; ended ones count from the end of their hour on."""
    return [
        GpuUse(
            row["campaign_id"],
            row["owner"],
            row["project"],
            int(row["ms"]) / 1000,
            (row["hour"] + 1) * _HOUR_MS,
        )
        for row in ended
    ] + [
        GpuUse(
            row["campaign_id"],
            row["owner"],
            row["project"],
            key=AttemptKey(row["run_id"], row["slice"], row["attempt"], row["token"]),
            leased_at_ms=row["leased_at_ms"],
            gpus=1 + len(row["gang"]),
        )
        for row in held
    ]


def entrants_from(rows: list[Mapping[Any, Any]]) -> list[Entrant]:
    """The campaigns of these lanes, oldest first."""
    by_campaign: dict[str, Entrant] = {}
    lanes: dict[str, list[Lane]] = {}
    for row in rows:
        campaign_id = row["campaign_id"]
        lanes.setdefault(campaign_id, []).append(Lane(row["lane_id"], need_from(row["need"], campaign_id)))
        if campaign_id not in by_campaign:
            rules = SchedulingRules.from_document(row["rules"])
            whose = {"owner": row["owner"], "project": row["project"]}
            by_campaign[campaign_id] = Entrant(campaign_id, row["ordinal"], rules, (), **whose)
    return [replace(each, lanes=tuple(lanes[each.campaign_id])) for each in by_campaign.values()]
