"""Who is calling, and that a revocation ends what is going on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass

from assay_core.identity.certificates import certificate_pem, certified_identity, read_certificate
from assay_core.identity.credentials import Credentials
from assay_core.identity.keys import new_key
from assay_core.identity.roles import IdentityKind, Role
from assay_core.records.error_metadata import ErrorMetadata
from assay_protos import agent_pb2, campaign_pb2, ingest_pb2
from assay_sampling.errors import NotIdentifiedError, NotPermittedError
from assay_server.access.caller import EVERY_PROJECT, OWNER_ID, IdentityDirectory, Peer, caller_of
from assay_server.access.table import RULES
from assay_server.store.people import Identity, StoredCertificate
from assay_server.store.sql import MetadataStore
from assay_server.store.sqlite import SqliteStore
from tests.support.identity.authorities import DAY, made_authority, made_credentials, now
from tests.support.server.guarded_server import (
    GuardedServer,
    call,
    credentials_of,
    every_call,
    guarded_server,
    shared_authority,
)
from tests.support.server.stored_values import campaign

METHODS = {method.name: method for method in every_call() if "grpc" not in method.full_name}
VIEWER = Identity("aa" * 16, IdentityKind.PERSON, "vera", Role.VIEWER, EVERY_PROJECT)
AGENT = Identity("bb" * 16, IdentityKind.AGENT, "box", Role.AGENT)


@pytest.fixture
def store() -> MetadataStore:
    return stored(VIEWER, AGENT)


def stored(*identities: Identity) -> MetadataStore:
    made = SqliteStore(None)
    with made.transaction() as transaction:
        for identity in identities:
            transaction.put_identity(identity)
    return made


def put(store: MetadataStore, directory: IdentityDirectory, identity: Identity) -> None:
    with store.transaction() as transaction:
        transaction.put_identity(identity)
    directory.refresh()


def serving(
    store: MetadataStore, folder: Path, test: Callable[[GuardedServer], Awaitable[None]]
) -> GuardedServer:
    async def run() -> GuardedServer:
        # Nobody is looked at again for the time alone: a change must be told.
        async with guarded_server(store, folder, recheck_seconds=3600) as server:
            await asyncio.wait_for(test(server), 120)
            return server

    return asyncio.run(run())


def test_handlers_learn_who_calls(store: MetadataStore, short_path: Path) -> None:
    async def test(server: GuardedServer) -> None:
        async with server.channel(credentials_of(VIEWER)) as vera, server.channel() as owner:
            assert await call(vera, METHODS["GetStatus"]) is grpc.StatusCode.OK
            assert await call(vera, METHODS["Cancel"]) is grpc.StatusCode.PERMISSION_DENIED
            assert await call(owner, METHODS["Cancel"]) is grpc.StatusCode.OK

    server = serving(store, short_path, test)
    assert server.answered == [("GetStatus", VIEWER.identity_id), ("Cancel", OWNER_ID)]


def test_a_new_identity_may_call_at_once_and_a_changed_role_holds_at_once(
    store: MetadataStore, short_path: Path
) -> None:
    new = Identity("cc" * 16, IdentityKind.PERSON, "nora", Role.VIEWER, EVERY_PROJECT)

    async def test(server: GuardedServer) -> None:
        async with server.channel(credentials_of(new)) as nora:
            assert await call(nora, METHODS["GetStatus"]) is grpc.StatusCode.UNAUTHENTICATED
            with store.transaction() as transaction:
                transaction.put_identity(new)
            assert await call(nora, METHODS["GetStatus"]) is grpc.StatusCode.OK
            assert await call(nora, METHODS["Cancel"]) is grpc.StatusCode.PERMISSION_DENIED
            put(store, server.directory, replace(new, role=Role.OPERATOR))
            assert await call(nora, METHODS["Cancel"]) is grpc.StatusCode.OK

    serving(store, short_path, test)


@pytest.mark.parametrize(("who", "name"), [(VIEWER, "GetReport"), (AGENT, "Upload")])
def test_a_revocation_ends_a_stream_that_is_silent(
    store: MetadataStore, short_path: Path, who: Identity, name: str
) -> None:
    async def test(server: GuardedServer) -> None:
        async with server.channel(credentials_of(who)) as channel:
            path = f"/{METHODS[name].containing_service.full_name}/{name}"
            if name == "GetReport":
                stream = aiter(channel.unary_stream(path)(b""))
            else:
                request = ingest_pb2.UploadRequest(header={"agent_id": who.identity_id})
                stream = aiter(channel.stream_stream(path)(iter([request.SerializeToString()])))
            await anext(stream)
            put(store, server.directory, replace(who, revoked_at_ms=1))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await anext(stream)
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
        told = ErrorMetadata.beside(caught.value)
        assert told is not None and isinstance(told.error(), NotPermittedError)
        assert told.cause == "its identity was revoked"

    serving(store, short_path, test)


def test_a_stream_goes_on_after_a_change_that_leaves_it_allowed(
    store: MetadataStore, short_path: Path
) -> None:
    async def test(server: GuardedServer) -> None:
        async with server.channel(credentials_of(VIEWER)) as channel:
            path = f"/{METHODS['GetReport'].containing_service.full_name}/GetReport"
            stream = aiter(channel.unary_stream(path)(b""))
            await anext(stream)
            put(store, server.directory, replace(VIEWER, role=Role.OPERATOR))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(stream), 0.1)

    serving(store, short_path, test)


class TestTheCaller:
    def test_the_socket_is_its_owners(self, store: MetadataStore) -> None:
        caller = caller_of(IdentityDirectory(store), Peer("unix:"))
        assert (caller.identity_id, caller.name, caller.role) == (OWNER_ID, "owner", Role.ADMIN)
        assert caller.is_owner

    @pytest.mark.parametrize(
        "peer", [Peer("ipv4:127.0.0.1:5"), Peer("unix:", encrypted=True), Peer("ipv4:1.2.3.4:5", b"", True)]
    )
    def test_nobody_else_without_a_certificate(self, store: MetadataStore, peer: Peer) -> None:
        with pytest.raises(NotIdentifiedError, match="it presented no certificate"):
            caller_of(IdentityDirectory(store), peer)

    def test_expired_unknown_and_revoked_are_refused(self, store: MetadataStore) -> None:
        revoked = replace(VIEWER, identity_id="dd" * 16, revoked_at_ms=1)
        with store.transaction() as transaction:
            transaction.put_identity(revoked)
        directory = IdentityDirectory(store)

        def error(credentials: Credentials) -> str:
            with pytest.raises((NotIdentifiedError, NotPermittedError)) as caught:
                caller_of(directory, Peer("ipv4:1.2.3.4:5", credentials.certificate, True))
            return caught.value.cause

        assert caller_of(directory, Peer("x", credentials_of(VIEWER).certificate, True)).name == "vera"
        assert error(credentials_of(VIEWER, expired=True)) == "its certificate has expired"
        assert error(credentials_of(revoked)) == "its identity was revoked"
        unknown = replace(VIEWER, identity_id="ee" * 16)
        assert error(credentials_of(unknown)) == "the server does not know this identity"
        swapped = credentials_of(replace(VIEWER, kind=IdentityKind.AGENT))
        assert error(swapped) == "the server does not know this identity"
        key = new_key()
        server = shared_authority().issue_for_server(key.public_key(), DAY, now())
        with pytest.raises(NotIdentifiedError, match="it names no identity of Assay"):
            caller_of(directory, Peer("x", certificate_pem(server), True))

    def test_one_certificate_may_be_withdrawn(self, store: MetadataStore) -> None:
        viewer = credentials_of(VIEWER)
        issued = certified_identity(read_certificate(viewer.certificate, "certificate"))
        with store.transaction() as transaction:
            transaction.put_certificate(
                StoredCertificate(
                    issued.serial, VIEWER.identity_id, "0" * 64, 1, issued.not_after_ms, withdrawn_at_ms=2
                )
            )
        directory = IdentityDirectory(store)
        with pytest.raises(NotPermittedError, match="its certificate was withdrawn"):
            caller_of(directory, Peer("x", viewer.certificate, True))


def test_a_certificate_of_another_authority_ends_in_the_handshake(
    store: MetadataStore, short_path: Path
) -> None:
    stranger = made_credentials(made_authority(), VIEWER.kind, VIEWER.identity_id)

    async def test(server: GuardedServer) -> None:
        async with server.channel(stranger) as channel:
            assert await call(channel, METHODS["GetStatus"]) is grpc.StatusCode.UNAVAILABLE

    assert serving(store, short_path, test).answered == []


def test_every_call_has_a_rule_and_every_rule_a_call() -> None:
    served = {f"{method.containing_service.full_name}/{method.name}" for method in every_call()}
    assert served == set(RULES)


def from_agent(name: str, agent_id: str) -> Any:
    """A request of an agent that says which agent sent it."""
    made = GetMessageClass(METHODS[name].input_type)()
    field = RULES[f"{METHODS[name].containing_service.full_name}/{name}"].sender
    target = made.header if field.startswith("header.") else made
    target.agent_id = agent_id
    return made


AGENTS_CALLS = [
    *(
        method.name
        for file in (agent_pb2, ingest_pb2)
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ),
    "FetchBundle",
]


@pytest.mark.parametrize("name", AGENTS_CALLS)
def test_an_agent_speaks_only_for_itself(store: MetadataStore, short_path: Path, name: str) -> None:
    async def test(server: GuardedServer) -> None:
        async with server.channel(credentials_of(AGENT)) as agent, server.channel() as owner:
            for who in ("dd" * 16, ""):
                request = from_agent(name, who)
                assert await call(agent, METHODS[name], request) is grpc.StatusCode.PERMISSION_DENIED
            mine = from_agent(name, AGENT.identity_id)
            assert await call(agent, METHODS[name], mine) is grpc.StatusCode.OK
            # On the server's own socket the owner may play any agent.
            assert await call(owner, METHODS[name], from_agent(name, "any")) is grpc.StatusCode.OK

    assert len(serving(store, short_path, test).answered) >= 2


def test_a_submitter_acts_on_their_own_campaigns(short_path: Path) -> None:
    sam = Identity("aa" * 16, IdentityKind.PERSON, "sam", Role.SUBMITTER, "vision")
    other = replace(sam, identity_id="bb" * 16, name="olga")
    operator = replace(sam, identity_id="cc" * 16, name="otto", role=Role.OPERATOR)
    store = stored(sam, other, operator)
    with store.transaction() as transaction:
        transaction.add_campaign(campaign("mine-1", owner=sam.identity_id), [], [])
        transaction.add_campaign(campaign("old-1", 2, owner=""), [], [])

    async def test(server: GuardedServer) -> None:
        async def cancelled(who: Identity, name: str) -> grpc.StatusCode:
            async with server.channel(credentials_of(who)) as channel:
                request = campaign_pb2.CancelRequest(campaign_id=name)
                return await call(channel, METHODS["Cancel"], request)

        assert await cancelled(sam, "mine-1") is grpc.StatusCode.OK
        assert await cancelled(other, "mine-1") is grpc.StatusCode.PERMISSION_DENIED
        assert await cancelled(sam, "old-1") is grpc.StatusCode.PERMISSION_DENIED
        assert await cancelled(operator, "mine-1") is grpc.StatusCode.OK
        assert await cancelled(operator, "old-1") is grpc.StatusCode.OK
        assert await cancelled(sam, "none-1") is grpc.StatusCode.NOT_FOUND
        assert await cancelled(operator, "none-1") is grpc.StatusCode.OK

    serving(store, short_path, test)


@pytest.mark.parametrize(
    "now", [{"project": "sound"}, {"project": "", "role": Role.SUBMITTER}, {"role": Role.SUBMITTER}]
)
def test_a_watch_ends_when_its_caller_may_know_of_other_campaigns(
    short_path: Path, now: dict[str, Any]
) -> None:
    before = replace(VIEWER, identity_id="cc" * 16, project="vision")
    store = stored(before)
    with store.transaction() as transaction:
        transaction.add_campaign(campaign("seen-1", project="vision"), [], [])

    async def test(server: GuardedServer) -> None:
        async with server.channel(credentials_of(before)) as channel:
            path = f"/{METHODS['GetReport'].containing_service.full_name}/GetReport"
            request = campaign_pb2.GetReportRequest(campaign_id="seen-1").SerializeToString()
            stream = aiter(channel.unary_stream(path)(request))
            await anext(stream)
            put(store, server.directory, replace(before, **now))
            if "project" not in now:  # another role, and the same sight
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(stream), 0.1)
                return
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await anext(stream)
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED

    serving(store, short_path, test)


def changed_rule(monkeypatch: pytest.MonkeyPatch, name: str, **changes: Any) -> None:
    """Let the table say something else of one call, as a later release could."""
    call_name = f"{METHODS[name].containing_service.full_name}/{name}"
    changed = {**RULES, call_name: replace(RULES[call_name], **changes)}
    monkeypatch.setattr("assay_server.access.table.RULES", changed)


def test_a_call_without_a_rule_is_denied_to_everybody_and_audited(
    store: MetadataStore, short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"GetStatus", "ListAgents", "Heartbeat", "GetReport"}
    named = {
        call_name: rule for call_name, rule in RULES.items() if call_name.rpartition("/")[2] not in names
    }
    monkeypatch.setattr("assay_server.access.table.RULES", named)
    admin = Identity("dd" * 16, IdentityKind.PERSON, "ada", Role.ADMIN, EVERY_PROJECT)

    async def test(server: GuardedServer) -> None:
        put(store, server.directory, admin)
        for who in (credentials_of(admin), credentials_of(VIEWER), credentials_of(AGENT), None):
            async with server.channel(who) as channel:
                for name in sorted(names):
                    assert await call(channel, METHODS[name]) is grpc.StatusCode.PERMISSION_DENIED

    server = serving(store, short_path, test)
    assert server.answered == []
    with store.snapshot() as snapshot:
        entries = snapshot.audit_entries()
    assert {(entry.call, entry.outcome) for entry in entries} <= {
        (name, "permission_denied") for name in names
    }
    assert len(entries) >= 5  # of refusals in a minute this server notes five
    assert all("does not name it" in entry.detail for entry in entries[-5:])


@pytest.mark.parametrize(
    ("name", "field"),
    [("GetReport", "campaign_id"), ("Export", "campaign_id"), ("Upload", "header.session_id")],
)
def test_a_submitter_acts_on_their_own_campaigns_in_streams_too(
    short_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, field: str
) -> None:
    sam = Identity("aa" * 16, IdentityKind.PERSON, "sam", Role.SUBMITTER, "vision")
    olga = replace(sam, identity_id="bb" * 16, name="olga")
    roles = frozenset({Role.SUBMITTER})
    changed_rule(monkeypatch, name, roles=roles, sender="", own_campaign=field, audited=True)
    store = stored(sam, olga)
    with store.transaction() as transaction:
        transaction.add_campaign(campaign("mine-1", owner=sam.identity_id), [], [])

    async def test(server: GuardedServer) -> None:
        async def asked(who: Identity, campaign_id: str) -> grpc.StatusCode:
            request = GetMessageClass(METHODS[name].input_type)()
            *outer, last = field.split(".")
            setattr(getattr(request, outer[0]) if outer else request, last, campaign_id)
            async with server.channel(credentials_of(who)) as channel:
                return await call(channel, METHODS[name], request)

        assert await asked(olga, "mine-1") is grpc.StatusCode.PERMISSION_DENIED
        assert await asked(sam, "mine-1") is grpc.StatusCode.OK
        assert await asked(sam, "none-1") is grpc.StatusCode.NOT_FOUND

    serving(store, short_path, test)


def test_an_agent_speaks_only_for_itself_in_calls_answered_in_parts_too(
    store: MetadataStore, short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roles = frozenset({Role.AGENT})
    changed_rule(monkeypatch, "GetReport", roles=roles, sender="campaign_id", seen_campaign="")

    async def test(server: GuardedServer) -> None:
        async with server.channel(credentials_of(AGENT)) as agent:
            other = campaign_pb2.GetReportRequest(campaign_id=VIEWER.identity_id)
            assert await call(agent, METHODS["GetReport"], other) is grpc.StatusCode.PERMISSION_DENIED
            mine = campaign_pb2.GetReportRequest(campaign_id=AGENT.identity_id)
            assert await call(agent, METHODS["GetReport"], mine) is grpc.StatusCode.OK

    server = serving(store, short_path, test)
    assert server.answered == [("GetReport", AGENT.identity_id)]


def test_every_call_of_agents_says_who_sends_it() -> None:
    agents = [rule for rule in RULES.values() if rule.roles == {Role.AGENT}]
    assert len(agents) == len(AGENTS_CALLS)
    assert all(rule.sender for rule in agents)


def test_what_submitters_change_is_their_own() -> None:
    """Campaigns and bundles that they send are theirs; renewing, leaving and links one's own login."""
    changing = {name for name, rule in RULES.items() if Role.SUBMITTER in rule.roles and rule.audited}
    own = {name for name, rule in RULES.items() if rule.own_campaign}
    assert changing - own == {
        "assay.v1.CampaignService/Submit", "assay.v1.BundleService/SendBundle",
        "assay.v1.EnrolmentService/Renew", "assay.v1.EnrolmentService/Leave",
        "assay.v1.IdentityService/MakeWebLink",
    }  # fmt: skip
    by_name = {
        method.full_name.replace(f".{method.name}", f"/{method.name}"): method for method in every_call()
    }
    for name in own:
        assert RULES[name].own_campaign in by_name[name].input_type.fields_by_name
