"""Establishes the caller of every call and refuses what the table does not allow, before anything is read.

Calls that last (streams, say) are checked again when their caller's identity changes and
every few seconds, so a revocation and the end of a certificate end them too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc

from assay_core.program_log import log_about_from_now
from assay_sampling.errors import AssayError, NotIdentifiedError, NotPermittedError
from assay_server.access.audit import note_caller
from assay_server.access.caller import Caller, set_caller
from assay_server.access.recognising import Peer, Recognition
from assay_server.access.table import Rule, require_allowed, rule_of
from assay_server.access.visibility import sight_of
from assay_server.rpc.errors import abort
from assay_server.rpc.wrapping import Context, Continuation, answering_of, remade

RECHECK_SECONDS = 20.0

Told = TypeVar("Told")
_END = object()


class Guard(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Before it, calls are only observed and noted. Make it on the event loop of its server.

    ``joining``: on the listener for joining, which answers only the calls that are open to anybody; other
    listeners answer none of those.
    """

    def __init__(
        self, recognition: Recognition, recheck_seconds: float = RECHECK_SECONDS, *, joining: bool = False
    ) -> None:
        self._recognition = recognition
        self._joining = joining
        self._recheck_seconds = recheck_seconds
        self._loop = asyncio.get_running_loop()
        self._lasting: dict[str, set[_Lasting]] = {}
        recognition.directory.listen(self._changed)

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = str(handler_call_details.method)
        return _guarded(handler, _Call(self, method, rule_of(method)))

    async def admitted(self, call: _Call, context: Context) -> Caller | None:
        """The caller, if it may make this call, else the call ends here; None: anybody may."""
        is_open = call.rule is not None and call.rule.open
        if is_open != self._joining:
            await abort(context, _other_listener(call.method, for_joining=is_open), call.method)
        if is_open:
            return None
        peer = peer_of(context)
        try:
            if self._recognition.is_known(peer):
                caller = self._recognition.caller(peer)
            else:
                caller = await asyncio.to_thread(self._recognition.caller, peer)
            note_caller(caller)
            require_allowed(call.rule, caller, call.method)
        except AssayError as error:
            await abort(context, error, call.method)
        set_caller(caller)
        log_about_from_now(caller=caller.name or caller.identity_id)
        return caller

    @contextlib.contextmanager
    def watched(self, caller: Caller | None) -> Iterator[_Lasting | None]:
        """Tells of changes of the caller's identity while the block runs; None: nothing can change."""
        if caller is None or caller.is_owner:
            yield None
            return
        lasting = _Lasting(self._loop.create_future(), self._loop.time(), caller)
        mine = self._lasting.setdefault(caller.identity_id, set())
        mine.add(lasting)
        try:
            yield lasting
        finally:
            mine.discard(lasting)
            if not mine:
                self._lasting.pop(caller.identity_id, None)

    async def while_admitted(
        self, step: Awaitable[Told], call: _Call, lasting: _Lasting | None, context: Context
    ) -> Told:
        """The result of ``step``, unless its caller may no longer make this call."""
        if lasting is None:
            return await step
        task = asyncio.ensure_future(step)
        try:
            while not task.done():
                either: set[asyncio.Future[Any]] = {task, lasting.changed}
                await asyncio.wait(either, timeout=self._recheck_seconds, return_when=asyncio.FIRST_COMPLETED)
                late = self._loop.time() - lasting.checked >= self._recheck_seconds
                if lasting.changed.done() or late:
                    lasting.changed, lasting.checked = self._loop.create_future(), self._loop.time()
                    now = await self.admitted(call, context)
                    await self._require_same_sight(lasting.caller, now, call, context)
            return await task
        finally:
            if not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration, grpc.aio.AbortError):
                    await task
            elif not task.cancelled():
                task.exception()  # if the call ended meanwhile, the step saw that as an error of its own

    async def _require_same_sight(
        self, before: Caller, now: Caller | None, call: _Call, context: Context
    ) -> None:
        """End a call about a campaign whose caller may know of others now than when it began."""
        sight = sight_of(now)
        if call.rule is None or not call.rule.names_campaign or sight.everything:
            return
        if sight != sight_of(before):
            subject = f"call {call.method.rpartition('/')[2]}"
            error = NotPermittedError(subject, "its caller's role or project was changed", "call again")
            await abort(context, error, call.method)

    def _changed(self, identities: frozenset[str]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._wake, identities)

    def _wake(self, identities: frozenset[str]) -> None:
        for identity_id in identities & self._lasting.keys():
            for lasting in self._lasting[identity_id]:
                if not lasting.changed.done():
                    lasting.changed.set_result(None)


def _other_listener(method: str, *, for_joining: bool) -> AssayError:
    subject = f"call {method.rpartition('/')[2]}"
    if for_joining:
        cause, remedy = "it is answered only where people and agents join", "use the server's --join address"
        return NotPermittedError(subject, cause, remedy)
    cause, remedy = "nobody is known where people and agents join", "use the server's --listen address"
    return NotIdentifiedError(subject, cause, remedy)


@dataclass(frozen=True)
class _Call:
    guard: Guard
    method: str
    rule: Rule | None


@dataclass(eq=False)
class _Lasting:
    """A call that lasts; ``changed`` is done when its caller's identity has changed since the last check."""

    changed: asyncio.Future[None]
    checked: float  # by the loop's clock
    caller: Caller  # as the call began


def peer_of(context: Context) -> Peer:
    """The other end of a call's connection."""
    facts = context.auth_context()
    certificate = next(iter(facts.get("x509_pem_cert", ())), b"")
    encrypted = b"ssl" in facts.get("transport_security_type", ())
    return Peer(str(context.peer()), bytes(certificate), encrypted)


def _guarded(handler: Any, call: _Call) -> Any:
    inner = answering_of(handler)

    async def one(request: Any, context: Context) -> Any:
        caller = await call.guard.admitted(call, context)
        if call.rule is not None and call.rule.lasts:
            with call.guard.watched(caller) as lasting:
                return await call.guard.while_admitted(inner(request, context), call, lasting, context)
        return await inner(request, context)

    async def many(request: Any, context: Context) -> AsyncIterator[Any]:
        caller = await call.guard.admitted(call, context)
        with call.guard.watched(caller) as lasting:
            async with contextlib.aclosing(inner(request, context)) as stream:
                while True:
                    step = anext(stream, _END)
                    told = await call.guard.while_admitted(step, call, lasting, context)
                    if told is _END:
                        return
                    yield told

    return remade(handler, one, many)
