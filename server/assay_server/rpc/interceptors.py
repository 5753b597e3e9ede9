"""The interceptor before every call: limits of each caller, then who calls and whether they may.

Whoever opened the server's own socket has no quota: all agents of a machine are that one caller.

The caller is established and the table asked before a request is decoded. Then each message is checked for
what it claims: an agent speaks for itself, a submitter acts on their own campaigns, and nobody hears of
campaigns of projects that are not theirs. While a call sends its answers in parts, its caller is checked
again when their identity changes, and every few seconds, so a revocation and the end of a certificate end it,
too. Changing calls leave an entry in the audit log, refused ones too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from assay_core.identity.roles import Role
from assay_core.program_log import log_about_from_now
from assay_sampling.errors import AssayError, NotIdentifiedError, NotPermittedError, ParameterError
from assay_server.access.audit import (
    DONE,
    AuditLog,
    Note,
    PerMinute,
    begin_note,
    forget_note,
    note_caller,
    note_request,
)
from assay_server.access.caller import (
    Caller,
    IdentityDirectory,
    Peer,
    caller_of,
    is_in_memory,
    presented_certificate,
    set_caller,
    sight_of,
)
from assay_server.access.table import (
    Rule,
    campaign_and_run,
    require_allowed,
    require_own_sender,
    rule_of,
)
from assay_server.campaigns.errors import unknown_campaign, unknown_run
from assay_server.limits import BAD_REQUESTS_LOGGED_PER_MINUTE
from assay_server.metrics.server_metrics import ServerMetrics
from assay_server.rpc.errors import abort
from assay_server.rpc.quotas import Quotas
from assay_server.rpc.threads import Context, Method
from assay_server.store.sql import MetadataStore

RECHECK_SECONDS = 20.0
_END = object()

_log = logging.getLogger(__name__)

Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Any]]
# From a request (an iterator, if it is a stream) to the answers; to one, if the call is answered once.
Answers = Callable[[Any, Context], AsyncGenerator[Any]]


def answers_of(handler: Any) -> Answers:
    """The function with which a handler of any kind answers."""
    if handler.response_streaming:
        stream: Answers = handler.unary_stream or handler.stream_stream
        return stream
    one = handler.unary_unary or handler.stream_unary

    async def answers(request: Any, context: Context) -> AsyncGenerator[Any]:
        yield await one(request, context)

    return answers


def with_answers(handler: Any, answers: Answers) -> Method:
    """A handler of the kind of ``handler`` with another function, which gets requests as bytes."""

    async def one(request: Any, context: Context) -> Any:
        [answer] = [each async for each in answers(request, context)]  # to its end, as audited as a stream's
        return answer

    streams = handler.request_streaming, handler.response_streaming
    kind = "_".join("stream" if each else "unary" for each in streams)
    make: Callable[..., Method] = getattr(grpc, f"{kind}_rpc_method_handler")
    return make(answers if handler.response_streaming else one, None, handler.response_serializer)


def _quota_of(peer: Peer) -> str | None:
    """Whose calls are counted together: an identity's, or a host's of strangers; None: they have no quota."""
    if peer.on_socket:
        return None
    if peer.certificate:
        with contextlib.suppress(NotIdentifiedError):
            return presented_certificate(peer.certificate).identity_id
    return peer.address.rpartition(":")[0]


@dataclass(frozen=True)
class Access:
    """Who may call, and the record of who did what: ``metadata`` has whose campaigns are."""

    metadata: MetadataStore
    directory: IdentityDirectory
    audit: AuditLog


@dataclass(frozen=True)
class _Call:
    """What is the same each time a method is called."""

    method: str
    rule: Rule
    handler: Any

    @property
    def name(self) -> str:
        return self.method.rpartition("/")[2]


@dataclass(eq=False)
class _LastingCall:
    """A call under way that is answered in parts; ``changed`` is done when its caller's identity has changed
    since the last check."""

    identity_id: str
    recheck: Callable[[], Awaitable[None]]
    changed: asyncio.Future[None]
    checked: float  # by the loop's clock


class CallInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Counts calls, and refuses what quotas or the table do not allow. Make it on its server's event loop.

    Quotas come first, so that what they refuse costs nothing else. Only calls that are served are counted:
    whoever calls others makes no new labels. ``joining``: on the listener for joining, which answers only the
    calls that are open to anybody; other listeners answer none of those.
    """

    def __init__(
        self,
        access: Access,
        metrics: ServerMetrics,
        quotas: Quotas,
        *,
        recheck_seconds: float = RECHECK_SECONDS,
        joining: bool = False,
    ) -> None:
        self._access, self._metrics, self._quotas = access, metrics, quotas
        self._joining = joining
        self._handlers: dict[str, Any] = {}  # of methods that are served, so callers cannot fill the memory
        self._bad_requests = PerMinute(BAD_REQUESTS_LOGGED_PER_MINUTE)
        self._recheck_seconds = recheck_seconds
        self._loop = asyncio.get_running_loop()
        self._lasting: set[_LastingCall] = set()
        self.busy = 0  # calls under way that are no streams
        access.directory.listen(self._identities_changed)

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        method = str(handler_call_details.method)
        if method not in self._handlers:
            handler = await continuation(handler_call_details)
            if handler is None:
                return None
            self._handlers[method] = self._guarded(_Call(method, rule_of(method), handler))
        return self._handlers[method]

    def _guarded(self, call: _Call) -> Method:
        answers = answers_of(call.handler)

        async def guarded(request: Any, context: Context) -> AsyncGenerator[Any]:
            with self._counted(call, context), contextlib.ExitStack() as quota:
                await self._take(quota, call, context)
                async with self._recorded(call, context):
                    caller = await self._admitted(call, context)
                    message = await self._received(request, call, caller)
                    async with (
                        contextlib.aclosing(answers(message, context)) as stream,
                        contextlib.aclosing(self._while_allowed(stream, call, context, caller)) as parts,
                    ):
                        async for part in parts:
                            yield part

        return with_answers(call.handler, guarded)

    @contextlib.contextmanager
    def _counted(self, call: _Call, context: Context) -> Iterator[None]:
        streams = bool(call.handler.request_streaming or call.handler.response_streaming)
        began, code = time.perf_counter(), grpc.StatusCode.CANCELLED.name
        log_about_from_now(call=call.name, address=str(context.peer()).rstrip(":") or "unknown")
        self._metrics.began(call.name)
        self.busy += not streams
        try:
            yield
            code = _status_of(context, grpc.StatusCode.OK).name
        except Exception:
            code = _status_of(context, grpc.StatusCode.UNKNOWN).name
            raise
        finally:
            self.busy -= not streams
            self._metrics.ended(call.name, code, None if streams else time.perf_counter() - began)

    async def _take(self, quota: contextlib.ExitStack, call: _Call, context: Context) -> None:
        if (who := _quota_of(_peer_of(context))) is not None:
            try:
                quota.enter_context(self._quotas.used(who, call.name))
            except AssayError as error:
                await abort(context, error, call.name)

    async def _while_allowed(
        self, stream: AsyncGenerator[Any], call: _Call, context: Context, caller: Caller | None
    ) -> AsyncGenerator[Any]:
        """The answers of a call; if they are parts, until its caller may no longer make it."""
        if not call.handler.response_streaming or caller is None or caller.is_owner:
            async for answer in stream:  # nothing about an owner can change
                yield answer
            return
        recheck = partial(self._recheck, call, context, caller)
        lasting = _LastingCall(caller.identity_id, recheck, self._loop.create_future(), self._loop.time())
        self._lasting.add(lasting)
        try:
            while (answer := await self._next(stream, lasting)) is not _END:
                yield answer
        finally:
            self._lasting.discard(lasting)

    async def _next(self, stream: AsyncGenerator[Any], lasting: _LastingCall) -> Any:
        step: asyncio.Future[Any] = asyncio.ensure_future(anext(stream, _END))
        try:
            while not step.done():
                either = {step, lasting.changed}
                await asyncio.wait(either, timeout=self._recheck_seconds, return_when=asyncio.FIRST_COMPLETED)
                late = self._loop.time() - lasting.checked >= self._recheck_seconds
                if lasting.changed.done() or late:
                    lasting.changed, lasting.checked = self._loop.create_future(), self._loop.time()
                    await lasting.recheck()
            return await step
        finally:
            if not step.done():
                step.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await step
            elif not step.cancelled():
                step.exception()  # if the call ended meanwhile, the step saw that as an error of its own

    def _identities_changed(self, identities: frozenset[str]) -> None:
        """Have calls that last check their callers again. Any thread may call this."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._wake, identities)

    def _wake(self, identities: frozenset[str]) -> None:
        for lasting in self._lasting:
            if lasting.identity_id in identities and not lasting.changed.done():
                lasting.changed.set_result(None)

    async def _admitted(self, call: _Call, context: Context) -> Caller | None:
        """The caller, if it may make this call, else an error; None: anybody may."""
        if call.rule.open != self._joining:
            raise _other_listener(call)
        if call.rule.open:
            return None
        peer = _peer_of(context)
        if is_in_memory(self._access.directory, peer):
            caller = caller_of(self._access.directory, peer)
        else:
            caller = await asyncio.to_thread(caller_of, self._access.directory, peer)
        note_caller(caller)
        require_allowed(call.rule, caller, call.method)
        set_caller(caller)
        log_about_from_now(caller=caller.name or caller.identity_id)
        return caller

    async def _received(self, request: Any, call: _Call, caller: Caller | None) -> Any:
        """The message of a request, decoded and checked; of a stream, its messages."""
        if call.handler.request_streaming:
            return self._each_received(request, call, caller)
        message = self._decoded(request, call)
        note_request(message)
        await self._check_claims(message, call, caller)
        return message

    async def _each_received(
        self, requests: AsyncIterator[bytes], call: _Call, caller: Caller | None
    ) -> AsyncIterator[Any]:
        """The messages; a bad one, or one with a false claim, is an error in the servicer that reads them."""
        async for request in requests:
            message = self._decoded(request, call)
            await self._check_claims(message, call, caller)
            yield message

    def _decoded(self, request: bytes, call: _Call) -> Any:
        try:
            return call.handler.request_deserializer(request)
        except (DecodeError, ValueError) as error:
            if (unlogged := self._bad_requests.admit()) is not None:  # gRPC would log a traceback for each
                more = f" ({unlogged:,} more since the last line)" if unlogged else ""
                _log.warning("%s: a request cannot be decoded%s", call.method, more)
            raise ParameterError(
                call.method,
                "its bytes are not such a request",
                "use client and server of one release of Assay",
            ) from error

    async def _check_claims(self, message: Any, call: _Call, caller: Caller | None) -> None:
        """Raises NotPermittedError if the message claims what is not the caller's, and UnknownThingError if
        it is about a campaign that the caller may not know of."""
        if caller is None:
            return
        require_own_sender(call.rule, caller, message)
        if call.rule.looks_at_campaign(caller):
            about = campaign_and_run(call.rule, message)
            await asyncio.to_thread(require_belonging, self._access.metadata, call.rule, caller, *about)

    async def _recheck(self, call: _Call, context: Context, before: Caller) -> None:
        """Raises if a call's caller may no longer make it, or may know of other campaigns than before."""
        sight = sight_of(await self._admitted(call, context))
        if call.rule.names_campaign and not sight.everything and sight != sight_of(before):
            cause = "its caller's role or project was changed"
            raise NotPermittedError(f"call {call.name}", cause, "call again")

    @contextlib.asynccontextmanager
    async def _recorded(self, call: _Call, context: Context) -> AsyncIterator[None]:
        """Errors of the block become statuses, and an audited call leaves its entry, however it ends."""
        note = begin_note(call.name, str(context.peer())) if call.rule.audited else None
        outcome: str = DONE
        detail: str | bytes = ""
        try:
            try:
                yield
            except Exception as error:  # noqa: BLE001 - the one place where errors of handlers become statuses
                await abort(context, error, call.name)
        except BaseException:
            # It just went away, if nothing says how it ended.
            outcome = _status_of(context, grpc.StatusCode.CANCELLED).name.lower()
            detail = context.details() or ""
            raise
        finally:
            if note is not None:
                forget_note()
                await self._end_note(note, outcome, detail)

    async def _end_note(self, note: Note, outcome: str, detail: str | bytes) -> None:
        if note.written:
            return
        text = detail if isinstance(detail, str) else detail.decode(errors="replace")
        # The call may have been cancelled; its entry is written nevertheless.
        # It is handed to its thread at once: a task for it would be cancelled when the server ends.
        end = asyncio.get_running_loop().run_in_executor(None, self._access.audit.end, note, outcome, text)
        await asyncio.shield(end)


