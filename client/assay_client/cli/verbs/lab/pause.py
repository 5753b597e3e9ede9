"""``assay lab pause ID``: pause a campaign, a workload or a run."""

from __future__ import annotations

from typing import Annotated

import typer

from assay_client.cli.options import CampaignArgument, JsonOption, RunOption, ServerOption, WorkloadOption
from assay_client.cli.output import show
from assay_client.cli.reporters.runs_request import render_request
from assay_client.cli.verb import verb_app
from assay_client.remote.client import Client

app = verb_app()


@app.command()
def pause(
    campaign_id: CampaignArgument,
    *,
    workload: WorkloadOption = "",
    run_id: RunOption = "",
    now: Annotated[
        bool, typer.Option("--now", help="Hand back running slices; they are measured again.")
    ] = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Pause a campaign, a workload or a run.

    Running slices finish first. 'assay lab resume' continues it."""
    with Client(server) as client:
        answer = client.pause(campaign_id, workload=workload, run_id=run_id, at_once=now)
    show(answer, as_json, lambda console: render_request(answer, console))
