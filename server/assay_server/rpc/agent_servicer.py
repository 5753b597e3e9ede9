"""The AgentService: what agents ask. Nothing here blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from assay_core.records.lease import FailedAttempt, FinishedAttempt, Heartbeat, LeaseAnswer, LeaseRequest
from assay_core.records.machine import Registration
from assay_protos import agent_pb2_grpc
from assay_sampling.errors import AssayError
from assay_server.campaigns.ingest.publish import MOST_SMALL_SEGMENTS
from assay_server.limits import DEFAULT_LIMITS, Limits
from assay_server.rpc.agent_handler import AgentHandler
from assay_server.rpc.errors import abort
from assay_server.rpc.threads import Context, Threads, sent
from assay_server.store.records import MOST_SMALL_LAUNCHES
from assay_server.threads.grouping import GroupedAnswers


class AgentServicer(agent_pb2_grpc.AgentServiceServicer):
    """The AgentService of assay_protos."""

    def __init__(self, handler: AgentHandler, threads: Threads, limits: Limits = DEFAULT_LIMITS) -> None:
        self._handler = handler
        self._threads = threads
        self._draining = False
        self._finishes = GroupedAnswers("assay-finishes", self._finish_all, limits.calls.calls_waiting)

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
            answer = await asyncio.wrap_future(answer) if isinstance(answer, Future) else answer
            return answer.to_proto()
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
        answers = iter(
            self._handler.finish_small([each for each in read if isinstance(each, FinishedAttempt)])
        )
        results = [next(answers) if isinstance(each, FinishedAttempt) else each for each in read]
        return [each if isinstance(each, Exception) else each.to_proto() for each in results]

    async def FailAttempt(self, request: Any, context: Context) -> Any:
        read = FailedAttempt.from_proto
        return await sent(context, self._threads.short, self._handler.fail, read, request)


def _read_finished(request: Any) -> FinishedAttempt | AssayError:
    try:
        return FinishedAttempt.from_proto(request)
    except AssayError as error:
        return error
