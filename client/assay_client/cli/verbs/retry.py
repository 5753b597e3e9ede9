"""``assay retry ID``: take failed and cancelled runs up again."""

from __future__ import annotations

from assay_client.cli.options import CampaignArgument, JsonOption, RunOption, ServerOption, WorkloadOption
from assay_client.cli.output import show
from assay_client.cli.reporters.runs_request import render_request
from assay_client.cli.verb import verb_app
from assay_client.remote.client import Client

app = verb_app()


@app.command()
def retry(
    campaign_id: CampaignArgument,
    *,
    workload: WorkloadOption = "",
    run_id: RunOption = "",
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let failed and cancelled runs wait again.

    Of a campaign, of a workload, or one run. Slices that are done stay, and earlier attempts stay in the
    record. A campaign that had ended goes on and is analysed again."""
    with Client(server) as client:
        done = client.retry(campaign_id, workload=workload, run_id=run_id)
    show(done, as_json, lambda console: render_request(done, console))
