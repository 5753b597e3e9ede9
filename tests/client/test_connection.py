"""The client's side of the wire: addresses, typed errors, deadlines, and watching over breaks."""

from __future__ import annotations

import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from assay_client.remote.addresses import server_address
from assay_client.remote.client import Client
from assay_client.remote.connection import Connection
from assay_client.remote.logins import login_folder
from assay_core.identity.roles import IdentityKind
from assay_core.server_address import parse_address
from assay_protos import campaign_pb2
from assay_sampling import errors
from tests.support.client.scripted_server import FakeServer, Refusal, Script, status
from tests.support.identity.authorities import DAY, made_authority, made_credentials, now


@pytest.mark.parametrize(
    "address", ["127.0.0.1:1", "localhost:7170", "[::1]:7170", "127.8.8.8:65535", "unix:/tmp/s"]
)
def test_an_address_on_this_machine_is_taken_as_it_is(address: str) -> None:
    assert server_address(address) == address


def test_the_default_server_is_the_variable_then_this_users_socket(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ASSAY_SERVER", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert server_address() == f"unix:{tmp_path}/assay/server.sock"
    monkeypatch.setenv("ASSAY_SERVER", "unix:/run/assay.sock")
    assert server_address() == "unix:/run/assay.sock"
    assert server_address("127.0.0.1:9") == "127.0.0.1:9"


@pytest.mark.parametrize("address", ["7170", ":7170", "host:", "host:port", "host:0", "host:65536", "unix:"])
def test_what_is_not_an_address_is_a_parameter_error(address: str) -> None:
    with pytest.raises(errors.ParameterError, match="--server"):
        server_address(address)


def test_over_tcp_nothing_is_sent_without_a_login() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with pytest.raises(
            errors.NotIdentifiedError, match=r"you have not logged in to it .*: assay lab login"
        ):
            Connection(f"127.0.0.1:{listener.getsockname()[1]}")
        listener.settimeout(30)
        connection, _address = listener.accept()
        with connection:
            assert connection.recv(1) == b""


def test_without_a_login_a_server_that_is_not_there_is_not_taken_for_one() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for address in (f"127.0.0.1:{port}", "nobody..here:7170"):
        with pytest.raises(errors.ServerUnreachableError, match="nothing listens there"):
            Connection(address)


def _logged_in(address: str, **given: Any) -> None:
    credentials = made_credentials(made_authority(), IdentityKind.PERSON, server=address, **given)
    login_folder(parse_address(address)).write(credentials)


def test_a_server_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    _logged_in(f"127.0.0.1:{port}")
    # Whoever waited an hour for an answer would not come back within the time of a test.
    for address in (f"unix:{tmp_path}/s", f"127.0.0.1:{port}"):
        with (
            Connection(address, connect_seconds=3600) as connection,
            pytest.raises(errors.ServerUnreachableError, match=r"no server answers there"),
        ):
            connection.campaigns()


def test_a_port_that_takes_connections_and_says_nothing_ends_in_a_deadline() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        _logged_in(address)
        with (
            Connection(address, connect_seconds=0.3) as connection,
            pytest.raises(errors.ServerUnreachableError, match="no server answers there"),
        ):
            connection.campaigns()


def test_an_expired_login_says_how_to_log_in_again() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        _logged_in(address, at=now() - 2 * DAY)
        with (
            Connection(address) as connection,
            pytest.raises(errors.NotIdentifiedError, match=r"has expired; log in again .*assay lab login"),
        ):
            connection.campaigns()


def test_a_proxy_in_the_environment_is_not_used(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with Client(server.address) as client:
        assert client.status("c-1")["state"] == "running"


@pytest.mark.parametrize(
    "kind",
    [
        errors.CampaignError, errors.InputError, errors.RefusedError, errors.MisalignedError,
        errors.StorageError, errors.MissingExtraError, errors.ParameterError,
    ],
)  # fmt: skip
def test_an_error_of_the_server_is_the_same_error_here(
    server: FakeServer, script: Script, kind: type[errors.AssayError]
) -> None:
    document = {"type": kind.__name__, "subject": "c.yaml:3", "cause": "unknown key 'x'", "remedy": "drop it"}

    def refuse(_: object) -> campaign_pb2.SubmitResponse:
        raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, "shown to nobody", document)

    script.submit = refuse
    with Connection(server.address) as connection, pytest.raises(errors.AssayError) as caught:
        connection.submit("", "c.yaml", "/")
    assert type(caught.value) is kind
    assert str(caught.value) == "c.yaml:3: unknown key 'x'; drop it"
    assert caught.value.exit_code == kind.exit_code


def test_short_connections_that_submit_end_in_silence(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of gRPC raised where the channel was closed while it was to be watched."""
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    for number in range(60):
        with Connection(server.address) as connection:
            assert connection.submit("", "c.yaml", "/", key=f"k-{number}").campaign_id == "c-1"
    time.sleep(0.3)
    assert raised == []


def test_a_submission_whose_answer_was_lost_is_sent_again_under_its_key(
    server: FakeServer, script: Script
) -> None:
    keys: list[str] = []

    def dying(request: campaign_pb2.SubmitRequest) -> campaign_pb2.SubmitResponse:
        keys.append(request.key)
        if len(keys) < 3:
            raise Refusal(grpc.StatusCode.UNAVAILABLE, "the server died")
        return campaign_pb2.SubmitResponse(campaign_id="c-1", runs=2)

    script.submit = dying
    with Connection(server.address) as connection:
        connection.campaigns()  # so a server was there
        assert connection.submit("", "c.yaml", "/", key="mine").campaign_id == "c-1"
        assert keys == ["mine"] * 3
        keys.clear()
        with pytest.raises(errors.ServerUnreachableError, match="went away"):
            connection.submit("", "c.yaml", "/")  # without a key it could become two campaigns
        assert keys == [""]


def test_a_first_submission_whose_answer_was_lost_is_sent_again_too(
    server: FakeServer, script: Script
) -> None:
    keys: list[str] = []

    def dying(request: campaign_pb2.SubmitRequest) -> campaign_pb2.SubmitResponse:
        keys.append(request.key)
        if len(keys) < 2:
            raise Refusal(grpc.StatusCode.UNAVAILABLE, "the server died")
        return campaign_pb2.SubmitResponse(campaign_id="c-1", runs=2)

    script.submit = dying
    with Connection(server.address) as connection:  # that has asked nothing before
        assert connection.submit("", "c.yaml", "/", key="mine").campaign_id == "c-1"
    assert keys == ["mine"] * 2


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (b"\xff not json", errors.CampaignError),
        (b"[1, 2]", errors.CampaignError),
        (json.dumps({"type": "Path", "subject": "s", "cause": "c"}).encode(), errors.AssayError),
        (json.dumps({"type": "NoSuchError", "subject": "s", "cause": "c"}).encode(), errors.AssayError),
    ],
)
def test_error_metadata_that_are_not_ours_never_break_the_client(
    server: FakeServer, script: Script, metadata: bytes, expected: type[errors.AssayError]
) -> None:
    def refuse(_: object) -> campaign_pb2.CampaignStatus:
        raise Refusal(grpc.StatusCode.NOT_FOUND, "no campaign", raw=metadata)

    script.status = refuse
    with Connection(server.address) as connection, pytest.raises(errors.AssayError) as caught:
        connection.status("c-1")
    assert type(caught.value) is expected


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.NOT_FOUND, errors.CampaignError),
        (grpc.StatusCode.FAILED_PRECONDITION, errors.RefusedError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.StorageError),
        (grpc.StatusCode.UNIMPLEMENTED, errors.RefusedError),
        (grpc.StatusCode.UNAVAILABLE, errors.ServerUnreachableError),
        (grpc.StatusCode.INTERNAL, errors.AssayError),
    ],
)
def test_a_bare_status_is_an_error_too(
    server: FakeServer, script: Script, code: grpc.StatusCode, kind: type[errors.AssayError]
) -> None:
    def refuse(_: object) -> campaign_pb2.CampaignStatus:
        raise Refusal(code, "what happened")

    script.status = refuse
    with Connection(server.address) as connection, pytest.raises(errors.AssayError) as caught:
        connection.status("c-1")
    assert type(caught.value) is kind


def test_watch_gives_each_status_once_and_ends_with_the_campaign(server: FakeServer, script: Script) -> None:
    statuses = [status("running"), status("running"), status("running", 1), status("done", 2)]
    script.watch = lambda _: iter(statuses)
    with Client(server.address) as client:
        seen = [(s["state"], s["runs_done"]) for s in client.watch("c-1")]
    assert seen == [("running", 0), ("running", 1), ("done", 2)]


def test_watch_goes_on_after_the_server_was_restarted(server: FakeServer, script: Script) -> None:
    seen: list[str] = []
    script.watch = lambda _: iter([status("running"), status("done", 2)])
    with Client(server.address) as client:
        for found in client.watch("c-1"):
            seen.append(found["state"])
            if found["state"] == "running":
                server.stop()
                threading.Timer(0.7, server.start).start()
    assert seen == ["running", "done"]


def test_watch_gives_up_on_a_server_that_stays_away(server: FakeServer, script: Script) -> None:
    script.watch = lambda _: itertools.repeat(status("running"))
    with Connection(server.address) as connection:
        watched = connection.watch("c-1", give_up_seconds=0.5)
        assert next(watched).state == "running"
        server.stop()
        with pytest.raises(errors.ServerUnreachableError):
            next(watched)


def test_watch_of_an_unknown_campaign_is_an_error_and_no_reason_to_try_again(
    server: FakeServer, script: Script
) -> None:
    def refuse(_: str) -> Iterator[campaign_pb2.CampaignStatus]:
        raise Refusal(grpc.StatusCode.NOT_FOUND, "no campaign")

    script.watch = refuse
    with Connection(server.address) as connection, pytest.raises(errors.CampaignError):
        next(connection.watch("nope"))
    assert len(script.requests) == 1


def test_a_report_of_many_chunks_comes_whole(server: FakeServer, script: Script) -> None:
    page = b"x" * (5 << 20)
    script.report = lambda _, form: (page[i : i + (1 << 20)] for i in range(0, len(page), 1 << 20))
    with Client(server.address) as client:
        assert client.report_bytes("c-1", "html") == page
    assert [r.format for r in script.requests] == [campaign_pb2.REPORT_FORMAT_HTML]


def test_submit_sends_the_text_and_the_folder_that_paths_start_from(
    server: FakeServer, script: Script, tmp_path: Path
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("campaign: ä\n")
    with Client(server.address) as client:
        assert client.submit(file) == "c-1"
    request = script.requests[0]
    assert request.campaign_yaml == "campaign: ä\n"
    assert request.file_name == str(file)
    assert request.base_directory == str(tmp_path)


def test_a_path_that_is_not_utf8_is_an_error_and_no_crash(server: FakeServer, tmp_path: Path) -> None:
    file = tmp_path / "c\udcff.yaml"
    file.write_text("campaign: c\n")
    with Client(server.address) as client, pytest.raises(errors.ParameterError, match="UTF-8"):
        client.submit(file)
