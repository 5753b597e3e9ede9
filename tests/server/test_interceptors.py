"""Handlers of all four kinds stay what they are behind an interceptor, and are counted from start to end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest

from assay_core.identity.roles import IdentityKind
from assay_sampling.errors import NotPermittedError
from assay_server.access.audit import AuditLog
from assay_server.access.caller import IdentityDirectory
from assay_server.limits import CallerLimits
from assay_server.rpc.interceptors import Access, CallInterceptor, Context, answers_of, with_answers
from assay_server.rpc.quotas import Quotas
from assay_server.store.sqlite import SqliteStore
from tests.support.identity.authorities import made_authority, made_credentials

KINDS = list(product((False, True), repeat=2))  # request, response streaming
MAKE = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


class OnSocket:
    """The context of a call through the server's own socket."""

    def __init__(self, events: list[str]) -> None:
        self._events = events

    def peer(self) -> str:
        return "unix:"

    def auth_context(self) -> dict[str, tuple[bytes, ...]]:
        return {}

    def code(self) -> grpc.StatusCode | None:
        return None

    def details(self) -> str:
        return ""

    async def abort(self, code: grpc.StatusCode, details: str, metadata: Any = ()) -> None:
        self._events.append(f"{code.name}: {details}")
        raise grpc.aio.AbortError


class OverTls(OnSocket):
    """One of an agent with a certificate."""

    def __init__(self, events: list[str], certificate: bytes) -> None:
        super().__init__(events)
        self._certificate = certificate

    def peer(self) -> str:
        return "ipv4:192.0.2.7:40112"

    def auth_context(self) -> dict[str, tuple[bytes, ...]]:
        return {"x509_pem_cert": (self._certificate,), "transport_security_type": (b"ssl",)}


class Meter:
    """Says when a call begins and how it ends."""

    def __init__(self, events: list[str]) -> None:
        self._events = events

    def began(self, call: str) -> None:
        self._events.append(f"{call} begins")

    def ended(self, call: str, code: str, seconds: float | None) -> None:
        self._events.append(f"{code} stream" if seconds is None else code)


def handler(kind: tuple[bool, bool], events: list[str]) -> Any:
    """Answers with its request's messages in capitals, and says when it answers."""

    async def answer(request: Any) -> str:
        events.append("answers")
        text = "".join([each async for each in request]) if kind[0] else request
        if text == "bad":
            raise NotPermittedError("x", "it is bad", "be good")
        return text.upper()

    async def one(request: Any, _context: Context) -> str:
        return await answer(request)

    async def many(request: Any, _context: Context) -> AsyncIterator[str]:
        try:
            for letter in await answer(request):
                yield letter
        finally:
            events.append("closed")

    return MAKE[kind](many if kind[1] else one, bytes.decode, str.encode)


async def messages(*texts: str) -> AsyncIterator[bytes]:
    for text in texts:
        yield text.encode()


async def answered(made: Any, text: str = "word", context: Any = None) -> str:
    request = messages(*text) if made.request_streaming else text.encode()
    answers = answers_of(made)(request, OnSocket([]) if context is None else context)
    return "".join([each async for each in answers])


# Its rule lets the owner of the socket in, and asks for no entry in the audit log.
METHOD = "/assay.v1.LabService/ReadAudit"


def interceptor_of(events: list[str], **quota: int) -> CallInterceptor:
    store = SqliteStore(None)
    access = Access(store, IdentityDirectory(store), AuditLog(store, 1, 9))
    return CallInterceptor(access, cast(Any, Meter(events)), Quotas(CallerLimits(**quota)))


async def behind(interceptor: CallInterceptor, inner: Any, method: str = METHOD) -> Any:
    async def continuation(_details: Any) -> Any:
        return inner

    return await interceptor.intercept_service(continuation, cast(Any, SimpleNamespace(method=method)))


