"""The routes of the page. Each stands for a call of the access table; only logging in is open."""

from __future__ import annotations

import asyncio
import contextvars
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import grpc
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from assay_core.records.archive import RecordsAsked
from assay_core.records.campaign import ReportFormat, ReportRequest
from assay_core.records.runs_request import RunsRequest
from assay_report.forms import Form
from assay_sampling.errors import AssayError, NotIdentifiedError, NotPermittedError, ParameterError
from assay_server.access.caller import Caller, set_caller
from assay_server.access.sight import sight_of
from assay_server.limits import Limits
from assay_server.rpc.admission.quotas import Quotas
from assay_server.rpc.campaign_handler import CampaignHandler
from assay_server.rpc.errors import status_code
from assay_server.rpc.places import Places
from assay_server.rpc.published.handler import PublishedHandler
from assay_server.web.admitting.admission import Admission
from assay_server.web.admitting.guarding import REPORT_POLICY, Guarding
from assay_server.web.admitting.sessions import SESSION_MS, Session, Sessions, csrf_token, require_csrf
from assay_server.web.drawing import pages as kinds
from assay_server.web.drawing.pages import STANDS_FOR, PageAsked, Pages
from assay_server.web.drawing.region import Drawing, event
from assay_server.web.drawing.templating import release, rendered, static_files, trusted
from assay_server.web.live import LivePages
from assay_server.web.streaming import EventStream
from assay_server.web_place import WebPlace

Told = TypeVar("Told")
Answering = Callable[[Request], Awaitable[Response]]

COOKIE, SECURE_COOKIE = "assay-session", "__Host-assay-session"
ACTIONS: Mapping[str, str] = MappingProxyType(
    {
        "pause": "assay.v1.CampaignService/Pause",
        "resume": "assay.v1.CampaignService/Resume",
        "cancel": "assay.v1.CampaignService/CancelRuns",
        "retry": "assay.v1.CampaignService/Retry",
    }
)
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
# Forms of a report that are made when somebody asks for them, by the ending of their file.
_MADE: Mapping[str, tuple[Form, str]] = MappingProxyType(
    {
        "md": (Form.MARKDOWN, "text/markdown"),
        "tex": (Form.LATEX, "application/x-tex"),
        "csv": (Form.CSV, "text/csv"),
        "parquet": (Form.PARQUET, "application/vnd.apache.parquet"),
    }
)
_FOR_EVER = {"Cache-Control": "public, max-age=31536000, immutable"}
_MEDIA = {"page.css": "text/css", "live.js": "text/javascript"}


@dataclass(frozen=True)
class Handlers:
    """What answers: the handlers of gRPC, and the drawing of pages."""

    pages: Pages
    campaigns: CampaignHandler
    published: PublishedHandler


