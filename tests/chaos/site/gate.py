"""The way to the bucket: passes bytes on, slowly or by half, or answers for the bucket: 503, or nothing."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum

_CHUNK_BYTES = 64 << 10
_REQUESTS = (b"GET ", b"PUT ", b"POST ", b"HEAD ", b"DELETE ")
_SLOW_SECONDS = 0.5
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/xml\r\nConnection: close\r\n"
    b"Content-Length: 64\r\n\r\n<Error><Code>SlowDown</Code><Message>busy</Message></Error>     "
)


class Mood(StrEnum):
    """What the gate does with requests."""

    OPEN = "open"
    BUSY = "busy"
    CUT = "cut"
    HALF = "half"  # the bucket does what it is asked for, and half of its answer arrives
    SLOW = "slow"


class Gate:
    """A proxy on a free port, with an event loop in a thread of its own."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self.mood = Mood.OPEN
        self.refused = 0
        self.met: Counter[Mood] = Counter()  # requests that met each mood, while moods follow each other
        self._next: Iterator[Mood] | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gate", daemon=True)
        self._thread.start()
        serving = asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(serving, self._loop).result(10)
        self.port = int(self._server.sockets[0].getsockname()[1])

    def set(self, mood: Mood) -> None:
        """Change what happens; a cut breaks the connections there are."""
        self.mood = mood
        if mood is Mood.CUT:
            self._loop.call_soon_threadsafe(self._break)

    def follow(self, moods: Sequence[Mood]) -> None:
        """From now on each request meets the next of these moods, over and over; none: all are passed on."""
        self.mood = Mood.OPEN
        self._next = itertools.cycle(moods) if moods else None

    def close(self) -> None:
        """End the thread."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        self._break()
        under_way = asyncio.all_tasks() - {asyncio.current_task()}
        if under_way:
            await asyncio.wait(under_way, timeout=5)
        await asyncio.sleep(0.01)  # their transports close in the next round

    def _break(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            with contextlib.suppress(OSError):
                await self._passed(reader, writer)
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _passed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.mood is Mood.CUT:
            self.refused += 1
            return
        back, forth = await asyncio.open_connection("127.0.0.1", self._target_port)
        answers = _Answers(back, writer)
        answering = asyncio.create_task(answers.pass_on())
        try:
            while data := await reader.read(_CHUNK_BYTES):
                if data.startswith(_REQUESTS) or self._next is None:
                    answers.mood = self._mood_of_request()
                if answers.mood in (Mood.BUSY, Mood.CUT):
                    self.refused += 1
                    if answers.mood is Mood.BUSY:
                        writer.write(_BUSY)
                        await writer.drain()
                    return
                forth.write(data)
                await forth.drain()
        finally:
            answering.cancel()
            forth.close()

    def _mood_of_request(self) -> Mood:
        if self._next is None:
            return self.mood
        mood = next(self._next)
        self.met[mood] += 1
        return mood


class _Answers:
    """What comes back on one connection."""

    def __init__(self, back: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._back, self._writer = back, writer
        self.mood = Mood.OPEN

    async def pass_on(self) -> None:
        """Pass on what comes, in the mood of the last request."""
        try:
            with contextlib.suppress(OSError):
                await self._pass_on()
        finally:
            # Also after a reset by the bucket: who asked would wait for the answer otherwise.
            self._writer.close()

    async def _pass_on(self) -> None:
        while data := await self._back.read(_CHUNK_BYTES):
            if self.mood is Mood.SLOW:
                await asyncio.sleep(_SLOW_SECONDS)
            if self.mood is Mood.HALF:
                self._writer.write(data[: len(data) // 2])
                await self._writer.drain()
                return
            self._writer.write(data)
            await self._writer.drain()
