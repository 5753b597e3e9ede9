"""``assay-server init`` and ``token``: the certificate authority of a lab, and tokens to join it.

Tokens are made from the state folder, whether or not the server runs.
"""

from __future__ import annotations

import datetime
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from assay_core.files.durable import storage_errors
from assay_core.files.private_folders import take_state_folder
from assay_core.identity.roles import OWNER_NAME, Role
from assay_core.records.identity import TokenAsked
from assay_core.settings.command_line import with_settings
from assay_core.settings.quantities import parse_span_seconds
from assay_sampling.errors import NotReadyError
from assay_server.cli.output import JsonOption, server_extra, show
from assay_server.clock import wall_ms
from assay_server.config import ServerSettings
from assay_server.identity.authority import (
    Authority,
    authority_folder,
    new_authority,
    read_authority,
    write_authority,
)

if TYPE_CHECKING:
    from assay_server.store.people import StoredToken
    from assay_server.store.sql import MetadataStore


@with_settings(ServerSettings, "state_dir")
def init(
    *,
    settings: ServerSettings,
    name: Annotated[str, typer.Option(metavar="TEXT", help="Name of the lab.")] = "Assay lab",
    validity: Annotated[
        str,
        typer.Option(metavar="SPAN", help="How long the authority is valid; afterwards nobody can connect."),
    ] = "3650d",
    if_needed: Annotated[
        bool, typer.Option("--if-needed", help="Keep an existing authority instead of failing.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Create the lab's certificate authority, once; the server can then listen on HOST:PORT.

    Its private key stays in the state folder (mode 0600). Everybody who enrols trusts this authority, so a
    second init is refused."""
    state = settings.state_dir.absolute()
    span = datetime.timedelta(seconds=parse_span_seconds(validity, "--validity"))
    authority = new_authority(name, span, datetime.datetime.now(datetime.UTC))
    with storage_errors(state):
        take_state_folder(state)
    existing_authority = read_authority(state) if if_needed else None
    if existing_authority is None:
        write_authority(authority, state)
    authority = existing_authority or authority
    document = {
        "authority": authority.name,
        "fingerprint": authority.fingerprint,
        "valid_until": f"{authority.not_after:%Y-%m-%dT%H:%M:%SZ}",
        "folder": str(authority_folder(state)),
    }
    text = (
        f"authority {document['authority']!r} in {document['folder']}, valid until "
        f"{document['valid_until']}\nfingerprint {document['fingerprint']}"
    )
    show(document, text, as_json=json_output)


@with_settings(ServerSettings, "state_dir", "database", "database_file", "advertise_join")
def token(
    *,
    settings: ServerSettings,
    role: Annotated[Role, typer.Option(help="Role of whoever joins.")],
    name: Annotated[str, typer.Option(metavar="TEXT", help="The person's name; agents have their own.")] = "",
    project: Annotated[str, typer.Option(metavar="TEXT", help="A person's project; * for all.")] = "",
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="TEXT", help="A label of the agents. Repeatable.")
    ] = None,
    uses: Annotated[int, typer.Option(metavar="NUMBER", min=1, help="How often it can be used.")] = 1,
    valid: Annotated[str, typer.Option(metavar="SPAN", help="How long it can be used.")] = "1h",
    json_output: JsonOption = False,
) -> None:
    """Make a join token; anyone who has it can join, so hand it over in private.

    By default it can be used once, within an hour. The server may be running."""
    with server_extra():
        from assay_server.database.opening import asked_database, open_database  # noqa: PLC0415

    state = settings.state_dir.absolute()
    authority = read_authority(state)
    if authority is None:
        raise NotReadyError(
            str(state), "this server has no certificate authority", "run: assay-server init --state DIR"
        )
    valid_ms = round(1000 * parse_span_seconds(valid, "--valid"))
    with closing(open_database(state, asked_database(settings.database, settings.database_file))) as store:
        request = TokenAsked(role, name, project, tuple(label or ()), uses, valid_ms)
        text, stored = _make_token(store, authority, request)
    _show_token(text, stored, authority.fingerprint, settings.advertise_join, json_output)


def _make_token(store: MetadataStore, authority: Authority, request: TokenAsked) -> tuple[str, StoredToken]:
    """Make and store the token, with its entry in the audit log."""
    from assay_server.access.audit import DONE, Note  # noqa: PLC0415 - these need the extra
    from assay_server.access.caller import OWNER_ID, Caller, How  # noqa: PLC0415
    from assay_server.identity.admission import make_token  # noqa: PLC0415

    with store.transaction() as transaction:
        text, stored = make_token(transaction, authority, request, wall_ms())
        note = Note(
            "assay-server token",
            "state folder",
            Caller(OWNER_ID, OWNER_NAME, Role.ADMIN, how=How.SOCKET),
            f"token {stored.token_id}",
            f"{request.role} {request.name}, {request.uses} uses",
        )
        transaction.add_audit(note.entry(DONE))
    return text, stored


def _show_token(text: str, stored: StoredToken, fingerprint: str, join_at: str, as_json: bool) -> None:
    until = datetime.datetime.fromtimestamp(stored.expires_at_ms / 1000, datetime.UTC)
    document = {
        "token": text,
        "token_id": stored.token_id,
        "fingerprint": fingerprint,
        "expires_at": f"{until:%Y-%m-%dT%H:%M:%SZ}",
        "join_address": join_at or None,
    }
    shown = f"{text}\nid {stored.token_id}, valid until  {document['expires_at']}\nauthority {fingerprint}"
    if join_at:
        verb = "assay-agent join" if stored.role is Role.AGENT else "assay lab login"
        shown += f"\n{verb} {join_at} --token TOKEN"
    show(document, shown, as_json=as_json)
