"""The queue in SQL: lanes of waiting slices, and what the scheduler asks of them.

A slice stands in a lane from its insertion on. The index of waiting slices holds only those that wait, so it
follows every change of a slice's state, whoever makes it. The slices of a held run stand in the negative of
their lane, where nobody looks. Finding the first of a lane costs the same in
campaigns of any number and size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import sqlalchemy as sa

from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import AttemptState
from assay_server.campaign_file.compiled import SchedulingRules
from assay_server.store import tables
from assay_server.store.column_values import parsed
from assay_server.store.model import Entrant, GpuUse, Lane, OpenEnds, Run, Slice
from assay_server.store.parts.runs import RunRows, need_adapter, run_of, slice_of
from assay_server.store.statements import GPUS, IS_OPEN, OF_CAMPAIGN, RUNS_NOW

_A, _C, _L, _Q, _R, _S = (
    each.c
    for each in (tables.attempts, tables.campaigns, tables.lanes, tables.requests, tables.runs, tables.slices)
)
_OF_RUN = "of_run_"
_HOUR_MS = 3_600_000

# Literal, because the database uses a partial index only if the statement repeats its condition.
_WAITS = _S.state == sa.literal_column("'waiting'")
_IN_LANE = sa.and_(_WAITS, _S.lane == sa.bindparam("lane"))
# A slice's run, unless it has ended; the slices of an ended run do not wait, whoever ended it.
_OF_OPEN_RUN = sa.and_(_S.run_id == _R.run_id, IS_OPEN)
_EARLIEST_OF_LANE = (
    sa.select(sa.func.min(_S.not_before_ms))
    .join_from(tables.slices, tables.runs, _OF_OPEN_RUN)
    .where(_IN_LANE)
)
_RUNNING_CAMPAIGN = sa.select(_C.campaign_id).where(_C.campaign_id == sa.bindparam("campaign_id"), RUNS_NOW)
# By the campaign's lanes: its runs may be many, and mostly none is held.
HELD_WORKLOADS = (
    sa.select(_R.workload)
    .join_from(tables.lanes, tables.slices, _S.lane == -_L.lane_id)
    .join(tables.runs, _S.run_id == _R.run_id)
    # Without the second condition PostgreSQL reads all slices that wait, of all campaigns.
    .where(_WAITS, _S.lane < sa.literal_column("0"), _L.campaign_id == sa.bindparam("campaign_id"))
    .distinct()
)
# Nothing is counted, which would take longer in a large campaign.
_OPEN_ENDS: Any = sa.select(
    sa.exists().where(OF_CAMPAIGN, IS_OPEN).label("open_runs"),
    sa.exists().where(_Q.campaign_id == sa.bindparam("campaign_id")).label("requests"),
    HELD_WORKLOADS.exists().label("held_slices"),
)
# The lanes with waiting slices of running campaigns.
_LANES_WAITING = (
    sa.select(
        *(_L.lane_id, _L.need, _C.campaign_id, _C.ordinal, _C.owner, _C.project),
        sa.type_coerce(_C.compiled, sa.JSON)["scheduling"].label("rules"),
    )
    .join_from(tables.lanes, tables.campaigns, _L.campaign_id == _C.campaign_id)
    .where(RUNS_NOW, sa.exists().where(_WAITS, _S.lane == _L.lane_id))
    .order_by(_C.ordinal, _L.lane_id)
)
_HOUR = (_A.ended_at_ms // _HOUR_MS).label("hour")
_WHOSE = (_C.campaign_id, _C.owner, _C.project)


def _of_gpus(*columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Of attempts on GPUs, besides whose they are."""
    return (
        sa.select(*_WHOSE, *columns)
        .join_from(tables.attempts, tables.runs, _A.run_id == _R.run_id)
        .join(tables.campaigns, _R.campaign_id == _C.campaign_id)
        .where(_R.device_key != "")
    )


# GPU seconds of ended attempts by campaign and by the hour (Unix time) in which they ended.
_GPU_TIME = (
    _of_gpus(_HOUR, sa.func.sum((_A.ended_at_ms - _A.leased_at_ms) * GPUS).label("ms"))
    .where(_A.ended_at_ms > 0)
    # By its name: PostgreSQL does not see that two expressions with parameters are one.
    .group_by(_C.campaign_id, sa.column(_HOUR.name))
)
_GPUS_HELD = _of_gpus(_A.run_id, _A.slice, _A.attempt, _A.token, _A.leased_at_ms, _A.gang).where(
    _A.state == sa.literal_column("'leased'")
)