def _other_listener(call: _Call) -> AssayError:
    subject = f"call {call.name}"
    if call.rule.open:
        cause, remedy = "it is answered only where people and agents join", "use the server's --join address"
        return NotPermittedError(subject, cause, remedy)
    cause, remedy = "nobody is known where people and agents join", "use the server's --listen address"
    return NotIdentifiedError(subject, cause, remedy)


def require_belonging(
    metadata: MetadataStore, rule: Rule, caller: Caller, campaign_id: str, run_id: str = ""
) -> None:
    """Let a call about a campaign or run pass, of gRPC or of the live page; may block.

    Raises UnknownThingError for one that the caller may not know of, and NotPermittedError for one that is
    not a submitter's own, where the rule asks for that.
    """
    if not rule.looks_at_campaign(caller):
        return
    with metadata.snapshot() as store:
        campaign_id = (store.campaign_of(run_id) or "") if run_id else campaign_id
        whose = store.belongs_to(campaign_id)
    sight = sight_of(caller)
    # What does not exist is refused here, too: a handler may first find another fault of the request.
    if not sight.everything and (whose is None or not sight.sees(whose)):
        raise unknown_run(run_id) if rule.seen_run else unknown_campaign(campaign_id)
    must_own = rule.own_campaign and not caller.is_owner and caller.role is Role.SUBMITTER
    if must_own and whose is not None and whose.owner != caller.identity_id:
        raise NotPermittedError(
            f"campaign {campaign_id}",
            f"it is not {caller.name or caller.identity_id}'s, and a submitter acts on their own campaigns",
            "ask its owner, or an operator",
        )


def _peer_of(context: Context) -> Peer:
    """The other end of a call's connection."""
    facts = context.auth_context()
    certificate = next(iter(facts.get("x509_pem_cert", ())), b"")
    encrypted = b"ssl" in facts.get("transport_security_type", ())
    return Peer(str(context.peer()), bytes(certificate), encrypted)


def _status_of(context: Context, otherwise: grpc.StatusCode) -> grpc.StatusCode:
    """The status that a call was ended with; ``otherwise`` if it was ended with none."""
    code: Any = context.code()
    number = code.value[0] if isinstance(code, grpc.StatusCode) else code
    return next((each for each in grpc.StatusCode if number and each.value[0] == number), otherwise)
