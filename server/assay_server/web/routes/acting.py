"""Actions: pause, resume, cancel and retry, each the call of gRPC of that name."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from assay_core.records.runs import RunsAction, RunsRequest
from assay_server.web.auth.admission import call_as
from assay_server.web.routes.context import Asking, campaign_path

ACTIONS: Mapping[RunsAction, str] = MappingProxyType(
    {
        RunsAction.PAUSE: "assay.v1.CampaignService/Pause",
        RunsAction.RESUME: "assay.v1.CampaignService/Resume",
        RunsAction.CANCEL: "assay.v1.CampaignService/CancelRuns",
        RunsAction.RETRY: "assay.v1.CampaignService/Retry",
    }
)


async def act(asking: Asking, action: RunsAction, request: Request) -> Response:
    """Carry out one of ACTIONS in the caller's name.

    A form names a workload, a run, or neither for the whole campaign.
    """
    caller, form = await asking.caller(request), await asking.form(request)
    asking.require_csrf(request, form)
    campaign_id = request.path_params["campaign_id"]
    runs_request = RunsRequest(campaign_id, form.get("workload", ""), form.get("run", ""))
    about = ", ".join(
        f"{what} {each[:100]}"
        for what, each in (
            ("campaign", campaign_id),
            ("workload", runs_request.workload),
            ("run", runs_request.run_id),
        )
        if each
    )
    answer = partial(asking.handlers.campaigns.carry_out, action, runs_request)
    call = partial(
        call_as, asking.access, ACTIONS[action], caller, answer, campaign_id=campaign_id, about=about
    )
    await asking.thread(call)
    run = urllib.parse.quote(runs_request.run_id, safe="")
    return RedirectResponse(f"/runs/{run}" if run else campaign_path(campaign_id), 303)
