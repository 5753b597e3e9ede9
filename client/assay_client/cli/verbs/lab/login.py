"""``assay lab login ADDRESS``: log in to a lab on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from assay_client.cli.options import JsonOption, ServerOption
from assay_client.cli.output import show
from assay_client.cli.reporters.identities import render_login, render_web_link
from assay_client.cli.verb import verb_app
from assay_client.remote.client import Client
from assay_client.remote.logins import log_in
from assay_core.connecting.token_option import given_token, token_option
from assay_core.server_address import parse_address
from assay_sampling.errors import ParameterError

app = verb_app()


@app.command()
def login(
    address: Annotated[
        str | None, typer.Argument(metavar="HOST:PORT", help="The server's --join listener.")
    ] = None,
    *,
    token: Annotated[str, token_option()] = "",
    web: Annotated[
        bool, typer.Option("--web", help="Print a link to the server's live page, for one use.")
    ] = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Log in to a server, or a browser to its live page.

    It takes a join token of the server's admin. The certificate is kept in your configuration folder and
    renewed whenever you use it. With --web, open the link within two minutes: the browser acts as you."""
    if web:
        _print_link(address, server, as_json)
        return
    if address is None:
        raise _without_address(server)
    parse_address(address, "HOST:PORT")
    if not token:
        raise ParameterError(
            "--token",
            "it is missing",
            f"ask an admin for a token, then: assay lab login {address} --token TOKEN",
        )
    document = log_in(address, given_token(token))
    show(document, as_json, lambda console: render_login(document, console))


def _without_address(server: str | None) -> ParameterError:
    """The error if no join listener is named; ``server``: the value of ``--server``."""
    if server is None:
        remedy = (
            "write: assay lab login HOST:PORT --token TOKEN; "
            "or, for the page of a server: assay lab login --web"
        )
        return ParameterError("HOST:PORT", "the address of the server's --join listener is missing", remedy)
    parse_address(server, "--server")
    return ParameterError(
        "--server",
        "logging in takes the address of the --join listener as its argument; --server belongs to --web",
        f"write: assay lab login {server} --token TOKEN",
    )


def _print_link(address: str | None, server: str | None, as_json: bool) -> None:
    if address is not None:
        raise ParameterError(
            address,
            "--web takes the server that you are logged in to from --server, not as its argument",
            f"write: assay lab login --web --server {address}",
        )
    with Client(server) as client:
        link = client.web_link()
    show(link, as_json, lambda console: render_web_link(link, console))
