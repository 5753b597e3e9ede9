"""The standard health service of gRPC, for probes: NOT_SERVING while the server cannot do its work.

A server that stands by says so, too, on its own sockets. It does not listen on TCP, so a balancer or a list
of addresses leads to the server that is active.

The servicer of grpcio-health-checking writes to its context instead of giving answers, which interceptors
that check callers cannot follow; so an active server takes only its messages.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from assay_core.server_address import ServerAddress
from assay_server.rpc.binding import bound, group_called, places_taken
from assay_server.rpc.quotas import ConcurrencyLimit

Context = grpc.aio.ServicerContext[Any, Any]
_Response = health_pb2.HealthCheckResponse
_WHOLE_SERVER = ""


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
