"""What people do with forms: log in with a link and out, and pause, resume, cancel and retry runs.

The page of a login, logging in and logging out are the only routes that are open to all, besides style and
script. Each action is the call of gRPC of that name.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from assay_core.records.runs import RunsAction, RunsRequest
from assay_sampling.errors import AssayError
from assay_server.web.auth.admission import caller_of_session
from assay_server.web.auth.sessions import SESSION_MS
from assay_server.web.routes.context import WebContext, campaign_path

ACTIONS: Mapping[RunsAction, str] = MappingProxyType(
    {
        RunsAction.PAUSE: "assay.v1.CampaignService/Pause",
        RunsAction.RESUME: "assay.v1.CampaignService/Resume",
        RunsAction.CANCEL: "assay.v1.CampaignService/CancelRuns",
        RunsAction.RETRY: "assay.v1.CampaignService/Retry",
    }
)


async def login_page(context: WebContext, request: Request) -> Response:
    """Says as whom a link logs in, or how to get a link."""
    page = partial(context.message, request, "login.html.j2", title="Log in")
    link = request.query_params.get("link", "")
    if not link:
        return page(link="", problem="")
    try:
        opens = await context.of_stranger(partial(context.sessions.of_link, link))
        caller = caller_of_session(context.access, opens, "")
    except AssayError as error:
        return page(401, link="", problem=f"This link cannot be used: {error.cause}.")
    return page(link=link, problem="", name=caller.name or caller.identity_id, as_role=str(caller.role))


async def log_in(context: WebContext, request: Request) -> Response:
    """Exchange a link for a session."""
    form = await context.form(request)
    opened = partial(context.sessions.opened, form.get("link", ""))
    cookie, session = await context.of_stranger(opened)
    caller_of_session(context.access, session, "")
    answer = RedirectResponse("/", 303)
    answer.set_cookie(
        context.cookie_name,
        cookie,
        max_age=SESSION_MS // 1000,
        path="/",
        secure=context.place.tls,
        httponly=True,
        samesite="strict",
    )
    return answer


async def log_out(context: WebContext, request: Request) -> Response:
    """End the session."""
    form, session = await context.form(request), context.session(request)
    if session is not None:
        context.require_csrf(request, form)
        await context.thread(partial(context.sessions.end, session))
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(
        context.cookie_name, path="/", secure=context.place.tls, httponly=True, samesite="strict"
    )
    return answer


async def act(context: WebContext, action: RunsAction, request: Request) -> Response:
    """Carry out one of ACTIONS in the caller's name.

    A form names a workload, a run, or neither for the whole campaign.
    """
    caller, form = await context.caller(request), await context.form(request)
    context.require_csrf(request, form)
    campaign_id = request.path_params["campaign_id"]
    runs_request = RunsRequest(campaign_id, form.get("workload", ""), form.get("run", ""))
    names = {"campaign": campaign_id, "workload": runs_request.workload, "run": runs_request.run_id}
    about = ", ".join(f"{what} {name[:100]}" for what, name in names.items() if name)
    answer = partial(context.handlers.campaigns.carry_out, action, runs_request)
    await context.call(ACTIONS[action], caller, answer, campaign_id=campaign_id, about=about)
    run = urllib.parse.quote(runs_request.run_id, safe="")
    return RedirectResponse(f"/runs/{run}" if run else campaign_path(campaign_id), 303)
