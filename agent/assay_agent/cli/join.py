"""``assay-agent join``: makes this box's agent a member of a lab."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay_agent.config import AgentSettings
from assay_agent.daemon.state import (
    StateDirectory,
    agent_name,
    credentials_folder,
    keep_joined_name,
    kept_agent_id,
)
from assay_core.connecting.token_option import given_token, token_option
from assay_core.settings.command_line import with_settings

if TYPE_CHECKING:
    from assay_core.identity.credentials import Credentials
    from assay_core.identity.join_token import JoinToken
    from assay_core.records.identity import Joined


@with_settings(AgentSettings, "state_dir", "name", "agent_id")
def join(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The server's --join listener.")],
    *,
    settings: AgentSettings,
    token: Annotated[str, token_option()],
    if_needed: Annotated[
        bool,
        typer.Option(
            "--if-needed", help="Keep a certificate that the token's authority issued while it is valid."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Join a lab with a token; the certificate is kept in the state folder, and renewed while the agent runs.

    Joining again, after the certificate has expired, keeps the agent's identity and its spool; a running
    agent picks up the new certificate."""
    from assay_core.identity.join_token import JoinToken  # noqa: PLC0415 - other commands do not need it

    before = credentials_folder(settings.state_dir).read()
    token_text = given_token(token)
    agent_id = kept_agent_id(settings.state_dir)
    if (
        if_needed
        and before is not None
        and agent_id is not None
        and _is_enough(before, agent_id, JoinToken.parse(token_text))
    ):
        _say(before, agent_id, agent_name(settings), settings.state_dir, as_json)
        return
    agent_id, credentials, joined = join_lab(settings, address, token_text)
    _say(credentials, agent_id, joined.name, settings.state_dir, as_json)


def _is_enough(credentials: Credentials, agent_id: str, token: JoinToken) -> bool:
    """Whether a server of the token's authority lets this agent in without joining."""
    return (
        not credentials.expired
        and credentials.identity.identity_id == agent_id
        and credentials.authority_fingerprint == token.fingerprint
    )


def _say(credentials: Credentials, agent_id: str, name: str, state: Path, as_json: bool) -> None:
    until = datetime.fromtimestamp(credentials.identity.not_after_ms / 1000, UTC)
    document = {
        "agent_id": agent_id,
        "name": name,
        "server": credentials.server,
        "fingerprint": credentials.authority_fingerprint,
        "valid_until": f"{until:%Y-%m-%dT%H:%M:%SZ}",
    }
    if as_json:
        typer.echo(json.dumps(document, indent=2))
    else:
        typer.echo(
            f"agent {name} ({agent_id}) joined {credentials.server}, authority "
            f"{credentials.authority_fingerprint}\nstart it with: assay-agent run --state "
            f"{state} --policy FILE"
        )


def join_lab(settings: AgentSettings, address: str, token: str) -> tuple[str, Credentials, Joined]:
    """Join a lab, and keep its certificate in the state folder; returns the agent's identity, too.

    Raises the typed errors of :func:`assay_core.connecting.joining.join`, and StorageError.
    """
    from assay_core.connecting import joining  # noqa: PLC0415 - other commands do not need it

    folder = credentials_folder(settings.state_dir)
    agent_id = kept_agent_id(settings.state_dir)
    if agent_id is None:
        with StateDirectory(settings.state_dir, settings.agent_id) as state:
            agent_id = state.agent_id
    before = folder.read()
    # The same key proves that the identity is ours, even after the certificate has expired.
    ours = before is not None and before.identity.identity_id == agent_id
    key = before.key if before is not None and ours else folder.joining_key()
    credentials, joined = joining.join(
        address,
        token,
        name=agent_name(settings),
        identity_id=agent_id,
        key=key,
    )
    folder.write(credentials)
    keep_joined_name(settings.state_dir, agent_id, joined.name)
    return agent_id, credentials, joined
