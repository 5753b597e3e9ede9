"""``assay-server token``: makes a join token from the state folder, whether or not the server runs."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from assay_core.identity.roles import OWNER_NAME, Role
from assay_core.records.identity import TokenAsked
from assay_core.settings.command_line import with_settings
from assay_core.settings.quantities import parse_span_seconds
from assay_sampling.errors import NotReadyError
from assay_server.cli.output import JsonOption, server_extra, show
from assay_server.clock import wall_ms
from assay_server.config import ServerSettings
from assay_server.identity.authority import Authority, read_authority

if TYPE_CHECKING:
    from assay_server.store.people import StoredToken
    from assay_server.store.sql import MetadataStore


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
        asked = TokenAsked(role, name, project, tuple(label or ()), uses, valid_ms)
        text, stored = _make(store, authority, asked)
    _show(text, stored, authority.fingerprint, settings.advertise_join, json_output)


def _make(store: MetadataStore, authority: Authority, request: TokenAsked) -> tuple[str, StoredToken]:
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


def _show(text: str, stored: StoredToken, fingerprint: str, join_at: str, as_json: bool) -> None:
    until = datetime.fromtimestamp(stored.expires_at_ms / 1000, UTC)
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
