"""``assay admin revoke``: revoke an identity, a join token, or the certificates of one key."""

from __future__ import annotations

from typing import Annotated

import typer

from assay_client.cli.options import JsonOption, ServerOption
from assay_client.cli.output import show
from assay_client.cli.reporters.identities import render_revoked
from assay_client.cli.verb import verb_app
from assay_client.remote.client import Client

app = verb_app()


@app.command()
def revoke(
    subject: Annotated[
        str,
        typer.Argument(metavar="WHAT", help="An identity's id or name, a token's id, or a serial number."),
    ],
    *,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Also revoke the open join tokens that it used.")
    ] = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Revoke an identity, a key or a join token.

    It takes effect within a minute, also for running calls. A serial number revokes all certificates of its
    key: one machine of a person, who may log in again with a new token."""
    with Client(server) as client:
        answer = client.revoke(subject, tokens=tokens)
    show(answer, as_json, lambda console: render_revoked(answer, console))
