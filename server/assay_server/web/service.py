"""The page as a service: a socket, TLS, and uvicorn in a thread with a loop of its own.

It does not share gRPC's loop: drawing a page and TLS with a slow browser must not delay a heartbeat.

Connections of browsers are a bounded number, each with bounded time, and strangers give way to newcomers:
uvicorn and asyncio bound neither how many connections are in their TLS handshake, which may take a minute,
nor how long a request may take to arrive.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import threading
import traceback
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from assay_core.files.sockets import address_taken
from assay_sampling.errors import ParameterError
from assay_server.identity.identified import ServerCertificate
from assay_server.places import WebPlace

_log = logging.getLogger(__name__)

# Each takes up to 300 KiB while it is in its TLS handshake.
_CONNECTIONS = 512
_IDLE_SECONDS = 15
_STOP_SECONDS = 2
_RENEW_SECONDS = 60.0
_HANDSHAKE_SECONDS = 8.0
_SHUTDOWN_SECONDS = 2.0
_REQUEST_SECONDS = 15.0
_STALLED_SECONDS = 60.0
_NO_FILES_SECONDS = 0.5


class WebService:
    """Serves an application at a place; ``start`` returns once it listens.

    Args:
        place: where.
        app: what.
        certificate: gives TLS where the place names no files: one that the lab's authority issued.
        ending: called on the loop when it ends, so that streams do.
    """

    def __init__(
        self,
        place: WebPlace,
        app: ASGIApp,
        certificate: ServerCertificate | None,
        ending: Callable[[], None],
    ) -> None:
        self._place = place
        self._ending = ending
        self._context = _tls(place, certificate)
        self._certificate = certificate
        config = uvicorn.Config(
            app,
            http=BrowserProtocol,
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            date_header=True,
            proxy_headers=False,
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=_STOP_SECONDS,
        )
        self._config = config
        self._server = uvicorn.Server(config)
        self._socket: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="assay-web", daemon=True)
        self._ready = threading.Event()
        self.base = ""

    def start(self) -> str:
        """Listen; returns the address with its port. Raises ParameterError if it cannot."""
        self._socket, text = _bound(self._place)
        port = self._socket.getsockname()[1]
        name = self._place.names[0]
        shown = f"[{name}]" if ":" in name else name
        self.base = f"{'https' if self._place.tls else 'http'}://{shown}:{port}"
        self._thread.start()
        self._ready.wait()
        return text

    def stop(self) -> None:
        """End all streams, answer what was asked, and close."""
        if self._thread.ident is None:
            return
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._end)
        self._thread.join()

    def _end(self) -> None:
        self._ending()
        self._server.should_exit = True

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception:  # noqa: BLE001 - a thread of its own: nobody else hears of it
            _log.exception("the live page ended")
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        assert self._socket is not None
        self._socket.setblocking(False)
        self._ready.set()
        acceptor = Acceptor(self._socket, self._protocol, self._context, _CONNECTIONS)
        beside = [asyncio.ensure_future(each) for each in (self._renew(), acceptor.run())]
        try:
            await self._server.serve(sockets=[])
        finally:
            for each in beside:
                each.cancel()
            self._socket.close()

    def _protocol(self) -> BrowserProtocol:
        return BrowserProtocol(self._config, self._server.server_state, {})

    async def _renew(self) -> None:
        """Take over renewed certificates; connections under way keep theirs.

        A context must not change while another thread begins a handshake, so this thread loads it.
        """
        while self._context is not None:
            await asyncio.sleep(_RENEW_SECONDS)
            try:
                _load(self._context, self._place, self._certificate)
            except (OSError, ParameterError) as error:
                _log.error("the page's certificate cannot be read again: %s", error)


def _tls(place: WebPlace, certificate: ServerCertificate | None) -> ssl.SSLContext | None:
    if not place.tls:
        return None
    subject = f"web address {place.address.text!r}"
    if place.certificate is None and certificate is None:
        raise ParameterError(
            subject,
            "other machines reach it, so it needs TLS, and this server has no certificate authority",
            "make one with: assay-server init --state DIR, or give --web-certificate and --web-key",
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        _load(context, place, certificate)
    except OSError as error:
        raise ParameterError(
            subject,
            f"its files for TLS cannot be used ({error.strerror or error})",
            "name PEM files that this user may read, the key being that of the certificate",
        ) from error
    return context


def _load(context: ssl.SSLContext, place: WebPlace, certificate: ServerCertificate | None) -> None:
    if place.certificate is not None and place.key is not None:
        context.load_cert_chain(place.certificate, place.key)
        return
    assert certificate is not None
    # Python reads certificate and key only from files; this one is in memory, and nobody else opens it.
    descriptor = os.memfd_create("assay-web", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, certificate.for_names(place.names))
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _bound(place: WebPlace) -> tuple[socket.socket, str]:
    address = place.address
    try:
        addresses = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, *_, bind_to = addresses[0]
        dual = family == socket.AF_INET6
        made = socket.create_server(bind_to, family=family, backlog=128, dualstack_ipv6=dual)
    except OSError as error:
        raise address_taken(f"web address {address.text!r}") from error
    return made, f"{address.text.rpartition(':')[0]}:{made.getsockname()[1]}"


class BrowserProtocol(H11Protocol):
    """Ends connections whose next request is not complete in time, and those that take no answer."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
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
