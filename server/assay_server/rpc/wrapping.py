"""Interceptors in few words: RPC handlers of all four kinds are remade here, and only here.

A kind is whether a call's request, and its answer, is one message or a stream of them.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from typing import Any

import grpc

Context = grpc.aio.ServicerContext[Any, Any]
Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Any]]
# From a request (an iterator, if it is a stream) to an awaitable of the answer, or to an async generator.
Answering = Callable[[Any, Context], Any]
Deserializer = Callable[[bytes], Any] | None


def remade(
    handler: Any, one: Answering, many: Answering, deserializer: Deserializer | bool = True
) -> grpc.RpcMethodHandler[Any, Any]:
    """A handler of the kind of ``handler`` that answers otherwise.

    Args:
        handler: a handler of any kind.
        one: answers with one message, if that is the kind.
        many: answers with a stream, if that is the kind.
        deserializer: of requests; None: the handler is given bytes; True: that of ``handler``.
    """
    streams = bool(handler.request_streaming), bool(handler.response_streaming)
    read = handler.request_deserializer if deserializer is True else deserializer
    return _MAKE[streams](many if streams[1] else one, read, handler.response_serializer)


_MAKE: dict[tuple[bool, bool], Callable[..., grpc.RpcMethodHandler[Any, Any]]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


def answering_of(handler: Any) -> Answering:
    """The function with which a handler answers."""
    found: Answering = (
        handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
    )
    return found


def receiving(
    handler: Any,
    received: Callable[[Any, Context], Awaitable[Any]],
    deserializer: Deserializer | bool = True,
) -> grpc.RpcMethodHandler[Any, Any]:
    """``handler``, given what ``received`` makes of each request (of an iterator, if it is a stream)."""
    inner = answering_of(handler)

    async def one(request: Any, context: Context) -> Any:
        return await inner(await received(request, context), context)

    async def many(request: Any, context: Context) -> AsyncIterator[Any]:
        async with aclosing(inner(await received(request, context), context)) as answers:
            async for answer in answers:
                yield answer

    return remade(handler, one, many, deserializer)


@dataclass(frozen=True)
class ServedCall:
    """A call that the server has a handler for: ``/package.Service/Name``; and whether it streams at all."""

    method: str
    streams: bool

    @property
    def name(self) -> str:
        return self.method.rpartition("/")[2]


class Composed(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Interceptors as one, the first outermost: a method's handler is made at its first call, not at each.

    None of them may look at anything but the method when it makes a handler.

    Only methods that are served are remembered, so callers cannot fill the memory with names.
    """

    def __init__(self, interceptors: Sequence[grpc.aio.ServerInterceptor[Any, Any]]) -> None:
        self._interceptors = tuple(interceptors)
        self._handlers: dict[str | bytes, Any] = {}

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        method = handler_call_details.method
        found = self._handlers.get(method)
        if found is None:
            for each in reversed(self._interceptors):
                continuation = functools.partial(each.intercept_service, continuation)
            found = await continuation(handler_call_details)
            if found is not None:
                self._handlers[method] = found
        return found


class Surrounding(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Does something before and after each call that is served, of whatever kind."""

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        streams = bool(handler.request_streaming or handler.response_streaming)
        call = ServedCall(str(handler_call_details.method), streams)
        return self._around(handler, call) if self.concerns(call) else handler

    def concerns(self, call: ServedCall) -> bool:
        """Whether such calls are surrounded; all are, unless a subclass says otherwise."""
        return True

    @abstractmethod
    def around(self, call: ServedCall, context: Context) -> AbstractAsyncContextManager[None]:
        """The context that a call is answered in, from before its request is read to its last answer.

        It ends in the task that it began in, with the call's error if there is one.
        """

    def _around(self, handler: Any, call: ServedCall) -> grpc.RpcMethodHandler[Any, Any]:
        inner = answering_of(handler)

        async def one(request: Any, context: Context) -> Any:
            async with self.around(call, context):
                return await inner(request, context)

        async def many(request: Any, context: Context) -> AsyncIterator[Any]:
            async with self.around(call, context), aclosing(inner(request, context)) as answers:
                async for answer in answers:
                    yield answer

        return remade(handler, one, many)
