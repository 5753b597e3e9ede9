"""``assay lab submit CAMPAIGN``: submit a campaign file to a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from assay_client.cli.options import JsonOption, ServerOption
from assay_client.cli.output import show
from assay_client.cli.reporters.campaign import render_submitted
from assay_client.cli.verb import verb_app
from assay_client.files import read_campaign
from assay_client.local import check_campaign
from assay_client.remote.client import Client
from assay_sampling.errors import CampaignError, MissingExtraError

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
    """Submit a campaign file to a server.

    It checks the file, plans the runs and gives them to agents. A warning names files that are not on this
    machine: the agents must have them."""
    warnings = _warnings(campaign)
    with Client(server) as client:
        submitted = client.submit_document(campaign)
    document = {**submitted, "warnings": warnings}
    show(document, as_json, lambda console: render_submitted(document, console))


def _warnings(campaign: Path) -> list[dict[str, Any]]:
    """Warnings about the file; raises CampaignError for what no agent could ever run.

    The server, which may be newer, decides whether the file is valid.
    """
    read_campaign(campaign)
    try:
        findings = check_campaign(campaign)
    except (CampaignError, MissingExtraError):
        return []
    findings.refuse(here=False)
    return findings.to_documents()
