"""A server over mutual TLS in this process, and what joins it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from assay_core.connecting.joining import join
from assay_core.identity.certificates import SERVER_NAME
from assay_core.identity.credentials import Credentials
from assay_core.identity.roles import Role
from assay_core.records.identity import TokenAsked
from assay_server.app import Server
from assay_server.clock import wall_ms
from assay_server.identity.admission import make_token
from assay_server.identity.authority import Authority, read_authority
from assay_server.store.sqlite import SqliteStore


def tls_server(make_server: Callable[..., Server], folder: Path, **settings: Any) -> Server:
    """A server that listens on TCP, for joining, and on its owner's socket (its last address)."""
    return make_server(
        listen=("127.0.0.1:0", f"unix:{folder}/server.sock"), join=("127.0.0.1:0",), **settings
    )


def authority_of(server: Server) -> Authority:
    """The authority of a server in this process."""
    found = read_authority(server.settings.state_dir)
    assert found is not None
    return found


def channel_of(server: Server, who: Credentials | None) -> grpc.Channel:
    """A channel over TLS with somebody's credentials; None: without a certificate."""
    mine = (None, None) if who is None else (who.key_pem, who.certificate)
    made = grpc.ssl_channel_credentials(authority_of(server).pem, *mine)
    options = [("grpc.ssl_target_name_override", SERVER_NAME), ("grpc.use_local_subchannel_pool", 1)]
    return grpc.secure_channel(server.addresses[0], made, options=options)


def token_of(server: Server, role: Role, name: str = "", **asked: Any) -> str:
    """A join token, made as ``assay-server token`` makes it."""
    store = SqliteStore(server.settings.state_dir / "metadata.sqlite")
    try:
        with store.transaction() as transaction:
            return make_token(transaction, authority_of(server), TokenAsked(role, name, **asked), wall_ms())[
                0
            ]
    finally:
        store.close()


def joined(server: Server, role: Role, name: str = "member", identity_id: str = "") -> Credentials:
    """The credentials of a new member."""
    person = name if role is not Role.AGENT else ""
    token = token_of(server, role, person)
    return join(server.joins[0], token, name=name, identity_id=identity_id)[0]


class Impostor(grpc.GenericRpcHandler):
    """Notes every call that reaches it, and answers none."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> None:
        self.calls.append(str(handler_call_details.method))


@contextmanager
def impostor(pem: tuple[bytes, bytes] | None, port: int = 0) -> Iterator[tuple[str, Impostor]]:
    """A server with another certificate (key and certificate, PEM; None: no TLS); yields its address."""
    notes = Impostor()
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((notes,))
    if pem is None:
        port = server.add_insecure_port(f"127.0.0.1:{port}")
    else:
        port = server.add_secure_port(f"127.0.0.1:{port}", grpc.ssl_server_credentials([pem]))
    server.start()
    try:
        yield f"127.0.0.1:{port}", notes
    finally:
        server.stop(None).wait()
