"""Over TCP: who gets in, who does not, and who is not even spoken to."""

from __future__ import annotations

import dataclasses
import gc
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509

from assay_agent.uplink.connection import Connection as AgentConnection
from assay_agent.uplink.connection import ServerRefusedError
from assay_agent.uplink.renewal import Renewal
from assay_client.remote.client import Client
from assay_client.remote.logins import log_in, log_out, login_folder
from assay_core.connecting.channel import joining_channel, mutual_channel
from assay_core.connecting.joining import join
from assay_core.identity.certificates import (
    SERVER_NAME,
    certificate_der,
    certificate_pem,
    certificate_request,
)
from assay_core.identity.credentials import Credentials, CredentialsFolder, new_credentials
from assay_core.identity.join_token import JoinToken
from assay_core.identity.keys import key_pem, new_key
from assay_core.identity.roles import IdentityKind, Role
from assay_core.records.campaign import CampaignsPage
from assay_core.records.identity import JoinAsked, RenewalAsked
from assay_core.records.lease import Heartbeat
from assay_core.records.machine import Inventory, Registration, Slot
from assay_core.server_address import parse_address
from assay_protos import campaign_pb2_grpc, identity_pb2_grpc, ingest_pb2, ingest_pb2_grpc
from assay_sampling.errors import (
    NotIdentifiedError,
    NotPermittedError,
    ParameterError,
    ServerUnreachableError,
)
from assay_server.app import Server
from tests.support.identity.authorities import DAY, made_authority, made_credentials, now
from tests.support.identity.tls_lab import authority_of, impostor, joined, tls_server, token_of
from tests.support.server.server_support import CAMPAIGN, eventually

BOX = "a" * 32
OTHER = made_authority("another lab")
MakeServer = Callable[..., Server]


@pytest.fixture(autouse=True)
def _logins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ASSAY_CREDENTIALS", str(tmp_path / "logins"))


@pytest.fixture
def lab(make_server: MakeServer, short_path: Path) -> Server:
    return tls_server(make_server, short_path)


def registered(connection: AgentConnection, identity_id: str = BOX) -> int:
    asked = Registration(identity_id, "session", "box", Inventory(host="h"), (Slot("r", ("recorded",)),))
    return connection.register(asked, threading.Event()).lease_ms


def refusal(credentials: Credentials | None, server: Server, authority: bytes = b"") -> str:
    """The gRPC status with which a server's list of campaigns is refused."""
    address = parse_address(server.addresses[0])
    if credentials is None:
        channel = joining_channel(address, authority or authority_of(server).pem, ())
    else:
        channel = mutual_channel(address, credentials, ())
    with channel:
        stub = campaign_pb2_grpc.CampaignServiceStub(channel)  # type: ignore[no-untyped-call]
        try:
            stub.ListCampaigns(CampaignsPage().to_proto(), timeout=60)
        except grpc.RpcError as error:
            return str(error.code().name)
    return "answered"


def test_agent_and_person_work_over_tcp(lab: Server, tmp_path: Path) -> None:
    credentials = joined(lab, Role.AGENT, "box", BOX)
    assert credentials.server == lab.addresses[0]
    connection = AgentConnection(credentials.server, credentials)
    assert registered(connection) == 60_000
    assert not connection.heartbeat(Heartbeat(BOX, "session", ()), timeout=60).register_again
    connection.close()
    told = log_in(lab.joins[0], token_of(lab, Role.SUBMITTER, "alice"))
    assert (told["server"], told["name"], told["role"]) == (lab.addresses[0], "alice", "submitter")
    campaign = tmp_path / "c.yaml"
    campaign.write_text(CAMPAIGN)
    with Client(lab.addresses[0]) as client:
        campaign_id = client.submit(campaign)
        assert [each["campaign_id"] for each in client.campaigns()] == [campaign_id]
        with pytest.raises(NotPermittedError, match="the role submitter may not call MakeToken"):
            client.make_token("viewer", "bob")
    with Client(lab.addresses[1]) as owner:
        listed = owner.identities()["identities"]
        assert {(each["name"], each["role"]) for each in listed} == {("box", "agent"), ("alice", "submitter")}


