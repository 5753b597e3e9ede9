"""Agents and their rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from assay_core.records.machine import InstalledDevice, Inventory, Slot
from assay_server.store.model import Agent
from assay_server.store.values.fields import Row, shallow


def agent_of(row: Row) -> Agent:
    """The agent of a row that also has its identity's labels."""
    inventory = row["inventory"]
    slots = tuple(_slot(slot) for slot in row["slots"])
    kept = {
        "place": str(inventory.get("place", "")),
        "labels": tuple(row["labels"] or ()),
        "since_ms": int(inventory.get("since_ms", 0)),
    }
    return Agent(**{**row, "inventory": Inventory.from_dict(inventory), "slots": slots, **kept})


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
