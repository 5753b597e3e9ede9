"""From the event loop to the handlers' threads and back: a call is answered in a thread of its kind."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, Self, TypeVar

import grpc

from assay_sampling.errors import StorageError
from assay_server.limits import Limits
from assay_server.rpc.errors import abort, patiently, send_in_time
from assay_server.rpc.quotas import ConcurrencyLimit

Answer = TypeVar("Answer")
Context = grpc.aio.ServicerContext[Any, Any]


class BoundedThreads(ThreadPoolExecutor):
    """Threads for which at most ``most_waiting`` calls wait: what cannot be done soon is refused at once."""

    def __init__(self, threads: int, name: str, most_waiting: int) -> None:
        super().__init__(threads, name)
        self._most = threads + most_waiting
        self._counting = threading.Lock()
        self._under_way = 0

    def submit(self, function: Callable[..., Answer], /, *arguments: Any, **keywords: Any) -> Future[Answer]:
        """Raises StorageError if too many wait."""
        with self._counting:
            if self._under_way >= self._most:
                cause = f"{self._most:,} calls of this kind wait or are being answered"
                raise StorageError("server", cause, "try again later; agents do so by themselves")
            self._under_way += 1
        try:
            future = super().submit(function, *arguments, **keywords)
        except BaseException:
            self._done()
            raise
        future.add_done_callback(lambda _: self._done())
        return future

    def _done(self) -> None:
        with self._counting:
            self._under_way -= 1


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
        for executor in (self.short, self.status, self.people, self.submit, self.ingest, self.publish):
            executor.shutdown(wait=True, cancel_futures=True)


class Received(Protocol):
    """A record that is received."""

    @classmethod
    def from_proto(cls, message: Any) -> Self: ...


class Sent(Protocol):
    """A record that is sent."""

    def to_proto(self) -> Any: ...


async def answer(
    context: Context, executor: Executor, handler: Callable[..., Any], work: Callable[[], Answer]
) -> Answer:
    """The result of ``work``, from a thread; any error ends the call, as one of the handler."""
    try:
        # In the thread, too, the handler can ask who is calling, and log lines name the call.
        run = contextvars.copy_context().run
        return await asyncio.get_running_loop().run_in_executor(executor, run, work)
    except Exception as error:  # noqa: BLE001 - the one place where errors of handlers become statuses
        await abort(context, error, handler.__name__)


def call(
    executor: Executor,
    handler: Callable[[Any], Any],
    record: type[Received],
    *,
    at_once: Callable[[Any], Any] | None = None,
) -> Callable[[Any, Context], Awaitable[Any]]:
    """A call of a service: the handler's answer, from a thread, to the record of a message.

    ``at_once`` is asked before, on the event loop: it must not block, and gives the answer, or one to come,
    or None.
    """
    read: Callable[[Any], Any] = record.from_proto

    async def answered(message: Any, context: Context) -> Any:
        if at_once is None:
            return await answer(context, executor, handler, lambda: handler(read(message)).to_proto())
        try:
            request = read(message)
            known = at_once(request)
            known = await asyncio.wrap_future(known) if isinstance(known, Future) else known
        except Exception as error:  # noqa: BLE001 - as in answer()
            await abort(context, error, handler.__name__)
        if known is not None:
            return known.to_proto()
        return await answer(context, executor, handler, lambda: handler(request).to_proto())

    return answered


def call_in_parts(
    executor: Executor,
    handler: Callable[[Any], Iterator[Sent]],
    record: type[Received],
    *,
    stalled_seconds: float,
    streams: ConcurrencyLimit | None = None,
    what: str = "",
) -> Callable[[Any, Context], AsyncIterator[Any]]:
    """A call that is answered in parts: what the handler yields, made in a thread.

    A peer that takes nothing for ``stalled_seconds`` is cut off. ``streams`` bounds how many there are of
    ``what``.
    """
    read: Callable[[Any], Any] = record.from_proto

    async def answered(message: Any, context: Context) -> AsyncIterator[Any]:
        async with contextlib.nullcontext() if streams is None else one_of(streams, what, context):
            parts = await answer(context, executor, handler, lambda: handler(read(message)))
            while (part := await answer(context, executor, handler, lambda: next(parts, None))) is not None:
                await send_in_time(context, part.to_proto(), stalled_seconds)
        return
        yield  # gRPC takes parts from a generator, and this one sends them itself

    return answered


class Taking(Protocol):
    """A handler of what comes in chunks: plain functions, which may block."""

    def begin(self, first: Any, /) -> Any:
        """What is on its way from its first chunk on, which is fed, too; None: the stream is empty."""

    def feed(self, incoming: Any, chunk: Any, /) -> None: ...

    def finish(self, incoming: Any, /) -> Sent: ...


def call_with_chunks(
    executor: Executor,
    handler: Taking,
    record: type[Received],
    *,
    idle_seconds: float,
    streams: ConcurrencyLimit,
    what: str,
) -> Callable[[AsyncIterator[Any], Context], AsyncIterator[Any]]:
    """A call that brings ``what`` in chunks and is answered at their end.

    One that brings nothing for ``idle_seconds`` ends. ``streams`` bounds how many there are.
    """

    async def answered(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        async with one_of(streams, f"{what}s on their way", context):
            arriving = _Arriving(handler, record)
            try:
                async for message in patiently(requests, context, what=what, idle_seconds=idle_seconds):
                    await answer(context, executor, arriving.take, partial(arriving.take, message))
                yield await answer(context, executor, arriving.finish, arriving.finish)
            finally:
                await asyncio.get_running_loop().run_in_executor(executor, arriving.close)

    return answered


class _Arriving:
    """What a call brings; the call may end while a thread still begins it."""

    def __init__(self, handler: Taking, record: type[Received]) -> None:
        self._handler = handler
        self._record = record
        self._using = threading.Lock()
        self._ended = False
        self._incoming: Any = None

    def take(self, message: Any) -> None:
        chunk = self._record.from_proto(message)
        self._begin(chunk)
        if self._incoming is not None:
            self._handler.feed(self._incoming, chunk)

    def finish(self) -> Any:
        self._begin(None)
        return self._handler.finish(self._incoming).to_proto()

    def close(self) -> None:
        with self._using:
            self._ended = True
        if self._incoming is not None:
            self._incoming.close()

    def _begin(self, first: Any) -> None:
        with self._using:
            if self._incoming is None and not self._ended:
                self._incoming = self._handler.begin(first)


@contextlib.asynccontextmanager
async def one_of(streams: ConcurrencyLimit, what: str, context: Context) -> AsyncIterator[None]:
    """Count the call as one of the streams while the block runs; end it at once if there are too many."""
    with streams.entered() as begins:
        if not begins:
            await abort(context, streams.refusal(what), what)
        yield
