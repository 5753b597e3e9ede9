"""The caller of the request that is being answered: from its connection to every handler that asks for it.

A caller is the socket's owner, or the identity that a verified certificate names.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from assay_core.identity.certificates import CertifiedIdentity, certified_identity, read_certificate
from assay_core.identity.roles import OWNER_NAME, Role
from assay_sampling.errors import NotIdentifiedError, NotPermittedError, ParameterError
from assay_server.access.directory import IdentityDirectory
from assay_server.clock import wall_ms

_JOIN = "join this server with a token of its admin"
# Whoever opens the server's socket is its owner: there is one, whatever users the folder lets in.
OWNER_ID = OWNER_NAME


class How(StrEnum):
    """How a caller was recognised."""

    SOCKET = "socket"
    CERTIFICATE = "certificate"
    WEB = "web"  # a session of a browser


@dataclass(frozen=True)
class Caller:
    """Who is calling.

    ``identity_id``: OWNER_ID for whoever opened the server's socket; ``name``: for people; ``project``: that
    campaigns get unless their file names one; ``address``: the peer as gRPC names it; ``serial``: of the
    certificate that it uses, "" on the socket.
    """

    identity_id: str
    name: str
    role: Role
    project: str = ""
    how: How = How.CERTIFICATE
    address: str = ""
    serial: str = ""

    @property
    def is_owner(self) -> bool:
        """Whether it opened the server's own socket, so that the machine vouches for it."""
        return self.how is How.SOCKET


_CURRENT: ContextVar[Caller | None] = ContextVar("assay_caller", default=None)


def current_caller() -> Caller | None:
    """Who made the request that this thread or task answers; None for the server's own work."""
    return _CURRENT.get()


def set_caller(caller: Caller) -> None:
    """Make ``caller`` the caller for the rest of this task; every call of gRPC is a task of its own."""
    _CURRENT.set(caller)


@contextmanager
def called_by(caller: Caller) -> Iterator[None]:
    """Answer in the name of ``caller`` while the block runs."""
    token = _CURRENT.set(caller)
    try:
        yield
    finally:
        _CURRENT.reset(token)


@lru_cache(maxsize=4096)
def presented_certificate(pem: bytes) -> CertifiedIdentity:
    """Whose a verified certificate is; raises NotIdentifiedError if it names nobody."""
    try:
        return certified_identity(read_certificate(pem, "certificate"))
    except ParameterError as error:
        remedy = "join again with a new token of this server"
        raise NotIdentifiedError(error.subject, error.cause, remedy) from error


@dataclass(frozen=True)
class Peer:
    """The other end of a connection: its address as gRPC names it, and its verified certificate or b""."""

    address: str
    certificate: bytes = b""
    encrypted: bool = False

    @property
    def on_socket(self) -> bool:
        """Whether it came through a Unix socket without TLS."""
        return self.address.startswith("unix:") and not self.encrypted


def is_in_memory(directory: IdentityDirectory, peer: Peer) -> bool:
    """Whether :func:`caller_of` will answer from memory."""
    if not peer.certificate:
        return True
    return directory.identity(presented_certificate(peer.certificate).identity_id) is not None


def caller_of(directory: IdentityDirectory, peer: Peer) -> Caller:
    """The caller at the other end of a connection; may block for an identity that is new.

    Raises NotIdentifiedError or NotPermittedError.
    """
    if not peer.certificate:
        if not peer.on_socket:
            raise NotIdentifiedError(f"caller at {peer.address}", "it presented no certificate", _JOIN)
        return Caller(OWNER_ID, OWNER_NAME, Role.ADMIN, how=How.SOCKET, address=peer.address)
    certificate = presented_certificate(peer.certificate)
    identity = directory.looked_up(certificate.identity_id)
    subject = f"{certificate.kind} {certificate.identity_id}"
    if identity is None or identity.kind is not certificate.kind:
        raise NotIdentifiedError(subject, "the server does not know this identity", _JOIN)
    if certificate.not_after_ms <= wall_ms():
        raise NotIdentifiedError(subject, "its certificate has expired", f"{_JOIN}; it stays the same")
    subject = f"{identity.kind} {identity.name or identity.identity_id}"
    if identity.revoked_at_ms:
        raise NotPermittedError(subject, "its identity was revoked", "ask an admin of the server")
    if directory.is_withdrawn(certificate.serial):
        raise NotPermittedError(subject, "its certificate was withdrawn", _JOIN)
    return Caller(
        identity.identity_id,
        identity.name,
        identity.role,
        identity.project,
        address=peer.address,
        serial=certificate.serial,
    )
