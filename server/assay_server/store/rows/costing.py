"""Statements about the cost of a campaign: what is left of it, and what was spent."""

from __future__ import annotations

from functools import cache
from typing import Any

import sqlalchemy as sa

from assay_core.records.campaign import AttemptState
from assay_server.store import statements, tables
from assay_server.store.model import SliceState


@cache
def open_slices() -> sa.Select[Any]:
    """How many slices of each workload, kind of GPU and level of a campaign have not ended.

    With their launches on average, 0 where all go on to the end of their program.
    """
    r, s = tables.runs.c, tables.slices.c
    group = (r.workload, r.device_key, r.level)
    not_ended = s.state.in_([str(SliceState.WAITING), str(SliceState.LEASED)])
    return (
        sa.select(*group, sa.func.count().label("slices"), sa.func.avg(s.launch_count).label("launches"))
        .join_from(tables.runs, tables.slices, s.run_id == r.run_id)
        .where(r.campaign_id == sa.bindparam("campaign_id"), not_ended)
        .group_by(*group)
    )


@cache
def spent() -> sa.Select[Any]:
    """Published slices with their seconds, and how long all attempts had their slots, by those groups.

    "held_ms" counts every GPU of a gang, "gpus" is their number.
    """
    r, a = tables.runs.c, tables.attempts.c
    group = (r.workload, r.device_key, r.level)
    published = a.state == str(AttemptState.PUBLISHED)
    until_ms = sa.case((a.ended_at_ms > 0, a.ended_at_ms), else_=sa.bindparam("now_ms", type_=sa.BigInteger))
    gpus = 1 + sa.func.json_array_length(a.gang)
    return (
        sa.select(
            *group,
            sa.func.sum(sa.case((published, 1), else_=0)).label("published"),
            sa.func.sum(sa.case((published, statements.attempt_seconds()), else_=0.0)).label(
                "published_seconds"
            ),
            sa.func.sum((until_ms - a.leased_at_ms) * gpus).label("held_ms"),
            sa.func.max(gpus).label("gpus"),
        )
        .join_from(tables.runs, tables.attempts, a.run_id == r.run_id)
        .where(r.campaign_id == sa.bindparam("campaign_id"))
        .group_by(*group)
    )


@cache
def measured() -> sa.Select[Any]:
    """When the last attempt of a campaign ended, and how many launches were published."""
    r, a = tables.runs.c, tables.attempts.c
    launches = sa.case((a.state == str(AttemptState.PUBLISHED), a.launches), else_=0)
    return (
        sa.select(sa.func.max(a.ended_at_ms).label("ended_at_ms"), sa.func.sum(launches).label("launches"))
        .join_from(tables.runs, tables.attempts, a.run_id == r.run_id)
        .where(r.campaign_id == sa.bindparam("campaign_id"))
    )
