"""Every call x everybody who could make it, on a real server: who is not named here is refused.

The calls come from the descriptors of the services, so a new call without a row here fails. The rows are
written out, not taken from the server's own table, so that the two must agree.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2

import assay_protos
from assay_core.identity.certificates import SERVER_NAME
from assay_core.identity.credentials import Credentials
from assay_core.identity.roles import IdentityKind, Role
from assay_core.records.campaign import AttemptState
from assay_protos import campaign_pb2
from assay_server.access.table import RULES
from assay_server.app import Server
from assay_server.store.people import Identity
from assay_server.store.sqlite import SqliteStore
from tests.support.identity.authorities import DAY, made_authority, made_credentials, now
from tests.support.identity.tls_lab import authority_of, tls_server
from tests.support.integration.second_user import as_nobody, needs_second_user
from tests.support.server.made_segments import made_segments
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import CAMPAIGN

READERS = "viewer, submitter, other submitter, operator, admin, owner"
# Of another project than the campaign's: what names it does not exist for them.
STRANGERS = "viewer elsewhere, submitter elsewhere"
ALL_READERS = f"{STRANGERS}, {READERS}"
SUBMITTERS = "submitter, other submitter, submitter elsewhere, operator, admin, owner"
OF_A_CAMPAIGN = "submitter, operator, admin, owner"
OPERATORS = "operator, admin, owner"
ADMINS = "admin, owner"
# A new call needs a row: who may make it? "submitter" owns the campaign that is named, "other submitter" does
# not; "agent" names itself, "other agent" names "agent".
MAY: dict[str, str] = {
    "AgentService/Register": "agent, owner",
    "AgentService/Heartbeat": "agent, owner",
    "AgentService/Lease": "agent, owner",
    "AgentService/FinishAttempt": "agent, owner",
    "AgentService/FailAttempt": "agent, owner",
    "IngestService/Upload": "agent, owner",
    "CampaignService/Submit": SUBMITTERS,
    "CampaignService/ListCampaigns": ALL_READERS,
    "CampaignService/GetStatus": READERS,
    "CampaignService/GetRun": READERS,
    "CampaignService/GetReport": READERS,
    "CampaignService/Cancel": OF_A_CAMPAIGN,
    "CampaignService/Pause": OF_A_CAMPAIGN,
    "CampaignService/Resume": OF_A_CAMPAIGN,
    "CampaignService/CancelRuns": OF_A_CAMPAIGN,
    "CampaignService/Retry": OF_A_CAMPAIGN,
    "BundleService/FindMissing": SUBMITTERS,
    "BundleService/SendBundle": SUBMITTERS,
    "BundleService/FetchBundle": "agent, owner",
    "RecordsService/ListRecords": READERS,
    "RecordsService/ReadRecords": READERS,
    "RecordsService/StreamLaunches": READERS,
    "ArchiveService/Delete": OPERATORS,
    "ArchiveService/Export": READERS,
    "ArchiveService/Import": OPERATORS,
    # Only on the listener for joining; the owner of the socket has no certificate to renew.
    "EnrolmentService/Join": "",
    "EnrolmentService/RenewExpired": "",
    "EnrolmentService/Renew": f"agent, other agent, {ALL_READERS}".removesuffix(", owner"),
    "EnrolmentService/Leave": f"agent, other agent, {ALL_READERS}".removesuffix(", owner"),
    "IdentityService/MakeToken": ADMINS,
    "IdentityService/Revoke": ADMINS,
    "IdentityService/ListIdentities": ADMINS,
    "IdentityService/MakeWebLink": ALL_READERS,
    "LabService/ListAgents": ALL_READERS,
    "LabService/GetQueue": ALL_READERS,
    "LabService/ReadAudit": ADMINS,
    "LabService/SetRole": ADMINS,
    "LabService/ListBudgets": ALL_READERS,
    "LabService/SetBudget": OPERATORS,
    "Health/Check": f"agent, other agent, {ALL_READERS}",
    "Health/List": f"agent, other agent, {ALL_READERS}",
    "Health/Watch": f"agent, other agent, {ALL_READERS}",
}
REFUSED = {
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAVAILABLE,  # the handshake failed
}
OK, NOT_THERE = grpc.StatusCode.OK, grpc.StatusCode.NOT_FOUND


def every_call() -> Iterator[MethodDescriptor]:
    """Every call in the descriptors of assay_protos, and of gRPC's health service."""
    names = [each.name for each in pkgutil.iter_modules(assay_protos.__path__) if each.name.endswith("_pb2")]
    for module in (*(importlib.import_module(f"assay_protos.{name}") for name in names), health_pb2):
        for service in module.DESCRIPTOR.services_by_name.values():
            yield from service.methods


CALLS = {f"{method.containing_service.name}/{method.name}": method for method in every_call()}


