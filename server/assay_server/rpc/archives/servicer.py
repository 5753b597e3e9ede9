"""The ArchiveService of assay_protos: from the event loop to the handler's threads and back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from assay_core.records.archive import ArchiveChunk, DeleteRequest, ExportRequest
from assay_protos import archive_pb2_grpc
from assay_server.limits import ArchiveLimits
from assay_server.rpc.archives.handler import ArchiveHandler
from assay_server.rpc.concurrency import ConcurrencyLimit
from assay_server.rpc.errors import abort, patiently
from assay_server.rpc.threads import Context, Threads, answer, as_it_is, send_pieces, sent


class ArchiveServicer(archive_pb2_grpc.ArchiveServiceServicer):
    """Delete, export and import campaigns."""

    def __init__(self, handler: ArchiveHandler, threads: Threads, limits: ArchiveLimits) -> None:
        self._handler = handler
        self._threads = threads
        self._limits = limits
        self._streams = ConcurrencyLimit(lambda: limits.archive_streams)

    async def Delete(self, request: Any, context: Context) -> Any:
        return await sent(
            context, self._threads.people, self._handler.delete, DeleteRequest.from_proto, request
        )

    async def Export(self, request: Any, context: Context) -> AsyncIterator[Any]:
        with self._streams.entered() as begins:
            if not begins:
                await abort(context, self._streams.refusal("archives on their way"), "Export")
            people, read, most = (
                self._threads.people,
                ExportRequest.from_proto,
                self._limits.archive_idle_seconds,
            )
            await send_pieces(context, people, self._handler.export, read, request, stalled_seconds=most)
        return
        yield  # a call that answers in parts

    async def Import(self, requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        with self._streams.entered() as begins:
            if not begins:
                await abort(context, self._streams.refusal("archives on their way"), "Import")
            people = self._threads.people
            archive = await answer(context, people, self._handler.begin_import, as_it_is, None)
            try:
                most = self._limits.archive_idle_seconds
                messages = patiently(requests, context, what="archive", call="Import", idle_seconds=most)
                async for message in messages:
                    data = ArchiveChunk.from_proto(message).data
                    await answer(context, people, archive.write, as_it_is, data)
                yield await sent(context, people, self._handler.finish_import, as_it_is, archive)
            finally:
                await asyncio.get_running_loop().run_in_executor(people, archive.close)
