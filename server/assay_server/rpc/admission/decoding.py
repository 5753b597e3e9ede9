"""Decodes requests: bytes that are not a message end their call with one typed error and one log line."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from assay_sampling.errors import ParameterError
from assay_server.limits import BAD_REQUESTS_LOGGED_PER_MINUTE
from assay_server.rpc.errors import abort
from assay_server.rpc.wrapping import Context, Continuation, receiving

_log = logging.getLogger(__name__)


class Decoding(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Runs before every servicer. gRPC itself would log a traceback for each such request."""

    def __init__(self) -> None:
        self._minute = 0.0
        self._logged = self._unlogged = 0

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
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

        async def each_decoded(requests: AsyncIterator[bytes]) -> AsyncIterator[Any]:
            async for data in requests:
                yield decoded(data)

        async def received(request: Any, context: Context) -> Any:
            if handler.request_streaming:
                return each_decoded(request)
            try:
                return decoded(request)
            except ParameterError as error:
                await abort(context, error, method)

        return receiving(handler, received, deserializer=None)

    def _note(self, method: str) -> None:
        now = time.monotonic()
        if now - self._minute >= 60:
            self._minute, self._logged = now, 0
        if self._logged >= BAD_REQUESTS_LOGGED_PER_MINUTE:
            self._unlogged += 1
            return
        self._logged += 1
        more = f" ({self._unlogged:,} more since the last line)" if self._unlogged else ""
        self._unlogged = 0
        _log.warning("%s: a request cannot be decoded%s", method, more)
