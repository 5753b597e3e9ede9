"""Connections of browsers: a bounded number, each with bounded time, and strangers give way to newcomers.

uvicorn and asyncio bound neither how many connections are in their TLS handshake, which may take a minute,
nor how long a request may take to arrive.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import traceback
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_log = logging.getLogger(__name__)

_HANDSHAKE_SECONDS = 8.0
_SHUTDOWN_SECONDS = 2.0
_REQUEST_SECONDS = 15.0
_STALLED_SECONDS = 60.0
_NO_FILES_SECONDS = 0.5


class BrowserProtocol(H11Protocol):
    """Ends connections whose next request is not complete in time, and those that take no answer."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.closed: asyncio.Future[None] = self.loop.create_future()
        self._request_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    @property
    def unheard(self) -> bool:
        """Whether it has not sent the head of a request yet."""
        return self.cycle is None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._expect_request()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall_timer = self.loop.call_later(_STALLED_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        _cancel(self._stall_timer)

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        _cancel(self._request_timer)
        _cancel(self._stall_timer)
        if not self.closed.done():
            self.closed.set_result(None)
        # A cycle, by which the transport's 256 KiB would wait for the collector, which seldom looks.
        self.cycle = None  # type: ignore[assignment]

    def _expect_request(self) -> None:
        _cancel(self._request_timer)
        if self.closed.done():
            return
        self._request_timer = self.loop.call_later(_REQUEST_SECONDS, self._end_if_incomplete)

    def _end_if_incomplete(self) -> None:
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self.transport.abort()


class Acceptor:
    """Accepts connections at a socket until it is cancelled.

    Args:
        listening: the socket; it does not block.
        make_protocol: the protocol of a new connection.
        context: for TLS; None: none.
        most: connections at a time. A further one ends the oldest that has not asked for anything yet, and is
            itself closed if all have.
    """

    def __init__(
        self,
        listening: socket.socket,
        make_protocol: Callable[[], BrowserProtocol],
        context: ssl.SSLContext | None,
        most: int,
    ) -> None:
        self._listening, self._make_protocol = listening, make_protocol
        self._context, self._most = context, most
        self._open: dict[socket.socket, BrowserProtocol] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Accept until cancelled; connections that were accepted stay."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listening)
            except ConnectionError:
                continue
            except OSError as error:  # no files are left
                _log.error("a connection to the page cannot be accepted: %s", error)
                await asyncio.sleep(_NO_FILES_SECONDS)
                continue
            if len(self._open) >= self._most and not self._end_a_stranger():
                connection.close()
                continue
            protocol = self._open[connection] = self._make_protocol()
            task = asyncio.ensure_future(self._serve(connection, protocol))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: socket.socket, protocol: BrowserProtocol) -> None:
        tls = self._context is not None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol,
                connection,
                ssl=self._context,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS if tls else None,
                ssl_shutdown_timeout=_SHUTDOWN_SECONDS if tls else None,
            )
            await protocol.closed
        except OSError as error:  # its handshake failed, or took too long
            _log.debug("a connection to the page is refused: %s", error)
            # A cycle with frames of asyncio, by which 256 KiB of the handshake would wait for the collector.
            traceback.clear_frames(error.__traceback__)
        finally:
            self._open.pop(connection, None)

    def _end_a_stranger(self) -> bool:
        oldest = next((each for each, protocol in self._open.items() if protocol.unheard), None)
        if oldest is None:
            return False
        del self._open[oldest]
        with contextlib.suppress(OSError):
            oldest.shutdown(socket.SHUT_RDWR)  # its transport sees the end, and closes it
        return True


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
