"""Limits of callers: every call is counted from its arrival to its end, and those beyond a quota are refused.

Whoever opened the server's own socket has no quota: all agents of a machine are that one caller.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Protocol

import grpc

from assay_core.program_log import log_about_from_now
from assay_sampling.errors import AssayError, NotIdentifiedError
from assay_server.access.presented import presented_certificate
from assay_server.access.recognising import Peer
from assay_server.rpc.errors import abort
from assay_server.rpc.interceptors.access import peer_of
from assay_server.rpc.interceptors.handlers import Context, Continuation, answer_of, with_answer
from assay_server.rpc.interceptors.quotas import Quotas

_CODES = {code.value[0]: code.name for code in grpc.StatusCode}


class CallMeter(Protocol):
    """Hears of calls, on the event loop."""

    def began(self, call: str) -> None:
        """A call has arrived; ``call`` is the name of its RPC."""

    def ended(self, call: str, code: str, seconds: float | None) -> None:
        """It has ended with this status. ``seconds``: None for streams."""


class LimitsInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """The first interceptor, so that what it refuses costs nothing else, and that it counts every refusal.

    Only calls that are served are counted: whoever calls others makes no new labels.
    """

    def __init__(self, meter: CallMeter, quotas: Quotas) -> None:
        self._meter = meter
        self._quotas = quotas
        self._handlers: dict[str, Any] = {}  # of methods that are served, so callers cannot fill the memory
        self.busy = 0  # calls under way that are no streams

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        method = str(handler_call_details.method)
        if method not in self._handlers:
            handler = await continuation(handler_call_details)
            if handler is None:
                return None
            self._handlers[method] = self._limited(handler, method.rpartition("/")[2])
        return self._handlers[method]

    def _limited(self, handler: Any, call: str) -> grpc.RpcMethodHandler[Any, Any]:
        answer, streams = answer_of(handler), bool(handler.request_streaming or handler.response_streaming)

        async def one(request: Any, context: Context) -> Any:
            with self._counted(call, streams, context), contextlib.ExitStack() as quota:
                await self._take(quota, call, context)
                return await answer(request, context)

        async def many(request: Any, context: Context) -> AsyncIterator[Any]:
            with self._counted(call, streams, context), contextlib.ExitStack() as quota:
                await self._take(quota, call, context)
                async with contextlib.aclosing(answer(request, context)) as stream:
                    async for each in stream:
                        yield each

        return with_answer(handler, one, many)

    async def _take(self, quota: contextlib.ExitStack, call: str, context: Context) -> None:
        who = _quota_of(peer_of(context))
        if who is None:
            return
        try:
            quota.enter_context(self._quotas.used(who, call))
        except AssayError as error:
            await abort(context, error, call)

    @contextlib.contextmanager
    def _counted(self, call: str, streams: bool, context: Context) -> Iterator[None]:
        began, code = time.perf_counter(), grpc.StatusCode.CANCELLED.name
        log_about_from_now(call=call, address=str(context.peer()).rstrip(":") or "unknown")
        self._meter.began(call)
        self.busy += not streams
        try:
            yield
            code = _code_of(context, grpc.StatusCode.OK)
        except Exception:
            code = _code_of(context, grpc.StatusCode.UNKNOWN)
            raise
        finally:
            self.busy -= not streams
            self._meter.ended(call, code, None if streams else time.perf_counter() - began)


def _quota_of(peer: Peer) -> str | None:
    """Whose calls are counted together: an identity's, or a host's of strangers; None: they have no quota."""
    if peer.on_socket:
        return None
    if peer.certificate:
        with contextlib.suppress(NotIdentifiedError):
            return presented_certificate(peer.certificate).identity_id
    return peer.address.rpartition(":")[0]


def _code_of(context: Context, otherwise: grpc.StatusCode) -> str:
    """The status that a handler has set."""
    code: Any = context.code()
    number = code.value[0] if isinstance(code, grpc.StatusCode) else code
    return _CODES.get(number, otherwise.name) if number else otherwise.name
