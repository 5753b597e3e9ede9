"""Who calls, and whether they may: every call passes here before anything of it is done.

The caller is established and the table asked before a request is decoded. Then each message is checked for
what it claims: an agent speaks for itself, a submitter acts on their own campaigns, and nobody hears of
campaigns of projects that are not theirs. Changing calls leave an entry in the audit log, refused ones too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from assay_core.program_log import log_about_from_now
from assay_sampling.errors import AssayError, NotIdentifiedError, NotPermittedError, ParameterError
from assay_server.access.audit import (
    DONE,
    AuditLog,
    Note,
    begin_note,
    forget_note,
    note_caller,
    note_request,
)
from assay_server.access.caller import Caller, set_caller
from assay_server.access.recognising import Peer, Recognition
from assay_server.access.table import (
    Rule,
    campaign_named,
    require_allowed,
    require_own_sender,
    rule_of,
    run_named,
)
from assay_server.access.visibility import sight_of
from assay_server.rpc.belonging import require_belonging
from assay_server.rpc.errors import abort
from assay_server.rpc.interceptors.bad_requests import BadRequestLog
from assay_server.rpc.interceptors.handlers import Answer, Context, Continuation, answer_of, with_answer
from assay_server.rpc.interceptors.lasting import RECHECK_SECONDS, LastingCalls, Recheck
from assay_server.store.sql import MetadataStore

_END = object()


@dataclass(frozen=True)
class _Call:
    """What is the same each time a method is called; ``rule`` None: the table does not name it."""

    method: str
    rule: Rule | None
    handler: Any
    answer: Answer

    @property
    def name(self) -> str:
        return self.method.rpartition("/")[2]

    @property
    def is_open(self) -> bool:
        return self.rule is not None and self.rule.open


class AccessInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Refuses what the table does not allow. Make it on the event loop of its server.

    ``joining``: on the listener for joining, which answers only the calls that are open to anybody; other
    listeners answer none of those.
    """

    def __init__(
        self,
        recognition: Recognition,
        metadata: MetadataStore,
        audit: AuditLog,
        *,
        recheck_seconds: float = RECHECK_SECONDS,
        joining: bool = False,
    ) -> None:
        self._recognition = recognition
        self._metadata = metadata
        self._audit = audit
        self._joining = joining
        self._bad_requests = BadRequestLog()
        self._lasting = LastingCalls(recheck_seconds)
        recognition.directory.listen(self._lasting.changed)

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = str(handler_call_details.method)
        return self._guarded(_Call(method, rule_of(method), handler, answer_of(handler)))

    def _guarded(self, call: _Call) -> grpc.RpcMethodHandler[Any, Any]:
        audited = self._audited if call.rule is None or call.rule.audited else _not_audited

        async def one(request: Any, context: Context) -> Any:
            async with audited(call, context):
                caller = await self._admitted(call, context)
                message = await self._received(request, call, caller, context)
                answer = call.answer(message, context)
                if call.rule is None or not call.rule.lasts:
                    return await answer
                with self._lasting.watched(caller, self._recheck(call, context)) as lasting:
                    return await self._lasting.while_allowed(answer, lasting)

        async def many(request: Any, context: Context) -> AsyncIterator[Any]:
            async with audited(call, context):
                caller = await self._admitted(call, context)
                message = await self._received(request, call, caller, context)
                with self._lasting.watched(caller, self._recheck(call, context)) as lasting:
                    async with contextlib.aclosing(call.answer(message, context)) as stream:
                        while True:
                            answer = await self._lasting.while_allowed(anext(stream, _END), lasting)
                            if answer is _END:
                                return
                            yield answer

        return with_answer(call.handler, one, many, decodes=False)

    async def _admitted(self, call: _Call, context: Context) -> Caller | None:
        """The caller, if it may make this call, else the call ends here; None: anybody may."""
        if call.is_open != self._joining:
            await abort(context, _other_listener(call), call.method)
        if call.is_open:
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

    async def _received(self, request: Any, call: _Call, caller: Caller | None, context: Context) -> Any:
        """The message of a request, decoded and checked; of a stream, its messages."""
        if call.handler.request_streaming:
            return self._each_received(request, call, caller)
        try:
            message = self._decoded(request, call)
            note_request(message)
            await self._check_claims(message, call, caller)
        except AssayError as error:
            await abort(context, error, call.method)
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
            self._bad_requests.note(call.method)
            raise ParameterError(
                call.method,
                "its bytes are not such a request",
                "use client and server of one release of Assay",
            ) from error

    async def _check_claims(self, message: Any, call: _Call, caller: Caller | None) -> None:
        """Raises NotPermittedError if the message claims what is not the caller's, and UnknownThingError if
        it is about a campaign that the caller may not know of."""
        rule = call.rule
        if caller is None or rule is None:
            return
        require_own_sender(rule, caller, message)
        if rule.looks_at_campaign(caller):
            about = campaign_named(rule, message), run_named(rule, message)
            await asyncio.to_thread(require_belonging, self._metadata, rule, caller, *about)

    def _recheck(self, call: _Call, context: Context) -> Recheck:
        """Ends a call whose caller may no longer make it, or may know of other campaigns than before."""

        async def recheck(before: Caller) -> None:
            sight = sight_of(await self._admitted(call, context))
            if call.rule is None or not call.rule.names_campaign or sight.everything:
                return
            if sight != sight_of(before):
                cause = "its caller's role or project was changed"
                error = NotPermittedError(f"call {call.name}", cause, "call again")
                await abort(context, error, call.method)

        return recheck

    @contextlib.asynccontextmanager
    async def _audited(self, call: _Call, context: Context) -> AsyncIterator[None]:
        note = begin_note(call.name, str(context.peer()))
        try:
            yield
        except BaseException:
            forget_note()
            await self._end_note(note, _outcome(context), context.details() or "")
            raise
        forget_note()
        await self._end_note(note, DONE, "")

    async def _end_note(self, note: Note, outcome: str, detail: str | bytes) -> None:
        if note.written:
            return
        text = detail if isinstance(detail, str) else detail.decode(errors="replace")
        # The call may have been cancelled; its entry is written nevertheless.
        # It is handed to its thread at once: a task for it would be cancelled when the server ends.
        end = asyncio.get_running_loop().run_in_executor(None, self._audit.end, note, outcome, text)
        await asyncio.shield(end)


def peer_of(context: Context) -> Peer:
    """The other end of a call's connection."""
    facts = context.auth_context()
    certificate = next(iter(facts.get("x509_pem_cert", ())), b"")
    encrypted = b"ssl" in facts.get("transport_security_type", ())
    return Peer(str(context.peer()), bytes(certificate), encrypted)


def _not_audited(_call: _Call, _context: Context) -> contextlib.AbstractAsyncContextManager[None]:
    return contextlib.nullcontext()


def _other_listener(call: _Call) -> AssayError:
    subject = f"call {call.name}"
    if call.is_open:
        cause, remedy = "it is answered only where people and agents join", "use the server's --join address"
        return NotPermittedError(subject, cause, remedy)
    cause, remedy = "nobody is known where people and agents join", "use the server's --listen address"
    return NotIdentifiedError(subject, cause, remedy)


def _outcome(context: Context) -> str:
    """The status that the call was aborted with, in small letters; "cancelled" if it just went away."""
    code: Any = context.code()
    number = code.value[0] if isinstance(code, grpc.StatusCode) else code
    status = next((each for each in grpc.StatusCode if each.value[0] == number), grpc.StatusCode.CANCELLED)
    return "cancelled" if status is grpc.StatusCode.OK else status.name.lower()
