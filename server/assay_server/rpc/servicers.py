"""The servicers: from the event loop to the handlers' threads and back. Nothing here blocks."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

import grpc

from assay_core.records.campaign import (
    CampaignsPage,
    NamedCampaign,
    ReportRequest,
    StatusRequest,
    Submission,
)
from assay_core.records.lease import FailedAttempt, FinishedAttempt, Heartbeat, LeaseAnswer, LeaseRequest
from assay_core.records.machine import Registration
from assay_core.records.runs import NamedRun, RunsRequest
from assay_protos import agent_pb2_grpc, campaign_pb2_grpc
from assay_sampling.errors import AssayError
from assay_server.campaigns.ingest.publish import MOST_SMALL_SEGMENTS
from assay_server.limits import DEFAULT_LIMITS, Limits
from assay_server.rpc.agent_handler import AgentHandler
from assay_server.rpc.campaign_handler import CampaignHandler
from assay_server.rpc.errors import abort, send_in_time
from assay_server.rpc.places import BoundedThreads, Gathering
from assay_server.store.records import MOST_SMALL_LAUNCHES

Asked = TypeVar("Asked")
Told = TypeVar("Told")
Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True)
class Threads:
    """Threads in which handlers block, separate for agents' and people's requests, segments and publishing.

    So an agent's sign of life never waits for a status, and people do not wait while large submissions wait
    for their turn.
    """

    status: Executor
    short: Executor
    people: Executor
    submit: Executor
    ingest: Executor
    publish: Executor

    @classmethod
    def of(cls, limits: Limits) -> Self:
        """As many threads for statuses, and as many calls that wait, as the limits allow."""
        most = limits.calls.calls_waiting
        return cls(
            status=BoundedThreads(limits.queries.status_threads, "assay-status", most),
            short=BoundedThreads(8, "assay-rpc", most),
            people=BoundedThreads(2, "assay-people", most),
            submit=BoundedThreads(2, "assay-submit", most),
            ingest=ThreadPoolExecutor(3, "assay-ingest"),  # bounded by the bytes that upload streams hold
            publish=BoundedThreads(16, "assay-publish", most),  # most of the time they wait for the disk
        )

    def close(self) -> None:
        """Wait for running handlers; start nothing more."""
        for executor in (self.short, self.status, self.people, self.submit, self.ingest, self.publish):
            executor.shutdown(wait=True, cancel_futures=True)


class Sent(Protocol):
    """A record that is sent."""

    def to_proto(self) -> Any: ...


async def answer(
    context: Context,
    executor: Executor,
    handler: Callable[[Asked], Told],
    read: Callable[[Any], Asked],
    request: Any,
) -> Told:
    """The handler's answer, from a thread, to the record that ``read`` makes of a message.

    Any error, including one of ``read``, ends the call.
    """
    try:
        # In the thread, too, the handler can ask who is calling, and log lines name the call.
        run = contextvars.copy_context().run
        return await asyncio.get_running_loop().run_in_executor(executor, run, lambda: handler(read(request)))
    except Exception as error:  # noqa: BLE001 - the one place where errors of handlers become statuses
        await abort(context, error, handler.__name__)


async def sent(
    context: Context,
    executor: Executor,
    handler: Callable[[Asked], Sent],
    read: Callable[[Any], Asked],
    request: Any,
) -> Any:
    """The result of :func:`answer` as a message."""

    def message(asked: Asked) -> Any:
        return handler(asked).to_proto()

    message.__name__ = handler.__name__
    return await answer(context, executor, message, read, request)


def as_it_is(record: Asked) -> Asked:
    """The ``read`` of :func:`answer` for what is a record already."""
    return record


async def send_pieces(
    context: Context,
    executor: Executor,
    handler: Callable[[Asked], Iterator[Sent]],
    read: Callable[[Any], Asked],
    request: Any,
    *,
    stalled_seconds: float,
) -> None:
    """Send what a handler yields, made in a thread; a peer that takes nothing for so long is cut off."""
    pieces = await answer(context, executor, handler, read, request)
    while (piece := await answer(context, executor, _next, as_it_is, pieces)) is not None:
        await send_in_time(context, piece.to_proto(), stalled_seconds)


def _next(pieces: Iterator[Sent]) -> Sent | None:
    return next(pieces, None)


class AgentServicer(agent_pb2_grpc.AgentServiceServicer):
    """The AgentService of assay_protos."""

    def __init__(self, handler: AgentHandler, threads: Threads, limits: Limits = DEFAULT_LIMITS) -> None:
        self._handler = handler
        self._threads = threads
        self._draining = False
        self._finishes = Gathering("assay-finishes", self._finish_all, limits.calls.calls_waiting)

    def drain(self) -> None:
        """Give no more work: a lease that this server gave now would outlive it."""
        self._draining = True

    def close(self) -> None:
        """Answer what was asked and stop; no call is under way any more."""
        self._finishes.close()

    async def Register(self, request: Any, context: Context) -> Any:
        read = Registration.from_proto
        return await sent(context, self._threads.short, self._handler.register, read, request)

    async def Heartbeat(self, request: Any, context: Context) -> Any:
        """Heartbeats wait for no thread of other calls."""
        try:
            answer = self._handler.heartbeat(Heartbeat.from_proto(request))
            told = await asyncio.wrap_future(answer) if isinstance(answer, Future) else answer
            return told.to_proto()
        except Exception as error:  # noqa: BLE001 - as in answer()
            await abort(context, error, "heartbeat")

    async def Lease(self, request: Any, context: Context) -> Any:
        """Most idle slots are answered here, from memory."""
        if self._draining or not self._handler.must_ask(LeaseRequest.from_proto(request)):
            return LeaseAnswer().to_proto()
        return await sent(context, self._threads.short, self._handler.lease, LeaseRequest.from_proto, request)

    async def FinishAttempt(self, request: Any, context: Context) -> Any:
        if request.launches <= MOST_SMALL_LAUNCHES and request.segments <= MOST_SMALL_SEGMENTS:
            try:
                return await self._finishes.ask(request)
            except Exception as error:  # noqa: BLE001 - as in answer()
                await abort(context, error, "finish")
        read = FinishedAttempt.from_proto
        return await sent(context, self._threads.publish, self._handler.finish, read, request)

    def _finish_all(self, requests: Sequence[Any]) -> list[Any]:
        """Answers finished attempts of few launches, as messages."""
        read = [_read_finished(request) for request in requests]
        found = [each for each in read if isinstance(each, FinishedAttempt)]
        answers = iter(self._handler.finish_small(found))
        told = [next(answers) if isinstance(each, FinishedAttempt) else each for each in read]
        return [each if isinstance(each, Exception) else each.to_proto() for each in told]

    async def FailAttempt(self, request: Any, context: Context) -> Any:
        read = FailedAttempt.from_proto
        return await sent(context, self._threads.short, self._handler.fail, read, request)


def _read_finished(request: Any) -> FinishedAttempt | AssayError:
    try:
        return FinishedAttempt.from_proto(request)
    except AssayError as error:
        return error


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
