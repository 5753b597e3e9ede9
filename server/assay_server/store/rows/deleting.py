"""Deleting what a person gave up, in SQL: runs of a campaign with all their rows, campaigns, old logs."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from assay_core.records.campaign import ENDED_CAMPAIGNS, AttemptState
from assay_server.store import tables

# The highest number of deleted campaigns of a name is kept among the tokens, so that it is not given again.
_NUMBER = "campaign:"
_FRUITLESS = (AttemptState.FAILED, AttemptState.SUPERSEDED, AttemptState.CANCELLED, AttemptState.EXPIRED)


def delete_runs(connection: sa.Connection, run_ids: Sequence[str]) -> None:
    """Delete runs with their slices, attempts and segments."""
    for table in (tables.segments, tables.attempts, tables.slices, tables.runs):
        connection.execute(sa.delete(table).where(table.c.run_id.in_(run_ids)))


def delete_campaign(connection: sa.Connection, campaign_id: str, name: str, number: int) -> None:
    """Delete a campaign that has no runs any more; its number is remembered."""
    connection.execute(sa.delete(tables.campaigns).where(tables.campaigns.c.campaign_id == campaign_id))
    t = tables.tokens
    last = max(deleted_number(connection, name), number)
    connection.execute(sa.delete(t).where(t.c.name == _NUMBER + name))
    connection.execute(sa.insert(t), [{"name": _NUMBER + name, "value": last}])


def deleted_number(connection: sa.Connection, name: str) -> int:
    """The highest number of a deleted campaign of that name; 0: none was deleted."""
    t = tables.tokens.c
    return int(connection.scalar(sa.select(t.value).where(t.name == _NUMBER + name)) or 0)


def published_bytes(connection: sa.Connection) -> int:
    """The bytes of all published files."""
    return int(connection.scalar(sa.select(sa.func.sum(tables.slices.c.file_bytes))) or 0)


def forget_logs(connection: sa.Connection, before_ms: int, most: int, notice: str) -> int:
    """Replace the logs of attempts without a result of campaigns that ended before; returns how many.

    At most ``most`` of them: the caller asks again.
    """
    a, r, c = tables.attempts.c, tables.runs.c, tables.campaigns.c
    old = (
        sa.select(a.run_id, a.slice, a.attempt)
        .join(tables.runs, r.run_id == a.run_id)
        .join(tables.campaigns, c.campaign_id == r.campaign_id)
        .where(
            c.state.in_([str(state) for state in ENDED_CAMPAIGNS]),
            c.ended_at_ms < before_ms,
            a.state.in_([str(state) for state in _FRUITLESS]),
            a.log.not_in(["", notice]),
        )
        .limit(most)
    )
    attempts = connection.execute(old).all()
    for run_id, piece, attempt in attempts:
        connection.execute(
            sa.update(tables.attempts)
            .where(a.run_id == run_id, a.slice == piece, a.attempt == attempt)
            .values(log=notice, telemetry="")
        )
    return len(attempts)
