"""``assay cancel ID``: stop a campaign."""

from __future__ import annotations

from assay_client.cli.options import CampaignArgument, JsonOption, ServerOption
from assay_client.cli.output import show
from assay_client.cli.reporters.campaign import render_campaign
from assay_client.cli.verb import verb_app
from assay_client.remote.client import Client

app = verb_app()


@app.command()
def cancel(
    campaign_id: CampaignArgument, *, server: ServerOption = None, as_json: JsonOption = False
) -> None:
    """Cancel what has not finished of a campaign.

    Everything already stored stays."""
    with Client(server) as client:
        status = client.cancel(campaign_id)
    show(status, as_json, lambda console: render_campaign(status, console))
