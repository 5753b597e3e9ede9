"""``assay watch ID``: follow a campaign to its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay_client.cli.follow import follow, raise_for_failure
from assay_client.cli.live import MOST_RUNS, follow_live
from assay_client.cli.options import CampaignArgument, JsonOption, ServerOption
from assay_client.cli.output import can_move, console, show
from assay_client.cli.reporters.campaign import render_campaign
from assay_client.cli.reporters.live import LiveView
from assay_client.cli.verb import verb_app
from assay_client.remote.client import Client

app = verb_app()


@app.command()
def watch(campaign_id: CampaignArgument, *, server: ServerOption = None, as_json: JsonOption = False) -> None:
    """Follow a campaign until it has ended.

    On a terminal it is a table that moves: runs, GPUs at work, flags, and the time that is left; elsewhere
    a line for every change. The exit code says whether every run succeeded."""
    screen = console(error=True)
    with Client(server) as client:
        if can_move(screen):
            last = follow_live(client.watch(campaign_id), lambda status: _look(client, status), screen)
        else:
            last = follow(client.watch(campaign_id), quiet=as_json, waits=True)
    show(last, as_json, lambda drawn: render_campaign(last, drawn))
    raise_for_failure(last)


def _look(client: Client, status: Mapping[str, Any]) -> LiveView:
    """The status with what each GPU does now, and with its runs unless they are very many."""
    few = status["runs_total"] <= MOST_RUNS
    runs = client.status(status["campaign_id"])["runs"] if few else None
    return LiveView(status, runs, client.gpus()["gpus"])
