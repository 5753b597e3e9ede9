"""``assay submit CAMPAIGN``: hand a campaign file to a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay_client.campaign_checks import Finding, refuse
from assay_client.cli.options import JsonOption, ServerOption
from assay_client.cli.output import show
from assay_client.cli.reporters.campaign import render_submitted
from assay_client.cli.verb import verb_app
from assay_client.client import Client
from assay_client.files import read_campaign
from assay_client.local import check_campaign
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
    """Hand a campaign file to a server.

    It checks the file, plans the runs and gives them to agents. Files that are not on this machine are told:
    the agents must have them."""
    found = _doubts(campaign)
    refuse(found, str(campaign), here=False)
    with Client(server) as client:
        submitted = client.submit_document(campaign)
    document = {**submitted, "warnings": [finding.to_dict(str(campaign)) for finding in found]}
    show(document, as_json, lambda console: render_submitted(document, console))


def _doubts(campaign: Path) -> list[Finding]:
    """What is doubtful in the file. Whether it is valid is for the server to say: it may be a newer one."""
    read_campaign(campaign)
    try:
        return check_campaign(campaign)
    except (CampaignError, MissingExtraError):
        return []
