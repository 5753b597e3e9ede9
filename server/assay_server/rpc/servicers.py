"""The servicers: from the event loop to the handlers' threads and back. Nothing here blocks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

import grpc

from assay_protos import agent_pb2, agent_pb2_grpc, campaign_pb2, campaign_pb2_grpc
from assay_sampling.errors import StorageError
from assay_server.limits import DEFAULT_LIMITS, QueryLimits
from assay_server.rpc.agent_handler import AgentHandler
from assay_server.rpc.campaign_handler import CampaignHandler
from assay_server.rpc.changes import WORK, Changes, campaign_topic
from assay_server.rpc.errors import abort
from assay_server.store.model import ENDED_CAMPAIGNS

_LONGEST_WAIT_MS = 60_000
_WORK_POLL_SECONDS = 1.0  # slices that rest after a failure become due without any news
_WATCH_POLL_SECONDS = 5.0
_WATCH_LEAST_SECONDS = 0.1  # news of many segments make one status
_WATCH_REST = 10.0  # times as long as a status took: one of many runs must not keep the server busy

Request = TypeVar("Request")
Response = TypeVar("Response")
Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True)
class Threads:
    """Where handlers block: what agents and people ask, segments, and publishing each have their own.

    No sign of life of an agent waits for a status.
    """

    status: Executor
    short: Executor = field(default_factory=lambda: ThreadPoolExecutor(8, "assay-rpc"))
    people: Executor = field(default_factory=lambda: ThreadPoolExecutor(2, "assay-people"))
    ingest: Executor = field(default_factory=lambda: ThreadPoolExecutor(3, "assay-ingest"))
    publish: Executor = field(default_factory=lambda: ThreadPoolExecutor(2, "assay-publish"))

    @classmethod
    def of(cls, limits: QueryLimits) -> Self:
        """As many for statuses as the limits say."""
        return cls(status=ThreadPoolExecutor(limits.status_threads, "assay-status"))

    def close(self) -> None:
        """Wait for what runs; start nothing more."""
        for executor in (self.short, self.status, self.people, self.ingest, self.publish):
            executor.shutdown(wait=True, cancel_futures=True)


class Places:
    """So many may do something at a time; on the event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0

    @contextlib.contextmanager
    def taken(self) -> Iterator[bool]:
        """Whether there is a place, which is taken while the block runs."""
        place = self._taken < self._most
        self._taken += place
        try:
            yield place
        finally:
            self._taken -= place

    def refusal(self, what: str) -> StorageError:
        """For who found no place; programs take it for a reason to come back later."""
        return StorageError("server", f"it has {self._most:,} {what} already", "try again later")


async def answer(
    context: Context,
    executor: Executor,
    handler: Callable[[Request], Response],
    request: Request,
) -> Response:
    """The handler's answer, made in a thread; its error ends the call."""
    try:
        return await asyncio.get_running_loop().run_in_executor(executor, handler, request)
    except Exception as error:  # noqa: BLE001 - the one place where errors of handlers become statuses
        await abort(context, error, handler.__name__)


class AgentServicer(agent_pb2_grpc.AgentServiceServicer):
    """AgentService of the wire contract."""

    def __init__(
        self,
        handler: AgentHandler,
        threads: Threads,
        changes: Changes,
        limits: QueryLimits = DEFAULT_LIMITS.queries,
    ) -> None:
        self._places = Places(limits.waiting_leases)
        self._handler = handler
        self._threads = threads
        self._changes = changes

    async def Register(
        self, request: agent_pb2.RegisterRequest, context: Context
    ) -> agent_pb2.RegisterResponse:
        return await answer(context, self._threads.short, self._handler.register, request)

    async def Heartbeat(
        self, request: agent_pb2.HeartbeatRequest, context: Context
    ) -> agent_pb2.HeartbeatResponse:
        return await answer(context, self._threads.short, self._handler.heartbeat, request)

    async def Lease(self, request: agent_pb2.LeaseRequest, context: Context) -> agent_pb2.LeaseResponse:
        loop = asyncio.get_running_loop()
        until = loop.time() + min(max(request.wait_ms, 0), _LONGEST_WAIT_MS) / 1000
        with self._places.taken() as place:
            return await self._lease(request, context, until if place else 0.0)

    async def _lease(
        self, request: agent_pb2.LeaseRequest, context: Context, until: float
    ) -> agent_pb2.LeaseResponse:
        loop = asyncio.get_running_loop()
        while True:
            seen = self._changes.version(WORK)
            response = await answer(context, self._threads.short, self._handler.lease, request)
            rest = until - loop.time()
            if response.HasField("work") or response.register_again or rest <= 0 or self._changes.stopping:
                return response
            await self._changes.wait(WORK, seen, min(rest, _WORK_POLL_SECONDS))

    async def FinishAttempt(
        self, request: agent_pb2.FinishAttemptRequest, context: Context
    ) -> agent_pb2.FinishAttemptResponse:
        return await answer(context, self._threads.publish, self._handler.finish, request)

    async def FailAttempt(
        self, request: agent_pb2.FailAttemptRequest, context: Context
    ) -> agent_pb2.FailAttemptResponse:
        return await answer(context, self._threads.short, self._handler.fail, request)


