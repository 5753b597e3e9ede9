"""``assay-server init``: makes the certificate authority of a lab."""

from __future__ import annotations

import datetime
from typing import Annotated

import typer

from assay_core.files.durable import storage_errors
from assay_core.files.private_folders import take_state_folder
from assay_core.settings.command_line import with_settings
from assay_core.settings.quantities import parse_span_seconds
from assay_server.cli.output import JsonOption, show
from assay_server.config import ServerSettings
from assay_server.identity.authority import (
    authority_folder,
    new_authority,
    read_authority,
    write_authority,
)


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
