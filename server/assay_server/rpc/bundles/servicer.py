"""The BundleService of assay_protos: from the event loop to the handler's threads and back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

from assay_core.records.upload import BundleChunk, BundlesNamed, BundleWanted, StoredBundle
from assay_protos import bundle_pb2_grpc
from assay_sampling.errors import AssayError, InputError
from assay_server.campaigns.bundles.stored import Incoming
from assay_server.limits import Limits
from assay_server.rpc.bundles.handler import BundleHandler
from assay_server.rpc.concurrency import ConcurrencyLimit
from assay_server.rpc.errors import abort, patiently
from assay_server.rpc.threads import Context, Threads, answer, as_it_is, send_pieces, sent


class BundleServicer(bundle_pb2_grpc.BundleServiceServicer):
    """Bundles that people send and agents fetch."""

    def __init__(self, handler: BundleHandler, threads: Threads, limits: Limits) -> None:
        self._handler = handler
        self._threads = threads
        self._limits = limits.bundles
        self._streams = ConcurrencyLimit(
            lambda: limits.bundles.bundle_streams, lambda: limits.callers.place_share_percent
        )

    async def FindMissing(self, request: Any, context: Context) -> Any:
        read = BundlesNamed.from_proto
        return await sent(context, self._threads.people, self._handler.missing, read, request)

    async def SendBundle(self, requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        with self._streams.entered() as begins:
            if not begins:
                await abort(context, self._streams.refusal("bundles on their way"), "SendBundle")
            arriving: _Arriving | None = None
            people = self._threads.people
            try:
                most = self._limits.bundle_idle_seconds
                messages = patiently(requests, context, what="bundle", call="SendBundle", idle_seconds=most)
                async for message in messages:
                    chunk = BundleChunk.from_proto(message)
                    if arriving is None:
                        arriving = _Arriving(self._handler)
                        await answer(context, people, arriving.begin, as_it_is, chunk)
                    elif chunk.bundle is not None:
                        raise InputError("bundle", "a stream brings one bundle", "send each by itself")
                    if len(chunk.data) > self._limits.bundle_chunk_bytes:
                        most = self._limits.bundle_chunk_bytes
                        raise InputError("bundle", f"a chunk has at most {most:,} bytes", "send it again")
                    await answer(context, people, arriving.feed, as_it_is, chunk.data)
                if arriving is None:
                    raise InputError("bundle", "the stream is empty", "send it again")
                yield await sent(context, people, _Arriving.finish, as_it_is, arriving)
            except AssayError as error:
                await abort(context, error, "SendBundle")
            finally:
                if arriving is not None:
                    await asyncio.get_running_loop().run_in_executor(people, arriving.close)

    async def FetchBundle(self, request: Any, context: Context) -> AsyncIterator[Any]:
        with self._streams.entered() as begins:
            if not begins:
                await abort(context, self._streams.refusal("bundles on their way"), "FetchBundle")
            short, read, most = self._threads.short, BundleWanted.from_proto, self._limits.bundle_idle_seconds
            await send_pieces(context, short, self._handler.fetch, read, request, stalled_seconds=most)
        return
        yield  # a call that answers in parts


class _Arriving:
    """A bundle that a call brings; the call may end while a thread still begins it."""

    def __init__(self, handler: BundleHandler) -> None:
        self._handler = handler
        self._using = threading.Lock()
        self._ended = False
        self._incoming: Incoming | None = None

    def begin(self, first: BundleChunk) -> None:
        with self._using:
            if not self._ended:
                self._incoming = self._handler.begin(first)

    def feed(self, data: bytes) -> None:
        if self._incoming is not None:
            self._incoming.feed(data)

    def finish(self) -> StoredBundle:
        assert self._incoming is not None
        return self._handler.finish(self._incoming)

    def close(self) -> None:
        with self._using:
            self._ended = True
        if self._incoming is not None:
            self._incoming.close()
