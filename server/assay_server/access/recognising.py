"""From a connection to its caller: the socket's owner, or the identity that a verified certificate names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from assay_core.identity.certificates import CertifiedIdentity
from assay_core.identity.roles import OWNER_NAME, Role
from assay_sampling.errors import NotIdentifiedError, NotPermittedError
from assay_server.access.caller import OWNER_ID, Caller, How
from assay_server.access.directory import IdentityDirectory
from assay_server.access.presented import presented_certificate
from assay_server.clock import wall_ms
from assay_server.store.people import Identity

_JOIN = "join this server with a token of its admin"


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


@dataclass(frozen=True)
class Recognition:
    """Recognises callers.

    Args:
        directory: the identities, and what was withdrawn.
        now_ms: the wall clock, which certificates' dates are compared with.
    """

    directory: IdentityDirectory
    now_ms: Callable[[], int] = field(default=wall_ms)

    def is_known(self, peer: Peer) -> bool:
        """Whether :meth:`caller` will answer from memory."""
        if not peer.certificate:
            return True
        return self.directory.known(presented_certificate(peer.certificate).identity_id) is not None

    def caller(self, peer: Peer) -> Caller:
        """Raises NotIdentifiedError or NotPermittedError; may block for an identity that is new."""
        if not peer.certificate:
            return self._owner(peer)
        certificate = presented_certificate(peer.certificate)
        identity = self.directory.looked_up(certificate.identity_id)
        subject = f"{certificate.kind} {certificate.identity_id}"
        if identity is None or identity.kind is not certificate.kind:
            raise NotIdentifiedError(subject, "the server does not know this identity", _JOIN)
        if certificate.not_after_ms <= self.now_ms():
            raise NotIdentifiedError(subject, "its certificate has expired", f"{_JOIN}; it stays the same")
        self._require_not_revoked(identity, certificate)
        return Caller(
            identity.identity_id,
            identity.name,
            identity.role,
            identity.project,
            address=peer.address,
            serial=certificate.serial,
        )

    def _owner(self, peer: Peer) -> Caller:
        if not peer.on_socket:
            raise NotIdentifiedError(f"caller at {peer.address}", "it presented no certificate", _JOIN)
        return Caller(OWNER_ID, OWNER_NAME, Role.ADMIN, how=How.SOCKET, address=peer.address)

    def _require_not_revoked(self, identity: Identity, certificate: CertifiedIdentity) -> None:
        subject = f"{identity.kind} {identity.name or identity.identity_id}"
        if identity.revoked_at_ms:
            raise NotPermittedError(subject, "its identity was revoked", "ask an admin of the server")
        if self.directory.is_withdrawn(certificate.serial):
            raise NotPermittedError(subject, "its certificate was withdrawn", _JOIN)
