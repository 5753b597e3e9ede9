"""The AgentService: what agents ask. Nothing here blocks."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any

from assay_core.records.lease import FailedAttempt, FinishedAttempt, Heartbeat, LeaseAnswer, LeaseRequest
from assay_core.records.machine import Registration
from assay_protos import agent_pb2_grpc
from assay_server.rpc.agent_handler import AgentHandler
from assay_server.rpc.errors import abort
from assay_server.rpc.threads import Context, Threads, sent


class AgentServicer(agent_pb2_grpc.AgentServiceServicer):
    """The AgentService of assay_protos."""

    def __init__(self, handler: AgentHandler, threads: Threads) -> None:
        self._handler = handler
        self._threads = threads
        self._draining = False

    def drain(self) -> None:
        """Give no more work: a lease that this server gave now would outlive it."""
        self._draining = True

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
        read = FinishedAttempt.from_proto
        return await sent(context, self._threads.publish, self._handler.finish, read, request)

    async def FailAttempt(self, request: Any, context: Context) -> Any:
        read = FailedAttempt.from_proto
        return await sent(context, self._threads.short, self._handler.fail, read, request)
