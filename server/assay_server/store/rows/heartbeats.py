"""The statements behind heartbeats, each for one agent or attempt; a group of them is sent together."""

from __future__ import annotations

from functools import cache
from typing import Any

import sqlalchemy as sa

from assay_server.store import statements, tables


@cache
def session() -> sa.Select[Any]:
    """The current process of an agent, and when it was seen."""
    a = tables.agents.c
    return sa.select(a.session_id, a.seen_at_ms).where(a.agent_id == sa.bindparam("agent_id"))


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
