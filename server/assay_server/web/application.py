"""The routes of the page. Each stands for a call of the access table; only logging in is open."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from types import MappingProxyType

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from assay_server.web.auth.guarding import Guarding
from assay_server.web.live import LivePages
from assay_server.web.routes import downloads, logging_in
from assay_server.web.routes.acting import ACTIONS, act
from assay_server.web.routes.context import Answering, Asking
from assay_server.web.routes.problems import no_such_page, with_problems
from assay_server.web.routes.watching import Watching
from assay_server.web.views import pages as kinds
from assay_server.web.views.templating import release, static_files

_FOR_EVER = {"Cache-Control": "public, max-age=31536000, immutable"}
_MEDIA: Mapping[str, str] = MappingProxyType({"page.css": "text/css", "live.js": "text/javascript"})


class Application:
    """The ASGI application; ``live``: pages that are watched."""

    def __init__(self, asking: Asking, live: LivePages) -> None:
        self._asking = asking
        self._watching = Watching(asking, live)
        self.routes = self._routes()
        self.asgi: ASGIApp = Guarding(self._pages(), asking.place.names, asking.place.tls)

    def _pages(self) -> Starlette:
        async def missing(request: Request, _error: Exception) -> Response:
            return no_such_page(self._asking, request)

        return Starlette(routes=self.routes, exception_handlers={HTTPStatus.NOT_FOUND: missing})

    def _routes(self) -> list[Route]:
        def page(path: str, kind: str) -> Route:
            return self._route(path, kind, partial(self._watching.page, kind))

        asking = self._asking
        return [
            self._route("/login", "login", partial(logging_in.page, asking)),
            self._route("/login", "log in", partial(logging_in.log_in, asking), "POST"),
            self._route("/logout", "log out", partial(logging_in.log_out, asking), "POST"),
            self._route("/static/{release}/{name}", "static", _static),
            page("/", kinds.CAMPAIGNS),
            page("/campaigns/{campaign_id}", kinds.CAMPAIGN),
            page("/campaigns/{campaign_id}/runs", kinds.RUNS),
            page("/runs/{run_id}", kinds.RUN),
            page("/gpus", kinds.GPUS),
            page("/queue", kinds.QUEUE),
            self._route("/events/{kind}", "events", self._watching.events),
            self._route(
                "/campaigns/{campaign_id}/report.{form}", "report", partial(downloads.report, asking)
            ),
            self._route(
                "/campaigns/{campaign_id}/figures/{figure}.svg", "figure", partial(downloads.figure, asking)
            ),
            self._route("/campaigns/{campaign_id}/records", "records", partial(downloads.records, asking)),
            self._route(
                "/campaigns/{campaign_id}/records/{run_id}/{slice:int}.parquet",
                "file",
                partial(downloads.file, asking),
            ),
            *(
                self._route(f"/campaigns/{{campaign_id}}/{name}", name, partial(act, asking, name), "POST")
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
