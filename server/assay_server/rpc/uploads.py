"""The data plane: segments in, acknowledgements out, one stream per agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import grpc

from assay_core.records.attempt import AttemptKey
from assay_core.records.upload import (
    UPLOAD_MESSAGE,
    AnnouncedSegment,
    Part,
    SegmentAnswer,
    SegmentChunk,
    upload_of,
)
from assay_sampling.errors import ParameterError, StorageError
from assay_server.campaigns.ingest.segments import Answer, Ingest, Upload
from assay_server.limits import Limits, UploadLimits
from assay_server.rpc.quotas import ConcurrencyLimit
from assay_server.rpc.threads import Context, Method, serialized
from assay_server.store.segments import LARGEST_PART_BYTES

_REMEDY = "run the same release of Assay on agent and server"

InFlight = tuple[Upload, asyncio.Future[Answer]]


class ByteBudget:
    """Bounds the bytes of segments in memory, over all streams; a stream that needs more waits a while.

    Bytes count when they arrive, not when a header announces them.
    """

    def __init__(self, limits: UploadLimits) -> None:
        self._limits = limits
        self._free = limits.upload_held_bytes
        self._changed = asyncio.Condition()

    async def take(self, size: int) -> None:
        """Raises StorageError if too much is held for too long: agents send it again later."""
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


def uploads(ingest: Ingest, executor: Executor, limits: Limits) -> Method:
    """The call Upload; segments are checked and written in threads of ``executor``."""
    budget = ByteBudget(limits.uploads)
    streams = ConcurrencyLimit(
        "uploads", lambda: limits.uploads.upload_streams, lambda: limits.callers.place_share_percent
    )

    async def answered(requests: AsyncIterator[Any], _context: Context) -> AsyncIterator[Any]:
        with streams.entered():
            stream = _Stream(ingest, executor, budget, limits.uploads)
            reader = asyncio.create_task(stream.read(requests))
            reader.add_done_callback(_seen)
            try:
                while (in_flight := await stream.answers.get()) is not None:
                    upload, future = in_flight
                    answer = await future
                    await stream.answered(upload)
                    yield SegmentAnswer(upload.key, upload.index, answer.duplicate, answer.refusal).to_proto()
                await reader
            finally:
                reader.cancel()
                await stream.end()

    return grpc.stream_stream_rpc_method_handler(answered, UPLOAD_MESSAGE.FromString, serialized)


class _Stream:
    """One upload stream: reads ahead of the answers, so that checks and disk work overlap."""

    def __init__(self, ingest: Ingest, executor: Executor, budget: ByteBudget, limits: UploadLimits) -> None:
        self._ingest, self._executor, self._budget, self._limits = ingest, executor, budget, limits
        self.answers: asyncio.Queue[InFlight | None] = asyncio.Queue()
        self._in_flight = asyncio.Semaphore(limits.upload_segments_in_flight)
        self._bytes_in_memory = 0
        self._last: dict[AttemptKey, int] = {}

    async def read(self, requests: AsyncIterator[Any]) -> None:
        """Read the whole stream; its end, for any reason, also ends the answers."""
        try:
            assembler = _Assembler(self._limits.upload_chunk_bytes)
            messages, time = aiter(requests), asyncio.get_running_loop().time
            segment_ends: float | None = None
            while (message := await self._next(messages, segment_ends)) is not None:
                piece = upload_of(message)
                if isinstance(piece, AnnouncedSegment):
                    assembler.begin(piece)
                    segment_ends = time() + self._limits.upload_segment_seconds
                    continue
                await self._budget.take(len(piece.data))
                self._bytes_in_memory += len(piece.data)
                if (upload := assembler.add(piece)) is not None:
                    await self._take(upload)
                    segment_ends = None
        finally:
            self.answers.put_nowait(None)

    async def _next(self, messages: AsyncIterator[Any], segment_ends: float | None) -> Any:
        """The next message; None at the end. Raises ParameterError if it does not come in time: each has
        some, and so has a whole segment from its header on."""
        until = asyncio.get_running_loop().time() + self._limits.upload_idle_seconds
        if segment_ends is not None:
            until = min(until, segment_ends)
        try:
            async with asyncio.timeout_at(until):
                return await anext(messages, None)
        except TimeoutError:
            cause = f"nothing came for {self._limits.upload_idle_seconds:g} s"
            if until == segment_ends:
                cause = f"a segment was not complete after {self._limits.upload_segment_seconds:g} s"
            raise ParameterError("upload", cause, "send again what was not acknowledged") from None

    async def _take(self, upload: Upload) -> None:
        await self._in_flight.acquire()
        upload = replace(upload, follows=self._last.get(upload.key) == upload.index - 1)
        self._last[upload.key] = upload.index
        taken = asyncio.get_running_loop().run_in_executor(self._executor, self._ingest.take, upload)
        future = asyncio.wrap_future(await taken)
        future.add_done_callback(_seen)  # also for futures that nobody awaits after the stream's end
        self.answers.put_nowait((upload, future))

    async def answered(self, upload: Upload) -> None:
        self._in_flight.release()
        await self._give_back(len(upload.names) + len(upload.data))

    async def end(self) -> None:
        """Free the bytes of a stream that has ended."""
        await self._give_back(self._bytes_in_memory)

    async def _give_back(self, size: int) -> None:
        self._bytes_in_memory -= size
        await self._budget.give_back(size)


def _seen(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()


class _Assembler:
    """Joins the messages of a stream into segments; raises ParameterError if they break the protocol."""

    def __init__(self, largest_chunk_bytes: int) -> None:
        self._largest_chunk_bytes = largest_chunk_bytes
        self._announced: AnnouncedSegment | None = None
        self._missing_bytes: dict[Part, int] = {}
        self._pieces: dict[Part, list[bytes]] = {}

    def begin(self, announced: AnnouncedSegment) -> None:
        """Begin a segment."""
        header = announced.header
        if self._announced is not None:
            raise _protocol(f"{self._announced}: the next segment begins before its end")
        for size in (header.names_bytes, header.launches_bytes):
            if not 0 <= size <= LARGEST_PART_BYTES:
                raise _protocol(f"{announced}: a part of {size:,} bytes is out of bounds")
        if header.launches_bytes == 0:
            raise _protocol(f"{announced}: it has no launches")
        self._announced = announced
        self._missing_bytes = {Part.NAMES: header.names_bytes, Part.LAUNCHES: header.launches_bytes}
        self._pieces = {part: [] for part in Part}

    def add(self, chunk: SegmentChunk) -> Upload | None:
        """Add a chunk; returns the segment once it is complete."""
        announced = self._announced
        if announced is None:
            raise _protocol("a chunk comes before the header of its segment")
        if not 0 < len(chunk.data) <= self._largest_chunk_bytes:
            raise _protocol(f"{announced}: a chunk of {len(chunk.data):,} bytes is out of bounds")
        due = Part.NAMES if self._missing_bytes[Part.NAMES] else Part.LAUNCHES
        if chunk.part != due or len(chunk.data) > self._missing_bytes[due]:
            raise _protocol(f"{announced}: its chunks do not match its header")
        self._pieces[due].append(chunk.data)
        self._missing_bytes[due] -= len(chunk.data)
        if any(self._missing_bytes.values()):
            return None
        self._announced, header = None, announced.header
        if not header.names_bytes:
            header = replace(header, names_hash=b"")
        return Upload(
            announced.claim,
            header,
            b"".join(self._pieces[Part.NAMES]),  # most parts come in one piece, which is not copied
            b"".join(self._pieces[Part.LAUNCHES]),
        )


def _protocol(cause: str) -> ParameterError:
    return ParameterError("upload", cause, _REMEDY)
