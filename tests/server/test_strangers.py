"""What strangers can do at the ports of a server: hold connections. And agents: choose names."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_core.connecting.joining import join
from assay_core.identity.roles import Role
from assay_core.records.machine import Inventory, Registration, Slot
from assay_server.access.audit import AuditLog, Note
from assay_server.access.caller import Caller
from assay_server.app import Server
from assay_server.limits import CallLimits, JoinLimits
from assay_server.rpc.handlers.agents import agent_of
from assay_server.store.sqlite import SqliteStore
from tests.support.identity.tls_lab import tls_server, token_of
from tests.support.server.server_support import eventually

BOX = "a" * 32
STEERING = "\x1b]0;owned\x07\x1b[2Jbox\u202e\n<b>"


def connected(address: str, *, tls: bool = False) -> socket.socket:
    host, port = address.split(":")
    plain = socket.create_connection((host, int(port)), timeout=60)
    if not tls:
        return plain
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context.wrap_socket(plain)


def is_open(connection: socket.socket) -> bool:
    """Whether the other side has not closed it; reads what it said."""
    connection.settimeout(0.01)
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return True
    except OSError:
        return False
    return False


def test_connections_that_do_not_join_are_few_and_end(
    make_server: Callable[..., Server], short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger who only connects does not take the files that the process may open."""
    monkeypatch.setattr(CallLimits, "handshake_seconds", 4)
    few = JoinLimits(join_connections=4, join_idle_seconds=1)
    monkeypatch.setattr("assay_server.rpc.server.JOIN_LIMITS", few)
    lab = tls_server(make_server, short_path)
    with ExitStack() as stack:
        silent = [stack.enter_context(connected(lab.joins[0])) for _ in range(12)]
        eventually(lambda: sum(map(is_open, silent)) <= 4, "the end of connections beyond the limit")
        at_the_main_port = stack.enter_context(connected(lab.addresses[0]))
        eventually(lambda: not any(map(is_open, [*silent, at_the_main_port])), "the end of all the silent")
        idle = stack.enter_context(connected(lab.joins[0], tls=True))
        eventually(lambda: not is_open(idle), "the end of one that makes no call")
    assert join(lab.joins[0], token_of(lab, Role.AGENT), name="box", identity_id=BOX)[1].name == "box"


@given(st.text(max_size=300))
def test_an_agents_name_is_short_and_can_be_printed(name: str) -> None:
    found = agent_of(Registration(BOX, "session", name, Inventory(), (Slot("r", ("recorded",)),))).name
    assert found and found.isprintable() and len(found) <= 100
    if name.isprintable() and len(name) <= 100 and name:
        assert found == name


def test_a_name_that_steers_a_terminal_is_not_kept() -> None:
    registration = Registration(BOX, "session", STEERING, Inventory(), (Slot("r", ("recorded",)),))
    assert agent_of(registration).name == "?]0;owned??[2Jbox??<b>"


def test_refused_strangers_hide_no_refusal_of_a_member() -> None:
    store = SqliteStore(None)
    log = AuditLog(store, days=1, most_per_minute=2)
    for _ in range(5):
        log.end(Note("Join", "ipv4:192.0.2.7:1"), "unauthenticated", "no")
    vera = Caller(BOX, "vera", Role.VIEWER)
    for _ in range(3):
        log.end(Note("Cancel", "ipv4:192.0.2.8:1", vera), "permission_denied", "no")
    with store.snapshot() as read:
        found = [each.call for each in read.audit_entries(before=0, most=10, identity="", since_ms=0)]
    assert found == ["Cancel", "Cancel", "Join", "Join"]