def test_who_is_not_certified_by_the_lab_does_not_get_in(lab: Server) -> None:
    own = authority_of(lab)
    good = joined(lab, Role.VIEWER, "vera")
    assert refusal(good, lab) == "answered"
    assert refusal(None, lab) == "UNAVAILABLE"
    foreign = made_credentials(OTHER, IdentityKind.PERSON, good.identity.identity_id)
    foreign = dataclasses.replace(foreign, authority=own.pem)
    assert refusal(foreign, lab) == "UNAVAILABLE"
    expired = made_credentials(own, IdentityKind.PERSON, good.identity.identity_id, at=now() - 2 * DAY)
    assert refusal(expired, lab) == "UNAVAILABLE"
    unknown = made_credentials(own, IdentityKind.PERSON)
    assert refusal(unknown, lab) == "UNAUTHENTICATED"
    agent = joined(lab, Role.AGENT, "box", BOX)
    assert refusal(agent, lab) == "PERMISSION_DENIED"
    posing = made_credentials(own, IdentityKind.PERSON, BOX)
    assert refusal(posing, lab) == "UNAUTHENTICATED"


def test_without_tls_nobody_is_answered(lab: Server) -> None:
    for address in (lab.addresses[0], lab.joins[0]):
        with grpc.insecure_channel(address) as channel:
            stub = campaign_pb2_grpc.CampaignServiceStub(channel)  # type: ignore[no-untyped-call]
            with pytest.raises(grpc.RpcError) as caught:
                stub.ListCampaigns(CampaignsPage().to_proto(), timeout=60)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_member_cannot_pose_as_the_server(lab: Server, tmp_path: Path) -> None:
    """A certificate of the right authority that is for clients: TLS refuses it for a server."""
    own, good = authority_of(lab), joined(lab, Role.VIEWER, "vera")
    with impostor((good.key_pem, good.certificate)) as (address, notes):
        victim = dataclasses.replace(good, server=address)
        login_folder(parse_address(address)).write(victim)
        with Client(address) as client, pytest.raises(ServerUnreachableError, match="somebody in its place"):
            client.campaigns()
        assert notes.calls == []
    assert own.fingerprint == good.authority_fingerprint


@pytest.mark.parametrize("kind", ["another authority", "no TLS"])
def test_nothing_is_sent_to_an_impostor(lab: Server, kind: str) -> None:
    key = new_key()
    pem = (key_pem(key), certificate_pem(OTHER.issue_for_server(key.public_key(), DAY, now())))
    member = joined(lab, Role.VIEWER, "vera")
    agent = joined(lab, Role.AGENT, "box", BOX)
    token = token_of(lab, Role.AGENT)
    with impostor(pem if kind == "another authority" else None) as (address, notes):
        said = "it is another server, or somebody in its place; nothing was sent"
        said = said if kind == "another authority" else "does not speak TLS as an assay-server does"
        with pytest.raises(ServerUnreachableError, match=said):
            join(address, token, name="box-2", identity_id="b" * 32)
        login_folder(parse_address(address)).write(dataclasses.replace(member, server=address))
        with Client(address) as client, pytest.raises(ServerUnreachableError, match=said):
            client.campaigns()
        connection, give_up = AgentConnection(address, agent), threading.Event()
        threading.Timer(0.5, give_up.set).start()
        with pytest.raises(ServerUnreachableError):
            connection.register(Registration(BOX, "s", "box", Inventory(), ()), give_up)
        connection.close()
        assert notes.calls == []
    # The token was not used up: the impostor never saw its secret.
    assert join(lab.joins[0], token, name="box-2", identity_id="b" * 32)[1].name == "box-2"


