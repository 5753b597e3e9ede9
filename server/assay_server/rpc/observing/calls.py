"""Every call is observed: its time and status are measured, and log lines during it name it and its peer."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

import grpc

from assay_core.program_log import log_about_from_now

Context = grpc.aio.ServicerContext[Any, Any]

_CODES = {code.value[0]: code.name for code in grpc.StatusCode}


class CallMeter(Protocol):
    """Hears of calls, on the event loop."""

    def began(self, call: str) -> None:
        """A call has arrived; ``call`` is the name of its RPC."""

    def ended(self, call: str, code: str, seconds: float | None) -> None:
        """It has ended with this status. ``seconds``: without waits on purpose; None for streams."""


@dataclass
class _Call:
    name: str
    began: float = field(default_factory=time.perf_counter)
    waited: float = 0.0


_current: ContextVar[_Call | None] = ContextVar("assay_call", default=None)


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """The call waits on purpose in this block, for work say: the time does not count as its own."""
    began = time.perf_counter()
    try:
        yield
    finally:
        if (call := _current.get()) is not None:
            call.waited += time.perf_counter() - began


class Observing(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """The first interceptor, so that it also sees what the others refuse."""

    def __init__(self, meter: CallMeter) -> None:
        self._meter = meter
        self.busy = 0  # calls under way that are no streams

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        # Only names of RPCs that are served come here: whoever calls others makes no new labels.
        name = str(handler_call_details.method).rpartition("/")[2]
        return self._streaming(handler, name) if handler.response_streaming else self._unary(handler, name)

    def _unary(self, handler: Any, name: str) -> Any:
        async def call(request: Any, context: Context) -> Any:
            with self._observed(name, context, stream=handler.request_streaming):
                return await (handler.stream_unary or handler.unary_unary)(request, context)

        make = (
            grpc.stream_unary_rpc_method_handler
            if handler.request_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        return make(call, handler.request_deserializer, handler.response_serializer)

    def _streaming(self, handler: Any, name: str) -> Any:
        async def call(request: Any, context: Context) -> AsyncIterator[Any]:
            with self._observed(name, context, stream=True):
                async for response in (handler.stream_stream or handler.unary_stream)(request, context):
                    yield response

        make = (
            grpc.stream_stream_rpc_method_handler
            if handler.request_streaming
            else grpc.unary_stream_rpc_method_handler
        )
        return make(call, handler.request_deserializer, handler.response_serializer)

    @contextlib.contextmanager
    def _observed(self, name: str, context: Context, *, stream: bool) -> Iterator[None]:
        call = _Call(name)
        _current.set(call)  # for good: each call has a task of its own
        log_about_from_now(call=name, address=_peer(context))
        self._meter.began(name)
        self.busy += not stream
        code = grpc.StatusCode.CANCELLED.name  # also if the task is cancelled
        try:
            yield
            code = _code_of(context, grpc.StatusCode.OK)
        except Exception:
            code = _code_of(context, grpc.StatusCode.UNKNOWN)
            raise
        finally:
            seconds = time.perf_counter() - call.began - call.waited
            self.busy -= not stream
            self._meter.ended(name, code, None if stream else seconds)


def _code_of(context: Context, otherwise: grpc.StatusCode) -> str:
    """The status that a handler has set."""
    code: Any = context.code()
    number = code.value[0] if isinstance(code, grpc.StatusCode) else code
    return _CODES.get(number, otherwise.name) if number else otherwise.name


def _peer(context: Context) -> str:
    """The peer as gRPC names it, ``ipv4:192.0.2.7:40112``; a socket's peer has no name."""
    return str(context.peer()).rstrip(":") or "unknown"
