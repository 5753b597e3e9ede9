"""Decodes requests: bytes that are not a message end their call with one typed error and one log line."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from assay_sampling.errors import ParameterError
from assay_server.limits import LogLimits
from assay_server.rpc.errors import abort

_log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]


class Decoding(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Runs before every servicer. gRPC itself would log a traceback for each such request."""

    def __init__(self, limits: LogLimits) -> None:
        self._most = limits.bad_requests_logged_per_minute
        self._minute = 0.0
        self._logged = self._unlogged = 0

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = str(handler_call_details.method)

        def decoded(data: bytes) -> Any:
            try:
                return handler.request_deserializer(data)
            except (DecodeError, ValueError) as error:
                self._note(method)
                raise ParameterError(
                    method,
                    "its bytes are not such a request",
                    "use client and server of one release of Assay",
                ) from error

        if handler.request_streaming:
            return _streaming(handler, decoded)
        return _unary(handler, decoded, method)

    def _note(self, method: str) -> None:
        now = time.monotonic()
        if now - self._minute >= 60:
            self._minute, self._logged = now, 0
        if self._logged >= self._most:
            self._unlogged += 1
            return
        self._logged += 1
        more = f" ({self._unlogged:,} more since the last line)" if self._unlogged else ""
        self._unlogged = 0
        _log.warning("%s: a request cannot be decoded%s", method, more)


def _streaming(handler: Any, decoded: Callable[[bytes], Any]) -> Any:
    async def messages(requests: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        async for data in requests:
            yield decoded(data)

    async def call(requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[Any]:
        async for response in handler.stream_stream(messages(requests), context):
            yield response

    return grpc.stream_stream_rpc_method_handler(call, None, handler.response_serializer)


def _unary(handler: Any, decoded: Callable[[bytes], Any], method: str) -> Any:
    async def request_of(data: bytes, context: Context) -> Any:
        try:
            return decoded(data)
        except ParameterError as error:
            await abort(context, error, method)

    async def call(data: bytes, context: Context) -> Any:
        return await handler.unary_unary(await request_of(data, context), context)

    async def stream(data: bytes, context: Context) -> AsyncIterator[Any]:
        async for response in handler.unary_stream(await request_of(data, context), context):
            yield response

    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler(stream, None, handler.response_serializer)
    return grpc.unary_unary_rpc_method_handler(call, None, handler.response_serializer)
