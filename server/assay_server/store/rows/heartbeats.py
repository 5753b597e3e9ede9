"""The statements behind heartbeats: many agents and attempts in one statement each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa

from assay_core.records.attempt import AttemptKey
from assay_server.store import tables
from assay_server.store.model import AgentSession

_MOST_KEYS = 1_000  # in one statement: SQLite takes 32,766 parameters, and each key has three


def sessions(connection: sa.Connection, agent_ids: Sequence[str]) -> dict[str, AgentSession]:
    """The current processes of agents, by the agents' identities."""
    if not agent_ids:
        return {}
    rows = connection.execute(_sessions(), {"agents": list(dict.fromkeys(agent_ids))})
    return {row.agent_id: AgentSession(row.session_id, row.seen_at_ms) for row in rows}


def attempts_by_key(connection: sa.Connection, keys: Sequence[AttemptKey]) -> Iterator[Mapping[Any, Any]]:
    """Rows of the attempts with these runs, slices and numbers."""
    wanted = list({(key.run_id, key.slice_index, key.attempt) for key in keys})
    for start in range(0, len(wanted), _MOST_KEYS):
        given = {"keys": wanted[start : start + _MOST_KEYS]}
        yield from connection.execute(_attempts_by_key(), given).mappings().all()


def extend_attempts(
    connection: sa.Connection, progress: Sequence[tuple[AttemptKey, int]], lease_ends_at_ms: int
) -> None:
    """Let leases end later; launches that are spooled never become fewer."""
    if progress:
        connection.execute(
            _extend_attempts(),
            [
                {
                    "run": key.run_id,
                    "slice_": key.slice_index,
                    "number": key.attempt,
                    "spooled": spooled,
                    "ends_at_ms": lease_ends_at_ms,
                }
                for key, spooled in progress
            ],
        )


@cache
def _sessions() -> sa.Select[Any]:
    a = tables.agents.c
    query = sa.select(a.agent_id, a.session_id, a.seen_at_ms)
    return query.where(a.agent_id.in_(sa.bindparam("agents", expanding=True)))


@cache
def _attempts_by_key() -> sa.Select[Any]:
    a = tables.attempts.c
    key = sa.tuple_(a.run_id, a.slice, a.attempt)
    return sa.select(tables.attempts).where(key.in_(sa.bindparam("keys", expanding=True)))


@cache
def saw_agent() -> sa.Update:
    """Note when an agent was seen."""
    agent = tables.agents.c.agent_id == sa.bindparam("agent")
    return sa.update(tables.agents).where(agent).values(seen_at_ms=sa.bindparam("now_ms"))


@cache
def _extend_attempts() -> sa.Update:
    a = tables.attempts.c
    key = (
        a.run_id == sa.bindparam("run"),
        a.slice == sa.bindparam("slice_"),
        a.attempt == sa.bindparam("number"),
    )
    spooled: sa.BindParameter[int] = sa.bindparam("spooled", type_=sa.BigInteger)
    return (
        sa.update(tables.attempts)
        .where(*key)
        .values(
            deadline_ms=sa.bindparam("ends_at_ms"),
            confirmed=True,
            launches_spooled=sa.case((a.launches_spooled < spooled, spooled), else_=a.launches_spooled),
        )
    )
