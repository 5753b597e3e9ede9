"""Pages, and the streams that keep them up to date."""

from __future__ import annotations

import asyncio
import contextlib
import urllib.parse
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from assay_core.records.runs import RunsAction
from assay_sampling.errors import AssayError, ParameterError, StorageError
from assay_server.access.caller import Caller, sight_of
from assay_server.rpc.quotas import ConcurrencyLimit
from assay_server.web.auth.admission import call_as, caller_of_session, may_call
from assay_server.web.live import LivePages
from assay_server.web.routes.context import WebContext, number
from assay_server.web.routes.forms import ACTIONS
from assay_server.web.views import pages as kinds
from assay_server.web.views.filters import NO_FILTER, Filter
from assay_server.web.views.pages import STANDS_FOR, PageAsked
from assay_server.web.views.region import event
from assay_server.web.views.templating import release

_LISTS = (kinds.CAMPAIGNS, kinds.CAMPAIGN, kinds.RUNS)


class Watching:
    """Pages of each kind, and their streams; ``live``: pages that are watched."""

    def __init__(self, context: WebContext, live: LivePages) -> None:
        self._context = context
        self._live = live
        self._limits = limits = context.limits
        self._streams = ConcurrencyLimit(
            "pages",
            lambda: limits.queries.watch_streams,
            lambda: limits.callers.place_share_percent,
        )

    async def page(self, kind: str, request: Request) -> Response:
        """A page as it is now."""
        caller, page = await self._context.caller(request), _requested_page(kind, request)
        acts = await self._context.thread(partial(self._let_in, caller, page))
        drawing, drawn = await self._live.current(*self._shared(caller, page, acts))
        stream = f"/events/{kind}?{urllib.parse.urlencode(_arguments(page, drawn))}"
        return self._context.drawn(request, caller, drawing, kind, stream=stream)

    async def events(self, request: Request) -> Response:
        """What changes on a page."""
        kind = request.path_params["kind"]
        if kind not in STANDS_FOR:
            raise ParameterError("page", f"there is no {kind[:40]!r}", "open the page again")
        caller, session = await self._context.caller(request), self._context.session(request)
        page = _requested_page(kind, request)
        acts = await self._context.thread(partial(self._let_in, caller, page))
        if request.query_params.get("release", "") != release():
            return Response(event("reload", "", {}), media_type="text/event-stream")
        seen = request.headers.get("last-event-id") or request.query_params.get("seen", "")
        access, sessions = self._context.access, self._context.sessions

        def holds() -> bool:
            try:
                now = caller_of_session(access, session and sessions.alive(session), caller.address)
            except AssayError:
                return False
            return (now.role, now.project) == (caller.role, caller.project)

        events = _while(holds, self._live.events(*self._shared(caller, page, acts), seen))
        return EventStream(events, self._streams, lambda: self._limits.queries.answer_stalled_seconds)

    def _let_in(self, caller: Caller, page: PageAsked) -> bool:
        """Whether the page has buttons for the caller; raises what refuses it."""
        access = self._context.access
        call_as(access, STANDS_FOR[page.kind], caller, lambda: None, **page.about)
        campaign_id = page.campaign_id or self._context.pages.campaign_of(page.run_id)
        return bool(campaign_id) and may_call(access, ACTIONS[RunsAction.PAUSE], caller, campaign_id)

    def _shared(self, caller: Caller, page: PageAsked, acts: bool) -> tuple[Any, Any, Any]:
        """Key, drawing and version of a page in the form that all see who may see as much as the caller."""
        of_all = not (page.campaign_id or page.run_id)
        key = (page, acts, sight_of(caller) if of_all else None)
        pages = self._context.pages
        drawn = partial(pages.drawn, page, acts)
        draw = partial(self._context.call, STANDS_FOR[page.kind], caller, drawn, **page.about)
        return key, draw, partial(pages.version, page)


def _requested_page(kind: str, request: Request) -> PageAsked:
    """The page that a path or the query of its stream names."""

    def named(name: str) -> str:
        return str(request.path_params.get(name) or request.query_params.get(name) or "")

    of_campaign = kind in (kinds.CAMPAIGN, kinds.RUNS)
    return PageAsked(
        kind,
        named("campaign_id") or "-" if of_campaign else "",
        named("run_id") or "-" if kind == kinds.RUN else "",
        number(request.query_params.get("from", "")) if kind in _LISTS else 0,
        Filter.of(request.query_params) if kind in _LISTS else NO_FILTER,
    )


def _arguments(page: PageAsked, drawn: str) -> dict[str, str]:
    """The query of a page's stream."""
    query = {**page.about, "from": str(page.first or ""), **page.filter.query}
    return {"seen": drawn, "release": release(), **{name: value for name, value in query.items() if value}}


async def _while(holds: Callable[[], bool], events: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Events, each while the session ``holds``; then one that says that it is over."""
    async with aclosing(events):
        async for each in events:
            if not holds():
                yield b"event: over\ndata: {}\n\n"
                return
            yield each


class EventStream(StreamingResponse):
    """Sends events to a browser until it goes away.

    Args:
        events: what is sent.
        streams: how many there may be.
        patience_seconds: for the browser to take what was sent.
    """

    media_type = "text/event-stream"

    def __init__(
        self, events: AsyncGenerator[bytes], streams: ConcurrencyLimit, patience_seconds: Callable[[], int]
    ) -> None:
        super().__init__(events, headers={"X-Accel-Buffering": "no"})
        self._events = events
        self._streams = streams
        self._patience_seconds = patience_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.ExitStack() as place:
            try:
                place.enter_context(self._streams.entered())
            except StorageError:
                await Response("too many pages are watched\n", 503)(scope, receive, send)
                return
            with contextlib.suppress(TimeoutError, OSError):
                await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        """Send everything, each part within the patience; raises TimeoutError."""

        async def patiently(message: Message) -> None:
            await asyncio.wait_for(send(message), self._patience_seconds())

        async with aclosing(self._events):
            await super().stream_response(patiently)
