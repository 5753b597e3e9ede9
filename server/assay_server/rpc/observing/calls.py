"""Every call is observed: its time and status are measured, and log lines during it name it and its peer."""

from __future__ import annotations

import contextlib
import time
from typing import Any, Protocol

import grpc

from assay_core.program_log import log_about_from_now
from assay_server.rpc.wrapping import Context, ServedCall, Surrounding

_CODES = {code.value[0]: code.name for code in grpc.StatusCode}


class CallMeter(Protocol):
    """Hears of calls, on the event loop."""

    def began(self, call: str) -> None:
        """A call has arrived; ``call`` is the name of its RPC."""

    def ended(self, call: str, code: str, seconds: float | None) -> None:
        """It has ended with this status. ``seconds``: None for streams."""


class Observing(Surrounding):
    """The first interceptor, so that it also sees what the others refuse.

    Only calls that are served come here: whoever calls others makes no new labels.
    """

    def __init__(self, meter: CallMeter) -> None:
        self._meter = meter
        self.busy = 0  # calls under way that are no streams

    def around(self, call: ServedCall, context: Context) -> _Observed:
        return _Observed(self, call, context)

    def began(self, call: ServedCall) -> None:
        """A call has arrived."""
        self.busy += not call.streams
        self._meter.began(call.name)

    def ended(self, call: ServedCall, code: str, seconds: float) -> None:
        """A call has ended, after so many seconds."""
        self.busy -= not call.streams
        self._meter.ended(call.name, code, None if call.streams else seconds)


class _Observed(contextlib.AbstractAsyncContextManager[None]):
    """One call. A class, because every call goes through here, and generators take three times as long."""

    def __init__(self, observing: Observing, call: ServedCall, context: Context) -> None:
        self._observing, self._call, self._context = observing, call, context

    async def __aenter__(self) -> None:
        self._began = time.perf_counter()
        log_about_from_now(call=self._call.name, address=_peer(self._context))
        self._observing.began(self._call)

    async def __aexit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        if kind is None:
            code = _code_of(self._context, grpc.StatusCode.OK)
        elif issubclass(kind, Exception):
            code = _code_of(self._context, grpc.StatusCode.UNKNOWN)
        else:  # the task is cancelled
            code = grpc.StatusCode.CANCELLED.name
        seconds = time.perf_counter() - self._began
        self._observing.ended(self._call, code, seconds)


def _code_of(context: Context, otherwise: grpc.StatusCode) -> str:
    """The status that a handler has set."""
    code: Any = context.code()
    number = code.value[0] if isinstance(code, grpc.StatusCode) else code
    return _CODES.get(number, otherwise.name) if number else otherwise.name


def _peer(context: Context) -> str:
    """The peer as gRPC names it, ``ipv4:192.0.2.7:40112``; a socket's peer has no name."""
    return str(context.peer()).rstrip(":") or "unknown"
