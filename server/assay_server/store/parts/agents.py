"""Agents and their heartbeats in SQL."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from assay_core.records.campaign import AttemptState
from assay_core.records.machine import InstalledDevice, Inventory, Slot
from assay_server.store import statements, tables
from assay_server.store.column_values import Row, shallow
from assay_server.store.model import Agent, AgentSession
from assay_server.store.parts.known import KnownRows
from assay_server.store.rows import heartbeats


class AgentRows(KnownRows):
    """Agents and their heartbeats in SQL."""

    def agent(self, agent_id: str) -> Agent | None:
        known_agent: Agent | None = self.known.get((tables.agents.name, agent_id))
        if known_agent is None:
            row = self.driver.first(statements.agent_with_labels(), {"agent_id": agent_id})
            known_agent = None if row is None else self.keep(tables.agents, (agent_id,), agent_of(row))
        return known_agent

    def agents(self) -> list[Agent]:
        """All agents that ever registered, in the order of their identifiers."""
        query = statements.agents_with_labels().order_by(tables.agents.c.agent_id)
        return [agent_of(row) for row in self.rows(query)]

    def sessions(self, agent_ids: Sequence[str]) -> dict[str, AgentSession]:
        """The current processes of those of these agents that are known."""
        return {
            row["agent_id"]: AgentSession(row["session_id"], row["seen_at_ms"])
            for given in heartbeats.in_places(dict.fromkeys(agent_ids))
            for row in self.driver.rows(heartbeats.sessions(len(given)), given)
        }

    def put_agent(self, agent: Agent) -> None:
        """Add or replace an agent with its slots."""
        self.write(sa.delete(tables.agents).where(tables.agents.c.agent_id == agent.agent_id))
        self.write(sa.insert(tables.agents), [agent_values(agent)])

    def saw_agents(self, agent_ids: Sequence[str], now_ms: int) -> None:
        """Note that these agents were seen now."""
        for agent_id in agent_ids:
            known: Agent | None = self.known.get((tables.agents.name, agent_id))
            if known is not None:
                self.known[(tables.agents.name, agent_id)] = replace(known, seen_at_ms=now_ms)
            self.driver.write(heartbeats.saw_agent(), {"agent": agent_id, "now_ms": now_ms})

    def forget_agents(self, most: int) -> None:
        """Keep only the ``most`` agents that were seen last, and all that hold a lease."""
        g, a = tables.agents.c, tables.attempts.c
        newest = sa.select(g.agent_id).order_by(g.seen_at_ms.desc(), g.agent_id).limit(most)
        busy = sa.select(a.agent_id).where(a.state == str(AttemptState.LEASED))
        self.write(sa.delete(tables.agents).where(g.agent_id.not_in(newest), g.agent_id.not_in(busy)))


def agent_of(row: Row) -> Agent:
    """The agent of a row that also has its identity's labels."""
    inventory = row["inventory"]
    slots = tuple(_slot(slot) for slot in row["slots"])
    other_fields = {
        "place": str(inventory.get("place", "")),
        "labels": tuple(row["labels"] or ()),
        "since_ms": int(inventory.get("since_ms", 0)),
    }
    return Agent(**{**row, "inventory": Inventory.from_dict(inventory), "slots": slots, **other_fields})


def _slot(document: Mapping[str, Any]) -> Slot:
    device = InstalledDevice(**document["device"]) if document.get("device") else None
    return Slot(**{**document, "profilers": tuple(document["profilers"]), "device": device})


def agent_values(agent: Agent) -> dict[str, Any]:
    """The row of an agent."""
    inventory = {**agent.inventory.to_dict(), "place": agent.place, "since_ms": agent.since_ms}
    slots = [dataclasses.asdict(slot) for slot in agent.slots]
    values = {**shallow(agent), "inventory": inventory, "slots": slots}
    del values["place"], values["labels"], values["since_ms"]
    return values