class CampaignServicer(campaign_pb2_grpc.CampaignServiceServicer):
    """CampaignService of the wire contract."""

    def __init__(
        self,
        handler: CampaignHandler,
        threads: Threads,
        changes: Changes,
        limits: QueryLimits = DEFAULT_LIMITS.queries,
    ) -> None:
        self._places = Places(limits.watch_streams)
        self._handler = handler
        self._threads = threads
        self._changes = changes

    async def Submit(
        self, request: campaign_pb2.SubmitRequest, context: Context
    ) -> campaign_pb2.SubmitResponse:
        return await answer(context, self._threads.people, self._handler.submit, request)

    async def ListCampaigns(
        self, request: campaign_pb2.ListCampaignsRequest, context: Context
    ) -> campaign_pb2.ListCampaignsResponse:
        return await answer(context, self._threads.status, self._handler.list_campaigns, request)

    async def GetStatus(
        self, request: campaign_pb2.GetStatusRequest, context: Context
    ) -> campaign_pb2.CampaignStatus:
        return await answer(context, self._threads.status, self._handler.status, request)

    async def Watch(
        self, request: campaign_pb2.GetStatusRequest, context: Context
    ) -> AsyncIterator[campaign_pb2.CampaignStatus]:
        with self._places.taken() as place:
            if not place:
                await abort(context, self._places.refusal("watches"), "Watch")
            async for status in self._watch(request, context):
                yield status

    async def _watch(
        self, request: campaign_pb2.GetStatusRequest, context: Context
    ) -> AsyncIterator[campaign_pb2.CampaignStatus]:
        loop, topic, last = asyncio.get_running_loop(), campaign_topic(request.campaign_id), None
        request = campaign_pb2.GetStatusRequest(campaign_id=request.campaign_id, without_runs=True)
        while True:
            seen, began = self._changes.version(topic), loop.time()
            status = await answer(context, self._threads.status, self._handler.status, request)
            took = loop.time() - began
            if status != last:
                yield status
                last = status
            if status.state in ENDED_CAMPAIGNS:
                return
            if self._changes.stopping:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the server ends")
            await self._changes.rest(min(max(_WATCH_LEAST_SECONDS, _WATCH_REST * took), _WATCH_POLL_SECONDS))
            await self._changes.wait(topic, seen, _WATCH_POLL_SECONDS)

    async def Cancel(
        self, request: campaign_pb2.CancelRequest, context: Context
    ) -> campaign_pb2.CampaignStatus:
        return await answer(context, self._threads.people, self._handler.cancel, request)

    async def GetRun(self, request: campaign_pb2.GetRunRequest, context: Context) -> campaign_pb2.RunDetail:
        return await answer(context, self._threads.people, self._handler.run, request)

    async def GetReport(
        self, request: campaign_pb2.GetReportRequest, context: Context
    ) -> AsyncIterator[campaign_pb2.ReportChunk]:
        chunks = self._handler.report(request)
        while (chunk := await answer(context, self._threads.people, _next_chunk, chunks)) is not None:
            yield chunk


def _next_chunk(chunks: Iterator[campaign_pb2.ReportChunk]) -> campaign_pb2.ReportChunk | None:
    return next(chunks, None)
