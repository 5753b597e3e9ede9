"""The data plane: segments in, acknowledgements out, one stream per agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from assay_core.records.attempt import AttemptKey
from assay_core.records.upload import AnnouncedSegment, Part, SegmentAnswer, SegmentChunk, upload_of
from assay_protos import ingest_pb2_grpc
from assay_sampling.errors import ParameterError, StorageError
from assay_server.campaigns.ingest.segments import Answer, Ingest, Upload
from assay_server.limits import DEFAULT_LIMITS, Limits, UploadLimits
from assay_server.rpc.errors import abort
from assay_server.rpc.quotas import ConcurrencyLimit
from assay_server.rpc.threads import Context, Threads, one_of
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


class IngestServicer(ingest_pb2_grpc.IngestServiceServicer):
    """The IngestService of assay_protos."""

    def __init__(self, ingest: Ingest, threads: Threads, limits: Limits = DEFAULT_LIMITS) -> None:
        self._ingest = ingest
        self._threads = threads
        self._limits = limits.uploads
        self._budget = ByteBudget(limits.uploads)
        self._streams = ConcurrencyLimit(
            lambda: limits.uploads.upload_streams, lambda: limits.callers.place_share_percent
        )

    async def Upload(self, requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        async with one_of(self._streams, "uploads", context):
            stream = _Stream(self._ingest, self._threads, self._budget, self._limits)
            reader = asyncio.create_task(stream.read(requests))
            reader.add_done_callback(_seen)
            try:
                while (in_flight := await stream.answers.get()) is not None:
                    upload, future = in_flight
                    answer = await future
                    await stream.answered(upload)
                    yield SegmentAnswer(upload.key, upload.index, answer.duplicate, answer.refusal).to_proto()
                await reader
            except Exception as error:  # noqa: BLE001 - every error ends the stream with its status
                await abort(context, error, "Upload")
            finally:
                reader.cancel()
                await stream.give_back()


class _Stream:
    """One upload stream: reads ahead of the answers, so that checks and disk work overlap."""

    def __init__(
        self,
        ingest: Ingest,
        threads: Threads,
        budget: ByteBudget,
        limits: UploadLimits,
    ) -> None:
        self._limits = limits
        self.answers: asyncio.Queue[InFlight | None] = asyncio.Queue()
        self._in_flight = asyncio.Semaphore(limits.upload_segments_in_flight)
        self._ingest = ingest
        self._threads = threads
        self._budget = budget
        self._held_bytes = 0
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
                else:
                    await self._budget.take(len(piece.data))
                    self._held_bytes += len(piece.data)
                    upload = assembler.add(piece)
                    if upload is not None:
                        await self._take(upload)
                if not assembler.in_segment:
                    segment_ends = None
                elif segment_ends is None:
                    segment_ends = time() + self._limits.upload_segment_seconds
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
        taken = asyncio.get_running_loop().run_in_executor(self._threads.ingest, self._ingest.take, upload)
        future = asyncio.wrap_future(await taken)
        future.add_done_callback(_seen)  # also for futures that nobody awaits after the stream's end
        self.answers.put_nowait((upload, future))

    async def answered(self, upload: Upload) -> None:
        self._in_flight.release()
        size = len(upload.names) + len(upload.data)
        self._held_bytes -= size
        await self._budget.give_back(size)

    async def give_back(self) -> None:
        """Free the bytes of a stream that has ended."""
        size, self._held_bytes = self._held_bytes, 0
        await self._budget.give_back(size)


def _seen(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()


class _Pieces:
    """The pieces of a part so far; most parts come in one piece and are not copied."""

    def __init__(self) -> None:
        self.size = 0
        self._pieces: list[bytes] = []

    def add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self.size += len(piece)

    def joined(self) -> bytes:
        return b"".join(self._pieces)  # of one piece, that piece itself


class _Assembler:
    """Joins the messages of a stream into segments; raises ParameterError if they break the protocol."""

    def __init__(self, largest_chunk_bytes: int) -> None:
        self._largest_chunk_bytes = largest_chunk_bytes
        self._announced: AnnouncedSegment | None = None
        self._names = _Pieces()
        self._launches = _Pieces()

    @property
    def in_segment(self) -> bool:
        """Whether a segment has begun but is not complete."""
        return self._announced is not None

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

    def add(self, chunk: SegmentChunk) -> Upload | None:
        """Add a chunk; returns the segment once it is complete."""
        announced = self._announced
        if announced is None:
            raise _protocol("a chunk comes before the header of its segment")
        header = announced.header
        if not 0 < len(chunk.data) <= self._largest_chunk_bytes:
            raise _protocol(f"{announced}: a chunk of {len(chunk.data):,} bytes is out of bounds")
        names_due = self._names.size < header.names_bytes
        due = Part.NAMES if names_due else Part.LAUNCHES
        part, size = (
            (self._names, header.names_bytes) if names_due else (self._launches, header.launches_bytes)
        )
        if chunk.part != due or part.size + len(chunk.data) > size:
            raise _protocol(f"{announced}: its chunks do not match its header")
        part.add(chunk.data)
        return self._complete(announced) if self._launches.size == header.launches_bytes else None

    def _complete(self, announced: AnnouncedSegment) -> Upload:
        header = announced.header
        if not header.names_bytes:
            header = replace(header, names_hash=b"")
        upload = Upload(announced.claim, header, self._names.joined(), self._launches.joined())
        self._announced, self._names, self._launches = None, _Pieces(), _Pieces()
        return upload


def _protocol(cause: str) -> ParameterError:
    return ParameterError("upload", cause, _REMEDY)
