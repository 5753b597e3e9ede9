"""Actions: pause, resume, cancel and retry, each the call of gRPC of that name."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from assay_core.records.runs import RunsRequest
from assay_server.web.routes.context import Asking, campaign_path

ACTIONS: Mapping[str, str] = MappingProxyType(
    {
        "pause": "assay.v1.CampaignService/Pause",
        "resume": "assay.v1.CampaignService/Resume",
        "cancel": "assay.v1.CampaignService/CancelRuns",
        "retry": "assay.v1.CampaignService/Retry",
    }
)


async def act(asking: Asking, name: str, request: Request) -> Response:
    """Carry out one of ACTIONS in the caller's name.

    A form names a workload, a run, or neither for the whole campaign.
    """
    caller, form = await asking.caller(request), await asking.form(request)
    asking.require_csrf(request, form)
    campaign_id, handler = request.path_params["campaign_id"], asking.handlers.campaigns
    runs_request = RunsRequest(campaign_id, form.get("workload", ""), form.get("run", ""))
    carry_out = {
        "pause": handler.pause,
        "resume": handler.resume,
        "cancel": handler.cancel_runs,
        "retry": handler.retry,
    }[name]
    about = ", ".join(
        f"{what} {each[:100]}"
        for what, each in (
            ("campaign", campaign_id),
            ("workload", runs_request.workload),
            ("run", runs_request.run_id),
        )
        if each
    )
    answer = partial(carry_out, runs_request)
    call = partial(asking.admission.call, ACTIONS[name], caller, answer, campaign_id=campaign_id, about=about)
    await asking.thread(call)
    run = urllib.parse.quote(runs_request.run_id, safe="")
    return RedirectResponse(f"/runs/{run}" if run else campaign_path(campaign_id), 303)
