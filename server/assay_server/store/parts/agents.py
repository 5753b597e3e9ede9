"""Agents and their heartbeats in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from assay_core.records.campaign import AttemptState
from assay_core.records.machine import Inventory
from assay_server.store import tables
from assay_server.store.column_values import Row, shallow
from assay_server.store.model import Agent, AgentSession
from assay_server.store.parts.record_cache import CachedRecords

_A, _G, _I = tables.attempts.c, tables.agents.c, tables.identities.c
# With the labels of its identity; null for an agent without one.
_AGENTS_WITH_LABELS = sa.select(tables.agents, _I.labels).join_from(
    tables.agents, tables.identities, _G.agent_id == _I.identity_id, isouter=True
)
_AGENT_WITH_LABELS = _AGENTS_WITH_LABELS.where(_G.agent_id == sa.bindparam("agent_id"))
_THESE = _G.agent_id.in_(sa.bindparam("agent_ids", expanding=True))
_SESSIONS = sa.select(_G.agent_id, _G.session_id, _G.seen_at_ms).where(_THESE)
_SAW_AGENTS = sa.update(tables.agents).where(_THESE).values(seen_at_ms=sa.bindparam("now_ms"))


class AgentRows(CachedRecords):
    """Agents and their heartbeats in SQL."""

    def agent(self, agent_id: str) -> Agent | None:
        agent: Agent | None = self.cached(tables.agents, (agent_id,))
        for row in self.rows(_AGENT_WITH_LABELS, {"agent_id": agent_id}) if agent is None else ():
            agent = self.keep(tables.agents, (agent_id,), agent_of(row))
        return agent

    def agents(self) -> list[Agent]:
        """All agents that ever registered, in the order of their identifiers."""
        return [agent_of(row) for row in self.rows(_AGENTS_WITH_LABELS.order_by(_G.agent_id))]

    def sessions(self, agent_ids: Sequence[str]) -> dict[str, AgentSession]:
        """The current processes of those of these agents that are known."""
        return {
            row["agent_id"]: AgentSession(row["session_id"], row["seen_at_ms"])
            for row in self.rows(_SESSIONS, {"agent_ids": agent_ids})
        }

    def put_agent(self, agent: Agent) -> None:
        """Add or replace an agent with its slots."""
        self.put(tables.agents, agent_values(agent))

    def saw_agents(self, agent_ids: Sequence[str], now_ms: int) -> None:
        """Note that these agents were seen now."""
        self.connection.execute(_SAW_AGENTS, {"agent_ids": agent_ids, "now_ms": now_ms})
        for agent_id in agent_ids:
            if (agent := self.cached(tables.agents, (agent_id,))) is not None:
                self.keep(tables.agents, (agent_id,), replace(agent, seen_at_ms=now_ms))

    def forget_agents(self, most: int) -> None:
        """Keep only the ``most`` agents that were seen last, and all that hold a lease."""
        newest = sa.select(_G.agent_id).order_by(_G.seen_at_ms.desc(), _G.agent_id).limit(most)
        busy = sa.select(_A.agent_id).where(_A.state == AttemptState.LEASED)
        self.write(sa.delete(tables.agents).where(_G.agent_id.not_in(newest), _G.agent_id.not_in(busy)))


def agent_of(row: Row) -> Agent:
    """The agent of a row that also has its identity's labels."""
    inventory = row["inventory"]
    other_fields = {
        "inventory": Inventory.from_dict(inventory),
        "place": str(inventory.get("place", "")),
        "labels": row["labels"] or (),
        "since_ms": int(inventory.get("since_ms", 0)),
    }
    return Agent(**{**row, **other_fields})


def agent_values(agent: Agent) -> dict[str, Any]:
    """The row of an agent."""
    values = {name: value for name, value in shallow(agent).items() if name in _G}
    return {
        **values,
        "inventory": {**agent.inventory.to_dict(), "place": agent.place, "since_ms": agent.since_ms},
    }
