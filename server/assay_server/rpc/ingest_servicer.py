"""The data plane: segments in, acknowledgements out, as many streams as there are agents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import grpc

from assay_protos import ingest_pb2, ingest_pb2_grpc
from assay_sampling.errors import ParameterError, StorageError
from assay_server.campaigns.ingest import Answer, Ingest, Upload
from assay_server.limits import DEFAULT_LIMITS, UploadLimits
from assay_server.rpc import convert
from assay_server.rpc.assembler import Assembler
from assay_server.rpc.errors import abort
from assay_server.rpc.servicers import Places, Threads
from assay_server.store.model import AttemptKey

Context = grpc.aio.ServicerContext[Any, Any]
InFlight = tuple[Upload, asyncio.Future[Answer]]


class ByteBudget:
    """So many bytes of segments are in memory at a time, over all streams; who wants more waits a while.

    Bytes are taken as they come: what a header announces holds nothing.
    """

    def __init__(self, limits: UploadLimits) -> None:
        self._limits = limits
        self._free = limits.upload_held_bytes
        self._changed = asyncio.Condition()

    async def take(self, size: int) -> None:
        """Raises StorageError where too much is held for too long: agents send it again later."""
        try:
            async with asyncio.timeout(self._limits.upload_wait_seconds), self._changed:
                await self._changed.wait_for(lambda: self._free >= size)
                self._free -= size
        except TimeoutError:
            cause = f"it holds {self._limits.upload_held_bytes:,} bytes of segments that are not yet stored"
            raise StorageError("server", cause, "send the segment again later") from None

    async def give_back(self, size: int) -> None:
        async with self._changed:
            self._free += size
            self._changed.notify_all()


class IngestServicer(ingest_pb2_grpc.IngestServiceServicer):
    """IngestService of the wire contract."""

    def __init__(
        self, ingest: Ingest, threads: Threads, limits: UploadLimits = DEFAULT_LIMITS.uploads
    ) -> None:
        self._ingest = ingest
        self._threads = threads
        self._limits = limits
        self._budget = ByteBudget(limits)
        self._places = Places(limits.upload_streams)

    async def Upload(
        self, requests: AsyncIterator[ingest_pb2.UploadRequest], context: Context
    ) -> AsyncIterator[ingest_pb2.UploadResponse]:
        with self._places.taken() as place:
            if not place:
                await abort(context, self._places.refusal("uploads"), "Upload")
            async for response in self._upload(requests, context):
                yield response

    async def _upload(
        self, requests: AsyncIterator[ingest_pb2.UploadRequest], context: Context
    ) -> AsyncIterator[ingest_pb2.UploadResponse]:
        stream = _Stream(self._ingest, self._threads, self._budget, self._limits)
        reader = asyncio.create_task(stream.read(requests))
        reader.add_done_callback(_seen)
        try:
            while (in_flight := await stream.answers.get()) is not None:
                upload, future = in_flight
                answer = await future
                await stream.answered(upload)
                yield _response(upload, answer)
            await reader
        except Exception as error:  # noqa: BLE001 - every error ends the stream with its status
            await abort(context, error, "Upload")
        finally:
            reader.cancel()
            await stream.give_back()


class _Stream:
    """One upload stream: reads ahead of the answers, so that checking and disk work side by side."""

    def __init__(self, ingest: Ingest, threads: Threads, budget: ByteBudget, limits: UploadLimits) -> None:
        self._limits = limits
        self.answers: asyncio.Queue[InFlight | None] = asyncio.Queue()
        self._places = asyncio.Semaphore(limits.upload_segments_in_flight)
        self._ingest = ingest
        self._threads = threads
        self._budget = budget
        self._held_bytes = 0
        self._last: dict[AttemptKey, int] = {}

    async def read(self, requests: AsyncIterator[ingest_pb2.UploadRequest]) -> None:
        """Take in the whole stream; whatever ends it also ends the answers."""
        try:
            assembler = Assembler(self._limits.upload_chunk_bytes)
            messages = aiter(requests)
            patience = _Patience(self._limits)
            while (message := await patience.next_of(messages, in_segment=assembler.in_segment)) is not None:
                if message.WhichOneof("message") == "header":
                    assembler.begin(message.header)
                else:
                    await self._budget.take(len(message.chunk.data))
                    self._held_bytes += len(message.chunk.data)
                    upload = assembler.add(message.chunk)
                    if upload is not None:
                        await self._take(upload)
        finally:
            self.answers.put_nowait(None)

    async def _take(self, upload: Upload) -> None:
        await self._places.acquire()
        loop = asyncio.get_running_loop()
        upload = replace(upload, follows=self._last.get(upload.key) == upload.index - 1)
        self._last[upload.key] = upload.index
        stored = await loop.run_in_executor(self._threads.ingest, self._ingest.take, upload)
        future = asyncio.wrap_future(stored)
        future.add_done_callback(_seen)  # also of those that nobody awaits, because the stream has ended
        self.answers.put_nowait((upload, future))

    async def answered(self, upload: Upload) -> None:
        self._places.release()
        size = len(upload.names) + len(upload.data)
        self._held_bytes -= size
        await self._budget.give_back(size)

    async def give_back(self) -> None:
        """The stream has ended: what it held is free."""
        size, self._held_bytes = self._held_bytes, 0
        await self._budget.give_back(size)


def _seen(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()


class _Patience:
    """How long a stream is waited for: for each message, and for a whole segment from its header on."""

    def __init__(self, limits: UploadLimits) -> None:
        self._limits = limits
        self._segment_ends: float | None = None

    async def next_of(
        self, messages: AsyncIterator[ingest_pb2.UploadRequest], *, in_segment: bool
    ) -> ingest_pb2.UploadRequest | None:
        """The next message; None at the end. Raises ParameterError where it does not come in time."""
        now = asyncio.get_running_loop().time()
        until = now + self._limits.upload_idle_seconds
        if not in_segment:
            self._segment_ends = None
        elif self._segment_ends is None:
            self._segment_ends = now + self._limits.upload_segment_seconds
        if self._segment_ends is not None:
            until = min(until, self._segment_ends)
        try:
            async with asyncio.timeout_at(until):
                return await anext(messages)
        except StopAsyncIteration:
            return None
        except TimeoutError:
            raise self._too_slow(whole=until == self._segment_ends) from None

    def _too_slow(self, *, whole: bool) -> ParameterError:
        if whole:
            cause = f"a segment was not complete after {self._limits.upload_segment_seconds:g} s"
        else:
            cause = f"nothing came for {self._limits.upload_idle_seconds:g} s"
        return ParameterError("upload", cause, "send again what was not acknowledged")


def _response(upload: Upload, answer: Answer) -> ingest_pb2.UploadResponse:
    key = convert.key_message(upload.key)
    if answer.refusal is None:
        ack = ingest_pb2.SegmentAck(key=key, segment=upload.index, duplicate=answer.duplicate)
        return ingest_pb2.UploadResponse(ack=ack)
    failure = convert.failure_message(answer.refusal)
    return ingest_pb2.UploadResponse(
        refusal=ingest_pb2.SegmentRefusal(key=key, segment=upload.index, failure=failure)
    )
