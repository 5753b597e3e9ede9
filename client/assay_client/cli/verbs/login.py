"""``assay login ADDRESS``: become a person of a lab on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from assay_client.cli.options import JsonOption
from assay_client.cli.output import show
from assay_client.cli.reporters.identities import render_login
from assay_client.cli.verb import verb_app
from assay_client.remote.logins import log_in
from assay_core.connecting.token_option import given_token, token_option

app = verb_app()


@app.command()
def login(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The server's --join listener.")],
    *,
    token: Annotated[str, token_option()],
    as_json: JsonOption = False,
) -> None:
    """Log in to a server with a join token of its admin.

    The certificate is kept in your configuration folder and renewed whenever you use it."""
    document = log_in(address, given_token(token))
    show(document, as_json, lambda console: render_login(document, console))
