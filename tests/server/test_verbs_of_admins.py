"""The verbs of admins and members by the command line, over mutual TLS, on one server."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from typer.testing import CliRunner

from assay_client.cli.main import main
from assay_core.connecting.joining import join
from assay_core.identity.credentials import Credentials
from assay_core.identity.roles import Role
from assay_sampling.errors import ParameterError
from assay_server.access.table import services
from assay_server.app import Server, ServerSettings
from assay_server.cli.program import program
from tests.support.identity.tls_lab import channel_of, joined, tls_server

BOX = "a" * 32


@pytest.fixture
def server(make_server: Callable[..., Server], short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setenv("ASSAY_CREDENTIALS", str(short_path / "logins"))
    monkeypatch.setenv("COLUMNS", "200")
    return tls_server(make_server, short_path)


@pytest.fixture
def assay(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command line in this process: its exit code and what it prints."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main(list(arguments))
        return (code, *capfd.readouterr())

    return run


def test_a_member_comes_changes_role_and_goes(server: Server, assay: Any) -> None:
    owner, member = ("--server", server.addresses[1]), ("--server", server.addresses[0])

    def told(*arguments: str) -> Any:
        code, out, said = assay(*arguments, "--json")
        assert code == 0, said
        return json.loads(out)

    made = told(
        "admin", "token", "--role", "submitter", "--name", "ada", "--project", "vision", "--uses", "3", *owner
    )
    assert told("lab", "login", server.joins[0], "--token", made["token"])["role"] == "submitter"
    assert told("lab", "health", *member)["serving"] is True
    assert assay("admin", "audit", *member)[0] == assay("admin", "role", "ada", "admin", *member)[0] == 11

    code, out, _ = assay("admin", "role", "ada", "viewer", "--project", "*", *owner)
    assert (code, "viewer, project *" in out) == (0, True)
    assert assay("admin", "role", "nobody", "viewer", *owner)[0] == 2
    [ada] = told("admin", "identities", *owner)["identities"]
    assert (ada["role"], ada["project"]) == ("viewer", "*")

    code, out, _ = assay("admin", "audit", *owner)
    assert code == 0 and "submitter to viewer, project 'vision' to '*'" in out
    of_ada = told("admin", "audit", "--identity", "ada", *owner)["entries"]
    assert {each["outcome"] for each in of_ada} == {"permission_denied"}

    code, out, _ = assay("admin", "revoke", ada["identity_id"], *owner)
    assert code == 0 and "could join again" not in out  # a person's open tokens always go with them
    assert assay("lab", "status", *member)[0] == 11
    code, out, _ = assay("lab", "logout", *member)
    assert code == 0 and "could not be revoked (its identity was revoked)" in out
    assert assay("lab", "logout", *member)[0] == 2


def test_revoking_a_box_offers_the_tokens_that_let_it_back(server: Server, assay: Any) -> None:
    owner = ("--server", server.addresses[1])
    code, out, _ = assay("admin", "token", "--role", "agent", "--uses", "3", "--json", *owner)
    token = json.loads(out)
    join(server.joins[0], token["token"], name="box", identity_id=BOX)
    code, out, _ = assay("admin", "revoke", "box", *owner)
    assert code == 0 and f"could join again: {token['token_id']}" in out
    assert f"assay admin revoke {BOX} --tokens" in out
    code, out, _ = assay("admin", "revoke", BOX, "--tokens", *owner)
    assert code == 0 and f"and the join tokens that it used: {token['token_id']}" in out
    assert json.loads(assay("admin", "identities", "--json", *owner)[1])["tokens"] == []


def test_tokens_tell_where_to_join_a_server_behind_another_name(
    make_server: Callable[..., Server], short_path: Path, assay: Any
) -> None:
    server = tls_server(make_server, short_path, advertise_join="lab.example.org:443")
    code, out, _ = assay("admin", "token", "--role", "agent", "--server", server.addresses[1])
    assert code == 0 and "assay-agent join lab.example.org:443 --token TOKEN" in out
    code, out, _ = assay("admin", "token", "--role", "agent", "--json", "--server", server.addresses[1])
    assert json.loads(out)["join_address"] == "lab.example.org:443"
    asked = ["token", "--role", "viewer", "--name", "vera", "--state", str(server.settings.state_dir)]
    told = CliRunner().invoke(program, [*asked, "--advertise-join", "other:444"])
    assert told.exit_code == 0 and "assay lab login other:444 --token TOKEN" in told.stdout
    for address in ("nothing", "unix:/x"):
        with pytest.raises(ParameterError, match="advertise-join"):
            ServerSettings(state_dir=short_path, advertise_join=address)


def test_health_waits_for_a_server_that_starts(
    make_server: Callable[..., Server], short_path: Path, assay: Any
) -> None:
    address = f"unix:{short_path}/server.sock"
    code, out, said = assay("lab", "health", "--server", address, "--wait", "300ms")
    assert (code, out, said.count("no server answers there")) == (5, "", 1)
    starting = threading.Timer(0.5, make_server)
    starting.start()
    code, out, said = assay("lab", "health", "--server", address, "--wait", "60s")
    starting.join()
    assert (code, out, said) == (0, f"{address}: serving\n", "")


def test_probes_of_members_ask_for_health_over_mutual_tls_and_strangers_may_not(server: Server) -> None:
    def health(who: Credentials | None, service: str = "") -> str:
        with channel_of(server, who) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            try:
                answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=20)
                first = next(iter(stub.Watch(health_pb2.HealthCheckRequest(service=service), timeout=20)))
            except grpc.RpcError as error:
                return str(error.code().name)
            assert answer == first
            return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)

    vera, box = joined(server, Role.VIEWER, "vera"), joined(server, Role.AGENT, "box", BOX)
    assert {health(who, service) for who in (vera, box) for service in ("", *services())} == {"SERVING"}
    assert health(vera, "assay.v1.Nothing") == "NOT_FOUND"
    assert health(None) == "UNAVAILABLE"
