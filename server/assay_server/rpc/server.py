"""The gRPC server: an asyncio loop in a separate thread. And its answers to probes.

The standard health service of gRPC says NOT_SERVING while the server cannot do its work. A server that stands
by says so, too, on its own sockets. It does not listen on TCP, so a balancer or a list of addresses leads to
the server that is active.

The servicer of grpcio-health-checking writes to its context instead of giving answers, which interceptors
that check callers cannot follow; so an active server takes only its messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from assay_core.server_address import ServerAddress
from assay_sampling.errors import ParameterError
from assay_server.access.table import services
from assay_server.limits import DEFAULT_LIMITS, JOIN_LIMITS, CallLimits, Limits
from assay_server.metrics.server_metrics import ServerMetrics
from assay_server.rpc.binding import bound, group_called, places_taken
from assay_server.rpc.interceptors import CallInterceptor
from assay_server.rpc.quotas import ConcurrencyLimit, Quotas
from assay_server.rpc.services import Handlers, add_services, services_of
from assay_server.rpc.threads import Context, Threads

_log = logging.getLogger(__name__)

_Response = health_pb2.HealthCheckResponse
_WHOLE_SERVER = ""
_GRACE_SECONDS = 2.0
_LOOK_SECONDS = 0.05


class HealthServicer(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """The whole server ("") and its services share one status; ``streams`` bounds who watches it.

    Used on the event loop.
    """

    def __init__(self, services: Iterable[str], streams: ConcurrencyLimit) -> None:
        self._services = frozenset({_WHOLE_SERVER, *services})
        self._streams = streams
        self._status = _Response.SERVING
        self._changed = asyncio.Event()

    def set_serving(self, serving: bool) -> None:
        """Change the status, and tell all who watch it."""
        status = _Response.SERVING if serving else _Response.NOT_SERVING
        if status == self._status:
            return
        self._status = status
        self._changed.set()
        self._changed = asyncio.Event()

    async def Check(self, request: Any, context: Context) -> Any:
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return _Response(status=self._status)

    async def List(self, request: Any, context: Context) -> Any:
        response = _Response(status=self._status)
        return health_pb2.HealthListResponse(statuses=dict.fromkeys(sorted(self._services), response))

    async def Watch(self, request: Any, context: Context) -> AsyncIterator[Any]:
        with self._streams.entered():
            is_ours = request.service in self._services
            while True:
                changed = self._changed
                yield _Response(status=self._status if is_ours else _Response.SERVICE_UNKNOWN)
                await changed.wait()


class RpcServer:
    """Serves all services on every address, TCP with mutual TLS; ``start`` returns once it listens.

    Joining has addresses of its own, where callers have no certificate yet, and nothing else is served.
    """

    def __init__(
        self,
        listen: Sequence[ServerAddress],
        handlers: Handlers,
        *,
        limits: Limits = DEFAULT_LIMITS,
        metrics: ServerMetrics,
        socket_group: str = "",
    ) -> None:
        self._listen, self._handlers = listen, handlers
        self._limits, self._metrics = limits, metrics
        self._socket_group = group_called(socket_group) if socket_group else None
        self._interceptors: list[CallInterceptor] = []
        self._servers: list[grpc.aio.Server] = []
        self._threads = Threads.of(limits)
        self._health: HealthServicer | None = None
        self._draining = False
        self.joins: tuple[str, ...] = ()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> tuple[str, ...]:
        """Listen; returns the addresses with their ports.

        Raises ParameterError if one is taken, or if others could answer on a socket in the server's place.
        """
        self._require_certificate()
        with places_taken(self._listen, self._socket_group):
            # It ends in its thread, with the tasks and generators that are left in it.
            runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
            self._loop = runner.get_loop()
            self._thread = threading.Thread(target=_run, args=(runner,), name="assay-grpc", daemon=True)
            self._thread.start()
            return asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result()

    def set_serving(self, serving: bool) -> None:
        """What the health service says from now on; a server that drains stays NOT_SERVING."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody asks
                self._loop.call_soon_threadsafe(self._set_serving, serving)

    def _set_serving(self, serving: bool) -> None:
        if self._health is not None:
            self._health.set_serving(serving and not self._draining)

    def drain(self, seconds: float) -> None:
        """Give no more work, and wait until calls have ended, at most that long.

        Agents may still send what they hold, finish attempts and keep leases.
        """
        if self._loop is not None and not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(self._drain(seconds), self._loop).result()

    async def _drain(self, seconds: float) -> None:
        self._draining = True
        self._set_serving(False)
        self._handlers.agents.drain()
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while (busy := sum(each.busy for each in self._interceptors)) and loop.time() < until:
            await asyncio.sleep(_LOOK_SECONDS)
        if busy:
            _log.warning("%d calls are cut off: they took longer than --drain", busy)

    def stop(self) -> None:
        """Refuse new calls, give running calls a moment to end, then cut them off."""
        if self._loop is not None and self._thread is not None and self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    async def _end(self) -> None:
        await asyncio.gather(*(server.stop(_GRACE_SECONDS) for server in self._servers))
        await asyncio.to_thread(self._threads.close)

    def _require_certificate(self) -> None:
        on_tcp = [
            address for address in (*self._listen, *self._handlers.identified.join) if address.socket is None
        ]
        if on_tcp and self._handlers.identified.certificate is None:
            raise ParameterError(
                f"listen address {on_tcp[0].text!r}",
                "over TCP both sides prove who they are, and this server has no certificate authority",
                "make one with: assay-server init --state DIR, or listen on unix:PATH",
            )

    async def _serve(self) -> tuple[str, ...]:
        server, joining = self._server(joining=False), self._server(joining=True)
        self._health = HealthServicer(
            services(), ConcurrencyLimit("watches", lambda: self._limits.queries.watch_streams)
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        calls = services_of(self._handlers, self._threads, self._limits)
        add_services(server, calls)
        add_services(joining, {"EnrolmentService": calls["EnrolmentService"]})
        addresses = self._bind(server, joining)
        await server.start()
        if self._handlers.identified.join:
            await joining.start()
        return addresses

    def _server(self, *, joining: bool) -> grpc.aio.Server:
        limits = self._limits.calls
        options = _options(limits) | (_joining_options() if joining else {})
        quotas = Quotas(self._limits.callers)
        interceptor = CallInterceptor(self._handlers.access, self._metrics, quotas, joining=joining)
        self._interceptors.append(interceptor)
        server = grpc.aio.server(
            interceptors=[interceptor],
            options=list(options.items()),
            maximum_concurrent_rpcs=JOIN_LIMITS.join_calls if joining else limits.calls,
        )
        self._servers.append(server)
        return server

    def _bind(self, server: grpc.aio.Server, joining: grpc.aio.Server) -> tuple[str, ...]:
        """Bind all listeners; the addresses of the main ones, with their ports."""
        certificate, enrolment = self._handlers.identified.certificate, self._handlers.identified.enrolment
        mutual = certificate.credentials(ask_client=True) if certificate is not None else None
        addresses = tuple(bound(server, address, mutual, self._socket_group) for address in self._listen)
        if certificate is not None:
            one_sided = certificate.credentials(ask_client=False)
            joins = [bound(joining, address, one_sided) for address in self._handlers.identified.join]
            enrolment.join_port = _port(joins)
            self.joins = tuple(joins)
        enrolment.port = _port(
            bound_to for bound_to, address in zip(addresses, self._listen, strict=True) if not address.socket
        )
        return addresses


def _run(runner: asyncio.Runner) -> None:
    with runner:
        runner.get_loop().run_forever()


def _options(limits: CallLimits) -> dict[str, int]:
    return {
        "grpc.max_receive_message_length": limits.request_bytes,
        "grpc.max_send_message_length": limits.answer_bytes,
        # A peer that is gone without a word would hold its calls for ever.
        "grpc.keepalive_time_ms": 1000 * limits.silent_peer_seconds,
        "grpc.keepalive_timeout_ms": 1000 * limits.silent_peer_answer_seconds,
        "grpc.server_handshake_timeout_ms": 1000 * limits.handshake_seconds,
        "grpc.max_connection_idle_ms": 1000 * limits.connection_idle_seconds,
        "grpc.max_allowed_incoming_connections": limits.connections,
        "grpc.max_concurrent_streams": limits.connection_streams,
        # Beyond them gRPC itself ends calls as CANCELLED; untold, it does so at random above 1,000.
        "grpc.server.max_pending_requests": limits.calls_unread,
        "grpc.server.max_pending_requests_hard_limit": limits.calls_unread,
        # Two servers on one port would share the agents between them.
        "grpc.so_reuseport": 0,
    }


def _joining_options() -> dict[str, int]:
    """What is otherwise where strangers join."""
    return {
        "grpc.max_receive_message_length": JOIN_LIMITS.join_message_bytes,
        "grpc.max_send_message_length": JOIN_LIMITS.join_message_bytes,
        "grpc.max_connection_idle_ms": 1000 * JOIN_LIMITS.join_idle_seconds,
        "grpc.max_allowed_incoming_connections": JOIN_LIMITS.join_connections,
    }


def _port(addresses: Iterable[str]) -> int:
    """The port of the first address; 0 without any."""
    return next((int(address.rpartition(":")[2]) for address in addresses), 0)


@contextlib.contextmanager
def answering_not_serving(listen: Sequence[ServerAddress], socket_group: str = "") -> Iterator[None]:
    """Answer the standard health service on the sockets among ``listen`` while the block runs.

    Raises ParameterError if one is taken.
    """
    sockets = [address for address in listen if address.socket is not None]
    group = group_called(socket_group) if socket_group else None
    with ThreadPoolExecutor(1, "assay-standby") as threads:
        server = grpc.server(threads)
        servicer = health.HealthServicer()
        servicer.set(_WHOLE_SERVER, _Response.NOT_SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
        with places_taken(sockets, group):
            for address in sockets:
                bound(server, address, None, group)
            server.start()
        try:
            yield
        finally:
            server.stop(grace=None).wait()
