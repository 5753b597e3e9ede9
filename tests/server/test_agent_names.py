"""Agents over TLS register under their own name only, and leave an audit entry only if something changed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from assay_agent.uplink.connection import Connection, ServerRefusedError
from assay_client.remote.client import Client
from assay_core.identity.roles import Role
from assay_core.records.machine import Inventory, Registration, Slot
from assay_server.app import Server
from tests.support.identity.tls_lab import joined, tls_server
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import eventually

BOX, OTHER = "a" * 32, "b" * 32
MADE = Registration(BOX, "session-1", "box", Inventory(host="h"), (Slot("r", ("recorded",)),))


@pytest.fixture
def server(make_server: Callable[..., Server], short_path: Path) -> Server:
    return tls_server(make_server, short_path)


def names(server: Server) -> dict[str, str]:
    with Client(server.addresses[-1]) as owner:
        return {agent["agent_id"]: agent["name"] for agent in owner.agents()["agents"]}


def register(connection: Connection, *registrations: Registration) -> None:
    for each in registrations:
        connection.register(each, threading.Event())


def audited(server: Server) -> Sequence[tuple[str, str]]:
    """Subject and outcome of each registration, oldest first."""
    with Client(server.addresses[-1]) as owner:
        entries = [each for each in owner.audit()["entries"] if each["call"] == "Register"]
    return [(each["subject"], each["outcome"]) for each in reversed(entries)]


def test_no_agent_registers_under_the_name_of_another(server: Server) -> None:
    mine, other = (joined(server, Role.AGENT, name, one) for name, one in (("box", BOX), ("other", OTHER)))
    with PlayingAgent(server.addresses[-1], "of the socket") as agent:
        agent.register()
        of_the_socket = f"name of {agent.agent_id}"
    thief = Connection(other.server, other)
    for name in ("box", of_the_socket):
        with pytest.raises(ServerRefusedError, match="another agent has this name"):
            register(thief, replace(MADE, agent_id=OTHER, name=name))
    register(thief, replace(MADE, agent_id=OTHER, name="other"))
    thief.close()
    box = Connection(mine.server, mine)
    # Its own name by joining, another free one, and the one that it has already.
    register(box, MADE, replace(MADE, name="renamed"), replace(MADE, name="renamed"))
    box.close()
    assert names(server) == {BOX: "renamed", OTHER: "other", "of the socket": of_the_socket}


def test_a_registration_leaves_an_entry_only_if_something_changed(server: Server) -> None:
    mine = joined(server, Role.AGENT, "box", BOX)
    joined(server, Role.AGENT, "other", OTHER)
    box = Connection(mine.server, mine)
    register(box, MADE, *(replace(MADE, session_id=f"session-{number}") for number in range(2, 9)))
    once = [(f"agent {BOX}, name box", "done")]
    assert audited(server) == once
    register(box, replace(MADE, slots=(*MADE.slots, Slot("s", ("recorded",)))))
    assert audited(server) == once * 2
    with pytest.raises(ServerRefusedError):
        register(box, replace(MADE, name="other"))
    box.close()
    # Refusals are written after their answer.
    refused = [*once * 2, (f"agent {BOX}, name other", "permission_denied")]
    eventually(lambda: audited(server) == refused, "the entry of the refusal")
