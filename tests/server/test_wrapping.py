"""Handlers of all four kinds are remade as what they are, and surrounded from before a call to its end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest

from assay_sampling.errors import NotPermittedError
from assay_server.rpc.wrapping import (
    Composed,
    Context,
    ServedCall,
    Surrounding,
    answering_of,
    receiving,
    remade,
)

KINDS = list(product((False, True), repeat=2))  # request, response streaming
MAKE = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}
CONTEXT: Any = object()


def handler(kind: tuple[bool, bool], said: list[str]) -> Any:
    """Answers with its request's messages in capitals, and says when it answers."""

    async def told(request: Any) -> str:
        said.append("answers")
        text = "".join([each async for each in request]) if kind[0] else request
        if text == "bad":
            raise NotPermittedError("x", "it is bad", "be good")
        return text.upper()

    async def one(request: Any, _context: Context) -> str:
        return await told(request)

    async def many(request: Any, _context: Context) -> AsyncIterator[str]:
        try:
            for letter in await told(request):
                yield letter
        finally:
            said.append("closed")

    return MAKE[kind](many if kind[1] else one, bytes.decode, str.encode)


async def messages(*texts: str) -> AsyncIterator[str]:
    for text in texts:
        yield text


async def answered(made: Any, text: str = "word") -> str:
    request = messages(*text) if made.request_streaming else text
    answer = answering_of(made)(request, CONTEXT)
    return "".join([each async for each in answer]) if made.response_streaming else await answer


class Saying(Surrounding):
    """Says when a call begins and how it ends."""

    def __init__(self, said: list[str]) -> None:
        self.said = said
        self.calls: list[ServedCall] = []

    def concerns(self, call: ServedCall) -> bool:
        return call.name != "Other"

    @contextlib.asynccontextmanager
    async def around(self, call: ServedCall, context: Context) -> AsyncIterator[None]:
        assert context is CONTEXT
        self.calls.append(call)
        self.said.append("begins")
        try:
            yield
        except BaseException as error:
            self.said.append(type(error).__name__)
            raise
        self.said.append("ends")

    async def over(self, found: Any, method: str = "/assay.v1.Service/Call") -> Any:
        async def continuation(_details: Any) -> Any:
            return found

        details: Any = SimpleNamespace(method=method)
        return await self.intercept_service(continuation, details)


def test_interceptors_as_one_make_each_handler_once_and_remember_no_unknown_name() -> None:
    said: list[str] = []
    outer, inner = Saying(said), Saying(said)
    composed, looked = Composed([outer, inner]), list[str]()

    async def continuation(details: Any) -> Any:
        looked.append(details.method)
        return None if details.method == "/unknown" else handler((False, False), said)

    async def run() -> None:
        for _ in range(2):
            made = await composed.intercept_service(
                continuation, cast(Any, SimpleNamespace(method="/a/Call"))
            )
            assert await answered(made) == "WORD"
            unknown: Any = SimpleNamespace(method="/unknown")
            assert await composed.intercept_service(continuation, unknown) is None

    asyncio.run(run())
    assert said == ["begins", "begins", "answers", "ends", "ends"] * 2
    assert looked == ["/a/Call", "/unknown", "/unknown"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_handler_is_remade_as_the_kind_it_is(kind: tuple[bool, bool]) -> None:
    first, said = handler(kind, []), list[str]()
    second = answering_of(handler(kind, said))
    made: Any = remade(first, second, second)
    assert (made.request_streaming, made.response_streaming) == kind
    assert (made.request_deserializer, made.response_serializer) == (bytes.decode, str.encode)
    assert remade(first, second, second, None).request_deserializer is None
    assert (asyncio.run(answered(made)), said[0]) == ("WORD", "answers")


@pytest.mark.parametrize("kind", KINDS)
def test_a_handler_is_given_what_becomes_of_its_request(kind: tuple[bool, bool]) -> None:
    async def received(request: Any, context: Context) -> Any:
        assert context is CONTEXT
        return messages("other") if kind[0] else "other"

    assert asyncio.run(answered(receiving(handler(kind, []), received))) == "OTHER"


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_is_surrounded_to_its_last_answer(kind: tuple[bool, bool]) -> None:
    said: list[str] = []
    saying = Saying(said)

    async def run() -> str:
        return await answered(await saying.over(handler(kind, said)))

    assert asyncio.run(run()) == "WORD"
    assert said == ["begins", "answers", *(["closed"] if kind[1] else []), "ends"]
    assert saying.calls == [ServedCall("/assay.v1.Service/Call", streams=any(kind))]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_passes_through_what_surrounds_the_call(kind: tuple[bool, bool]) -> None:
    said: list[str] = []

    async def run() -> None:
        await answered(await Saying(said).over(handler(kind, said)), "bad")

    with pytest.raises(NotPermittedError):
        asyncio.run(run())
    assert said[-1] == "NotPermittedError"


@pytest.mark.parametrize("request_streams", [False, True])
def test_answers_that_nobody_takes_end_before_what_surrounds_them(request_streams: bool) -> None:
    said: list[str] = []

    async def run() -> None:
        made = await Saying(said).over(handler((request_streams, True), said))
        stream = answering_of(made)(messages("word") if request_streams else "word", CONTEXT)
        assert await anext(stream) == "W"
        await stream.aclose()

    asyncio.run(run())
    assert said == ["begins", "answers", "closed", "GeneratorExit"]


def test_calls_that_are_not_served_or_do_not_concern_it_stay_as_they_are() -> None:
    found = handler((False, False), [])

    async def run() -> tuple[Any, Any]:
        saying = Saying([])
        return await saying.over(None), await saying.over(found, "/assay.v1.Service/Other")

    assert asyncio.run(run()) == (None, found)
