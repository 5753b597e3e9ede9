"""``assay cancel ID``: stop a campaign, a workload or a run."""

from __future__ import annotations

from assay_client.cli.options import CampaignArgument, JsonOption, RunOption, ServerOption, WorkloadOption
from assay_client.cli.output import show
from assay_client.cli.reporters.runs_request import render_request
from assay_client.cli.verb import verb_app
from assay_client.remote.client import Client

app = verb_app()


@app.command()
def cancel(
    campaign_id: CampaignArgument,
    *,
    workload: WorkloadOption = "",
    run_id: RunOption = "",
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cancel what has not finished of a campaign.

    Of all of it, of a workload, or one run. Everything already stored stays. 'assay retry' takes
    cancelled runs up again."""
    with Client(server) as client:
        done = client.cancel(campaign_id, workload=workload, run_id=run_id)
    show(done, as_json, lambda console: render_request(done, console))
