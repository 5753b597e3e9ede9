"""From the event loop to the handlers' threads and back: a call is answered in a thread of its kind."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self, TypeAlias, TypeVar

import grpc

from assay_core.records.wire import Record
from assay_sampling.errors import StorageError
from assay_server.limits import Limits
from assay_server.rpc.quotas import ConcurrencyLimit

Answer = TypeVar("Answer")
Context = grpc.aio.ServicerContext[Any, Any]
Method: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"  # which is no generic class at run time


class BoundedThreads(ThreadPoolExecutor):
    """Threads for which at most ``most_waiting`` calls wait: what cannot be done soon is refused at once."""

    def __init__(self, threads: int, name: str, most_waiting: int) -> None:
        super().__init__(threads, name)
        self._most = threads + most_waiting
        self._places = threading.Semaphore(self._most)

    def submit(self, function: Callable[..., Answer], /, *arguments: Any, **keywords: Any) -> Future[Answer]:
        """Raises StorageError if too many wait."""
        if not self._places.acquire(blocking=False):
            cause = f"{self._most:,} calls of this kind wait or are being answered"
            raise StorageError("server", cause, "try again later; agents do so by themselves")
        try:
            future = super().submit(function, *arguments, **keywords)
        except BaseException:
            self._places.release()
            raise
        future.add_done_callback(lambda _: self._places.release())
        return future


@dataclass(frozen=True)
class Threads:
    """Threads in which handlers block, separate for agents' and people's requests, segments and publishing.

    So an agent's sign of life never waits for a status, and people do not wait while large submissions wait
    for their turn.
    """

    status: Executor
    short: Executor
    people: Executor
    submit: Executor
    ingest: Executor
    publish: Executor

    @classmethod
    def of(cls, limits: Limits) -> Self:
        """As many threads for statuses, and as many calls that wait, as the limits allow."""
        most = limits.calls.calls_waiting
        return cls(
            status=BoundedThreads(limits.queries.status_threads, "assay-status", most),
            short=BoundedThreads(8, "assay-rpc", most),
            people=BoundedThreads(2, "assay-people", most),
            submit=BoundedThreads(2, "assay-submit", most),
            ingest=ThreadPoolExecutor(3, "assay-ingest"),  # bounded by the bytes that upload streams hold
            publish=BoundedThreads(16, "assay-publish", most),  # most of the time they wait for the disk
        )

    def close(self) -> None:
        """Wait for running handlers; start nothing more."""
        for executor in vars(self).values():
            executor.shutdown(wait=True, cancel_futures=True)


def in_thread(executor: Executor, work: Callable[..., Answer], *arguments: Any) -> asyncio.Future[Answer]:
    """What ``work`` returns, from a thread; there, too, it can ask who is calling, and log lines name the
    call."""
    run = contextvars.copy_context().run
    return asyncio.get_running_loop().run_in_executor(executor, run, work, *arguments)


def call(
    executor: Executor,
    handler: Callable[[Any], Any],
    record: type[Record[Any]],
    *,
    at_once: Callable[[Any], Any] | None = None,
) -> Method:
    """A call of a service: the handler's answer, from a thread, to the record of a message.

    ``at_once`` is asked before, on the event loop: it must not block, and gives the answer, or one to come,
    or None.
    """

    async def answered(message: Any, _context: Context) -> Any:
        answer = None if at_once is None else at_once(record.from_proto(message))
        if isinstance(answer, Future):
            answer = await asyncio.wrap_future(answer)
        if answer is not None:
            return answer.to_proto()
        return await in_thread(executor, lambda: handler(record.from_proto(message)).to_proto())

    return grpc.unary_unary_rpc_method_handler(answered, record.message_type.FromString, serialized)


def call_in_parts(
    executor: Executor,
    handler: Callable[[Any], Iterator[Record[Any]]],
    record: type[Record[Any]],
    *,
    stalled_seconds: float,
    streams: ConcurrencyLimit | None = None,
) -> Method:
    """A call that is answered in parts: what the handler yields, made in a thread.

    A peer that takes nothing for ``stalled_seconds`` is cut off. ``streams`` bounds how many there are.
    """

    async def answered(message: Any, context: Context) -> AsyncIterator[Any]:
        with contextlib.nullcontext() if streams is None else streams.entered():
            parts = await in_thread(executor, lambda: handler(record.from_proto(message)))
            while (part := await in_thread(executor, next, parts, None)) is not None:
                await send_in_time(context, part.to_proto(), stalled_seconds)
        return
        yield  # gRPC takes parts from a generator, and this one sends them itself

    return grpc.unary_stream_rpc_method_handler(answered, record.message_type.FromString, serialized)


def call_with_chunks(
    executor: Executor,
    handler: Callable[[], Generator[None, Any, Record[Any]]],
    record: type[Record[Any]],
    *,
    idle_seconds: float,
    streams: ConcurrencyLimit,
    what: str,
) -> Method:
    """A call that brings ``what`` in chunks and is answered at their end.

    The handler, a generator, gets each chunk in a thread and None at their end, and then returns the answer.
    A call that brings nothing for ``idle_seconds`` ends. ``streams`` bounds how many there are.
    """

    async def answered(requests: AsyncIterator[Any], _context: Context) -> AsyncIterator[Any]:
        with streams.entered():
            receiving = handler()

            def take(message: Any) -> None:
                receiving.send(record.from_proto(message))

            step: asyncio.Future[Any] = in_thread(executor, next, receiving)
            try:
                await asyncio.shield(step)
                async for message in patiently(requests, what, idle_seconds):
                    step = in_thread(executor, take, message)
                    await asyncio.shield(step)
                step = in_thread(executor, _returned, receiving)
                yield (await asyncio.shield(step)).to_proto()
            finally:
                await asyncio.wait([step])  # the call may end while a thread still takes a chunk
                await in_thread(executor, receiving.close)

    return grpc.stream_stream_rpc_method_handler(answered, record.message_type.FromString, serialized)


def _returned(receiving: Generator[None, Any, Answer]) -> Answer:
    try:
        receiving.send(None)
    except StopIteration as end:
        answer: Answer = end.value
        return answer
    raise AssertionError("the handler wants more than there is")


def serialized(message: Any) -> bytes:
    """A message as bytes."""
    data: bytes = message.SerializeToString()
    return data


async def send_in_time(context: Context, message: Any, seconds: float) -> None:
    """Send one message of an answer in parts; raises StorageError if its receiver does not take it in time.

    gRPC holds what the peer's window lets through (64 KiB unless the peer widens it); then a send waits for
    the peer, and with it everything that the call holds.
    """
    try:
        await asyncio.wait_for(context.write(message), seconds)
    except TimeoutError:
        cause = f"its receiver took nothing for {seconds:g} s"
        raise StorageError("answer", cause, "read faster, or ask again later") from None


async def patiently(requests: AsyncIterator[Any], what: str, idle_seconds: float) -> AsyncIterator[Any]:
    """The messages of a stream that brings ``what``; raises StorageError if it stands still."""
    messages, end = aiter(requests), object()
    while True:
        try:
            message = await asyncio.wait_for(anext(messages, end), idle_seconds)
        except TimeoutError:
            cause = f"nothing of the {what} came for {idle_seconds} s"
            raise StorageError(what, cause, "send it again") from None
        if message is end:
            return
        yield message
