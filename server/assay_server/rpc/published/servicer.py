"""The RecordsService of assay_protos: from the event loop to the handler's threads and back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from assay_core.records.archive import LaunchesAsked, RecordsAsked, RecordWanted
from assay_protos import records_pb2_grpc
from assay_server.limits import Limits
from assay_server.rpc.concurrency import ConcurrencyLimit
from assay_server.rpc.errors import abort
from assay_server.rpc.published.handler import PublishedHandler
from assay_server.rpc.threads import Context, Threads, send_pieces, sent


class PublishedServicer(records_pb2_grpc.RecordsServiceServicer):
    """Published files of campaigns."""

    def __init__(self, handler: PublishedHandler, threads: Threads, limits: Limits) -> None:
        self._handler = handler
        self._threads = threads
        self._queries = limits.queries
        self._streams = ConcurrencyLimit(
            lambda: limits.queries.download_streams, lambda: limits.callers.place_share_percent
        )

    async def ListRecords(self, request: Any, context: Context) -> Any:
        read = RecordsAsked.from_proto
        return await sent(context, self._threads.status, self._handler.list, read, request)

    async def ReadRecords(self, request: Any, context: Context) -> AsyncIterator[Any]:
        await self._download(context, "ReadRecords", self._handler.read, RecordWanted.from_proto, request)
        return
        yield  # a call that answers in parts

    async def StreamLaunches(self, request: Any, context: Context) -> AsyncIterator[Any]:
        await self._download(
            context, "StreamLaunches", self._handler.launches, LaunchesAsked.from_proto, request
        )
        return
        yield  # a call that answers in parts

    async def _download(
        self,
        context: Context,
        call: str,
        handle: Callable[[Any], Iterator[Any]],
        read: Callable[[Any], Any],
        request: Any,
    ) -> None:
        """Send what a handler makes, part by part, as one of the downloads under way."""
        with self._streams.entered() as begins:
            if not begins:
                await abort(context, self._streams.refusal("downloads"), call)
            people, most = self._threads.people, self._queries.answer_stalled_seconds
            await send_pieces(context, people, handle, read, request, stalled_seconds=most)
