"""``assay lab status [ID]``: all campaigns of a server, or one with its runs, also until it has ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from assay_client.cli.follow import follow, raise_for_failure
from assay_client.cli.live import MOST_RUNS, follow_live
from assay_client.cli.options import JsonOption, OptionalCampaignArgument, ServerOption
from assay_client.cli.output import can_move, console, show
from assay_client.cli.reporters.campaign import render_campaign, render_overview
from assay_client.cli.reporters.live import LiveView
from assay_client.cli.verb import verb_app
from assay_client.remote.client import Client
from assay_sampling.errors import ParameterError

app = verb_app()


@app.command()
def status(
    campaign_id: OptionalCampaignArgument = None,
    *,
    following: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the campaign until it has ended.")
    ] = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show all campaigns of a server, or one with its runs.

    --follow shows a live table on a terminal (runs, busy GPUs, flags, remaining time), elsewhere a line for
    every change; its exit code says whether every run succeeded."""
    if following and campaign_id is None:
        raise ParameterError("--follow", "no campaign is named", "write: assay lab status ID --follow")
    with Client(server) as client:
        if campaign_id is None:
            overview = client.overview()
            show(overview, as_json, lambda drawn: render_overview(overview, drawn))
            return
        campaign = _followed(client, campaign_id, as_json) if following else client.status(campaign_id)
    show(campaign, as_json, lambda drawn: render_campaign(campaign, drawn))
    if following:
        raise_for_failure(campaign)


def _followed(client: Client, campaign_id: str, as_json: bool) -> Mapping[str, Any]:
    """The campaign's last status; each before it is shown on standard error."""
    screen = console(error=True)
    if can_move(screen):
        return follow_live(client.watch(campaign_id), lambda status: _look(client, status), screen)
    return follow(client.watch(campaign_id), quiet=as_json, waits=True)


def _look(client: Client, status: Mapping[str, Any]) -> LiveView:
    """The status with what each GPU does now, and with its runs unless they are very many."""
    few = status["runs_total"] <= MOST_RUNS
    runs = client.status(status["campaign_id"])["runs"] if few else None
    return LiveView(status, runs, client.gpus()["gpus"])
