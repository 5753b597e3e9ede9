"""``assay lab agents``: the agents, since when, and what each slot runs."""

from __future__ import annotations

from assay_client.cli.options import JsonOption, ServerOption
from assay_client.cli.output import show
from assay_client.cli.reporters.lab import render_agents
from assay_client.cli.verb import verb_app
from assay_client.remote.client import Client

app = verb_app()


@app.command()
def agents(*, server: ServerOption = None, as_json: JsonOption = False) -> None:
    """List agents and what each GPU is running."""
    with Client(server) as client:
        document = client.agents()
    show(document, as_json, lambda console: render_agents(document, console))
