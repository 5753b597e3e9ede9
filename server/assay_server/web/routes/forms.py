"""What people do with forms: log in with a link and out, and pause, resume, cancel and retry runs.

The page of a login, logging in and logging out are the only routes that are open to all, besides style and
script. Each action is the call of gRPC of that name.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from assay_core.records.runs import RunsAction, RunsRequest
from assay_sampling.errors import AssayError
from assay_server.web.auth.admission import call_as, caller_of_session
from assay_server.web.auth.sessions import SESSION_MS
from assay_server.web.routes.context import Asking, campaign_path
from assay_server.web.views.templating import rendered

ACTIONS: Mapping[RunsAction, str] = MappingProxyType(
    {
        RunsAction.PAUSE: "assay.v1.CampaignService/Pause",
        RunsAction.RESUME: "assay.v1.CampaignService/Resume",
        RunsAction.CANCEL: "assay.v1.CampaignService/CancelRuns",
        RunsAction.RETRY: "assay.v1.CampaignService/Retry",
    }
)


async def login_page(asking: Asking, request: Request) -> Response:
    """Says as whom a link logs in, or how to get a link."""
    link, frame = request.query_params.get("link", ""), asking.frame(request, None)
    given: dict[str, Any] = {"title": "Log in", "kind": "", "stream": "", "link": "", "problem": ""}
    if link:
        try:
            opens = await asking.of_stranger(partial(asking.sessions.of_link, link))
            caller = caller_of_session(asking.access, opens, "")
        except AssayError as error:
            given["problem"] = f"This link cannot be used: {error.cause}."
            return HTMLResponse(rendered("login.html.j2", **frame, **given), 401)
        given |= {"link": link, "name": caller.name or caller.identity_id, "as_role": str(caller.role)}
    return HTMLResponse(rendered("login.html.j2", **frame, **given))


async def log_in(asking: Asking, request: Request) -> Response:
    """Exchange a link for a session."""
    form = await asking.form(request)
    opened = partial(asking.sessions.opened, form.get("link", ""))
    cookie, session = await asking.of_stranger(opened)
    caller_of_session(asking.access, session, "")
    answer = RedirectResponse("/", 303)
    answer.set_cookie(
        asking.cookie_name,
        cookie,
        max_age=SESSION_MS // 1000,
        path="/",
        secure=asking.place.tls,
        httponly=True,
        samesite="strict",
    )
    return answer


async def log_out(asking: Asking, request: Request) -> Response:
    """End the session."""
    form, session = await asking.form(request), asking.session(request)
    if session is not None:
        asking.require_csrf(request, form)
        await asking.thread(partial(asking.sessions.end, session))
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(
        asking.cookie_name, path="/", secure=asking.place.tls, httponly=True, samesite="strict"
    )
    return answer


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
