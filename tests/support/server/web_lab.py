"""A server in this process with its live page, people of every role, and their browsers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from assay_core.identity.roles import OWNER_NAME, Role
from assay_core.records.identity import WebLinkAsked
from assay_core.records.lab import AuditEntry
from assay_server.access.caller import OWNER_ID, Caller, How, called_by
from assay_server.app import Server
from assay_server.store.people import Identity, StoredCertificate
from assay_server.store.sqlite import SqliteStore
from assay_server.web.routes.context import COOKIE
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import CAMPAIGN

PEOPLE = {
    "agent": (Role.AGENT, "vision"),
    "viewer": (Role.VIEWER, "vision"),
    "submitter": (Role.SUBMITTER, "vision"),
    "other submitter": (Role.SUBMITTER, "vision"),
    "operator": (Role.OPERATOR, "vision"),
    "admin": (Role.ADMIN, "vision"),
    "viewer elsewhere": (Role.VIEWER, "sound"),
    "submitter elsewhere": (Role.SUBMITTER, "sound"),
}


@dataclass
class WebLab:
    """The server, its people by name, and the campaign ``made-1`` of the submitter."""

    server: Server
    people: dict[str, Identity]

    @property
    def base(self) -> str:
        assert self.server.page is not None
        return self.server.page.base

    def caller(self, who: str) -> Caller:
        """Somebody as gRPC would know them; ``owner`` opened the socket."""
        if who == "owner":
            return Caller(OWNER_ID, OWNER_NAME, Role.ADMIN, how=How.SOCKET)
        one = self.people[who]
        return Caller(one.identity_id, one.name, one.role, one.project, serial=f"serial of {who}")

    def link(self, who: str) -> str:
        """The link that somebody would get."""
        assert self.server.page is not None
        with called_by(self.caller(who)):
            return self.server.page.link(WebLinkAsked()).url

    def browser(self, who: str = "") -> httpx.Client:
        """A browser; of somebody who has logged in, or of nobody. Close it."""
        client = httpx.Client(base_url=self.base, timeout=60, trust_env=False)
        if who:
            answer = client.post("/login", data={"link": self.link(who).partition("link=")[2]})
            assert answer.status_code == 303, answer.text
        return client

    def csrf(self, browser: httpx.Client) -> str:
        """The token of the session's forms, as its pages have it."""
        return browser.get("/gpus").text.partition('name="csrf" value="')[2].partition('"')[0]

    def change(self, who: str, **values: Any) -> None:
        """Change an identity as another process would, and have the server notice."""
        store = SqliteStore(self.server.settings.state_dir / "metadata.sqlite")
        with store.transaction() as transaction:
            transaction.put_identity(replace(self.people[who], **values))
        store.close()

    def withdraw(self, serial: str, who: str) -> None:
        """Withdraw a certificate as another process would."""
        store = SqliteStore(self.server.settings.state_dir / "metadata.sqlite")
        with store.transaction() as transaction:
            transaction.put_certificate(
                StoredCertificate(serial, self.people[who].identity_id, "", 0, 1 << 60, withdrawn_at_ms=1)
            )
        store.close()

    def audit(self) -> list[AuditEntry]:
        """The audit log, newest first."""
        store = SqliteStore(self.server.settings.state_dir / "metadata.sqlite")
        with store.snapshot() as reader:
            found = reader.audit_entries()
        store.close()
        return found

    def notice(self) -> None:
        """What the server does by itself every 15 s."""
        assert self.server.page is not None
        self.server.page.read_identities()


def web_lab(make_server: Callable[..., Server], folder: Path, **settings: Any) -> WebLab:
    """A lab whose identities are there from the start."""
    state = folder / "state"
    state.mkdir(mode=0o700, exist_ok=True)
    people = {
        name: Identity(f"{number:032x}", role.kind, name, role, project=project)
        for number, (name, (role, project)) in enumerate(PEOPLE.items(), 1)
    }
    store = SqliteStore(state / "metadata.sqlite")
    with store.transaction() as transaction:
        for each in people.values():
            transaction.put_identity(each)
    store.close()
    server = make_server(web="127.0.0.1:0", **settings)
    with PlayingAgent(server.addresses[-1]) as owner:
        owner.submit(CAMPAIGN)
    store = SqliteStore(state / "metadata.sqlite")
    with store.transaction() as transaction:
        campaign = transaction.campaign("made-1")
        assert campaign is not None
        whose = people["submitter"]
        transaction.save_campaign(
            replace(campaign, owner=whose.identity_id, owner_name=whose.name, project=whose.project)
        )
    store.close()
    return WebLab(server, people)


__all__ = ["COOKIE", "PEOPLE", "WebLab", "web_lab"]
