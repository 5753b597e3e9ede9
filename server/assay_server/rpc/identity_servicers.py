"""The services of identities: joining, on a listener of its own; renewal and administration."""

from __future__ import annotations

from typing import Any

import grpc

from assay_core.records.identity import (
    IdentitiesAsked,
    JoinAsked,
    LeaveAsked,
    NamedForRevocation,
    RenewalAsked,
    TokenAsked,
    WebLinkAsked,
)
from assay_protos import identity_pb2_grpc
from assay_server.identity.enrolment import Enrolment
from assay_server.identity.identified import Identified
from assay_server.rpc.threads import Threads, sent

Context = grpc.aio.ServicerContext[Any, Any]


class JoinServicer(identity_pb2_grpc.EnrolmentServiceServicer):
    """Joining, and renewal after expiry: all that a caller without a valid certificate can reach."""

    def __init__(self, enrolment: Enrolment, threads: Threads) -> None:
        self._enrolment = enrolment
        self._threads = threads

    async def Join(self, request: Any, context: Context) -> Any:
        return await sent(context, self._threads.people, self._enrolment.join, JoinAsked.from_proto, request)

    async def RenewExpired(self, request: Any, context: Context) -> Any:
        read = RenewalAsked.from_proto
        return await sent(context, self._threads.people, self._enrolment.renew_expired, read, request)


class RenewalServicer(identity_pb2_grpc.EnrolmentServiceServicer):
    """Renewal and leaving: for callers with a certificate."""

    def __init__(self, enrolment: Enrolment, threads: Threads) -> None:
        self._enrolment = enrolment
        self._threads = threads

    async def Renew(self, request: Any, context: Context) -> Any:
        read = RenewalAsked.from_proto
        return await sent(context, self._threads.short, self._enrolment.renew, read, request)

    async def Leave(self, request: Any, context: Context) -> Any:
        return await sent(context, self._threads.short, self._enrolment.leave, LeaveAsked.from_proto, request)


class IdentityServicer(identity_pb2_grpc.IdentityServiceServicer):
    """What admins do with identities."""

    def __init__(self, identified: Identified, threads: Threads) -> None:
        self._enrolment = identified.enrolment
        self._web_link = identified.web_link
        self._people = threads.people

    async def MakeToken(self, request: Any, context: Context) -> Any:
        return await sent(context, self._people, self._enrolment.make_token, TokenAsked.from_proto, request)

    async def Revoke(self, request: Any, context: Context) -> Any:
        read = NamedForRevocation.from_proto
        return await sent(context, self._people, self._enrolment.revoke, read, request)

    async def ListIdentities(self, request: Any, context: Context) -> Any:
        read = IdentitiesAsked.from_proto
        return await sent(context, self._people, self._enrolment.identities, read, request)

    async def MakeWebLink(self, request: Any, context: Context) -> Any:
        return await sent(context, self._people, self._web_link, WebLinkAsked.from_proto, request)


def add_identity_services(server: grpc.aio.Server, identified: Identified, threads: Threads) -> None:
    """Add what callers with an identity need to a server."""
    identity_pb2_grpc.add_EnrolmentServiceServicer_to_server(  # type: ignore[no-untyped-call]
        RenewalServicer(identified.enrolment, threads), server
    )
    identity_pb2_grpc.add_IdentityServiceServicer_to_server(  # type: ignore[no-untyped-call]
        IdentityServicer(identified, threads), server
    )


def add_joining(server: grpc.aio.Server, enrolment: Enrolment, threads: Threads) -> None:
    """Add joining, and nothing else, to a server."""
    identity_pb2_grpc.add_EnrolmentServiceServicer_to_server(  # type: ignore[no-untyped-call]
        JoinServicer(enrolment, threads), server
    )
