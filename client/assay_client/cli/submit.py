"""``assay submit CAMPAIGN``: hand a campaign file to a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay_client.cli.options import JsonOption, ServerOption
from assay_client.cli.output import show
from assay_client.cli.reporters.campaign import render_submitted
from assay_client.cli.verb import verb_app
from assay_client.client import Client

app = verb_app()


@app.command()
def submit(
    campaign: Annotated[
        Path, typer.Argument(readable=False, metavar="CAMPAIGN", help="A campaign file (YAML).")
    ],
    *,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hand a campaign file to a server.

    It checks the file, plans the runs and gives them to agents."""
    with Client(server) as client:
        submitted = client.submit_document(campaign)
    show(submitted, as_json, lambda console: render_submitted(submitted, console))