@dataclass
class Lab:
    """A server over mutual TLS with an identity of every role, and a campaign of the submitter."""

    server: Server
    people: dict[str, Identity]

    def credentials(self, who: str, **changes: Any) -> Credentials:
        identity = self.people[who]
        authority = authority_of(self.server)
        return made_credentials(authority, identity.kind, identity.identity_id, **changes)

    def channel(self, credentials: Credentials | None, address: str = "") -> grpc.Channel:
        """Over TLS; None: without a certificate of one's own."""
        root = authority_of(self.server).pem
        mine = (None, None) if credentials is None else (credentials.key_pem, credentials.certificate)
        options = [("grpc.ssl_target_name_override", SERVER_NAME), ("grpc.use_local_subchannel_pool", 1)]
        made = grpc.ssl_channel_credentials(root, *mine)
        return grpc.secure_channel(address or self.server.addresses[0], made, options=options)

    def channels(self) -> Iterator[tuple[str, grpc.Channel]]:
        """Everybody who could call."""
        members = [name for name in self.people if name != "revoked"]
        for name in members:
            yield name, self.channel(self.credentials(name))
        yield "owner", grpc.insecure_channel(self.server.addresses[1])
        yield "no certificate", self.channel(None)
        yield "no TLS", grpc.insecure_channel(self.server.addresses[0])
        admin = self.people["admin"]
        stranger = made_credentials(made_authority("another lab"), admin.kind, admin.identity_id)
        yield "other authority", self.channel(stranger)
        yield "expired", self.channel(self.credentials("admin", at=now() - 2 * DAY))
        yield "revoked", self.channel(self.credentials("revoked"))
        unknown = made_credentials(authority_of(self.server), IdentityKind.PERSON)
        yield "unknown", self.channel(unknown)

    def request(self, method: MethodDescriptor) -> Any:
        """A request that names the agent and the submitter's campaign, where it can name any."""
        made = GetMessageClass(method.input_type)()
        sender = made.header if hasattr(made, "header") else made
        for message, name, value in (
            (sender, "agent_id", self.people["agent"].identity_id),
            (made, "campaign_id", "made-1"),
            (made, "run_id", "made-1.0000"),
        ):
            if hasattr(message, name):
                setattr(message, name, value)
        return made


@pytest.fixture
def lab(make_server: Callable[..., Server], short_path: Path) -> Lab:
    server = tls_server(make_server, short_path)
    roles = {str(role): role for role in Role}
    roles |= {"other submitter": Role.SUBMITTER, "other agent": Role.AGENT, "revoked": Role.ADMIN}
    roles |= {"viewer elsewhere": Role.VIEWER, "submitter elsewhere": Role.SUBMITTER}
    people = {
        name: Identity(
            f"{number:032x}",
            role.kind,
            name,
            role,
            project="sound" if "elsewhere" in name else "vision",
            revoked_at_ms=int(name == "revoked"),
        )
        for number, (name, role) in enumerate(roles.items())
    }
    store = SqliteStore(server.settings.state_dir / "metadata.sqlite")
    with store.transaction() as transaction:
        for each in people.values():
            transaction.put_identity(each)
    store.close()
    made = Lab(server, people)
    with made.channel(made.credentials("submitter")) as channel:
        request = campaign_pb2.SubmitRequest(campaign_yaml=CAMPAIGN, base_directory="/")
        assert status(channel, CALLS["CampaignService/Submit"], request) is grpc.StatusCode.OK
    return made


def status(channel: grpc.Channel, method: MethodDescriptor, request: Any) -> grpc.StatusCode:
    """How a call ends, or OK once a stream has answered."""
    path, data = f"/{method.containing_service.full_name}/{method.name}", request.SerializeToString()
    stream: Any = None
    try:
        if method.client_streaming:
            stream = channel.stream_stream(path)(iter([data]), timeout=60)
        elif method.server_streaming:
            stream = channel.unary_stream(path)(data, timeout=60)
        else:
            channel.unary_unary(path)(data, timeout=60)
        if stream is not None:
            next(stream, None)
    except grpc.RpcError as error:
        return error.code()
    finally:
        if stream is not None:
            stream.cancel()
    return grpc.StatusCode.OK


def test_every_call_has_a_row_here_and_a_rule_in_the_server() -> None:
    assert set(MAY) == set(CALLS), "say in MAY who may make a new call"
    assert {f"{each.containing_service.full_name}/{each.name}" for each in CALLS.values()} == set(RULES)


def test_who_is_not_named_is_refused_and_who_is_named_is_let_in(lab: Lab) -> None:
    with grpc.insecure_channel(lab.server.addresses[1]) as owner:
        health = status(owner, CALLS["Health/Check"], health_pb2.HealthCheckRequest())
    served = [call for call in CALLS if not (call.startswith("Health/") and health.value[0] == 12)]
    wrong = []
    for who, channel in lab.channels():
        with channel:
            for call in served:
                code = status(channel, CALLS[call], lab.request(CALLS[call]))
                named = who in MAY[call].split(", ")
                hidden = who in STRANGERS.split(", ") and names_a_campaign(CALLS[call])
                let_in = code not in REFUSED and not (hidden and code is NOT_THERE)
                if named != let_in:
                    wrong.append(f"{call} by {who}: {code.name}, but {'' if named else 'not '}named")
    assert wrong == []


