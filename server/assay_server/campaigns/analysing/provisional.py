"""Reports of campaigns that have none yet: of what a running, cancelled or retried campaign has so far."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, CancelledError, Future

from assay_server.analysis.runs.request import AnalysisRequest
from assay_server.campaigns.analysing.executors import WorkersAwayError
from assay_server.campaigns.analysing.job import Pages
from assay_server.campaigns.analysing.request_builder import analysis_request
from assay_server.campaigns.errors import NotYetError
from assay_server.campaigns.scheduling.coordinator import Coordinator

# Reports that are kept until their campaign has more data; a page of 200 workloads takes 5 MB.
_KEPT = 4


class ProvisionalReports:
    """Makes and keeps such reports, one at a time, so that curious people cannot hold up real analyses.

    ``submit`` starts an analysis, as :meth:`assay_server.campaigns.analysing.analyses.Analyses.submit` does.
    """

    def __init__(self, coordinator: Coordinator, submit: Callable[[AnalysisRequest], Future[Pages]]) -> None:
        self._coordinator = coordinator
        self._submit = submit
        self._busy = threading.Lock()
        self._reports: OrderedDict[str, tuple[AnalysisRequest, Pages]] = OrderedDict()

    def __call__(self, campaign_id: str, *, windows_so_far: bool = False) -> Pages | None:
        """The report, in each stored form, of what a campaign has now; None while none of its runs has data.

        ``windows_so_far``: with the first launches of detailed runs under way.
        Blocks until the analysis has ended. Raises NotYetError while another such report is being made, or
        if the analysis ended without one, and what an analysis raises.
        """
        with self._coordinator.snapshot() as store:
            request = analysis_request(
                store, campaign_id, self._coordinator.records, windows_so_far=windows_so_far
            )
        if not request.runs:
            return None
        if not self._busy.acquire(blocking=False):
            raise NotYetError(
                f"campaign {campaign_id}",
                "the server is making another report of what is there so far, and makes one at a time",
                "ask again in a minute",
            )
        try:
            cache_entry = self._reports.get(campaign_id)
            if cache_entry is not None and cache_entry[0] == request:
                return cache_entry[1]
            pages = self._submit(request).result()
            self._reports[campaign_id] = (request, pages)
            self._reports.move_to_end(campaign_id)
            while len(self._reports) > _KEPT:
                self._reports.popitem(last=False)
        except (BrokenExecutor, CancelledError) as error:
            cause = "the analysis of what is there so far was ended"
            raise NotYetError(f"campaign {campaign_id}", cause, "ask again") from error
        except WorkersAwayError as error:
            raise NotYetError(error.subject, error.cause, error.remedy) from error
        finally:
            self._busy.release()
        return pages
