"""``assay resume ID``: let a paused campaign, workload or run go on."""

from __future__ import annotations

from assay_client.cli.options import CampaignArgument, JsonOption, RunOption, ServerOption, WorkloadOption
from assay_client.cli.output import show
from assay_client.cli.reporters.runs_request import render_request
from assay_client.cli.verb import verb_app
from assay_client.remote.client import Client

app = verb_app()


@app.command()
def resume(
    campaign_id: CampaignArgument,
    *,
    workload: WorkloadOption = "",
    run_id: RunOption = "",
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a paused campaign, workload or run go on.

    A campaign goes on with all its runs, also those that were paused alone."""
    with Client(server) as client:
        done = client.resume(campaign_id, workload=workload, run_id=run_id)
    show(done, as_json, lambda console: render_request(done, console))
