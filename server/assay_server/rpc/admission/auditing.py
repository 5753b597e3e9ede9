"""Every changing call leaves an entry in the audit log, also one that is refused."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from assay_server.access.audit import DONE, AuditLog, Note, begin_note, forget_note
from assay_server.access.table import rule_of

Context = grpc.aio.ServicerContext[Any, Any]


class Auditing(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Stands before the guard, so that it hears of refusals too."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        method = str(handler_call_details.method)
        rule = rule_of(method)
        if handler is None or (rule is not None and not rule.audited):
            return handler
        name = method.rpartition("/")[2]
        return self._streaming(handler, name) if handler.response_streaming else self._unary(handler, name)

    def _unary(self, handler: Any, name: str) -> Any:
        inner = handler.stream_unary if handler.request_streaming else handler.unary_unary

        async def call(request: Any, context: Context) -> Any:
            async with self._noted(name, context):
                return await inner(request, context)

        make = (
            grpc.stream_unary_rpc_method_handler
            if handler.request_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        return make(call, handler.request_deserializer, handler.response_serializer)

    def _streaming(self, handler: Any, name: str) -> Any:
        inner = handler.stream_stream if handler.request_streaming else handler.unary_stream

        async def call(request: Any, context: Context) -> AsyncIterator[Any]:
            async with self._noted(name, context):
                async for response in inner(request, context):
                    yield response

        make = (
            grpc.stream_stream_rpc_method_handler
            if handler.request_streaming
            else grpc.unary_stream_rpc_method_handler
        )
        return make(call, handler.request_deserializer, handler.response_serializer)

    @contextlib.asynccontextmanager
    async def _noted(self, name: str, context: Context) -> AsyncIterator[None]:
        note = begin_note(name, str(context.peer()))
        try:
            yield
        except BaseException:
            forget_note()
            await self._end(note, _outcome(context), context.details() or "")
            raise
        forget_note()
        await self._end(note, DONE, "")

    async def _end(self, note: Note, outcome: str, detail: str) -> None:
        if note.written:
            return
        details = detail if isinstance(detail, str) else detail.decode(errors="replace")
        # The call may have been cancelled; its entry is written nevertheless.
        # It is handed to its thread at once: a task for it would be cancelled when the server ends.
        end = asyncio.get_running_loop().run_in_executor(None, self._log.end, note, outcome, details)
        await asyncio.shield(end)


def _outcome(context: Context) -> str:
    """The status that the call was aborted with, in small letters; "cancelled" if it just went away."""
    code: Any = context.code()
    if isinstance(code, grpc.StatusCode):
        return code.name.lower()
    found = next((each for each in grpc.StatusCode if each.value[0] == code), grpc.StatusCode.CANCELLED)
    return "cancelled" if found is grpc.StatusCode.OK else found.name.lower()
