"""What every answer needs: who asks, a thread for what blocks, and the frame of pages."""

from __future__ import annotations

import asyncio
import contextvars
import urllib.parse
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse

from assay_sampling.errors import NotPermittedError
from assay_server.access.caller import Caller, set_caller
from assay_server.limits import Limits
from assay_server.places import WebPlace
from assay_server.rpc.interceptors import Access
from assay_server.rpc.quotas import Quotas
from assay_server.rpc.services import Handlers
from assay_server.store.people import WebLogin
from assay_server.web.auth.admission import call_as, caller_of_session
from assay_server.web.auth.sessions import Sessions, csrf_token, require_csrf
from assay_server.web.report_processes import Conversions, Studio
from assay_server.web.views.campaign_page import CampaignPage
from assay_server.web.views.pages import Pages
from assay_server.web.views.region import Drawing
from assay_server.web.views.templating import release, rendered

Answer = TypeVar("Answer")

COOKIE, SECURE_COOKIE = "assay-session", "__Host-assay-session"


@dataclass(frozen=True)
class WebContext:
    """Requests as calls of somebody.

    Args:
        handlers: those of gRPC, which answer here, too.
        campaign: the page of a campaign, and its files.
        pages: the drawing of all pages.
        studio: the drawing of figures.
        conversions: other forms of reports.
        access: who may ask.
        sessions: links and cookies.
        threads: where handlers block.
        strangers: where logins and unknown cookies are looked up; it refuses what would wait for long.
        limits: bounds of callers and streams.
        place: the names under which it is reached, and whether over TLS.
        quotas: what callers have used of their limits.
    """

    handlers: Handlers
    campaign: CampaignPage
    pages: Pages
    studio: Studio
    conversions: Conversions
    access: Access
    sessions: Sessions
    threads: Executor
    strangers: Executor
    limits: Limits
    place: WebPlace
    quotas: Quotas

    @property
    def cookie_name(self) -> str:
        return SECURE_COOKIE if self.place.tls else COOKIE

    def cookie(self, request: Request) -> str:
        """The cookie of a session; "": none."""
        return request.cookies.get(self.cookie_name, "")

    def session(self, request: Request) -> WebLogin | None:
        """The session of a request."""
        return self.sessions.of_cookie(self.cookie(request))

    async def caller(self, request: Request) -> Caller:
        """Who asks; counts the request as one of theirs. Raises NotIdentifiedError, StorageError."""
        client = request.client
        address = "web:unknown" if client is None else f"web:{client.host}:{client.port}"
        caller = caller_of_session(self.access, self.session(request), address)
        with self.quotas.used(caller.identity_id, "web"):
            set_caller(caller)
        return caller

    async def thread(self, answer: Callable[[], Answer]) -> Answer:
        """What ``answer`` returns, which may block."""
        return await _in(self.threads, answer)

    async def of_stranger(self, answer: Callable[[], Answer]) -> Answer:
        """What ``answer`` returns, for somebody who is not logged in: few are answered at a time.

        So who is logged in has the page, even while the database hangs. Raises StorageError if many wait.
        """
        return await _in(self.strangers, answer)

    async def call(self, method: str, caller: Caller, answer: Callable[[], Answer], **about: str) -> Answer:
        """What ``answer`` returns in the caller's name, as :func:`call_as` has it."""
        return await self.thread(partial(call_as, self.access, method, caller, answer, **about))

    def close(self) -> None:
        """End what answers in threads and processes."""
        self.threads.shutdown(cancel_futures=True)
        self.strangers.shutdown(cancel_futures=True)
        self.studio.close()
        self.conversions.close()

    def frame(self, request: Request, caller: Caller | None) -> dict[str, Any]:
        """What the frame of every page needs."""
        return {
            "release": release(),
            "who": "" if caller is None else caller.name or caller.identity_id,
            "role": "" if caller is None else str(caller.role),
            "csrf": "" if caller is None else csrf_token(self.cookie(request)),
            "kind": "",
            "stream": "",
        }

    def message(self, request: Request, template: str, status: int = 200, **values: object) -> HTMLResponse:
        """A page for somebody who may be nobody yet."""
        return HTMLResponse(rendered(template, **self.frame(request, None), **values), status)

    def drawn(
        self, request: Request, caller: Caller, drawing: Drawing, kind: str, *, stream: str = ""
    ) -> HTMLResponse:
        """A page; ``stream``: where the browser hears of changes, "" for a page that stays as it is."""
        # The templates of regions have escaped what they show.
        regions = {name: Markup(region.html) for name, region in drawing.regions.items()}
        values = {**drawing.facts, "regions": regions, "title": drawing.title, "kind": kind, "stream": stream}
        return HTMLResponse(rendered(drawing.template, **self.frame(request, caller) | values))

    async def form(self, request: Request) -> dict[str, str]:
        """The fields of a form that one of our own pages sent; raises NotPermittedError for another one.

        Its size was bounded before; of a field that comes twice the first value counts.
        """
        _require_same_origin(request)
        body = await request.body()
        fields = urllib.parse.parse_qs(body.decode("utf-8", "replace"), max_num_fields=20)
        return {name: values[0] for name, values in fields.items()}

    def require_csrf(self, request: Request, form: dict[str, str]) -> None:
        """Raises NotPermittedError for a form without the token of its session."""
        require_csrf(self.cookie(request), form.get("csrf", ""))


async def _in(threads: Executor, answer: Callable[[], Answer]) -> Answer:
    run = contextvars.copy_context().run
    return await asyncio.get_running_loop().run_in_executor(threads, run, answer)


def campaign_path(campaign_id: str) -> str:
    """The path of a campaign's page."""
    return f"/campaigns/{urllib.parse.quote(campaign_id, safe='')}"


def number(text: str) -> int:
    """A number of a query; 0 for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _require_same_origin(request: Request) -> None:
    """Raises NotPermittedError for a form that a page of another site sent."""
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site", "same-origin")
    same = origin is None or urllib.parse.urlsplit(origin).netloc == request.headers.get("host")
    if not same or site not in ("same-origin", "none"):
        raise NotPermittedError("form", "a page of another site sent it", "open the server's own page")
