"""A wire between one agent and the server: a TCP proxy that passes bytes on, so that TLS stays whole.

Its :class:`Weather` says what happens to bytes and connections; it changes while they flow. What happens
below TCP, to frames, is of the packet wires (tests/support/machine).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, fields
from typing import Any, TypeVar

T = TypeVar("T")

_CHUNK_BYTES = 64 << 10


@dataclass(frozen=True)
class Weather:
    """What happens on the wire.

    Attributes:
        cut: connections are reset, and new ones too.
        held: nothing passes, in either direction, but nobody is told.
        answers_lost: what the server says disappears; what the agent says arrives.
        delay_seconds: of each piece, in each direction.
        bytes_per_second: at most, of each connection and direction; 0: no bound.
        break_after_bytes: connections are reset after about so many bytes; 0: never.
    """

    cut: bool = False
    held: bool = False
    answers_lost: bool = False
    delay_seconds: float = 0.0
    bytes_per_second: int = 0
    break_after_bytes: int = 0


FAIR = Weather()


@dataclass
class WireCounts:
    """What happened on the wire so far."""

    connections: int = 0
    bytes_passed: int = 0
    resets: int = 0
    refused: int = 0
    held: int = 0  # pieces that had to wait
    late_bytes: int = 0  # bytes that were held, and arrived afterwards
    lost_bytes: int = 0
    delayed: int = 0

    def since(self, before: WireCounts) -> WireCounts:
        """What happened after ``before``."""
        pairs = {f.name: getattr(self, f.name) - getattr(before, f.name) for f in fields(self)}
        return WireCounts(**pairs)


class Wire:
    """A proxy on a free port of ``host``, with an event loop in a thread of its own."""

    def __init__(self, target_port: int, seed: int, host: str = "127.0.0.1") -> None:
        self._target_port = target_port
        self._host = host
        self._chance = random.Random(seed)
        self._weather = FAIR
        self._counts = WireCounts()
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._passing = asyncio.Event()
        self._passing.set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="wire", daemon=True)
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._connected, host, 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    @property
    def address(self) -> str:
        """What the agent connects to."""
        return f"{self._host}:{self.port}"

    @property
    def counts(self) -> WireCounts:
        """A copy of what happened so far."""
        return WireCounts(**vars(self._counts))

    @property
    def open_connections(self) -> int:
        """Connections with an agent that have not ended at this end."""
        return len(self._writers) // 2

    def set(self, weather: Weather) -> None:
        """Change the weather; returns when it holds."""
        self._call(self._change(weather))

    def close(self) -> None:
        """End it, with all connections."""
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(30)

    async def _change(self, weather: Weather) -> None:
        before, self._weather = self._weather, weather
        # A gap in a TLS stream cannot be mended: such connections end with the fault.
        if weather.cut or (before.answers_lost and not weather.answers_lost):
            self._reset_all()
        if weather.held:
            self._passing.clear()
        else:
            self._passing.set()

    async def _end(self) -> None:
        self._server.close()
        self._passing.set()
        self._reset_all()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _reset_all(self) -> None:
        for writer in list(self._writers):
            self._counts.resets += 1
            writer.transport.abort()

    @contextlib.contextmanager
    def _known(self, *writers: asyncio.StreamWriter) -> Iterator[None]:
        self._writers.update(writers)
        try:
            yield
        finally:
            self._writers.difference_update(writers)
            for writer in writers:
                writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._weather.cut:
            self._counts.refused += 1
            writer.transport.abort()
            return
        with self._known(writer):
            try:
                there, back = await asyncio.open_connection("127.0.0.1", self._target_port)
            except OSError:
                self._counts.refused += 1
                return
            self._counts.connections += 1
            with self._known(back):
                pumps = [
                    asyncio.create_task(self._pump(reader, back, answers=False)),
                    asyncio.create_task(self._pump(there, writer, answers=True)),
                ]
                # Cancelled only when the wire ends: asyncio's streams would complain about it.
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                if answers and self._weather.answers_lost:
                    self._counts.lost_bytes += len(data)
                    continue
                late = self._weather.held
                if late:
                    self._counts.held += 1
                    await self._passing.wait()
                await self._slow_down(len(data))
                writer.write(data)
                await writer.drain()
                passed += len(data)
                self._counts.bytes_passed += len(data)
                self._counts.late_bytes += len(data) if late else 0
                limit = self._weather.break_after_bytes
                if limit and passed > limit * self._chance.uniform(0.2, 1.8):
                    self._counts.resets += 1
                    return

    async def _slow_down(self, size: int) -> None:
        weather = self._weather
        seconds = weather.delay_seconds
        if weather.bytes_per_second:
            seconds += size / weather.bytes_per_second
        if seconds:
            self._counts.delayed += 1
            await asyncio.sleep(seconds)
