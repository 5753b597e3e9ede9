"""Errors as answers: a page that says what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType

import grpc
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from assay_sampling.errors import AssayError, NotIdentifiedError
from assay_server.campaigns.errors import UnknownThingError
from assay_server.rpc.errors import status_code
from assay_server.web.routes.context import WebContext, campaign_path

_STATUS: Mapping[grpc.StatusCode, int] = MappingProxyType(
    {
        grpc.StatusCode.UNAUTHENTICATED: 401,
        grpc.StatusCode.PERMISSION_DENIED: 403,
        grpc.StatusCode.NOT_FOUND: 404,
        grpc.StatusCode.INVALID_ARGUMENT: 400,
        grpc.StatusCode.FAILED_PRECONDITION: 409,
        grpc.StatusCode.RESOURCE_EXHAUSTED: 503,
    }
)


async def problem(context: WebContext, request: Request, error: Exception) -> Response:
    """A typed error as a page; without a session, the way to one."""
    assert isinstance(error, AssayError)
    code = _STATUS.get(status_code(error), 500)
    if request.url.path.startswith("/events/"):
        return PlainTextResponse(f"{error}\n", code)
    if isinstance(error, NotIdentifiedError):
        notice = "" if request.url.path == "/" else "You are not logged in, or your session has ended."
        return context.message(request, "login.html.j2", 401, title="Log in", link="", problem=notice)
    return context.message(
        request,
        "message.html.j2",
        code,
        title=_title(code),
        code=code,
        subject=error.subject,
        cause=error.cause,
        remedy=error.remedy,
        back=_back(request),
    )


async def no_such_page(context: WebContext, request: Request, _error: Exception) -> Response:
    """The answer to a path that no page has: where to go instead."""
    remedy = "check the address, or start from one of these pages"
    error = UnknownThingError(f"{request.url.path!r}", "there is no such page", remedy)
    return await problem(context, request, error)


def _title(code: int) -> str:
    if code == HTTPStatus.NOT_FOUND:
        return "There is nothing here"
    return "That cannot be done" if code < HTTPStatus.INTERNAL_SERVER_ERROR else "The server has a problem"


def _back(request: Request) -> str:
    campaign_id = request.path_params.get("campaign_id")
    at_campaign = request.url.path == campaign_path(campaign_id or "")
    return campaign_path(campaign_id) if campaign_id and not at_campaign else "/"
