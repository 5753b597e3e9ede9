"""The audit log: who did what, written with the change itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import grpc
import pytest
from rich.console import Console

from assay_client.api import Client
from assay_client.cli.reporters.people import render_audit, render_role
from assay_core.identity.roles import IdentityKind, Role
from assay_core.records.lab import AuditAsked, AuditEntry, RoleChange
from assay_protos import campaign_pb2
from assay_sampling.errors import ParameterError, StorageError
from assay_server.access.audit import AuditedStore, AuditLog, begin_note, forget_note, note_subject
from assay_server.access.caller import EVERY_PROJECT, OWNER_ID, Caller, IdentityDirectory, called_by
from assay_server.app import Server
from assay_server.limits import CallerLimits
from assay_server.rpc.handlers.lab import read_audit, set_role
from assay_server.rpc.interceptors import Access, CallInterceptor, answers_of
from assay_server.rpc.quotas import Quotas
from assay_server.store.people import Identity
from assay_server.store.sql import MetadataStore
from assay_server.store.sqlite import SqliteStore
from tests.support.server.guarded_server import (
    GuardedServer,
    call,
    credentials_of,
    every_call,
    guarded_server,
)
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import CAMPAIGN
from tests.support.server.stored_values import campaign

METHODS = {method.name: method for method in every_call()}
SAM = Identity("aa" * 16, IdentityKind.PERSON, "sam", Role.SUBMITTER)
VERA = Identity("bb" * 16, IdentityKind.PERSON, "vera", Role.VIEWER)
BOX = Identity("cc" * 16, IdentityKind.AGENT, "box", Role.AGENT)


@pytest.fixture(autouse=True)
def no_call() -> Iterator[None]:
    """No call is being answered when a test begins or ends."""
    forget_note()
    yield
    forget_note()


def entries(store: MetadataStore) -> list[AuditEntry]:
    with store.snapshot() as read:
        return read.audit_entries()


def stored(*identities: Identity) -> MetadataStore:
    store = SqliteStore(None)
    with store.transaction() as transaction:
        for each in identities:
            transaction.put_identity(each)
        transaction.add_campaign(campaign("mine-1", owner=SAM.identity_id), [], [])
    return store


def serving(
    store: MetadataStore, folder: Path, test: Callable[[GuardedServer], Awaitable[None]]
) -> list[AuditEntry]:
    async def run() -> None:
        async with guarded_server(store, folder) as server:
            await asyncio.wait_for(test(server), 20)

    asyncio.run(run())
    return entries(store)


class EndedCall:
    """The context of a call that was ended with ``code`` before its answer."""

    def __init__(self, code: object) -> None:
        self._code = code

    def peer(self) -> str:
        return "unix:"

    def auth_context(self) -> dict[str, tuple[bytes, ...]]:
        return {}

    def code(self) -> object:
        return self._code

    def details(self) -> bytes:
        return b"why"


class TestCalls:
    def test_a_change_and_its_refusal_are_listed_with_who_and_what(self, short_path: Path) -> None:
        request = campaign_pb2.CancelRequest(campaign_id="mine-1")

        async def test(server: GuardedServer) -> None:
            for who in (SAM, VERA):
                async with server.channel(credentials_of(who)) as channel:
                    await call(channel, METHODS["Cancel"], request)

        refused, done = serving(stored(SAM, VERA), short_path, test)
        assert (done.identity_id, done.name, done.role) == (SAM.identity_id, "sam", "submitter")
        assert (done.how, done.call, done.outcome) == ("certificate", "Cancel", "done")
        assert done.subject == "campaign mine-1"
        assert done.address.startswith("ipv4:127.0.0.1:")
        assert (refused.name, refused.outcome) == ("vera", "permission_denied")
        assert "the role viewer may not call Cancel" in refused.detail

    def test_who_claims_what_is_not_theirs_is_listed_with_it(self, short_path: Path) -> None:
        olga = replace(SAM, identity_id="dd" * 16, name="olga", project="vision")

        async def test(server: GuardedServer) -> None:
            async with server.channel(credentials_of(olga)) as channel:
                request = campaign_pb2.CancelRequest(campaign_id="mine-1")
                await call(channel, METHODS["Cancel"], request)

        [entry] = serving(stored(SAM, olga), short_path, test)
        assert (entry.name, entry.subject, entry.outcome) == ("olga", "campaign mine-1", "permission_denied")

    def test_somebody_unknown_is_listed_without_a_name(self, short_path: Path) -> None:
        async def test(server: GuardedServer) -> None:
            async with server.channel(credentials_of(VERA)) as channel:
                assert await call(channel, METHODS["Submit"]) is grpc.StatusCode.UNAUTHENTICATED

        [entry] = serving(stored(), short_path, test)
        assert (entry.identity_id, entry.role, entry.outcome) == ("", "", "unauthenticated")

    def test_reads_and_what_attempts_record_leave_no_entry(self, short_path: Path) -> None:
        vera = replace(VERA, project=EVERY_PROJECT)

        async def test(server: GuardedServer) -> None:
            async with server.channel(credentials_of(vera)) as channel:
                assert await call(channel, METHODS["GetStatus"]) is grpc.StatusCode.OK
                assert await call(channel, METHODS["GetReport"]) is grpc.StatusCode.OK

        assert serving(stored(vera), short_path, test) == []

    @pytest.mark.parametrize(
        ("code", "outcome"),
        [
            # What grpcio gives today is a number, and what its interface promises is a status.
            (7, "permission_denied"), (grpc.StatusCode.PERMISSION_DENIED, "permission_denied"),
            (8, "resource_exhausted"), (grpc.StatusCode.INTERNAL, "internal"),
            (0, "cancelled"), (99, "cancelled"), (None, "cancelled"), (grpc.StatusCode.OK, "cancelled"),
        ],
    )  # fmt: skip
    def test_a_call_that_ends_early_is_listed_with_its_status(self, code: object, outcome: str) -> None:
        store = SqliteStore(None)

        async def gone(_request: object, _context: object) -> None:
            raise asyncio.CancelledError

        async def continuation(_details: object) -> object:
            return grpc.unary_unary_rpc_method_handler(gone, campaign_pb2.CancelRequest.FromString)

        async def broken() -> None:
            access = Access(store, IdentityDirectory(store), AuditLog(store, 1, 9))
            interceptor = CallInterceptor(access, Mock(), Quotas(CallerLimits()))
            details: Any = SimpleNamespace(method="/assay.v1.CampaignService/Cancel")
            guarded = await interceptor.intercept_service(continuation, details)
            await anext(answers_of(guarded)(b"", cast(Any, EndedCall(code))))

        with pytest.raises(asyncio.CancelledError):
            asyncio.run(broken())
        [entry] = entries(store)
        assert (entry.call, entry.outcome, entry.detail) == ("Cancel", outcome, "why")

    def test_refusals_beyond_the_bound_are_counted(self) -> None:
        store, now = SqliteStore(None), 0.0
        log = AuditLog(store, 1, 2, lambda: now)
        for _ in range(5):
            log.end(begin_note("Cancel", "x"), "permission_denied", "no")
        assert len(entries(store)) == 2
        now = 61.0
        log.end(begin_note("Cancel", "x"), "permission_denied", "no")
        assert entries(store)[0].detail == "no (3 refused calls before it are not listed)"


class TestWithItsChange:
    @pytest.fixture
    def store(self) -> MetadataStore:
        return SqliteStore(None)

    def test_one_transaction_writes_both(self, store: MetadataStore) -> None:
        audited, note = AuditedStore(store), begin_note("SetRole", "unix:")
        with audited.transaction() as transaction:
            transaction.put_identity(VERA)
            note_subject("vera", "viewer")
        assert [(e.call, e.subject, e.outcome) for e in entries(store)] == [("SetRole", "vera", "done")]
        assert note.written
        with audited.transaction() as transaction:
            transaction.put_identity(SAM)
        assert len(entries(store)) == 1  # a call has one entry

    def test_a_change_that_is_undone_has_none(self, store: MetadataStore) -> None:
        note = begin_note("SetRole", "unix:")
        with pytest.raises(ParameterError), AuditedStore(store).transaction() as transaction:
            transaction.put_identity(VERA)
            raise ParameterError("x", "y")
        assert entries(store) == [] and not note.written

    def test_an_entry_that_cannot_be_written_undoes_the_change(
        self, store: MetadataStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> None:
            raise StorageError("disk", "it is full")

        begin_note("SetRole", "unix:")
        with pytest.raises(StorageError), AuditedStore(store).transaction() as transaction:
            transaction.put_identity(VERA)
            monkeypatch.setattr(type(transaction), "add_audit", full)
        monkeypatch.undo()
        with store.snapshot() as read:
            assert read.identities() == []

    def test_the_servers_own_work_has_none(self, store: MetadataStore) -> None:
        with AuditedStore(store).transaction() as transaction:
            transaction.put_identity(VERA)
        assert entries(store) == []

    def test_old_entries_are_forgotten_and_pages_go_back(self, store: MetadataStore) -> None:
        with store.transaction() as transaction:
            for at_ms, name in ((1, "vera"), (2, "sam"), (3, "vera"), (4, "vera")):
                transaction.add_audit(
                    AuditEntry(0, at_ms, name[0], name, "viewer", "socket", "", "x", "", "done", "")
                )
            transaction.forget_audit(2)
        with store.snapshot() as read:
            assert [e.entry_id for e in read.audit_entries()] == [4, 3, 2]
            assert [e.entry_id for e in read.audit_entries(identity="vera")] == [4, 3]
            assert [e.entry_id for e in read.audit_entries(identity="s")] == [2]
            assert [e.entry_id for e in read.audit_entries(before=4, most=1)] == [3]
            assert [e.entry_id for e in read.audit_entries(since_ms=4)] == [4]


def test_a_real_server_lists_submissions_and_agents(server: Server) -> None:
    with PlayingAgent(server.addresses[0]) as agent:
        agent.submit(CAMPAIGN)
        agent.register()
        with pytest.raises(grpc.RpcError):
            agent.submit("no campaign")
        assert agent.status("made-1").owner == OWNER_ID
    store = SqliteStore(server.settings.state_dir / "metadata.sqlite")
    told = [(e.call, e.subject, e.outcome, e.how) for e in entries(store)]
    store.close()
    assert told == [
        ("Submit", "", "invalid_argument", "socket"),
        ("Register", "agent agent-1, name name of agent-1", "done", "socket"),
        ("Submit", "campaign made-1", "done", "socket"),
    ]


class TestRoles:
    def test_a_role_holds_at_once_and_is_listed(self) -> None:
        store = AuditedStore(stored(VERA, BOX))
        directory = IdentityDirectory(store)
        begin_note("SetRole", "unix:")
        told = set_role(store, directory, RoleChange("vera", Role.OPERATOR, "vision"))
        assert (told.identity_id, told.role, told.project) == (VERA.identity_id, Role.OPERATOR, "vision")
        now = directory.identity(VERA.identity_id)
        assert now is not None and now.role is Role.OPERATOR
        [entry] = entries(store)
        assert entry.subject == f"person vera ({VERA.identity_id})"
        assert entry.detail == "viewer to operator, project '' to 'vision'"

    @pytest.mark.parametrize(
        ("change", "cause"),
        [
            (RoleChange("nobody", Role.ADMIN), "the server knows no such identity"),
            (RoleChange("box", Role.ADMIN), "an agent stays an agent"),
            (RoleChange("vera", Role.AGENT), "an agent stays an agent"),
            (RoleChange("vera", Role.ADMIN, "x" * 101), "at most 100 printable"),
        ],
    )
    def test_what_cannot_be_is_refused(self, change: RoleChange, cause: str) -> None:
        store = stored(VERA, BOX)
        with pytest.raises(ParameterError, match=cause):
            set_role(store, IdentityDirectory(store), change)

    def test_the_log_comes_in_pages(self) -> None:
        store = stored(VERA)
        log = AuditLog(store, 1, 100)
        with called_by(Caller("x", "x", Role.ADMIN)):
            for number in range(5):
                log.end(begin_note(f"Call{number}", "x"), "done", "")
        page = read_audit(store, AuditAsked(most=3))
        assert [e.call for e in page.entries] == ["Call4", "Call3", "Call2"]
        last = read_audit(store, AuditAsked(before=page.next, most=3))
        assert [e.call for e in last.entries] == ["Call1", "Call0"]
        assert last.next == 0


def test_the_verbs_of_admins(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    address = server.addresses[0]
    with PlayingAgent(address) as agent:
        agent.submit(CAMPAIGN)
    store = SqliteStore(server.settings.state_dir / "metadata.sqlite")
    with store.transaction() as transaction:
        transaction.put_identity(VERA)
    store.close()
    with Client(address) as client:
        now = client.set_role("vera", "operator", project="vision")
        assert now == {
            "identity_id": VERA.identity_id, "name": "vera", "role": "operator", "project": "vision",
        }  # fmt: skip
        found = client.audit()
        assert [(e["call"], e["name"]) for e in found["entries"]] == [
            ("SetRole", "owner"),
            ("Submit", "owner"),
        ]
        assert found["more"] is False
        assert client.audit(most=1)["more"] is True
        assert client.audit(identity="vera")["entries"] == []
        with pytest.raises(ParameterError, match="there is no 'boss'"):
            client.set_role("vera", "boss")
    console = Console(width=200)
    render_audit(found, console)
    render_role(now, console)
    shown = capsys.readouterr().out
    assert "person vera" in shown and "viewer to operator" in shown
    assert f"vera ({VERA.identity_id}): operator, project vision" in shown