def test_a_methods_handler_is_made_once_and_unknown_names_are_not_remembered() -> None:
    events: list[str] = []
    looked = list[str]()

    async def continuation(details: Any) -> Any:
        looked.append(details.method)
        return None if details.method == "/unknown" else handler((False, False), events)

    async def run() -> None:
        interceptor = interceptor_of(events)
        for _ in range(2):
            known: Any = SimpleNamespace(method=METHOD)
            assert await answered(await interceptor.intercept_service(continuation, known)) == "WORD"
            unknown: Any = SimpleNamespace(method="/unknown")
            assert await interceptor.intercept_service(continuation, unknown) is None

    asyncio.run(run())
    assert events == ["ReadAudit begins", "answers", "OK"] * 2
    assert looked == [METHOD, "/unknown", "/unknown"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_handler_with_another_function_is_of_the_kind_it_was(kind: tuple[bool, bool]) -> None:
    first, events = handler(kind, []), list[str]()
    second = answers_of(handler(kind, events))
    made: Any = with_answers(first, second)
    assert (made.request_streaming, made.response_streaming) == kind
    assert (made.request_deserializer, made.response_serializer) == (None, str.encode)

    async def run() -> str:
        request = texts() if kind[0] else "word"
        return "".join([each async for each in answers_of(made)(request, cast(Any, OnSocket([])))])

    async def texts() -> AsyncIterator[str]:
        for letter in "word":
            yield letter

    assert (asyncio.run(run()), events[0]) == ("WORD", "answers")


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_is_counted_to_its_last_answer(kind: tuple[bool, bool]) -> None:
    events: list[str] = []

    async def run() -> None:
        interceptor = interceptor_of(events)
        assert await answered(await behind(interceptor, handler(kind, events))) == "WORD"
        assert interceptor.busy == 0

    asyncio.run(run())
    end = "OK stream" if any(kind) else "OK"
    assert events == ["ReadAudit begins", "answers", *(["closed"] if kind[1] else []), end]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_becomes_a_status_and_is_counted(kind: tuple[bool, bool]) -> None:
    events: list[str] = []

    async def run() -> None:
        made = await behind(interceptor_of(events), handler(kind, events))
        await answered(made, "bad", OnSocket(events))

    with pytest.raises(grpc.aio.AbortError):
        asyncio.run(run())
    assert events[-2] == "PERMISSION_DENIED: x: it is bad; be good"
    assert events[-1] == ("UNKNOWN stream" if any(kind) else "UNKNOWN")


@pytest.mark.parametrize("request_streams", [False, True])
def test_answers_that_nobody_takes_end_before_their_call_is_counted(request_streams: bool) -> None:
    events: list[str] = []

    async def run() -> None:
        made = await behind(interceptor_of(events), handler((request_streams, True), events))
        request: Any = messages("word") if request_streams else b"word"
        stream = answers_of(made)(request, cast(Any, OnSocket([])))
        assert await anext(stream) == "W"
        await stream.aclose()

    asyncio.run(run())
    assert events == ["ReadAudit begins", "answers", "closed", "CANCELLED stream"]


def test_one_beyond_its_quota_is_refused_before_anything_else_and_the_owner_is_not() -> None:
    events: list[str] = []
    who = made_credentials(made_authority(), IdentityKind.AGENT, "a" * 32)

    async def run() -> None:
        made = await behind(interceptor_of(events, caller_calls=0), handler((False, False), events))
        with pytest.raises(grpc.aio.AbortError):
            await answered(made, context=OverTls(events, who.certificate))
        assert await answered(made) == "WORD"

    asyncio.run(run())
    begins, refusal, ends, *of_owner = events
    assert (begins, ends) == ("ReadAudit begins", "UNKNOWN")
    assert refusal.startswith(f"RESOURCE_EXHAUSTED: caller {'a' * 32}: it has 0 calls under way already")
    assert of_owner == ["ReadAudit begins", "answers", "OK"]
