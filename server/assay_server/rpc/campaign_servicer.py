"""The CampaignService: what people ask about campaigns. Nothing here blocks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from assay_core.records.campaign import (
    CampaignsPage,
    NamedCampaign,
    ReportRequest,
    StatusRequest,
    Submission,
)
from assay_core.records.runs import NamedRun, RunsRequest
from assay_protos import campaign_pb2_grpc
from assay_server.limits import DEFAULT_LIMITS, Limits
from assay_server.rpc.campaign_handler import CampaignHandler
from assay_server.rpc.threads import Context, Threads, send_pieces, sent


class CampaignServicer(campaign_pb2_grpc.CampaignServiceServicer):
    """The CampaignService of assay_protos."""

    def __init__(self, handler: CampaignHandler, threads: Threads, limits: Limits = DEFAULT_LIMITS) -> None:
        self._queries = limits.queries
        self._handler = handler
        self._threads = threads

    async def Submit(self, request: Any, context: Context) -> Any:
        read = Submission.from_proto
        return await sent(context, self._threads.submit, self._handler.submit, read, request)

    async def ListCampaigns(self, request: Any, context: Context) -> Any:
        read = CampaignsPage.from_proto
        return await sent(context, self._threads.status, self._handler.list_campaigns, read, request)

    async def GetStatus(self, request: Any, context: Context) -> Any:
        read = StatusRequest.from_proto
        return await sent(context, self._threads.status, self._handler.status, read, request)

    async def Cancel(self, request: Any, context: Context) -> Any:
        read = NamedCampaign.from_proto
        return await sent(context, self._threads.people, self._handler.cancel, read, request)

    async def Pause(self, request: Any, context: Context) -> Any:
        read = RunsRequest.from_proto
        return await sent(context, self._threads.people, self._handler.pause, read, request)

    async def Resume(self, request: Any, context: Context) -> Any:
        read = RunsRequest.from_proto
        return await sent(context, self._threads.people, self._handler.resume, read, request)

    async def CancelRuns(self, request: Any, context: Context) -> Any:
        read = RunsRequest.from_proto
        return await sent(context, self._threads.people, self._handler.cancel_runs, read, request)

    async def Retry(self, request: Any, context: Context) -> Any:
        read = RunsRequest.from_proto
        return await sent(context, self._threads.people, self._handler.retry, read, request)

    async def GetRun(self, request: Any, context: Context) -> Any:
        read = NamedRun.from_proto
        return await sent(context, self._threads.people, self._handler.run, read, request)

    async def GetReport(self, request: Any, context: Context) -> AsyncIterator[Any]:
        people, read = self._threads.people, ReportRequest.from_proto
        most = self._queries.answer_stalled_seconds
        await send_pieces(context, people, self._handler.report, read, request, stalled_seconds=most)
        return
        yield  # a call that answers in parts