class QueueRows(RunRows):
    """What the scheduler asks of the queue, in SQL."""

    def entrants(self, campaign_ids: Sequence[str] | None = None) -> list[Entrant]:
        """Running campaigns with waiting slices, due or not, oldest first; None: of all campaigns.

        Slices of held runs do not count.
        """
        query = _LANES_WAITING
        if campaign_ids is not None:
            query = query.where(_C.campaign_id.in_(campaign_ids))
        entrants: dict[str, Entrant] = {}
        for row in self.rows(query):
            campaign_id = row["campaign_id"]
            if campaign_id not in entrants:
                rules = SchedulingRules.from_document(row["rules"])
                entrants[campaign_id] = Entrant(
                    campaign_id, row["ordinal"], rules, (), row["owner"], row["project"]
                )
            read = need_adapter().validate_json
            need = parsed(read, row["need"], f"campaign {campaign_id}", "a need of its runs")
            lane = Lane(row["lane_id"], need)
            entrants[campaign_id] = replace(entrants[campaign_id], lanes=(*entrants[campaign_id].lanes, lane))
        return list(entrants.values())

    def first_waiting(
        self,
        lane_ids: Sequence[int],
        now_ms: int,
        passed: Sequence[tuple[str, int]] = (),
        untried_in: tuple[str, str] | None = None,
    ) -> tuple[Run, Slice] | None:
        """The first slice in these lanes of a campaign that runs, in its order, that waits and is due.

        ``passed``: runs and slices to leave out. ``untried_in``: agent and slot, to leave out slices that
        have failed there.
        """
        values: dict[str, Any] = {"now_ms": now_ms}
        if passed:
            values["passed"] = list(passed)
        if untried_in:
            values |= {"untried_agent": untried_in[0], "untried_slot": untried_in[1]}
        query = _first_of_lane(bool(passed), bool(untried_in))
        candidates = [row for lane in lane_ids for row in self.rows(query, {**values, "lane": lane})]
        if not candidates:
            return None
        first = min(candidates, key=lambda row: int(row["ordinal"]))
        piece = slice_of(first)
        run = run_of({column.name: first[_OF_RUN + column.name] for column in tables.runs.c})
        self.keep(tables.slices, (piece.run_id, piece.index), piece)
        return self.keep(tables.runs, (run.run_id,), run), piece

    def is_running(self, campaign_id: str) -> bool:
        """Whether slots may have slices of a campaign: it runs and is not paused."""
        return bool(self.rows(_RUNNING_CAMPAIGN, {"campaign_id": campaign_id}))

    def earliest_due_ms(self, lane_id: int) -> int | None:
        """When the first waiting slice of a lane is due (Unix time, ms); None if none waits."""
        due_ms = self.connection.scalar(_EARLIEST_OF_LANE, {"lane": lane_id})
        return None if due_ms is None else int(due_ms)

    def gpu_uses(self) -> list[GpuUse]:
        """The use of GPUs: of ended attempts by campaign and hour, and each lease that is held.

        Ended ones count from the end of their hour on.
        """
        uses = []
        for row in self.rows(_GPU_TIME):
            whose = (row["campaign_id"], row["owner"], row["project"])
            uses.append(GpuUse(*whose, int(row["ms"]) / 1000, (row["hour"] + 1) * _HOUR_MS))
        for row in self.rows(_GPUS_HELD):
            whose = (row["campaign_id"], row["owner"], row["project"])
            key = AttemptKey(row["run_id"], row["slice"], row["attempt"], row["token"])
            gpus = 1 + len(row["gang"])
            uses.append(GpuUse(*whose, key=key, leased_at_ms=row["leased_at_ms"], gpus=gpus))
        return uses

    def open_ends(self, campaign_id: str) -> OpenEnds:
        """What keeps a campaign from ending; costs the same for any number of runs."""
        return OpenEnds(**self.rows(_OPEN_ENDS, {"campaign_id": campaign_id})[0])

    def held_workloads(self, campaign_id: str) -> set[str]:
        """The workloads of a campaign with waiting slices that are held."""
        rows = self.rows(HELD_WORKLOADS, {"campaign_id": campaign_id})
        return {row["workload"] for row in rows}


@cache
def _first_of_lane(passing: bool, untried: bool) -> sa.Select[Any]:
    """The first slice of a lane that waits and is due, if its campaign runs.

    Its run is in columns that begin with _OF_RUN.

    ``passing``: leave out the slices ``passed`` (pairs of run and index); ``untried``: also leave out those
    that have failed in the slot ``untried_slot`` ("": any) of the agent ``untried_agent``.
    """
    due = [_IN_LANE, _S.not_before_ms <= sa.bindparam("now_ms"), RUNS_NOW]
    if passing:
        due.append(sa.tuple_(_S.run_id, _S.index).not_in(sa.bindparam("passed", expanding=True)))
    if untried:
        of_slice = (_A.run_id == _S.run_id, _A.slice == _S.index, _A.state == AttemptState.FAILED)
        slot = sa.bindparam("untried_slot", type_=sa.Text)
        place = (_A.agent_id == sa.bindparam("untried_agent"), sa.or_(_A.slot_id == slot, slot == ""))
        due.append(~sa.exists().where(*of_slice, *place))
    of_run = (column.label(_OF_RUN + column.name) for column in tables.runs.c)
    return (
        sa.select(tables.slices, *of_run)
        .join_from(tables.slices, tables.runs, _OF_OPEN_RUN)
        .join(tables.campaigns, _R.campaign_id == _C.campaign_id)
        .where(*due)
        .order_by(_S.ordinal, _S.index)
        .limit(1)
    )
