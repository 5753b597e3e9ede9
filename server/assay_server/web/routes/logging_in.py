"""Logging in with a link, and out: the only routes that are open to all, besides style and script."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from assay_sampling.errors import AssayError
from assay_server.web.auth.admission import caller_of_session
from assay_server.web.auth.sessions import SESSION_MS
from assay_server.web.routes.context import Asking
from assay_server.web.views.templating import rendered


async def page(asking: Asking, request: Request) -> Response:
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
