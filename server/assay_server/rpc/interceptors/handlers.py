"""gRPC handlers of all four kinds, as one function each; an interceptor wraps that function.

A kind is whether a call's request, and its answer, is one message or a stream of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

Context = grpc.aio.ServicerContext[Any, Any]
Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Any]]
# From a request (an iterator, if it is a stream) to an awaitable of the answer, or to an async generator.
Answer = Callable[[Any, Context], Any]


def answer_of(handler: Any) -> Answer:
    """The function with which a handler answers."""
    answer: Answer = (
        handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
    )
    return answer


def with_answer(
    handler: Any, one: Answer, many: Answer, *, decodes: bool = True
) -> grpc.RpcMethodHandler[Any, Any]:
    """A handler of the kind of ``handler`` with another function.

    Args:
        handler: a handler of any kind.
        one: answers with one message, if that is the kind.
        many: answers with a stream, if that is the kind.
        decodes: False: the function is given requests as bytes.
    """
    streams = bool(handler.request_streaming), bool(handler.response_streaming)
    decode = handler.request_deserializer if decodes else None
    return _MAKE[streams](many if streams[1] else one, decode, handler.response_serializer)


_MAKE: dict[tuple[bool, bool], Callable[..., grpc.RpcMethodHandler[Any, Any]]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}
