"""The live page as one object: its parts on the parts of the server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from assay_server.campaigns.analysing.executors.pool import WorkerPool
from assay_server.campaigns.analysing.provisional import ProvisionalReports
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.identity.server_certificate import ServerCertificate
from assay_server.limits import Limits
from assay_server.rpc.campaign_handler import CampaignHandler
from assay_server.rpc.lab.handler import LabHandler
from assay_server.rpc.published.handler import PublishedHandler
from assay_server.rpc.threads import BoundedThreads
from assay_server.web.activity import Pulse
from assay_server.web.application import Application
from assay_server.web.auth.admission import Admission
from assay_server.web.auth.links import WebLinks
from assay_server.web.auth.sessions import Sessions
from assay_server.web.figures.conversion import Conversions
from assay_server.web.figures.figure_worker import Studio
from assay_server.web.live import LivePages
from assay_server.web.routes.context import Handlers
from assay_server.web.service import WebService
from assay_server.web.views.campaign_page import CampaignPage
from assay_server.web.views.pages import Pages
from assay_server.web.views.so_far import ResultsSoFar
from assay_server.web.views.templating import release
from assay_server.web_place import WebPlace

_THREADS = 2
_STRANGERS, _STRANGERS_WAITING = 2, 16


class LivePage:
    """Serves the page at a place; ``application`` is all of it but the socket.

    Args:
        place: where.
        coordinator: store and scheduler.
        campaigns, lab, published: the handlers of gRPC, which answer here, too.
        admission: who may ask.
        sessions, links: who has logged in; ``links`` learns the address.
        limits: bounds of callers and streams.
        certificate: issues one for the page, where the place names none.
        reports: makes reports of campaigns that still run.
    """

    def __init__(
        self,
        place: WebPlace,
        coordinator: Coordinator,
        campaigns: CampaignHandler,
        lab: LabHandler,
        published: PublishedHandler,
        *,
        admission: Admission,
        sessions: Sessions,
        links: WebLinks,
        limits: Limits,
        certificate: ServerCertificate | None,
        reports: ProvisionalReports,
    ) -> None:
        pulse = Pulse()
        coordinator.listen(pulse.heard)
        self.admission = admission
        self.live = LivePages(release())
        self.links, self.sessions = links, sessions
        self._threads = ThreadPoolExecutor(_THREADS, "assay-page")
        self._strangers = BoundedThreads(_STRANGERS, "assay-page-strangers", _STRANGERS_WAITING)
        self._waiting = ThreadPoolExecutor(1, "assay-page-so-far")
        self._conversions = Conversions()
        pool = WorkerPool(1)
        self._studio = studio = Studio(pool, pool.end, pulse.touch)
        so_far = ResultsSoFar(coordinator, reports, self._waiting, version=pulse.version, made=pulse.touch)
        campaign = CampaignPage(coordinator, campaigns, pulse, so_far, studio)
        pages = Pages(campaign, campaigns, lab, pulse)
        self.application = Application(
            Handlers(pages, campaigns, published, studio, self._conversions),
            admission=admission,
            sessions=sessions,
            live=self.live,
            threads=self._threads,
            strangers=self._strangers,
            limits=limits,
            place=place,
        )
        self._service = WebService(place, self.application.asgi, certificate, self.live.end)

    def start(self) -> str:
        """Listen; returns the address with its port. Raises ParameterError if it cannot."""
        address = self._service.start()
        self.links.base = self._service.base
        return address

    def stop(self) -> None:
        """End all streams and close."""
        self._service.stop()
        self._threads.shutdown(cancel_futures=True)
        self._strangers.shutdown(cancel_futures=True)
        self._studio.close()
        self._conversions.close()
        self._waiting.shutdown(wait=False, cancel_futures=True)
