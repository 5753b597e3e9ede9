"""``assay watch ID``: follow a campaign to its end."""

from __future__ import annotations

from assay_client.cli.follow import follow, raise_for_failure
from assay_client.cli.options import CampaignArgument, JsonOption, ServerOption
from assay_client.cli.output import show
from assay_client.cli.reporters.campaign import render_campaign
from assay_client.cli.verb import verb_app
from assay_client.remote.client import Client

app = verb_app()


@app.command()
def watch(campaign_id: CampaignArgument, *, server: ServerOption = None, as_json: JsonOption = False) -> None:
    """Follow a campaign until it has ended.

    The exit code says whether every run succeeded."""
    with Client(server) as client:
        last = follow(client.watch(campaign_id), quiet=as_json, waits=True)
    show(last, as_json, lambda console: render_campaign(last, console))
    raise_for_failure(last)