def test_the_join_listener_serves_joining_and_nothing_else(lab: Server) -> None:
    joining = JoinAsked(b"x" * 32, certificate_request(new_key()), "box", BOX).to_proto()
    renewing = RenewalAsked(certificate_request(new_key())).to_proto()
    page = CampaignsPage().to_proto()
    with joining_channel(parse_address(lab.joins[0]), authority_of(lab).pem, ()) as channel:
        campaigns = campaign_pb2_grpc.CampaignServiceStub(channel)  # type: ignore[no-untyped-call]
        enrolment = identity_pb2_grpc.EnrolmentServiceStub(channel)  # type: ignore[no-untyped-call]
        for call, message, code in (
            (campaigns.ListCampaigns, page, "UNIMPLEMENTED"),
            (enrolment.Renew, renewing, "UNAUTHENTICATED"),
            (enrolment.Join, joining, "UNAUTHENTICATED"),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                call(message, timeout=60)
            assert caught.value.code().name == code
    member = joined(lab, Role.VIEWER, "vera")
    with mutual_channel(parse_address(lab.addresses[0]), member, ()) as channel:
        enrolment = identity_pb2_grpc.EnrolmentServiceStub(channel)  # type: ignore[no-untyped-call]
        with pytest.raises(grpc.RpcError) as caught:
            enrolment.Join(joining, timeout=60)
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED


def nothing_until(end: threading.Event) -> Iterator[Any]:
    """The messages of a stream on which nothing is sent."""
    assert end.wait(60)
    yield from ()


def test_an_agent_renews_in_time_and_calls_under_way_go_on(
    make_server: MakeServer, short_path: Path, tmp_path: Path
) -> None:
    # Renewed after a third, so that a busy machine has twice that time before the first one ends.
    lab = tls_server(make_server, short_path, certificate_validity_seconds=9.0)
    folder = CredentialsFolder(tmp_path / "credentials")
    folder.write(first := joined(lab, Role.AGENT, "box", BOX))
    connection = AgentConnection(first.server, first)
    left_behind = AgentConnection(first.server, first)
    registered(connection)
    renewal = Renewal(folder, connection)
    end = threading.Event()
    with connection.upload(nothing_until(end)) as answers:
        line = connection.line
        eventually(lambda: (renewal.tick(), connection.line is not line)[1], "the renewal")
        assert answers.is_active()
        end.set()
        assert list(answers) == []
    second = connection.credentials
    assert second is not None and second.identity.serial != first.identity.serial
    kept = folder.read()
    assert kept is not None and kept.certificate == second.certificate
    assert not connection.heartbeat(Heartbeat(BOX, "session", ()), timeout=60).register_again
    assert not left_behind.heartbeat(Heartbeat(BOX, "session", ()), timeout=60).register_again
    # Its first certificate has expired: an open connection is worth nothing without a valid one.
    eventually(lambda: first.expired, "the end of the first certificate")
    with pytest.raises(ServerRefusedError, match="its certificate has expired"):
        left_behind.heartbeat(Heartbeat(BOX, "session", ()), timeout=60)
    for each in (connection, left_behind):
        each.close()


def test_a_join_after_expiry_keeps_the_identity_and_a_running_agent_takes_it_over(
    lab: Server, tmp_path: Path
) -> None:
    folder = CredentialsFolder(tmp_path / "credentials")
    first = joined(lab, Role.AGENT, "box", BOX)
    old = authority_of(lab).issue(first.key.public_key(), IdentityKind.AGENT, BOX, DAY, now() - 2 * DAY)
    expired = new_credentials(first.server, authority_of(lab).der, certificate_der(old), first.key)
    folder.write(expired)
    connection = AgentConnection(expired.server, expired)
    renewal = Renewal(folder, connection, longest_pause_seconds=0)
    renewal.tick()
    assert connection.credentials is expired
    # What assay-agent join does, in another process.
    again, _ = join(lab.joins[0], token_of(lab, Role.AGENT), name="box", identity_id=BOX, key=expired.key)
    folder.write(again)
    renewal.tick()
    assert connection.credentials is not None
    assert connection.credentials.identity == again.identity
    assert registered(connection) == 60_000
    connection.close()


def expired_again(lab: Server, credentials: Credentials, kind: IdentityKind) -> Credentials:
    """The credentials with a certificate of the lab that expired a day ago."""
    identity_id = credentials.identity.identity_id
    old = authority_of(lab).issue(credentials.key.public_key(), kind, identity_id, DAY, now() - 2 * DAY)
    return credentials.renewed(certificate_der(old))


def test_an_agent_that_was_off_for_a_weekend_comes_back_by_itself(lab: Server, tmp_path: Path) -> None:
    folder = CredentialsFolder(tmp_path / "credentials")
    folder.write(expired_again(lab, joined(lab, Role.AGENT, "box", BOX), IdentityKind.AGENT))
    expired = folder.read()
    assert expired is not None and expired.expired and expired.join == lab.joins[0]
    connection = AgentConnection(expired.server, expired)
    renewal = Renewal(folder, connection)
    asked = Registration(BOX, "session", "box", Inventory(host="h"), ())
    assert connection.register(asked, threading.Event(), renewal.tick).lease_ms == 60_000
    kept = folder.read()
    assert kept is not None and not kept.expired and kept.join == lab.joins[0]
    connection.close()


def test_a_person_who_was_away_for_a_weekend_goes_on_unless_revoked(lab: Server) -> None:
    log_in(lab.joins[0], token_of(lab, Role.SUBMITTER, "alice"))
    folder = login_folder(parse_address(lab.addresses[0]))
    login = folder.read()
    assert login is not None
    expired = expired_again(lab, login, IdentityKind.PERSON)
    folder.write(expired)
    with Client(lab.addresses[0]) as client:
        assert client.campaigns() == []
    with Client(lab.addresses[1]) as owner:
        owner.revoke("alice")
    folder.write(expired)
    with (
        pytest.raises(NotIdentifiedError, match="your certificate has expired"),
        Client(lab.addresses[0]) as client,
    ):
        client.campaigns()


def test_a_persons_certificate_is_renewed_by_use(make_server: MakeServer, short_path: Path) -> None:
    lab = tls_server(make_server, short_path, certificate_validity_seconds=6.0)
    log_in(lab.joins[0], token_of(lab, Role.SUBMITTER, "alice"))
    folder = login_folder(parse_address(lab.addresses[0]))
    first = folder.read()
    assert first is not None
    with Client(lab.addresses[0]) as client:
        eventually(lambda: first.renewal_due, "the moment of renewal")
        assert client.campaigns() == []
        second = folder.read()
        assert second is not None and second.identity.serial != first.identity.serial
        eventually(lambda: first.expired, "the end of the first certificate")
        assert client.campaigns() == []


def test_a_revocation_refuses_the_next_call(lab: Server, tmp_path: Path) -> None:
    log_in(lab.joins[0], token_of(lab, Role.SUBMITTER, "alice"))
    campaign = tmp_path / "c.yaml"
    campaign.write_text(CAMPAIGN)
    with Client(lab.addresses[0]) as client, Client(lab.addresses[1]) as owner:
        watch = client.watch(client.submit(campaign))
        assert next(watch)["state"] == "running"
        assert owner.revoke("alice")["what"] == "identity"
        with pytest.raises(NotPermittedError, match="its identity was revoked"):
            list(watch)
        with pytest.raises(NotPermittedError, match="its identity was revoked"):
            client.campaigns()


def test_an_upload_of_a_revoked_agent_ends_once(lab: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Its reader sees the end of the call as an error of its own, and must not end the call again."""
    agent, ended = joined(lab, Role.AGENT, "box", BOX), threading.Event()

    def requests() -> Iterator[ingest_pb2.UploadRequest]:
        ended.wait(60)
        yield from ()

    with mutual_channel(parse_address(lab.addresses[0]), agent, ()) as channel:
        stub = ingest_pb2_grpc.IngestServiceStub(channel)  # type: ignore[no-untyped-call]
        upload = stub.Upload(requests(), timeout=60)
        uploads = {"call": "Upload"}
        registry = lab.metrics.registry
        eventually(lambda: registry.get_sample_value("assay_server_calls_running", uploads) == 1, "the call")
        with Client(lab.addresses[1]) as owner:
            owner.revoke("box")
        with pytest.raises(grpc.RpcError) as caught:
            next(upload)
        ended.set()
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
        eventually(lambda: registry.get_sample_value("assay_server_calls_running", uploads) == 0, "its end")
    assert "Upload failed" not in caplog.text
    assert "Abort already called" not in caplog.text
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_a_withdrawn_certificate_is_refused_and_the_persons_others_are_not(lab: Server) -> None:
    lost, kept = joined(lab, Role.VIEWER, "vera"), joined(lab, Role.VIEWER, "vera")
    assert lost.identity.identity_id == kept.identity.identity_id
    with Client(lab.addresses[1]) as owner:
        assert owner.revoke(lost.identity.serial)["name"] == "vera"
    assert (refusal(lost, lab), refusal(kept, lab)) == ("PERMISSION_DENIED", "answered")


def test_the_servers_certificate_lasts_as_long_as_the_authority_and_never_changes(
    make_server: MakeServer, short_path: Path
) -> None:
    """gRPC cannot exchange it safely while strangers connect (tests/server/test_crowds_of_strangers.py)."""
    lab = tls_server(make_server, short_path, certificate_validity_seconds=3.0)
    member = joined(lab, Role.VIEWER, "vera")
    before = served_certificate(lab)
    assert before.not_valid_after_utc == authority_of(lab).not_after
    eventually(lambda: member.expired, "the end of a member's certificate")
    assert served_certificate(lab) == before
    assert refusal(made_credentials(authority_of(lab), IdentityKind.PERSON), lab) == "UNAUTHENTICATED"
    assert refusal(member, lab) == "UNAVAILABLE"  # TLS itself refuses it


def served_certificate(server: Server) -> x509.Certificate:
    host, port = server.joins[0].split(":")
    context = ssl.create_default_context(cadata=authority_of(server).pem.decode())
    with (
        socket.create_connection((host, int(port)), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname=SERVER_NAME) as channel,
    ):
        der = channel.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der)


def test_a_damaged_token_is_refused_before_anything_is_sent(lab: Server) -> None:
    token = token_of(lab, Role.AGENT)
    changed = token[:-2] + ("A" if token[-2] != "A" else "B") + token[-1]
    with pytest.raises(ParameterError, match="it is damaged"):
        join(lab.joins[0], changed, name="box", identity_id=BOX)
    stranger = JoinToken.new(authority_of(lab).der).text
    with pytest.raises(NotIdentifiedError, match="this server did not make it"):
        join(lab.joins[0], stranger, name="box", identity_id=BOX)


def test_logging_out_withdraws_the_certificate_at_the_server_or_says_why_not(
    lab: Server,
) -> None:
    log_in(lab.joins[0], token_of(lab, Role.VIEWER, "vera"))
    address = lab.addresses[0]
    kept = login_folder(parse_address(address)).read()
    assert kept is not None and refusal(kept, lab) == "answered"
    told = log_out(address)
    assert told is not None and (told["withdrawn"], told["not_withdrawn"]) == (True, None)
    assert refusal(kept, lab) == "PERMISSION_DENIED"
    assert log_out(address) is None
    log_in(lab.joins[0], token_of(lab, Role.VIEWER, "vera"))
    lab.stop()
    told = log_out(address)
    assert told is not None and (told["withdrawn"], told["not_withdrawn"]) == (
        False,
        "the server does not answer",
    )
    assert login_folder(parse_address(address)).read() is None
