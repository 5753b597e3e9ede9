"""The ArchiveService of assay_protos: from the event loop to the handler's threads and back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from assay_core.records.archive import ArchiveChunk, DeleteRequest, ExportRequest
from assay_protos import archive_pb2_grpc
from assay_sampling.errors import AssayError, StorageError
from assay_server.limits import ArchiveLimits
from assay_server.rpc.archives.handler import ArchiveHandler
from assay_server.rpc.errors import abort, send_in_time
from assay_server.rpc.places import Places
from assay_server.rpc.servicers import Context, Threads, answer, sent

_END: Any = object()


class ArchiveServicer(archive_pb2_grpc.ArchiveServiceServicer):
    """Delete, export and import campaigns."""

    def __init__(self, handler: ArchiveHandler, threads: Threads, limits: ArchiveLimits) -> None:
        self._handler = handler
        self._threads = threads
        self._limits = limits
        self._places = Places(lambda: limits.archive_streams)

    async def Delete(self, request: Any, context: Context) -> Any:
        return await sent(
            context, self._threads.people, self._handler.delete, DeleteRequest.from_proto, request
        )

    async def Export(self, request: Any, context: Context) -> AsyncIterator[Any]:
        with self._places.taken() as place:
            if not place:
                await abort(context, self._places.refusal("archives on their way"), "Export")
            people = self._threads.people
            pieces = await answer(context, people, self._handler.export, ExportRequest.from_proto, request)
            while (piece := await answer(context, people, _next, _as_it_is, pieces)) is not None:
                await send_in_time(context, piece.to_proto(), self._limits.archive_idle_seconds)
        return
        yield  # a call that answers in parts

    async def Import(self, requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        with self._places.taken() as place:
            if not place:
                await abort(context, self._places.refusal("archives on their way"), "Import")
            people = self._threads.people
            archive = await answer(context, people, self._handler.begin_import, _as_it_is, None)
            try:
                async for message in self._patiently(requests, context):
                    data = ArchiveChunk.from_proto(message).data
                    await answer(context, people, archive.write, _as_it_is, data)
                yield await sent(context, people, self._handler.finish_import, _as_it_is, archive)
            finally:
                await asyncio.get_running_loop().run_in_executor(people, archive.close)

    async def _patiently(self, requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        """The messages; a stream that stands still ends."""
        messages = aiter(requests)
        while True:
            try:
                message = await asyncio.wait_for(anext(messages, _END), self._limits.archive_idle_seconds)
            except TimeoutError:
                cause = f"nothing of the archive came for {self._limits.archive_idle_seconds} s"
                await abort(context, StorageError("archive", cause, "send it again"), "Import")
            except AssayError as error:  # a message that cannot be decoded
                await abort(context, error, "Import")
            if message is _END:
                return
            yield message


def _next(pieces: Iterator[ArchiveChunk]) -> ArchiveChunk | None:
    return next(pieces, None)


def _as_it_is(record: Any) -> Any:
    return record
