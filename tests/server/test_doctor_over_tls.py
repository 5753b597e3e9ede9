"""The doctor of a box that has joined, and of a person who has logged in: both sides prove themselves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from assay_agent import main as agent_program
from assay_agent.daemon.state import credentials_folder
from assay_agent.doctor.check import Check
from assay_agent.doctor.reaching import server_check
from assay_client.local import diagnose
from assay_client.remote.client import Client
from assay_client.remote.logins import log_in
from assay_core.identity.certificates import certificate_pem
from assay_core.identity.keys import key_pem, new_key
from assay_core.identity.roles import Role
from assay_server.app import Server
from tests.support.identity.authorities import DAY, made_authority, made_credentials, now
from tests.support.identity.tls_lab import impostor, joined, tls_server, token_of
from tests.support.server.server_support import eventually

BOX = "a" * 32


@pytest.fixture
def lab(make_server: Callable[..., Server], short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setenv("ASSAY_CREDENTIALS", str(short_path / "logins"))
    return tls_server(make_server, short_path)


def test_a_server_that_lets_a_joined_box_in_is_ok_until_the_box_is_revoked(lab: Server) -> None:
    credentials = joined(lab, Role.AGENT, "box-1", BOX)
    address = lab.addresses[0]
    assert server_check(address, True, credentials) == Check(
        "server", "ok", f"{address} is the lab's server, it serves, and it lets us in"
    )
    with Client(lab.addresses[-1]) as owner:
        owner.revoke(BOX)

    def is_named() -> bool:
        found = server_check(address, True, credentials)
        return found.state == "missing" and "revoked" in found.found

    eventually(is_named, "the revoked box is told")


def test_nobody_is_believed_who_only_answers(lab: Server) -> None:
    address = lab.addresses[0]
    found = server_check(address, True)
    assert (found.state, found.found.partition(";")[0]) == ("note", f"something answers at {address}")
    credentials, key = made_credentials(made_authority("ours")), new_key()
    theirs = made_authority("theirs").issue_for_server(key.public_key(), DAY, now())
    with impostor((key_pem(key), certificate_pem(theirs))) as (address, notes):
        found = server_check(address, True, credentials)
    assert found.state == "missing"
    assert "it is another server, or somebody in its place" in found.found
    assert notes.calls == []


def test_the_doctors_of_box_and_laptop_use_what_they_joined_with(lab: Server, tmp_path: Path) -> None:
    state = tmp_path / "state"
    credentials_folder(state).write(joined(lab, Role.AGENT, "box-1", BOX))
    ran = CliRunner().invoke(agent_program.app, ["doctor", "--state", str(state), "--json"])
    (found,) = [each for each in json.loads(ran.stdout)["checks"] if each["name"] == "server"]
    assert found["state"] == "ok", "without --server it asks the server that the box has joined"
    assert found["found"].startswith(lab.addresses[0])
    log_in(lab.joins[0], token_of(lab, Role.VIEWER, "vera"))
    (found,) = [each for each in diagnose("client", tmp_path, lab.addresses[0]) if each["name"] == "server"]
    assert found["state"] == "ok"