def names_a_campaign(method: MethodDescriptor) -> bool:
    return bool({"campaign_id", "run_id"}.intersection(method.input_type.fields_by_name))


def test_every_call_of_readers_that_names_a_campaign_says_so_in_the_table() -> None:
    """Else a new call would tell of campaigns of other projects."""
    for call, method in CALLS.items():
        rule = RULES[f"{method.containing_service.full_name}/{method.name}"]
        if rule.roles & {Role.VIEWER, Role.SUBMITTER} and names_a_campaign(method):
            assert rule.names_campaign, call


def test_what_is_hidden_is_refused_as_what_is_not_there(lab: Lab) -> None:
    """Word for word, with the name that the caller gave."""
    told: dict[str, set[str]] = {}
    with lab.channel(lab.credentials("viewer")) as channel:
        get_run = CALLS["CampaignService/GetRun"]
        assert status(channel, get_run, lab.request(get_run)) is OK
    with lab.channel(lab.credentials("submitter elsewhere")) as channel:
        for call, method in CALLS.items():
            if not names_a_campaign(method) or "submitter" not in MAY[call]:
                continue
            for campaign_id in ("made-1", "made-2"):
                request = lab.request(method)
                if hasattr(request, "campaign_id"):
                    request.campaign_id = campaign_id
                if hasattr(request, "run_id"):
                    request.run_id = f"{campaign_id}.0000"
                path = f"/{method.containing_service.full_name}/{method.name}"
                kind = channel.unary_stream if method.server_streaming else channel.unary_unary
                with pytest.raises(grpc.RpcError) as caught:
                    answer = kind(path)(request.SerializeToString(), timeout=60)
                    list(answer)
                error: Any = caught.value
                assert error.code() is NOT_THERE, call
                told.setdefault(call, set()).add(error.details().replace(campaign_id, "X"))
    assert len(told) == 12
    assert {call: len(texts) for call, texts in told.items()} == dict.fromkeys(told, 1)


def test_joining_is_all_that_somebody_without_a_certificate_can_do_on_its_listener(lab: Lab) -> None:
    with lab.channel(None, lab.server.joins[0]) as channel:
        codes = {call: status(channel, method, lab.request(method)) for call, method in CALLS.items()}
    # The request that is sent is not one; a good one is in test_enrolment.
    for call in ("Join", "RenewExpired"):
        assert codes.pop(f"EnrolmentService/{call}") is grpc.StatusCode.INVALID_ARGUMENT
    not_there = {call for call, code in codes.items() if code is grpc.StatusCode.UNIMPLEMENTED}
    assert {code for call, code in codes.items() if call not in not_there} <= REFUSED
    assert not_there == {call for call in CALLS if not call.startswith("EnrolmentService/")}


def test_a_lease_is_its_agents_even_if_another_agent_knows_all_but_the_secret(lab: Lab) -> None:
    """Both have good certificates, and each names itself."""
    mine, other = lab.people["agent"].identity_id, lab.people["other agent"].identity_id
    with PlayingAgent(lab.server.addresses[1], mine) as agent:
        agent.register()
        key = agent.work().key
        [segment] = made_segments((100,))
        with PlayingAgent.over(lab.channel(lab.credentials("other agent")), other, agent.session_id) as thief:
            thief.register()
            thief.know(key, b"\0" * 32)
            assert thief.heartbeat([key]).drop == (key,)
            assert [answer.refusal is None for answer in thief.upload(key, [segment])] == [False]
            assert not thief.finish(key, 0, 0).published
            thief.fail(key)
        [attempt] = agent.run(key.run_id).attempts
        assert (attempt.state, attempt.launches) == (AttemptState.LEASED, 0)
        assert agent.heartbeat([key]).drop == ()


ANOTHER_USER = """
socket_address, tcp, *paths = sys.argv[1:]
let_in = []
for address in (socket_address, tcp):
    for name, channel in (
        ("plain", grpc.insecure_channel(address)),
        ("TLS", grpc.secure_channel(address, grpc.ssl_channel_credentials())),
    ):
        for path in paths:
            try:
                channel.unary_unary(path)(b"", timeout=60)
                let_in.append(path)
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    let_in.append(f"{path} over {name}: {error.code().name}")
print(let_in)
"""


@needs_second_user
def test_another_user_of_the_machine_reaches_nothing(lab: Lab) -> None:
    paths = [f"/{each.containing_service.full_name}/{each.name}" for each in CALLS.values()]
    lab.server.settings.state_dir.parent.chmod(0o755)  # the socket itself must be closed, too
    socket_address = lab.server.addresses[1]
    assert as_nobody(ANOTHER_USER, socket_address, lab.server.addresses[0], *paths) == "[]"
