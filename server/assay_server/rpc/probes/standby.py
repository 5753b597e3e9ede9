"""What a server that stands by answers: probes on its own sockets hear NOT_SERVING.

It does not listen on TCP, so a balancer or a list of addresses leads to the server that is active.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from assay_core.server_address import ServerAddress
from assay_server.rpc.binding import bound, group_called, places_taken

_WHOLE_SERVER = ""


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
        servicer.set(_WHOLE_SERVER, health_pb2.HealthCheckResponse.NOT_SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
        with places_taken(sockets, group):
            for address in sockets:
                bound(server, address, None, group)
            server.start()
        try:
            yield
        finally:
            server.stop(grace=None).wait()
