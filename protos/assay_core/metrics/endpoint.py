"""The endpoint ``/metrics``: HTTP for one path, bounded, on a socket, on loopback or over mutual TLS.

prometheus-client has a server of its own, but it knows no Unix socket, reads its certificate once, takes any
number of readers, however slow they are, and shakes hands in the thread that accepts: one stranger who
connects over TLS and says nothing would keep everybody out.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import socketserver
import stat
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from assay_core.files.sockets import address_taken, clear_socket
from assay_core.metrics.reading import MetricsPlace, TlsFiles
from assay_core.server_address import ServerAddress, require_our_socket
from assay_sampling.errors import ParameterError

_log = logging.getLogger(__name__)

PATH = "/metrics"
_MOST_READERS = 8
_PATIENCE_SECONDS = 10.0
_STOP_SECONDS = 0.1  # how long it may take to notice that it must end
_LEAVING_SECONDS = 0.5  # for the thread of a reader that gives way


class MetricsEndpoint:
    """Serves a registry at a place that may change while the program runs. Thread-safe.

    ``patience_seconds``: for a reader's handshake, its request and its reading of the answer together.
    """

    def __init__(self, registry: CollectorRegistry, patience_seconds: float = _PATIENCE_SECONDS) -> None:
        self._registry, self._patience_seconds = registry, patience_seconds
        self._lock = threading.Lock()
        self._server: _Server | None = None
        self._place: MetricsPlace | None = None

    @property
    def address(self) -> str:
        """Where metrics are read, with the port that was taken; "" while they are not served."""
        with self._lock:
            return self._server.address if self._server is not None else ""

    @property
    def certificate(self) -> Path | None:
        """The file of its certificate, if it serves over TLS."""
        place = self._place
        return None if place is None or place.tls is None else place.tls.certificate

    def serve(self, place: MetricsPlace | None) -> None:
        """Serve at this place from now on, and nowhere else; None: nowhere.

        Raises ParameterError if that cannot be; then the earlier place stays.
        """
        with self._lock:
            if place == self._place:
                return
            # Only TLS changed: the port is ours already, and cannot be taken a second time.
            same = self._place is not None and place is not None and place.address == self._place.address
            if same and self._server is not None and place is not None:
                _require_readable(place)
                self._server.tls = place.tls
            else:
                new = _started(place, self._registry, self._patience_seconds) if place is not None else None
                self._end()
                self._server = new
            self._place = place

    def close(self) -> None:
        """Serve nothing any more."""
        with self._lock:
            self._end()
            self._server = self._place = None

    def _end(self) -> None:
        if self._server is not None:
            self._server.end()


def _require_readable(place: MetricsPlace) -> None:
    if place.tls is not None:
        try:
            place.tls.context()
        except OSError as error:
            raise ParameterError(
                f"metrics address {place.address.text!r}",
                f"its files for TLS cannot be used ({error.strerror or error})",
                "name PEM files that this user may read, the key being that of the certificate",
            ) from error


def _started(place: MetricsPlace, registry: CollectorRegistry, patience_seconds: float) -> _Server:
    address = place.address
    subject = f"metrics address {address.text!r}"
    _require_readable(place)
    if address.socket is not None:
        require_our_socket(address, subject)
        clear_socket(address.socket, subject)
    try:
        server = _Server(address, registry, place.tls, patience_seconds)
    except OSError as error:
        raise address_taken(subject) from error
    server.thread.start()
    _log.info("metrics at %s", server.address)
    return server


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(
        self,
        address: ServerAddress,
        registry: CollectorRegistry,
        tls: TlsFiles | None,
        patience_seconds: float,
    ) -> None:
        self.registry, self.tls = registry, tls
        self._patience_seconds = patience_seconds
        self.rendering = threading.Lock()
        self._places = threading.BoundedSemaphore(_MOST_READERS)
        self._readers: dict[socket.socket, _Reader] = {}
        self._readers_lock = threading.Lock()
        self._given = address
        if address.socket is not None:
            self.address_family = socket.AF_UNIX
            bound: Any = str(address.socket)
        else:
            self.address_family, bound = _numeric(address)
        super().__init__(bound, _Handler)
        self.thread = threading.Thread(
            target=lambda: self.serve_forever(_STOP_SECONDS), name="assay-metrics", daemon=True
        )

    @property
    def address(self) -> str:
        if self._given.socket is not None:
            return self._given.text
        return f"{self._given.text.rpartition(':')[0]}:{self.server_address[1]}"

    def server_bind(self) -> None:
        before = os.umask(0o077)  # nobody else may connect before chmod
        try:
            super().server_bind()
        finally:
            os.umask(before)
        if self._given.socket is not None:
            self._given.socket.chmod(stat.S_IRUSR | stat.S_IWUSR)

    def end(self) -> None:
        self.shutdown()
        self.server_close()
        self.thread.join()
        if self._given.socket is not None:
            self._given.socket.unlink(missing_ok=True)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False) or self._place_of_a_stranger():
            with self._readers_lock:
                self._readers[request] = _Reader(request, time.monotonic() + self._patience_seconds)
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._readers_lock:
                self._readers.pop(request, None)
            self._places.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        request.settimeout(self._patience_seconds)
        reader = self._readers[request]
        with _secured(request, self.tls, reader) as connection:
            if connection is not None:
                super().finish_request(connection, client_address)

    def note_request(self, connection: socket.socket) -> None:
        """Note that this reader has sent its request: it does not give way to others any more."""
        with self._readers_lock:
            for reader in self._readers.values():
                if reader.connection is connection:
                    reader.has_asked = True

    def service_actions(self) -> None:
        """End the readers whose time is over, however slowly they go on."""
        now = time.monotonic()
        with self._readers_lock:
            for reader in self._readers.values():
                if reader.until < now:
                    reader.end()

    def _place_of_a_stranger(self) -> bool:
        """Wait for the place of the oldest reader that has not asked yet; False if there is none."""
        with self._readers_lock:
            waiting = (each for each in self._readers.values() if not each.has_asked and not each.ended)
            oldest = next(waiting, None)
            if oldest is not None:
                oldest.end()
        return oldest is not None and self._places.acquire(timeout=_LEAVING_SECONDS)

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("a reader of the metrics went away", exc_info=True)


@dataclass
class _Reader:
    """A reader's connection, and the monotonic time at which it ends."""

    connection: socket.socket
    until: float
    has_asked: bool = False
    ended: bool = False

    def end(self) -> None:
        """Have its thread see the end of the connection, whatever it waits for."""
        self.ended = True
        with contextlib.suppress(OSError):
            # Not SSLSocket.shutdown, which must not run beside a handshake of another thread.
            socket.socket.shutdown(self.connection, socket.SHUT_RDWR)


