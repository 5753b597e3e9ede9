"""The page as a service: a socket, TLS, and uvicorn in a thread with a loop of its own.

It does not share gRPC's loop: drawing a page and TLS with a slow browser must not delay a heartbeat.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from assay_core.files.sockets import address_taken
from assay_sampling.errors import ParameterError
from assay_server.identity.server_certificate import ServerCertificate
from assay_server.web.accepting import Acceptor, BrowserProtocol
from assay_server.web_place import WebPlace

_log = logging.getLogger(__name__)

# Each takes up to 300 KiB while it is in its TLS handshake.
_CONNECTIONS = 512
_IDLE_SECONDS = 15
_STOP_SECONDS = 2
_RENEW_SECONDS = 60.0


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
        self._socket.listen(128)
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
    subject = f"web address {address.text!r}"
    try:
        addresses = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, bind_to = addresses[0]
        made = socket.socket(family, kind, protocol)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            made.bind(bind_to)
        except BaseException:
            made.close()
            raise
    except OSError as error:
        raise address_taken(subject) from error
    return made, f"{address.text.rpartition(':')[0]}:{made.getsockname()[1]}"
