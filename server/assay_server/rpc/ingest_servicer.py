"""The data plane: segments in, acknowledgements out, as many streams as there are agents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import grpc

from assay_protos import ingest_pb2, ingest_pb2_grpc
from assay_sampling.errors import ParameterError
from assay_server.campaigns.ingest import Answer, Ingest, Upload
from assay_server.rpc import convert
from assay_server.rpc.assembler import Assembler
from assay_server.rpc.errors import abort
from assay_server.rpc.servicers import Threads
from assay_server.store.model import AttemptKey

_MOST_IN_FLIGHT = 16
_LARGEST_TOTAL_BYTES = 256 << 20
_CHUNK_SECONDS = 60.0

Context = grpc.aio.ServicerContext[Any, Any]
InFlight = tuple[Upload, asyncio.Future[Answer]]


class ByteBudget:
    """So many bytes of segments are in memory at a time, over all streams; who wants more waits."""

    def __init__(self, total: int) -> None:
        self._free = total
        self._changed = asyncio.Condition()

    async def take(self, size: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._free >= size)
            self._free -= size

    async def give_back(self, size: int) -> None:
        async with self._changed:
            self._free += size
            self._changed.notify_all()


class IngestServicer(ingest_pb2_grpc.IngestServiceServicer):
    """IngestService of the wire contract."""

    def __init__(self, ingest: Ingest, threads: Threads) -> None:
        self._ingest = ingest
        self._threads = threads
        self._budget = ByteBudget(_LARGEST_TOTAL_BYTES)

    async def Upload(
        self, requests: AsyncIterator[ingest_pb2.UploadRequest], context: Context
    ) -> AsyncIterator[ingest_pb2.UploadResponse]:
        stream = _Stream(self._ingest, self._threads, self._budget)
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

    def __init__(self, ingest: Ingest, threads: Threads, budget: ByteBudget) -> None:
        self.answers: asyncio.Queue[InFlight | None] = asyncio.Queue()
        self._places = asyncio.Semaphore(_MOST_IN_FLIGHT)
        self._ingest = ingest
        self._threads = threads
        self._budget = budget
        self._held_bytes = 0
        self._last: dict[AttemptKey, int] = {}

    async def read(self, requests: AsyncIterator[ingest_pb2.UploadRequest]) -> None:
        """Take in the whole stream; whatever ends it also ends the answers."""
        try:
            assembler = Assembler()
            messages = aiter(requests)
            while (message := await _next(messages, within_segment=assembler.in_segment)) is not None:
                if message.WhichOneof("message") == "header":
                    size = assembler.begin(message.header)
                    await self._budget.take(size)
                    self._held_bytes += size
                else:
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


async def _next(
    messages: AsyncIterator[ingest_pb2.UploadRequest], *, within_segment: bool
) -> ingest_pb2.UploadRequest | None:
    """The next message; None at the end. Within a segment it must come soon: it holds memory."""
    try:
        async with asyncio.timeout(_CHUNK_SECONDS if within_segment else None):
            return await anext(messages)
    except StopAsyncIteration:
        return None
    except TimeoutError:
        raise ParameterError(
            "upload", f"nothing came for {_CHUNK_SECONDS:g} s in the middle of a segment", "send it again"
        ) from None


def _response(upload: Upload, answer: Answer) -> ingest_pb2.UploadResponse:
    key = convert.key_message(upload.key)
    if answer.refusal is None:
        ack = ingest_pb2.SegmentAck(key=key, segment=upload.index, duplicate=answer.duplicate)
        return ingest_pb2.UploadResponse(ack=ack)
    failure = convert.failure_message(answer.refusal)
    return ingest_pb2.UploadResponse(
        refusal=ingest_pb2.SegmentRefusal(key=key, segment=upload.index, failure=failure)
    )
