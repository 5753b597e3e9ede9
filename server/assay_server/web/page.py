"""The live page as one object: its parts on the parts of the server, and its routes.

Each route stands for a call of the access table; only logging in is open.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from types import MappingProxyType

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from assay_core.records.identity import WebLink, WebLinkAsked
from assay_sampling.errors import AssayError, NotIdentifiedError
from assay_server.access.audit import note_subject
from assay_server.access.caller import current_caller
from assay_server.campaigns.analysing.executors import WorkerPool
from assay_server.campaigns.analysing.provisional import ProvisionalReports
from assay_server.limits import Limits
from assay_server.places import WebPlace
from assay_server.rpc.quotas import Quotas
from assay_server.rpc.services import Handlers
from assay_server.rpc.threads import BoundedThreads
from assay_server.web.activity import Pulse
from assay_server.web.auth.guarding import Guarding
from assay_server.web.auth.sessions import Sessions
from assay_server.web.live import LivePages
from assay_server.web.report_processes import Conversions, Studio
from assay_server.web.routes import downloads, forms
from assay_server.web.routes.context import WebContext
from assay_server.web.routes.problems import no_such_page, problem
from assay_server.web.routes.watching import Watching
from assay_server.web.service import WebService
from assay_server.web.views import pages as kinds
from assay_server.web.views.campaign_page import CampaignPage
from assay_server.web.views.pages import Pages
from assay_server.web.views.so_far import ResultsSoFar
from assay_server.web.views.templating import release, static_files

_FOR_EVER_MS = 1 << 62
_THREADS = 2
_STRANGERS, _STRANGERS_WAITING = 2, 16
_CACHED_FOR_EVER = {"Cache-Control": "public, max-age=31536000, immutable"}
Answering = Callable[[Request], Awaitable[Response]]
_MEDIA: Mapping[str, str] = MappingProxyType({"page.css": "text/css", "live.js": "text/javascript"})


class LivePage:
    """Serves the page at a place, and makes links to it.

    Args:
        place: where.
        handlers: those of gRPC, which answer here, too.
        limits: bounds of callers and streams.
        reports: makes reports of campaigns that still run.
    """

    def __init__(
        self,
        place: WebPlace,
        handlers: Handlers,
        *,
        limits: Limits,
        reports: ProvisionalReports,
    ) -> None:
        coordinator, access = handlers.coordinator, handlers.access
        pulse = Pulse()
        coordinator.listen(pulse.heard)
        self._directory = access.directory
        self.sessions = Sessions(access.metadata, coordinator.clock.now_ms)
        self.live = LivePages(release())
        self._coordinator = coordinator
        self._waiting = ThreadPoolExecutor(1, "assay-page-so-far")
        studio = Studio(WorkerPool(1), pulse.touch)
        so_far = ResultsSoFar(coordinator, reports, self._waiting, version=pulse.version, made=pulse.touch)
        campaign = CampaignPage(coordinator, handlers.campaigns, pulse, so_far, studio)
        self._context = context = WebContext(
            handlers=handlers,
            campaign=campaign,
            pages=Pages(campaign, handlers.campaigns, handlers.lab, pulse),
            studio=studio,
            conversions=Conversions(),
            access=access,
            sessions=self.sessions,
            threads=ThreadPoolExecutor(_THREADS, "assay-page"),
            strangers=BoundedThreads(_STRANGERS, "assay-page-strangers", _STRANGERS_WAITING),
            limits=limits,
            place=place,
            quotas=Quotas(limits.callers),
        )
        self.routes = _routes(context, self.live)
        pages = Starlette(
            routes=self.routes,
            exception_handlers={
                AssayError: partial(problem, context),
                HTTPStatus.NOT_FOUND: partial(no_such_page, context),
            },
        )
        certificate = handlers.identified.certificate
        self._service = WebService(place, Guarding(pages, place.names, place.tls), certificate, self.live.end)

    @property
    def base(self) -> str:
        """Scheme, host and port of links, once it listens."""
        return self._service.base

    def link(self, _request: WebLinkAsked) -> WebLink:
        """A link for the caller. Its session ends with the caller's certificate, or earlier. May block."""
        caller = current_caller()
        if caller is None:
            raise NotIdentifiedError("link", "nobody asked for it", "connect with a certificate")
        ends_at_ms = _FOR_EVER_MS
        if caller.serial:
            with self._coordinator.snapshot() as store:
                issued = store.certificates(caller.identity_id)
            ends_at_ms = next((c.expires_at_ms for c in issued if c.serial == caller.serial), ends_at_ms)
        note_subject("link to the live page")
        secret, until_ms = self.sessions.new_link(caller, ends_at_ms)
        return WebLink(f"{self.base}/login?link={secret}", until_ms)

    def read_identities(self) -> None:
        """Read identities and sessions again, for changes by other programs."""
        self._directory.refresh()
        self.sessions.refresh()

    def start(self) -> str:
        """Listen; returns the address with its port. Raises ParameterError if it cannot."""
        return self._service.start()

    def stop(self) -> None:
        """End all streams and close."""
        self._service.stop()
        self._context.close()
        self._waiting.shutdown(wait=False, cancel_futures=True)


def _routes(context: WebContext, live: LivePages) -> list[Route]:
    watching = Watching(context, live)

    def route(path: str, name: str, answer: Answering, method: str = "GET") -> Route:
        return Route(path, answer, methods=[method], name=name)

    def page(path: str, kind: str) -> Route:
        return route(path, kind, partial(watching.page, kind))

    campaign = "/campaigns/{campaign_id}"
    return [
        route("/login", "login", partial(forms.login_page, context)),
        route("/login", "log in", partial(forms.log_in, context), "POST"),
        route("/logout", "log out", partial(forms.log_out, context), "POST"),
        route("/static/{release}/{name}", "static", _static),
        page("/", kinds.CAMPAIGNS),
        page(campaign, kinds.CAMPAIGN),
        page(f"{campaign}/runs", kinds.RUNS),
        page("/runs/{run_id}", kinds.RUN),
        page("/gpus", kinds.GPUS),
        page("/queue", kinds.QUEUE),
        route("/events/{kind}", "events", watching.events),
        route(campaign + "/report.{form}", "report", partial(downloads.report, context)),
        route(campaign + "/figures/{figure}.svg", "figure", partial(downloads.figure, context)),
        route(f"{campaign}/records", "records", partial(downloads.records, context)),
        route(campaign + "/records/{run_id}/{slice:int}.parquet", "file", partial(downloads.file, context)),
        *(
            route(f"{campaign}/{name}", name, partial(forms.act, context, name), "POST")
            for name in forms.ACTIONS
        ),
    ]


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if request.path_params["release"] != release() or name not in static_files():
        return PlainTextResponse("there is no such file\n", 404)
    return Response(static_files()[name], media_type=_MEDIA[name], headers=_CACHED_FOR_EVER)
