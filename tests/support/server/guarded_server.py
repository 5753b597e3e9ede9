"""A gRPC server with the real guard before stand-ins of every call, over TLS and on a socket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2

from assay_core.identity.certificates import SERVER_NAME, certificate_pem
from assay_core.identity.credentials import Credentials
from assay_core.identity.keys import key_pem, new_key
from assay_protos import (
    agent_pb2,
    archive_pb2,
    bundle_pb2,
    campaign_pb2,
    identity_pb2,
    ingest_pb2,
    lab_pb2,
    records_pb2,
)
from assay_sampling.errors import AssayError
from assay_server.access.audit import AuditLog
from assay_server.access.caller import IdentityDirectory, current_caller
from assay_server.identity.authority import Authority
from assay_server.limits import CallerLimits
from assay_server.rpc.errors import abort
from assay_server.rpc.interceptors import Access, CallInterceptor
from assay_server.rpc.quotas import Quotas
from assay_server.store.people import Identity
from assay_server.store.sql import MetadataStore
from tests.support.identity.authorities import DAY, made_authority, made_credentials, now

FILES = (
    agent_pb2, archive_pb2, bundle_pb2, campaign_pb2, identity_pb2, ingest_pb2, lab_pb2, records_pb2,
    health_pb2,
)  # fmt: skip


UNBOUNDED = CallerLimits(caller_calls=10**6, caller_calls_per_second=10**6)


def every_call() -> Iterator[MethodDescriptor]:
    """Every call of every service that the server serves."""
    for file in FILES:
        for service in file.DESCRIPTOR.services_by_name.values():
            yield from service.methods


@cache
def shared_authority() -> Authority:
    """The authority that all tests of a process share."""
    return made_authority()


def credentials_of(identity: Identity, *, expired: bool = False) -> Credentials:
    """Credentials of an identity; expired ones ended a day ago."""
    at = now() - 2 * DAY if expired else None
    return made_credentials(shared_authority(), identity.kind, identity.identity_id, at=at)


def path_of(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


@dataclass
class GuardedServer:
    """Answers every allowed call with an empty message; streams then go on until they are ended."""

    directory: IdentityDirectory
    tls: str
    socket: str
    answered: list[tuple[str, str]]

    def channel(self, who: Credentials | None = None) -> grpc.aio.Channel:
        """A channel with these credentials; without: on the socket."""
        if who is None:
            return grpc.aio.insecure_channel(self.socket)
        made = grpc.ssl_channel_credentials(shared_authority().pem, who.key_pem, who.certificate)
        options = [("grpc.ssl_target_name_override", SERVER_NAME)]
        return grpc.aio.secure_channel(self.tls, made, options=options)


@contextlib.asynccontextmanager
async def guarded_server(
    store: MetadataStore, folder: Path, recheck_seconds: float = 20.0
) -> AsyncIterator[GuardedServer]:
    directory = IdentityDirectory(store)
    access = Access(store, directory, AuditLog(store, 1, 5))
    interceptor = CallInterceptor(access, Mock(), Quotas(UNBOUNDED), recheck_seconds=recheck_seconds)
    server = grpc.aio.server(interceptors=[interceptor])
    answered: list[tuple[str, str]] = []
    for file in FILES:
        for service in file.DESCRIPTOR.services_by_name.values():
            handlers = {method.name: _stand_in(method, answered) for method in service.methods}
            generic = grpc.method_handlers_generic_handler(service.full_name, handlers)
            server.add_generic_rpc_handlers((generic,))
    authority, key = shared_authority(), new_key()
    mine = certificate_pem(authority.issue_for_server(key.public_key(), DAY, now()))
    credentials = grpc.ssl_server_credentials(
        [(key_pem(key), mine)], root_certificates=authority.pem, require_client_auth=True
    )
    port = server.add_secure_port("127.0.0.1:0", credentials)
    socket = f"unix:{folder}/guarded.sock"
    server.add_insecure_port(socket)
    await server.start()
    try:
        yield GuardedServer(directory, f"127.0.0.1:{port}", socket, answered)
    finally:
        await server.stop(0)


async def call(channel: grpc.aio.Channel, method: MethodDescriptor, request: Any = None) -> grpc.StatusCode:
    """The status of a call: OK once it was answered, or a stream has answered once."""
    sent = GetMessageClass(method.input_type)() if request is None else request
    data, path = sent.SerializeToString(), path_of(method)
    streams = (bool(method.client_streaming), bool(method.server_streaming))
    try:
        if streams == (False, False):
            await channel.unary_unary(path)(data, timeout=60)
        elif streams == (False, True):
            await anext(aiter(channel.unary_stream(path)(data, timeout=60)))
        else:
            await anext(aiter(channel.stream_stream(path)(iter([data]), timeout=60)))
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def _stand_in(method: MethodDescriptor, answered: list[tuple[str, str]]) -> Any:
    name, empty = method.name, b""

    def note() -> None:
        caller = current_caller()
        answered.append((name, "" if caller is None else caller.identity_id))

    async def unary(_request: Any, _context: Any) -> bytes:
        note()
        return empty

    async def stream(_request: Any, _context: Any) -> AsyncIterator[bytes]:
        note()
        yield empty
        await asyncio.Event().wait()

    async def both(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[bytes]:
        try:
            await anext(requests)
        except AssayError as error:
            await abort(context, error, name)
        async for response in stream(requests, context):
            yield response

    read = GetMessageClass(method.input_type).FromString
    if method.client_streaming:
        return grpc.stream_stream_rpc_method_handler(both, read)
    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(stream, read)
    return grpc.unary_unary_rpc_method_handler(unary, read)
