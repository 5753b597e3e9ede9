"""Enrolment from the joiner's side: one call to the join listener, and the calls that renew a certificate."""

from __future__ import annotations

from typing import Any

import grpc

from assay_core.connecting.channel import joining_channel, why_unreachable
from assay_core.identity.certificates import certificate_request
from assay_core.identity.credentials import Credentials, new_credentials
from assay_core.identity.join_token import JoinToken
from assay_core.identity.keys import PrivateKey, new_key
from assay_core.records.error_metadata import ErrorMetadata
from assay_core.records.identity import JoinAsked, Joined, LeaveAsked, Left, RenewalAsked, Renewed
from assay_core.server_address import ServerAddress, parse_address
from assay_protos import identity_pb2_grpc
from assay_sampling.errors import (
    NotIdentifiedError,
    ParameterError,
    RefusedError,
    ServerUnreachableError,
)

_JOIN_SECONDS = 15.0
_TRIES = 3


def join(
    address: str, token_text: str, *, name: str = "", identity_id: str = "", key: PrivateKey | None = None
) -> tuple[Credentials, Joined]:
    """Join the server whose join listener is at ``address``.

    Args:
        address: ``HOST:PORT``.
        token_text: the join token.
        name: an agent's name; a person's is in the token.
        identity_id: an agent's identity, kept on its disk.
        key: the key of earlier credentials, which proves that the identity is ours; None: a new one.

    Raises ParameterError for a damaged token, ServerUnreachableError if no server of the token's authority
    answers there (then nothing was sent), and the server's own typed errors.
    """
    token = JoinToken.parse(token_text)
    listener = parse_address(address, "server address")
    if listener.socket is not None:
        raise ParameterError(
            "server address", f"{address!r} is a socket, which needs no joining", "give the HOST:PORT to join"
        )
    own = key or new_key()
    request = JoinAsked(token.secret, certificate_request(own), name, identity_id)
    answer = _joined(listener, token, request)
    server = f"{listener.text.rpartition(':')[0]}:{answer.port}"
    parse_address(server, "the server's answer")
    credentials = new_credentials(server, token.authority, answer.certificate, own, listener.text)
    if identity_id and credentials.identity.identity_id != identity_id:
        raise ParameterError("issued certificate", "it is for another identity")
    return credentials, answer


def _joined(address: ServerAddress, token: JoinToken, request: JoinAsked) -> Joined:
    with joining_channel(address, token.authority_pem, ()) as channel:
        stub: Any = identity_pb2_grpc.EnrolmentServiceStub(channel)  # type: ignore[no-untyped-call]
        for tries in range(1, _TRIES + 1):
            try:
                # The server knows the key again if its answer was lost, so the token is not used up twice.
                return Joined.from_proto(stub.Join(request.to_proto(), timeout=_JOIN_SECONDS))
            except grpc.RpcError as error:
                if metadata := ErrorMetadata.beside(error):
                    raise metadata.error() from None
                code = error.code() if isinstance(error, grpc.Call) else None
                if code is grpc.StatusCode.UNIMPLEMENTED:
                    raise RefusedError(
                        f"server {address.text}",
                        "nobody can join at this address",
                        "give the address of its --join listener",
                    ) from None
                if tries == _TRIES or code is not grpc.StatusCode.UNAVAILABLE:
                    cause, remedy = why_unreachable(address, token.authority_pem)
                    raise ServerUnreachableError(f"server {address.text}", cause, remedy) from None
    raise AssertionError("unreachable")


def left(channel: grpc.Channel, timeout_seconds: float) -> Left:
    """Have the certificates of the channel's key withdrawn; raises grpc.RpcError."""
    stub: Any = identity_pb2_grpc.EnrolmentServiceStub(channel)  # type: ignore[no-untyped-call]
    return Left.from_proto(stub.Leave(LeaveAsked().to_proto(), timeout=timeout_seconds))


def renewed(channel: grpc.Channel, credentials: Credentials, timeout_seconds: float) -> Credentials:
    """The credentials with their next certificate; raises grpc.RpcError, ParameterError."""
    stub: Any = identity_pb2_grpc.EnrolmentServiceStub(channel)  # type: ignore[no-untyped-call]
    request = RenewalAsked(certificate_request(credentials.key))
    answer = Renewed.from_proto(stub.Renew(request.to_proto(), timeout=timeout_seconds))
    return credentials.renewed(answer.certificate)


def renewed_after_expiry(credentials: Credentials, timeout_seconds: float) -> Credentials:
    """The credentials with a new certificate in place of one that has expired, from where they joined.

    Raises the server's own typed errors, ServerUnreachableError, and ParameterError for an answer that is not
    for us.
    """
    if not credentials.join:
        raise NotIdentifiedError(
            f"server {credentials.server}", "the certificate has expired", "join again with a new token"
        )
    address = parse_address(credentials.join)
    request = RenewalAsked(certificate_request(credentials.key), credentials.identity.identity_id)
    with joining_channel(address, credentials.authority, ()) as channel:
        stub: Any = identity_pb2_grpc.EnrolmentServiceStub(channel)  # type: ignore[no-untyped-call]
        try:
            answer = Renewed.from_proto(stub.RenewExpired(request.to_proto(), timeout=timeout_seconds))
        except grpc.RpcError as error:
            if metadata := ErrorMetadata.beside(error):
                raise metadata.error() from None
            cause, remedy = why_unreachable(address, credentials.authority)
            raise ServerUnreachableError(f"server {address.text}", cause, remedy) from None
    return credentials.renewed(answer.certificate)