class Application:
    """The ASGI application.

    Args:
        handlers: what answers.
        admission: who may ask.
        sessions: links and cookies.
        live: pages that are watched.
        threads: where handlers block.
        limits: bounds of callers and streams.
        place: the names under which it is reached, and whether over TLS.
    """

    def __init__(
        self,
        handlers: Handlers,
        *,
        admission: Admission,
        sessions: Sessions,
        live: LivePages,
        threads: Executor,
        limits: Limits,
        place: WebPlace,
    ) -> None:
        self._handlers = handlers
        self._admission = admission
        self._sessions = sessions
        self._live = live
        self._threads = threads
        self._queries = limits.queries
        self._quotas = Quotas(limits.callers)
        self._streams = Places(
            lambda: limits.queries.watch_streams, lambda: limits.callers.place_share_percent
        )
        self._tls = place.tls
        self._cookie = SECURE_COOKIE if place.tls else COOKIE
        self.routes = self._routes()
        self.asgi: ASGIApp = Guarding(Starlette(routes=self.routes), place.names, place.tls)

    def _routes(self) -> list[Route]:
        def page(path: str, kind: str) -> Route:
            return self._route(path, kind, partial(self._page, kind))

        return [
            self._route("/login", "login", self._login_page),
            self._route("/login", "log in", self._log_in, "POST"),
            self._route("/logout", "log out", self._log_out, "POST"),
            self._route("/static/{release}/{name}", "static", self._static),
            page("/", kinds.CAMPAIGNS),
            page("/campaigns/{campaign_id}", kinds.CAMPAIGN),
            page("/campaigns/{campaign_id}/runs", kinds.RUNS),
            page("/runs/{run_id}", kinds.RUN),
            page("/gpus", kinds.GPUS),
            page("/queue", kinds.QUEUE),
            self._route("/events/{kind}", "events", self._events),
            self._route("/campaigns/{campaign_id}/report.{form}", "report", self._report),
            self._route("/campaigns/{campaign_id}/records", "records", self._records),
            self._route("/campaigns/{campaign_id}/records/{run_id}/{slice:int}.parquet", "file", self._file),
            *(
                self._route(f"/campaigns/{{campaign_id}}/{name}", name, partial(self._act, name), "POST")
                for name in ACTIONS
            ),
        ]

    def _route(self, path: str, name: str, answer: Answering, method: str = "GET") -> Route:
        async def answered(request: Request) -> Response:
            try:
                return await answer(request)
            except AssayError as error:
                return self._problem(request, error)

        return Route(path, answered, methods=[method], name=name)

    # Who asks.

    def _session(self, request: Request) -> Session | None:
        return self._sessions.session(request.cookies.get(self._cookie, ""))

    def _caller(self, request: Request) -> Caller:
        """Who asks; counts the request as one of theirs. Raises NotIdentifiedError, StorageError."""
        client = request.client
        address = "web:unknown" if client is None else f"web:{client.host}:{client.port}"
        caller = self._admission.caller(self._session(request), address)
        with self._quotas.used(caller.identity_id, "web"):
            set_caller(caller)
        return caller

    async def _thread(self, answer: Callable[[], Told]) -> Told:
        run = contextvars.copy_context().run
        return await asyncio.get_running_loop().run_in_executor(self._threads, run, answer)

    # Pages.

    async def _page(self, kind: str, request: Request) -> Response:
        caller, asked = self._caller(request), _asked(kind, request)
        acts = await self._thread(partial(self._let_in, caller, asked))
        drawing, number = await self._live.current(*self._shared(caller, asked, acts))
        stream = f"/events/{kind}?{urllib.parse.urlencode(_arguments(asked, number))}"
        return self._drawn(request, caller, drawing, kind, stream=stream)

    def _let_in(self, caller: Caller, asked: PageAsked) -> bool:
        """Whether the page has buttons for the caller; raises what refuses it."""
        about = {"campaign_id": asked.campaign_id, "run_id": asked.run_id}
        self._admission.call(STANDS_FOR[asked.kind], caller, lambda: None, **about)
        campaign_id = asked.campaign_id or self._handlers.pages.campaign_of(asked.run_id)
        return bool(campaign_id) and self._admission.may(ACTIONS["pause"], caller, campaign_id)

    def _shared(self, caller: Caller, asked: PageAsked, acts: bool) -> tuple[Any, Any, Any]:
        """Key, drawing and version of a page in the form that all see who may see as much as the caller."""
        of_all = not (asked.campaign_id or asked.run_id)
        key = (asked, acts, sight_of(caller) if of_all else None)
        about = {"campaign_id": asked.campaign_id, "run_id": asked.run_id}

        def draw() -> Awaitable[Drawing]:
            drawn = partial(self._handlers.pages.drawn, asked, acts)
            return self._thread(partial(self._admission.call, STANDS_FOR[asked.kind], caller, drawn, **about))

        return key, draw, partial(self._handlers.pages.version, asked)

    async def _events(self, request: Request) -> Response:
        kind = request.path_params["kind"]
        if kind not in STANDS_FOR:
            raise ParameterError("page", f"there is no {kind[:40]!r}", "open the page again")
        caller, session = self._caller(request), self._session(request)
        asked = _asked(kind, request)
        acts = await self._thread(partial(self._let_in, caller, asked))
        if request.query_params.get("release", "") != release():
            return Response(event("reload", "", {}), media_type="text/event-stream")
        seen = request.headers.get("last-event-id") or request.query_params.get("seen", "")

        def holds() -> bool:
            try:
                now = self._admission.caller(session and self._sessions.alive(session), caller.address)
            except AssayError:
                return False
            return (now.role, now.project) == (caller.role, caller.project)

        events = self._live.events(*self._shared(caller, asked, acts), seen)
        return EventStream(events, holds, self._streams, lambda: self._queries.answer_stalled_seconds)

    def _drawn(
        self,
        request: Request,
        caller: Caller,
        drawing: Drawing,
        kind: str,
        *,
        stream: str = "",
    ) -> HTMLResponse:
        regions = {name: trusted(region.html) for name, region in drawing.regions.items()}
        given = {**drawing.facts, "regions": regions, "title": drawing.title, "kind": kind, "stream": stream}
        html = rendered(drawing.template, **self._frame(request, caller), **given)
        return HTMLResponse(html)

    def _frame(self, request: Request, caller: Caller | None) -> dict[str, Any]:
        """What the frame of every page needs."""
        cookie = request.cookies.get(self._cookie, "")
        return {
            "release": release(),
            "who": "" if caller is None else caller.name or caller.identity_id,
            "role": "" if caller is None else str(caller.role),
            "csrf": "" if caller is None else csrf_token(cookie),
        }

    def _problem(self, request: Request, error: AssayError) -> Response:
        """An error as a page; without a session, the way to one."""
        code = _STATUS.get(status_code(error), 500)
        if request.url.path.startswith("/events/"):
            return PlainTextResponse(f"{error}\n", code)
        frame = self._frame(request, None)
        if isinstance(error, NotIdentifiedError):
            html = rendered(
                "login.html.j2", **frame, title="Log in", kind="", stream="", link="", problem=_told(request)
            )
            return HTMLResponse(html, 401)
        html = rendered(
            "message.html.j2",
            **frame,
            title="That cannot be done" if code < 500 else "The server has a problem",
            kind="",
            stream="",
            subject=error.subject,
            cause=error.cause,
            remedy=error.remedy,
            back=_back(request),
        )
        return HTMLResponse(html, code)

    # Logging in and out.

    async def _login_page(self, request: Request) -> Response:
        link, frame = request.query_params.get("link", ""), self._frame(request, None)
        given: dict[str, Any] = {"title": "Log in", "kind": "", "stream": "", "link": "", "problem": ""}
        if link:
            try:
                caller = self._admission.caller(self._sessions.of_link(link), "")
            except AssayError as error:
                given["problem"] = f"This link cannot be used: {error.cause}."
                return HTMLResponse(rendered("login.html.j2", **frame, **given), 401)
            given |= {"link": link, "name": caller.name or caller.identity_id, "as_role": str(caller.role)}
        return HTMLResponse(rendered("login.html.j2", **frame, **given))

    async def _log_in(self, request: Request) -> Response:
        _require_same_origin(request)
        form = await _form(request)
        cookie, session = await self._thread(partial(self._sessions.opened, form.get("link", "")))
        self._admission.caller(session, "")
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            self._cookie,
            cookie,
            max_age=SESSION_MS // 1000,
            path="/",
            secure=self._tls,
            httponly=True,
            samesite="strict",
        )
        return answer

    async def _log_out(self, request: Request) -> Response:
        _require_same_origin(request)
        form, session = await _form(request), self._session(request)
        if session is not None:
            require_csrf(request.cookies.get(self._cookie, ""), form.get("csrf", ""))
            await self._thread(partial(self._sessions.end, session))
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(self._cookie, path="/", secure=self._tls, httponly=True, samesite="strict")
        return answer

    async def _static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if request.path_params["release"] != release() or name not in static_files():
            return PlainTextResponse("there is no such file\n", 404)
        return Response(static_files()[name], media_type=_MEDIA[name], headers=_FOR_EVER)

    # Actions and downloads.

    async def _act(self, name: str, request: Request) -> Response:
        caller = self._caller(request)
        _require_same_origin(request)
        form = await _form(request)
        require_csrf(request.cookies.get(self._cookie, ""), form.get("csrf", ""))
        campaign_id, handler = request.path_params["campaign_id"], self._handlers.campaigns
        asked = RunsRequest(campaign_id, form.get("workload", ""), form.get("run", ""))
        carry_out = {
            "pause": handler.pause,
            "resume": handler.resume,
            "cancel": handler.cancel_runs,
            "retry": handler.retry,
        }[name]
        about = ", ".join(
            f"{what} {each[:100]}"
            for what, each in (("campaign", campaign_id), ("workload", asked.workload), ("run", asked.run_id))
            if each
        )
        answer = partial(carry_out, asked)
        call = partial(
            self._admission.call, ACTIONS[name], caller, answer, campaign_id=campaign_id, about=about
        )
        await self._thread(call)
        run = urllib.parse.quote(asked.run_id, safe="")
        return RedirectResponse(f"/runs/{run}" if run else _campaign_path(campaign_id), 303)

    async def _report(self, request: Request) -> Response:
        caller, campaign_id = self._caller(request), request.path_params["campaign_id"]
        form, call = request.path_params["form"], "assay.v1.CampaignService/GetReport"
        if form in _MADE:
            made, media = _MADE[form]
            make = partial(self._handlers.pages.report_in, campaign_id, made)
            data = await self._thread(
                partial(self._admission.call, call, caller, make, campaign_id=campaign_id)
            )
            placed = {"Content-Disposition": f'attachment; filename="{campaign_id}.{form}"'}
            return Response(data, media_type=media, headers=placed)
        if form not in tuple(ReportFormat):
            known = ", ".join((*ReportFormat, *_MADE))
            raise ParameterError("report", f"there is no form {form[:20]!r}", f"take {known}")
        find = partial(self._handlers.pages.report, ReportRequest(campaign_id, ReportFormat(form)))
        found = await self._thread(partial(self._admission.call, call, caller, find, campaign_id=campaign_id))
        is_page = form == ReportFormat.HTML
        media = "text/html" if is_page else "application/json"
        name = None if is_page else f"{campaign_id}.{form}"
        headers = {"Content-Security-Policy": REPORT_POLICY} if is_page else {}
        if isinstance(found, Path):
            return _download(found, media, name, headers)
        placed = {} if name is None else {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(found, media_type=media, headers={**headers, **placed})

    async def _records(self, request: Request) -> Response:
        caller, campaign_id = self._caller(request), request.path_params["campaign_id"]
        asked = RecordsAsked(campaign_id, _number(request.query_params.get("from", "")))
        found = await self._thread(
            partial(
                self._admission.call,
                "assay.v1.RecordsService/ListRecords",
                caller,
                partial(self._handlers.published.list, asked),
                campaign_id=campaign_id,
            )
        )
        facts = {"campaign_id": campaign_id, "files": found.files, "next": found.next}
        drawing = Drawing(f"Records of {campaign_id}", "records.html.j2", {}, facts)
        return self._drawn(request, caller, drawing, kinds.CAMPAIGN)

    async def _file(self, request: Request) -> Response:
        caller, given = self._caller(request), request.path_params
        find = partial(
            self._handlers.pages.record_file, given["campaign_id"], given["run_id"], given["slice"]
        )
        call = "assay.v1.RecordsService/ReadRecords"
        path, file = await self._thread(
            partial(self._admission.call, call, caller, find, campaign_id=given["campaign_id"])
        )
        name = f"{file.run_id}-slice-{file.slice:05d}.parquet"
        # Its hash names its content: a download goes on only with the same file (RFC 9110, 13.1.5).
        headers = {"ETag": f'"{file.content_hash}"'}
        return _download(path, "application/vnd.apache.parquet", name, headers)


def _download(path: Path, media: str, name: str | None, headers: Mapping[str, str]) -> FileResponse:
    """A file, of which a browser may ask for a part (RFC 9110, 14); ``name`` None: it is shown, not kept."""
    return FileResponse(path, media_type=media, filename=name, headers=dict(headers))


def _asked(kind: str, request: Request) -> PageAsked:
    """The page that a path or the query of its stream names."""

    def named(name: str) -> str:
        return str(request.path_params.get(name) or request.query_params.get(name) or "")

    of_campaign = kind in (kinds.CAMPAIGN, kinds.RUNS)
    return PageAsked(
        kind,
        named("campaign_id") or "-" if of_campaign else "",
        named("run_id") or "-" if kind == kinds.RUN else "",
        _number(request.query_params.get("from", "")) if kind == kinds.RUNS else 0,
    )


def _arguments(asked: PageAsked, number: str) -> dict[str, str]:
    """The query of a page's stream."""
    given = {"campaign_id": asked.campaign_id, "run_id": asked.run_id, "from": str(asked.first or "")}
    return {"seen": number, "release": release(), **{name: value for name, value in given.items() if value}}


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


async def _form(request: Request) -> dict[str, str]:
    """The fields of a small form; the first value of each. Its size was bounded before."""
    body = await request.body()
    fields = urllib.parse.parse_qs(body.decode("utf-8", "replace"), max_num_fields=20)
    return {name: values[0] for name, values in fields.items()}


def _require_same_origin(request: Request) -> None:
    """Raises NotPermittedError for a form that a page of another site sent."""
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site", "same-origin")
    same = origin is None or urllib.parse.urlsplit(origin).netloc == request.headers.get("host")
    if not same or site not in ("same-origin", "none"):
        raise NotPermittedError("form", "a page of another site sent it", "open the server's own page")


def _campaign_path(campaign_id: str) -> str:
    return f"/campaigns/{urllib.parse.quote(campaign_id, safe='')}"


def _back(request: Request) -> str:
    campaign_id = request.path_params.get("campaign_id")
    at_campaign = request.url.path == _campaign_path(campaign_id or "")
    return _campaign_path(campaign_id) if campaign_id and not at_campaign else "/"


def _told(request: Request) -> str:
    return "" if request.url.path == "/" else "You are not logged in, or your session has ended."
