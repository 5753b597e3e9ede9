"""``assay admin identities``: the agents and people of a lab, their certificates, and open join tokens."""

from __future__ import annotations

from assay_client.cli.options import JsonOption, ServerOption
from assay_client.cli.output import show
from assay_client.cli.reporters.identities import render_identities
from assay_client.cli.verb import verb_app
from assay_client.remote.client import Client

app = verb_app()


@app.command()
def identities(*, server: ServerOption = None, as_json: JsonOption = False) -> None:
    """Show who may connect to a server, and until when.

    Also lists join tokens that can still be used."""
    with Client(server) as client:
        document = client.identities()
    show(document, as_json, lambda console: render_identities(document, console))
