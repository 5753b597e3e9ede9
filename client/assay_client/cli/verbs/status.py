"""``assay status [ID]``: all campaigns of a server, or one with its runs."""

from __future__ import annotations

from typing import Annotated

import typer

from assay_client.cli.options import JsonOption, ServerOption
from assay_client.cli.output import show
from assay_client.cli.reporters.campaign import render_campaign, render_overview
from assay_client.cli.verb import verb_app
from assay_client.remote.client import Client

app = verb_app()


@app.command()
def status(
    campaign_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="A campaign's id; without it, all campaigns.")
    ] = None,
    *,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show all campaigns of a server, or one with its runs."""
    with Client(server) as client:
        if campaign_id is None:
            overview = client.overview()
            show(overview, as_json, lambda console: render_overview(overview, console))
        else:
            found = client.status(campaign_id)
            show(found, as_json, lambda console: render_campaign(found, console))
