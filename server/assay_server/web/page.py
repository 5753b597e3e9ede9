"""The live page as one object: its parts on the parts of the server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from assay_core.records.identity import WebLink, WebLinkAsked
from assay_sampling.errors import NotIdentifiedError
from assay_server.access.audit import note_subject
from assay_server.access.caller import current_caller
from assay_server.campaigns.analysing.executors.pool import WorkerPool
from assay_server.campaigns.analysing.provisional import ProvisionalReports
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.limits import Limits
from assay_server.rpc.interceptors import Access
from assay_server.rpc.quotas import Quotas
from assay_server.rpc.services import Handlers
from assay_server.rpc.threads import BoundedThreads
from assay_server.web.activity import Pulse
from assay_server.web.application import Application
from assay_server.web.auth.sessions import Sessions
from assay_server.web.figures.conversion import Conversions
from assay_server.web.figures.figure_worker import Studio
from assay_server.web.live import LivePages
from assay_server.web.routes.context import Asking
from assay_server.web.service import WebService
from assay_server.web.views.campaign_page import CampaignPage
from assay_server.web.views.pages import Pages
from assay_server.web.views.so_far import ResultsSoFar
from assay_server.web.views.templating import release
from assay_server.web_place import WebPlace

_FOR_EVER_MS = 1 << 62
_THREADS = 2
_STRANGERS, _STRANGERS_WAITING = 2, 16


class LivePage:
    """Serves the page at a place, and makes links to it; ``application`` is all of it but the socket.

    Args:
        place: where.
        coordinator: store and scheduler.
        handlers: those of gRPC, which answer here, too.
        access: who may ask.
        limits: bounds of callers and streams.
        reports: makes reports of campaigns that still run.
    """

    def __init__(
        self,
        place: WebPlace,
        coordinator: Coordinator,
        handlers: Handlers,
        access: Access,
        *,
        limits: Limits,
        reports: ProvisionalReports,
    ) -> None:
        pulse = Pulse()
        coordinator.listen(pulse.heard)
        self._directory = access.directory
        self.sessions = Sessions(access.metadata, coordinator.clock.now_ms)
        self.live = LivePages(release())
        self._coordinator = coordinator
        self._threads = ThreadPoolExecutor(_THREADS, "assay-page")
        self._strangers = BoundedThreads(_STRANGERS, "assay-page-strangers", _STRANGERS_WAITING)
        self._waiting = ThreadPoolExecutor(1, "assay-page-so-far")
        self._conversions = Conversions()
        pool = WorkerPool(1)
        self._studio = studio = Studio(pool, pool.end, pulse.touch)
        so_far = ResultsSoFar(coordinator, reports, self._waiting, version=pulse.version, made=pulse.touch)
        campaign = CampaignPage(coordinator, handlers.campaigns, pulse, so_far, studio)
        asking = Asking(
            handlers=handlers,
            campaign=campaign,
            pages=Pages(campaign, handlers.campaigns, handlers.lab, pulse),
            studio=studio,
            conversions=self._conversions,
            access=access,
            sessions=self.sessions,
            threads=self._threads,
            strangers=self._strangers,
            limits=limits,
            place=place,
            quotas=Quotas(limits.callers),
        )
        self.application = Application(asking, self.live)
        certificate = handlers.identified.certificate
        self._service = WebService(place, self.application.asgi, certificate, self.live.end)

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
        self._threads.shutdown(cancel_futures=True)
        self._strangers.shutdown(cancel_futures=True)
        self._studio.close()
        self._conversions.close()
        self._waiting.shutdown(wait=False, cancel_futures=True)