@contextlib.contextmanager
def _secured(request: socket.socket, tls: TlsFiles | None, reader: _Reader) -> Iterator[socket.socket | None]:
    """The connection over TLS; None if the reader was refused, or our files cannot be read."""
    if tls is None:
        yield request
        return
    try:
        context = tls.context()
    except OSError as error:
        _log.warning("no reader of the metrics is answered: %s", error)
        yield None
        return
    with context.wrap_socket(request, server_side=True, do_handshake_on_connect=False) as connection:
        reader.connection = connection
        try:
            connection.do_handshake()
        except OSError as error:  # strangers must not fill the log
            _log.debug("a reader of the metrics is refused: %s", error)
            yield None
        else:
            yield connection


def _numeric(address: ServerAddress) -> tuple[socket.AddressFamily, Any]:
    addresses = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    return addresses[0][0], addresses[0][4]


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "assay"
    sys_version = ""

    def do_GET(self) -> None:
        self.server.note_request(self.connection)
        if self.path.partition("?")[0] != PATH:
            self._answer(HTTPStatus.NOT_FOUND, f"the metrics are at {PATH}\n".encode(), "text/plain")
            return
        encoder, content_type = choose_encoder(self.headers.get("Accept", ""))
        with self.server.rendering:
            content = encoder(self.server.registry)
        self._answer(HTTPStatus.OK, content, content_type)

    def _answer(self, status: HTTPStatus, content: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def address_string(self) -> str:
        return "a reader"  # a socket's peer has no address

    def log_message(self, format: str, *arguments: Any) -> None:
        _log.debug(format, *arguments)
