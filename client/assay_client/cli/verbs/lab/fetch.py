"""``assay lab fetch ID``: a campaign's report and published records, as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay_client.cli.options import CampaignArgument, JsonOption, ServerOption
from assay_client.cli.output import show
from assay_client.cli.reporters.text import counted, size
from assay_client.cli.verb import verb_app
from assay_client.remote.client import Client
from assay_client.remote.connection import Connection
from assay_client.remote.fetching import fetch_campaign, fetched_document
from assay_sampling.visible import visible

app = verb_app()


@app.command()
def fetch(
    campaign_id: CampaignArgument,
    *,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", readable=False, metavar="DIR", help="The folder; a missing one is created."
        ),
    ],
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Download a campaign's report and published records.

    Each file is checked against its hash. Existing files are not fetched again, so the same command continues
    after a break."""
    with Client(server) as client, Connection(server) as connection:
        fetched = fetch_campaign(
            client, connection, campaign_id, output, lambda line: typer.echo(visible(line), err=True)
        )
    document = fetched_document(campaign_id, fetched)
    what = f"{counted(len(fetched.files), 'file', 'files')} of records, {size(fetched.fetched_bytes)} fetched"
    report = f", {' and '.join(fetched.reports)}" if fetched.reports else "; there is no report yet"
    show(document, as_json, lambda console: console.print(f"{fetched.folder}: {what}{report}"))
