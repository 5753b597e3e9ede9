"""The routes of the page. Each stands for a call of the access table; only logging in is open."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from functools import partial
from http import HTTPStatus
from types import MappingProxyType

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from assay_server.limits import Limits
from assay_server.web.auth.admission import Admission
from assay_server.web.auth.guarding import Guarding
from assay_server.web.auth.sessions import Sessions
from assay_server.web.live import LivePages
from assay_server.web.routes.acting import ACTIONS, Acting
from assay_server.web.routes.context import Answering, Asking, Handlers
from assay_server.web.routes.downloads import Downloads
from assay_server.web.routes.logging_in import LoggingIn
from assay_server.web.routes.problems import no_such_page, with_problems
from assay_server.web.routes.watching import Watching
from assay_server.web.views import pages as kinds
from assay_server.web.views.templating import release, static_files
from assay_server.web_place import WebPlace

_FOR_EVER = {"Cache-Control": "public, max-age=31536000, immutable"}
_MEDIA: Mapping[str, str] = MappingProxyType({"page.css": "text/css", "live.js": "text/javascript"})


class Application:
    """The ASGI application.

    Args:
        handlers: what answers.
        admission: who may ask.
        sessions: links and cookies.
        live: pages that are watched.
        threads: where handlers block.
        strangers: where logins and unknown cookies are looked up.
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
        strangers: Executor,
        limits: Limits,
        place: WebPlace,
    ) -> None:
        self._asking = Asking(
            handlers,
            admission=admission,
            sessions=sessions,
            threads=threads,
            strangers=strangers,
            limits=limits,
            place=place,
        )
        self._logging_in = LoggingIn(self._asking)
        self._watching = Watching(self._asking, live, limits)
        self._acting = Acting(self._asking)
        self._downloads = Downloads(self._asking)
        self.routes = self._routes()
        self.asgi: ASGIApp = Guarding(self._pages(), place.names, place.tls)

    def _pages(self) -> Starlette:
        async def missing(request: Request, _error: Exception) -> Response:
            return no_such_page(self._asking, request)

        return Starlette(routes=self.routes, exception_handlers={HTTPStatus.NOT_FOUND: missing})

    def _routes(self) -> list[Route]:
        def page(path: str, kind: str) -> Route:
            return self._route(path, kind, partial(self._watching.page, kind))

        files = self._downloads
        return [
            self._route("/login", "login", self._logging_in.page),
            self._route("/login", "log in", self._logging_in.log_in, "POST"),
            self._route("/logout", "log out", self._logging_in.log_out, "POST"),
            self._route("/static/{release}/{name}", "static", _static),
            page("/", kinds.CAMPAIGNS),
            page("/campaigns/{campaign_id}", kinds.CAMPAIGN),
            page("/campaigns/{campaign_id}/runs", kinds.RUNS),
            page("/runs/{run_id}", kinds.RUN),
            page("/gpus", kinds.GPUS),
            page("/queue", kinds.QUEUE),
            self._route("/events/{kind}", "events", self._watching.events),
            self._route("/campaigns/{campaign_id}/report.{form}", "report", files.report),
            self._route("/campaigns/{campaign_id}/figures/{figure}.svg", "figure", files.figure),
            self._route("/campaigns/{campaign_id}/records", "records", files.records),
            self._route("/campaigns/{campaign_id}/records/{run_id}/{slice:int}.parquet", "file", files.file),
            *(
                self._route(
                    f"/campaigns/{{campaign_id}}/{name}", name, partial(self._acting.act, name), "POST"
                )
                for name in ACTIONS
            ),
        ]

    def _route(self, path: str, name: str, answer: Answering, method: str = "GET") -> Route:
        return Route(path, with_problems(self._asking, answer), methods=[method], name=name)


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if request.path_params["release"] != release() or name not in static_files():
        return PlainTextResponse("there is no such file\n", 404)
    return Response(static_files()[name], media_type=_MEDIA[name], headers=_FOR_EVER)
