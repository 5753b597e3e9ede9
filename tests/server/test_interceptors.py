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
from assay_server.limits import CallerLimits
from assay_server.rpc.interceptors import Context, LimitsInterceptor, answers_of, with_answers
from assay_server.rpc.quotas import Quotas
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


class OverTls(OnSocket):
    """One of an agent with a certificate."""

    def __init__(self, events: list[str], certificate: bytes) -> None:
        super().__init__(events)
        self._certificate = certificate

    def peer(self) -> str:
        return "ipv4:192.0.2.7:40112"

    def auth_context(self) -> dict[str, tuple[bytes, ...]]:
        return {"x509_pem_cert": (self._certificate,), "transport_security_type": (b"ssl",)}

    async def abort(self, code: grpc.StatusCode, details: str, metadata: Any = ()) -> None:
        self._events.append(f"{code.name}: {details}")
        raise grpc.aio.AbortError


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


async def messages(*texts: str) -> AsyncIterator[str]:
    for text in texts:
        yield text


async def answered(made: Any, text: str = "word", context: Any = None) -> str:
    request = messages(*text) if made.request_streaming else text
    answers = answers_of(made)(request, OnSocket([]) if context is None else context)
    return "".join([each async for each in answers])


def limits(events: list[str], **quota: int) -> LimitsInterceptor:
    return LimitsInterceptor(Meter(events), Quotas(CallerLimits(**quota)))


async def behind(interceptor: LimitsInterceptor, inner: Any, method: str = "/assay.v1.Service/Call") -> Any:
    async def continuation(_details: Any) -> Any:
        return inner

    return await interceptor.intercept_service(continuation, cast(Any, SimpleNamespace(method=method)))


def test_a_methods_handler_is_made_once_and_unknown_names_are_not_remembered() -> None:
    events: list[str] = []
    looked, interceptor = list[str](), limits(events)

    async def continuation(details: Any) -> Any:
        looked.append(details.method)
        return None if details.method == "/unknown" else handler((False, False), events)

    async def run() -> None:
        for _ in range(2):
            known: Any = SimpleNamespace(method="/a/Call")
            assert await answered(await interceptor.intercept_service(continuation, known)) == "WORD"
            unknown: Any = SimpleNamespace(method="/unknown")
            assert await interceptor.intercept_service(continuation, unknown) is None

    asyncio.run(run())
    assert events == ["Call begins", "answers", "OK"] * 2
    assert looked == ["/a/Call", "/unknown", "/unknown"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_handler_with_another_function_is_of_the_kind_it_was(kind: tuple[bool, bool]) -> None:
    first, events = handler(kind, []), list[str]()
    second = answers_of(handler(kind, events))
    made: Any = with_answers(first, second)
    assert (made.request_streaming, made.response_streaming) == kind
    assert (made.request_deserializer, made.response_serializer) == (bytes.decode, str.encode)
    assert with_answers(first, second, decodes=False).request_deserializer is None
    assert (asyncio.run(answered(made)), events[0]) == ("WORD", "answers")


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_is_counted_to_its_last_answer(kind: tuple[bool, bool]) -> None:
    events: list[str] = []
    interceptor = limits(events)

    async def run() -> str:
        return await answered(await behind(interceptor, handler(kind, events)))

    assert asyncio.run(run()) == "WORD"
    end = "OK stream" if any(kind) else "OK"
    assert events == ["Call begins", "answers", *(["closed"] if kind[1] else []), end]
    assert interceptor.busy == 0


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_passes_and_is_counted(kind: tuple[bool, bool]) -> None:
    events: list[str] = []

    async def run() -> None:
        await answered(await behind(limits(events), handler(kind, events)), "bad")

    with pytest.raises(NotPermittedError):
        asyncio.run(run())
    assert events[-1] == ("UNKNOWN stream" if any(kind) else "UNKNOWN")


@pytest.mark.parametrize("request_streams", [False, True])
def test_answers_that_nobody_takes_end_before_their_call_is_counted(request_streams: bool) -> None:
    events: list[str] = []

    async def run() -> None:
        made = await behind(limits(events), handler((request_streams, True), events))
        stream = answers_of(made)(messages("word") if request_streams else "word", cast(Any, OnSocket([])))
        assert await anext(stream) == "W"
        await stream.aclose()

    asyncio.run(run())
    assert events == ["Call begins", "answers", "closed", "CANCELLED stream"]


def test_one_beyond_its_quota_is_refused_before_anything_else_and_the_owner_is_not() -> None:
    events: list[str] = []
    who = made_credentials(made_authority(), IdentityKind.AGENT, "a" * 32)

    async def run() -> None:
        made = await behind(limits(events, caller_calls=0), handler((False, False), events))
        with pytest.raises(grpc.aio.AbortError):
            await answered(made, context=OverTls(events, who.certificate))
        assert await answered(made) == "WORD"

    asyncio.run(run())
    begins, refusal, ends, *of_owner = events
    assert (begins, ends) == ("Call begins", "UNKNOWN")
    assert refusal.startswith(f"RESOURCE_EXHAUSTED: caller {'a' * 32}: it has 0 calls under way already")
    assert of_owner == ["Call begins", "answers", "OK"]
