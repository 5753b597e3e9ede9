"""Draws logins, join tokens and identities."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.tables import Table


def render_login(document: Mapping[str, Any], console: Console) -> None:
    """Who logged in where, and how to use it."""
    until = datetime.fromtimestamp(document["expires_at_ms"] / 1000, UTC)
    console.print(
        f"logged in to {document['server']} as {document['name']} ({document['role']})", soft_wrap=True
    )
    console.print(f"authority {document['fingerprint']}", soft_wrap=True)
    console.print(f"renewed when used until {until:%Y-%m-%d %H:%M} UTC", soft_wrap=True)
    console.print(f"use it with --server {document['server']} or $ASSAY_SERVER", soft_wrap=True)


def render_web_link(document: Mapping[str, Any], console: Console) -> None:
    """The link on a line of its own."""
    console.print(document["url"], soft_wrap=True, markup=False, highlight=False)
    console.print("open it within two minutes; it works once, and the browser then acts as you")


def render_logout(document: Mapping[str, Any], console: Console) -> None:
    """Draw that the login is deleted, and whether its certificate is revoked."""
    console.print(f"logged out of {document['server']}", soft_wrap=True)
    if not document["withdrawn"]:
        until = datetime.fromtimestamp(document["expires_at_ms"] / 1000, UTC)
        console.print(
            f"its certificate could not be revoked ({document['not_withdrawn']}), and stays valid until "
            f"{until:%Y-%m-%d %H:%M} UTC; an admin can revoke it with: assay admin revoke "
            f"{document['serial']}",
            soft_wrap=True,
        )


def render_token(made: Mapping[str, Any], console: Console) -> None:
    """The token on a line of its own, then what is known of it."""
    console.print(made["token"], soft_wrap=True)
    console.print(f"id {made['token_id']}, valid until  {made['expires_at']}", soft_wrap=True)
    console.print(f"authority {made['fingerprint']}", soft_wrap=True)
    where = f"HOST:{made['join_port']}" if made["join_port"] else "HOST:PORT of the server's --join listener"
    where = made["join_address"] or where
    verb = "assay-agent join" if made["role"] == "agent" else "assay lab login"
    console.print(f"{verb} {where} --token TOKEN", soft_wrap=True)


def render_identities(document: Mapping[str, Any], console: Console) -> None:
    """A table of identities, and one of tokens if there are any."""
    table = Table("identities", ("name", "role", "project", "labels", "valid until", "identity"))
    for each in document["identities"]:
        table.add_row(
            each["name"], each["role"], each["project"], " ".join(each["labels"]), _until(each),
            each["identity_id"],
        )  # fmt: skip
    table.print(console)
    if document["tokens"]:
        tokens = Table("open join tokens", ("token", "role", "name", "uses left", "valid until"))
        for each in document["tokens"]:
            tokens.add_row(
                each["token_id"], each["role"], each["name"], str(each["uses_left"]), each["expires_at"]
            )
        tokens.print(console)


def render_revoked(answer: Mapping[str, Any], console: Console) -> None:
    """What was revoked, and with which tokens it could come back as somebody new."""
    console.print(f"revoked {answer['what']} {answer['id']} {answer['name']}".rstrip(), soft_wrap=True)
    tokens = ", ".join(answer["tokens"])
    if tokens and answer["tokens_withdrawn"]:
        console.print(f"and the join tokens that it used: {tokens}", soft_wrap=True)
    elif tokens:
        console.print(
            f"it used join tokens that are still valid, and could join again: {tokens}", soft_wrap=True
        )
        console.print(f"revoke them, too: assay admin revoke {answer['id']} --tokens", soft_wrap=True)


def _until(identity: Mapping[str, Any]) -> str:
    """When the last certificate that is not revoked expires."""
    if identity["revoked_at"]:
        return "revoked"
    ends = [each["expires_at"] for each in identity["certificates"] if not each["withdrawn_at"]]
    return max(ends) if ends else "expired"
