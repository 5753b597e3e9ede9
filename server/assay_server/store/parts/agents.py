"""Agents and their heartbeats in SQL."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import sqlalchemy as sa

from assay_core.records.campaign import AttemptState
from assay_core.records.machine import InstalledDevice, Inventory, Slot
from assay_server.store import tables
from assay_server.store.column_values import Row, shallow
from assay_server.store.model import Agent, AgentSession
from assay_server.store.parts.known import KnownRows
from assay_server.store.statements import in_places, is_any

_A, _G, _I = tables.attempts.c, tables.agents.c, tables.identities.c
# With the labels of its identity; null for an agent without one.
_AGENTS_WITH_LABELS = sa.select(tables.agents, _I.labels).join_from(
    tables.agents, tables.identities, _G.agent_id == _I.identity_id, isouter=True
)
_AGENT_WITH_LABELS = _AGENTS_WITH_LABELS.where(_G.agent_id == sa.bindparam("agent_id"))
_SAW_AGENT = (
    sa.update(tables.agents)
    .where(_G.agent_id == sa.bindparam("agent"))
    .values(seen_at_ms=sa.bindparam("now_ms"))
)


@cache
def _sessions(places: int) -> sa.Select[Any]:
    return sa.select(_G.agent_id, _G.session_id, _G.seen_at_ms).where(is_any(_G.agent_id, places))


class AgentRows(KnownRows):
    """Agents and their heartbeats in SQL."""

    def agent(self, agent_id: str) -> Agent | None:
        known_agent: Agent | None = self.known.get((tables.agents.name, agent_id))
        if known_agent is None:
            row = self.driver.first(_AGENT_WITH_LABELS, {"agent_id": agent_id})
            known_agent = None if row is None else self.keep(tables.agents, (agent_id,), agent_of(row))
        return known_agent

    def agents(self) -> list[Agent]:
        """All agents that ever registered, in the order of their identifiers."""
        return [agent_of(row) for row in self.rows(_AGENTS_WITH_LABELS.order_by(_G.agent_id))]

    def sessions(self, agent_ids: Sequence[str]) -> dict[str, AgentSession]:
        """The current processes of those of these agents that are known."""
        return {
            row["agent_id"]: AgentSession(row["session_id"], row["seen_at_ms"])
            for given in in_places(dict.fromkeys(agent_ids))
            for row in self.driver.rows(_sessions(len(given)), given)
        }

    def put_agent(self, agent: Agent) -> None:
        """Add or replace an agent with its slots."""
        self.put(tables.agents, agent_values(agent))

    def saw_agents(self, agent_ids: Sequence[str], now_ms: int) -> None:
        """Note that these agents were seen now."""
        for agent_id in agent_ids:
            known: Agent | None = self.known.get((tables.agents.name, agent_id))
            if known is not None:
                self.known[(tables.agents.name, agent_id)] = replace(known, seen_at_ms=now_ms)
            self.driver.write(_SAW_AGENT, {"agent": agent_id, "now_ms": now_ms})

    def forget_agents(self, most: int) -> None:
        """Keep only the ``most`` agents that were seen last, and all that hold a lease."""
        newest = sa.select(_G.agent_id).order_by(_G.seen_at_ms.desc(), _G.agent_id).limit(most)
        busy = sa.select(_A.agent_id).where(_A.state == str(AttemptState.LEASED))
        self.write(sa.delete(tables.agents).where(_G.agent_id.not_in(newest), _G.agent_id.not_in(busy)))


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
