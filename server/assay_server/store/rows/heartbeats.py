"""The statements behind heartbeats, of which a group is answered together."""

from __future__ import annotations

from functools import cache
from typing import Any

import sqlalchemy as sa

from assay_server.store import statements, tables


@cache
def sessions() -> sa.Select[Any]:
    """The current processes of agents, and when they were seen."""
    a = tables.agents.c
    named = a.agent_id.in_(sa.bindparam("agent_ids", expanding=True))
    return sa.select(a.agent_id, a.session_id, a.seen_at_ms).where(named)


@cache
def attempts_with_tokens() -> sa.Select[Any]:
    """The attempts with these fencing tokens."""
    of_tokens = tables.attempts.c.token.in_(sa.bindparam("tokens", expanding=True))
    return sa.select(tables.attempts).where(of_tokens)


@cache
def saw_agent() -> sa.Update:
    """Note when an agent was seen."""
    agent = tables.agents.c.agent_id == sa.bindparam("agent")
    return sa.update(tables.agents).where(agent).values(seen_at_ms=sa.bindparam("now_ms"))


@cache
def extend_attempt() -> sa.Update:
    """Let a lease end later; launches that are spooled never become fewer."""
    a = tables.attempts.c
    spooled: sa.BindParameter[int] = sa.bindparam("spooled", type_=sa.BigInteger)
    return (
        sa.update(tables.attempts)
        .where(*(a[name] == sa.bindparam(statements.KEY + name) for name in ("run_id", "slice", "attempt")))
        .values(
            deadline_ms=sa.bindparam("ends_at_ms"),
            confirmed=True,
            launches_spooled=sa.case((a.launches_spooled < spooled, spooled), else_=a.launches_spooled),
        )
    )
