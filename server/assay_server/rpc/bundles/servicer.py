"""The BundleService of assay_protos: from the event loop to the handler's threads and back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from assay_core.records.upload import BundleChunk, BundlesNamed, BundleWanted
from assay_protos import bundle_pb2_grpc
from assay_sampling.errors import AssayError, InputError, StorageError
from assay_server.campaigns.bundles.stored import Incoming
from assay_server.limits import Limits
from assay_server.rpc.bundles.handler import BundleHandler
from assay_server.rpc.errors import abort, send_in_time
from assay_server.rpc.places import Places
from assay_server.rpc.servicers import Context, Threads, answer, sent

_END: Any = object()


class BundleServicer(bundle_pb2_grpc.BundleServiceServicer):
    """Bundles that people send and agents fetch."""

    def __init__(self, handler: BundleHandler, threads: Threads, limits: Limits) -> None:
        self._handler = handler
        self._threads = threads
        self._limits = limits.bundles
        self._places = Places(
            lambda: limits.bundles.bundle_streams, lambda: limits.callers.place_share_percent
        )

    async def FindMissing(self, request: Any, context: Context) -> Any:
        read = BundlesNamed.from_proto
        return await sent(context, self._threads.people, self._handler.missing, read, request)

    async def SendBundle(self, requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        with self._places.taken() as place:
            if not place:
                await abort(context, self._places.refusal("bundles on their way"), "SendBundle")
            incoming: Incoming | None = None
            people = self._threads.people
            try:
                async for message in self._patiently(requests, context):
                    chunk = BundleChunk.from_proto(message)
                    if incoming is None:
                        incoming = await answer(context, people, self._handler.begin, _as_it_is, chunk)
                    elif chunk.bundle is not None:
                        raise InputError("bundle", "a stream brings one bundle", "send each by itself")
                    if len(chunk.data) > self._limits.bundle_chunk_bytes:
                        most = self._limits.bundle_chunk_bytes
                        raise InputError("bundle", f"a chunk has at most {most:,} bytes", "send it again")
                    await answer(context, people, incoming.feed, _as_it_is, chunk.data)
                if incoming is None:
                    raise InputError("bundle", "the stream is empty", "send it again")
                yield await sent(context, people, self._handler.finish, _as_it_is, incoming)
            except AssayError as error:
                await abort(context, error, "SendBundle")
            finally:
                if incoming is not None:
                    await asyncio.get_running_loop().run_in_executor(people, incoming.close)

    async def FetchBundle(self, request: Any, context: Context) -> AsyncIterator[Any]:
        with self._places.taken() as place:
            if not place:
                await abort(context, self._places.refusal("bundles on their way"), "FetchBundle")
            short, read = self._threads.short, BundleWanted.from_proto
            pieces = await answer(context, short, self._handler.fetch, read, request)
            while (piece := await answer(context, short, _next, _as_it_is, pieces)) is not None:
                await send_in_time(context, piece.to_proto(), self._limits.bundle_idle_seconds)
        return
        yield  # a call that answers in parts

    async def _patiently(self, requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        """The messages; a stream that stands still ends."""
        messages, most = aiter(requests), self._limits.bundle_idle_seconds
        while True:
            try:
                message = await asyncio.wait_for(anext(messages, _END), most)
            except TimeoutError:
                cause = f"nothing of the bundle came for {most} s"
                await abort(context, StorageError("bundle", cause, "send it again"), "SendBundle")
            if message is _END:
                return
            yield message


def _next(pieces: Iterator[BundleChunk]) -> BundleChunk | None:
    return next(pieces, None)


def _as_it_is(record: Any) -> Any:
    return record
